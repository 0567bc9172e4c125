"""Where Python is while a cell runs: a thread looks now and then.

Looking takes the GIL for some microseconds. It looks every millisecond at first, and the longer the
cell runs the less often, so that a long one costs no more memory and hardly any time.
"""

from __future__ import annotations

import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ..threads import own

#: Seconds between two looks: at least this, and this share of the time so far.
_PERIOD = 0.001
_SHARE = 1 / 2000
#: Notebook functions kept of one look, the innermost.
_DEEP = 6
_TRACES = ("_dynamo/convert_frame.py", "_dynamo\\convert_frame.py")


class Sample(NamedTuple):
    """What the thread of the cell did at one moment."""

    #: Nanoseconds on `time.monotonic_ns`.
    at: int
    #: Lines of the cell itself, as `3` or `3–5`; empty when it was not in the cell.
    line: str
    #: What of the notebook it was in, the cell itself first: `line 3`, `In[2], line 5 (f)`.
    places: tuple[str, ...] = ()
    #: PyTorch's compiler was tracing a function.
    tracing: bool = False


class Sampler(threading.Thread):
    """Looks at the thread that made it, until `end`."""

    def __init__(self, shell: Any, label: str, bottom: CodeType) -> None:
        """`label` is the cell's, as `In[3]`; frames from `bottom` on outwards are no part of it."""
        super().__init__(name="tpu-profile", daemon=True)
        self.samples: list[Sample] = []
        self._target = threading.get_ident()
        self._shell = shell
        self._label = label
        self._bottom = bottom
        self._labels: dict[str, str] = {}
        self._over = threading.Event()
        own(self)

    def run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(max(_PERIOD, (time.monotonic() - started) * _SHARE)):
            frame = sys._current_frames().get(self._target)
            at = time.monotonic_ns()
            self.samples.append(self._look(at, frame))
            del frame

    def end(self) -> list[Sample]:
        """Look no more; what was seen."""
        self._over.set()
        self.join()
        return self.samples

    def _look(self, at: int, frame: FrameType | None) -> Sample:
        line, tracing, magic = "", False, False
        places: list[str] = []
        while frame is not None and frame.f_code is not self._bottom:
            code = frame.f_code
            label = self._label_of(code.co_filename)
            if label and not (magic and places):
                here = frame.f_lineno or code.co_firstlineno
                if label == self._label:
                    line = _compiled_lines() or str(here)
                    place = f"lines {line}" if "–" in line or "," in line else f"line {line}"
                else:
                    place = f"{label}, line {here}"
                if code.co_name != "<module>" and not code.co_name.startswith("torch_dynamo_"):
                    place += f" ({code.co_name})"
                places.append(place)
            elif not places and code.co_filename.endswith(_TRACES):
                tracing = True
            # The line of a cell magic says nothing of what the magic runs.
            magic = code.co_name == "run_cell_magic" or (magic and not label)
            frame = frame.f_back
        if frame is None:
            return Sample(at, "")  # the magic itself was at work
        return Sample(at, line, tuple(reversed(places[:_DEEP])), tracing)

    def _label_of(self, file: str) -> str:
        """`In[3]` for the file of a cell, else empty."""
        name = self._labels.get(file)
        if name is None:
            found = self._shell.compile.format_code_name(file)
            name = self._labels[file] = found[1] if found else ""
        return name


def _compiled_lines() -> str:
    """The lines of the cell that run as one compiled function now."""
    backend = sys.modules.get("tpu_kernel.lowering.backend")
    outlined = getattr(backend, "running", None)
    if outlined is None or not outlined.lines:
        return ""
    from ..cards.blocks import spans

    return spans(sorted(set(outlined.lines)))
