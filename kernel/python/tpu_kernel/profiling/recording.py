"""One profile while it is taken: what tpu-core counts and keeps of it, and where Python is.

While none is taken this costs nothing. While one is, tpu-core keeps more of the events it makes anyway.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from IPython.core.error import UsageError

from .. import _kernel
from ..cards.blocks import spans
from ..lowering import backend
from ..tpu import device
from .sampling import Sampler
from .timeline import Timeline, build

#: Bytes of launches and transfers that tpu-core keeps meanwhile: some 150,000.
MOST_BYTES = 16 << 20
#: The sums of tpu-core that a profile gives.
_COUNTED = (
    *("compiles", "compile_ns", "cache_hits", "cache_hit_ns", "executions", "busy_ns"),
    *("uploads", "upload_bytes", "downloads", "download_bytes", "errors", "issued"),
)


@dataclass
class Recorded:
    """A profile that was taken."""

    timeline: Timeline
    #: What tpu-core counted meanwhile; see `tpu_core::Snapshot`.
    counted: dict[str, int] = field(default_factory=dict)
    emulated: bool = False
    #: How often it was looked where Python is.
    samples: int = 0
    started_unix_ns: int = 0


class Recording:
    """Begins when made."""

    def __init__(self, shell: Any, label: str, bottom: CodeType) -> None:
        self._label = label
        self._before = device.snapshot() or {}
        try:
            self._unix_ns = _kernel.tpu_keep_events(MOST_BYTES)
        except RuntimeError as error:
            raise UsageError(f"%%tpu_profile: nothing can be recorded here: {error}") from None
        self._ns = time.monotonic_ns()
        self._cursor = self._before.get("next_sequence", 0)
        self._calls: list[str] = []
        backend.watch = self._called
        self._sampler = Sampler(shell, label, bottom)
        self._sampler.start()

    def _called(self, lines: tuple[int, ...], programs: int) -> None:
        self._calls += [spans(sorted(set(lines)))] * programs

    def end(self) -> tuple[Recorded, BaseException | None]:
        """Wait for what the cell queued; what was recorded, and what the wait raised."""
        ended = time.monotonic_ns()
        failure: BaseException | None
        backend.watch = None
        try:
            samples = self._sampler.end()
            failure = device.drain()
        except KeyboardInterrupt as interrupt:
            samples, failure = self._sampler.samples, interrupt
        try:
            wall = time.monotonic_ns() - self._ns
            after = device.snapshot() or {}
            cursor, events, programs = self._cursor, [], []
            if after:
                cursor, events = _kernel.tpu_events(self._cursor)
                _, programs = _kernel.tpu_programs(0)
        finally:
            _kernel.tpu_keep_events(0)
        timeline = build(
            self._label,
            events,
            samples,
            programs,
            started_unix_ns=self._unix_ns,
            started_ns=self._ns,
            wall=wall,
            ended=ended - self._ns,
            lost=cursor - self._cursor - len(events),
            unfinished=after.get("pending", 0),
            calls=self._calls,
        )
        counted = {name: after[name] - self._before.get(name, 0) for name in _COUNTED if name in after}
        emulated = bool(after.get("emulated"))
        return Recorded(timeline, counted, emulated, len(samples), self._unix_ns), failure
