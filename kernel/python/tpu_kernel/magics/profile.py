"""`%%tpu_profile`: what a cell did, on one axis of time."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced

from ..cards import show
from ..cards.profile import Files, ProfileCard
from ..lowering import CellError, Lowering
from ..lowering.backend import EagerBackend
from ..lowering.session import refuse_await, running_number
from ..profiling import trace_file
from ..profiling.recording import Recorded, Recording
from ..profiling.xprof import XProf
from ..tpu import device
from . import measure, options
from .running import run_body

_MAGIC = "%%tpu_profile"


@magics_class
class ProfileMagics(Magics):
    """Profiles a cell."""

    #: One at a time, whoever asks.
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _profiled: ClassVar[str] = ""

    @cell_magic
    @output_can_be_silenced
    def tpu_profile(self, line: str, cell: str) -> Any:
        """Run this cell, and show what Python and the device did meanwhile.

        Usage:

          %%tpu_profile [--xprof] [--to FOLDER]

        The cell means what it means without the magic. Put `%%tpu_compile` or `%%tpu_eager` on the
        line below to profile the cell compiled, or in another mode; `%%time` and `%%capture` may
        stand above or below. What happens until the device is done counts too. A cell that ends in an
        error or an interrupt shows the profile of what ran, then the error.

        Options:

          --to     the folder for the files; without it, the one the notebook runs in
          --xprof  have TorchTPU write its own trace too, into the folder `xprof` there

        The card:

        - where the device's time went, each moment counted once: it ran programs; else a program was
          compiled or loaded from a cache; else something was moved; else it waited for Python. The
          four add up to the whole;
        - these on an axis of time, below the lines in which Python was;
        - the programs that ran longest, how often, and the lines they were launched from. `compiled
          lines 3–5` are those that `%%tpu_compile` made one program of;
        - the lines in which Python spent most time, and what the device did meanwhile.

        The file `tpu_profile-3.json` (of the cell `In[3]`; an older one of that name is replaced) has
        every event, also how long each program was queued. Open it at https://ui.perfetto.dev, which
        sends it nowhere, or in `chrome://tracing`.

        What is known and what is not:

        - Counts, bytes, compiles, loads, and when a program was launched and had ended are measured by
          the runtime session. No runtime says when a program *began*: it is taken to begin when it is
          launched, or when the one before has ended. So the sum over programs is the time the device
          was busy, and a program behind a long one is not charged for it.
        - The lines are *sampled*: a thread looks where Python is, every millisecond at first, later
          every 2000th of the time so far. What is shorter may be missed. The line of a program is where
          Python was when it was launched; in strict and fused mode the operation may stand before.
        - A download begins when it is asked for, so it includes waiting for the program that makes
          the value. That time is the program's in the sums.
        - Some 150,000 launches and transfers are kept. When there were more the card says so: the
          counts then are of all, the picture and the table of the last ones.

        `--xprof`: TorchTPU's trace holds what PyTorch and TorchTPU did on the host, thread by thread.
        It has *no* part for the device: the emulated chip has no profiler of its own, and libtpu's is
        not passed on by the session. Open it with `xprof FOLDER/xprof` or `tensorboard --logdir
        FOLDER/xprof`, after `pip install xprof`. It slows operations down, so leave it out
        where the times matter.

        Only one profile at a time can be taken.
        """
        chosen = options.read(_MAGIC, line)
        label = f"In[{running_number(self.shell)}]"
        with _alone(label):
            folder = _folder(chosen.get("to", "."))
            path = folder / f"tpu_profile-{label[3:-1]}.json"
            trace = XProf(folder / "xprof") if "xprof" in chosen else None
            lowering = Lowering(self.shell, EagerBackend())
            _check(self.shell, cell)
            error: BaseException | None = None
            value = None
            recording = Recording(self.shell, label, run_body.__code__)
            try:
                if trace is not None:
                    trace.begin()
                value = run_body(self.shell, lowering, _MAGIC, cell)[0]
            except BaseException as raised:
                error = raised
                raise
            finally:
                recorded, failure = recording.end()
                files = _write(recorded, path, trace)
                show(ProfileCard(measure.device_name(), recorded, files, error or failure))
                if failure is not None and error is None:
                    raise failure
                if failure is not None and not device.is_told(failure, error):
                    error.add_note(f"and then: {str(failure).partition(chr(10))[0]}")
        return value


def _check(shell: Any, cell: str) -> None:
    """A cell that awaits is refused before anything is recorded."""
    try:
        refuse_await(ast.parse(shell.transform_cell(cell)))
    except CellError:
        raise UsageError(f"{_MAGIC}: a cell that awaits cannot be profiled") from None
    except (SyntaxError, ValueError):
        pass  # it is said when the cell is run


@contextmanager
def _alone(label: str) -> Iterator[None]:
    if not ProfileMagics._lock.acquire(blocking=False):
        of = ProfileMagics._profiled
        raise UsageError(f"{_MAGIC}: a profile of {of} is being taken already: there can be one at a time")
    ProfileMagics._profiled = label
    try:
        yield
    finally:
        ProfileMagics._lock.release()


def _folder(name: str) -> Path:
    """The folder, which is there afterwards: before the cell runs, so that nothing runs in vain."""
    folder = Path(name).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{_MAGIC}: there can be no folder `{name}`: {error.strerror}") from None
    return folder


def _write(recorded: Recorded, path: Path, trace: XProf | None) -> Files:
    """Write the files; that one cannot be written is said and no failure of the cell."""
    files = Files()
    facts = {
        "device": measure.device_name(),
        "emulated": recorded.emulated,
        "started_unix_ns": recorded.started_unix_ns,
        "wall_us": recorded.timeline.wall / 1000,
        "counted": recorded.counted,
        "events_lost": recorded.timeline.lost,
        "not_ended": recorded.timeline.unfinished,
        "python_samples": recorded.samples,
        "times": (
            "launched and ended are measured; a program is taken to begin when launched or when the one before "
            "had ended; Python's lines are sampled"
        ),
    }
    try:
        trace_file.write(recorded.timeline, path, facts)
        files.trace = str(path)
    except OSError as error:
        files.problems.append(f"`{path}` cannot be written: {error.strerror}")
    if trace is not None:
        written = trace.end()
        if written:
            files.xprof = str(trace.folder)
        if trace.problem:
            files.problems.append(f"TorchTPU's trace: {trace.problem}")
    return files
