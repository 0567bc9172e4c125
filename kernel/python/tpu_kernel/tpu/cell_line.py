"""`%tpu_watch`: one line under each cell with what it did on the device, brought up to date while it runs.

Outputs stay where they were first shown. So a line that other output has followed is emptied when the
cell ends, and shown once more, as the last.

Off unless somebody turns it on, and then nothing of this is loaded. The numbers are tpu-core's, between
the start of the cell and the end of what it queued.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ..cards.watch import WatchLine
from ..output.standing import Standing
from ..threads import own

if TYPE_CHECKING:
    from .._kernel import Parent

#: Seconds after which a cell that still runs gets its line, and between two states of it.
_FIRST, _PERIOD = 1.0, 1.0
_NOTHING = {"text/html": "", "text/plain": ""}


class _Run:
    """One run of a cell, and its line."""

    def __init__(self, parent: Parent) -> None:
        self.started = time.perf_counter()
        self.before = _counters()
        self._parent = parent
        self._line = Standing("watch", parent)
        #: Outputs of the cell when the line had come.
        self._place = 0
        #: Who shows the last state, and that it is the last.
        self._lock = threading.Lock()
        self._over = threading.Event()
        own(threading.Thread(target=self._follow, name="watch", daemon=True)).start()

    def _follow(self) -> None:
        wait = _FIRST
        while not self._over.wait(wait):
            self._show(running=True)
            wait = _PERIOD

    def end(self) -> None:
        """The last state, which stays."""
        with self._lock:
            self._over.set()
        self._show(running=False)

    def _show(self, running: bool) -> None:
        seconds = time.perf_counter() - self.started
        line = WatchLine(seconds, self.before, _counters(), running)
        with self._lock:
            if running and self._over.is_set():
                return
            if not self._line.shown:
                self._place = self._parent.outputs + 1
            elif not running and self._parent.outputs != self._place:
                self._line.show(_NOTHING)
                self._line = Standing("watched", self._parent)
            self._line.show({"text/html": line.html(), "text/plain": line.text()})


def _counters() -> dict[str, Any] | None:
    """Counters now; None while there is no device."""
    if "torch_tpu" not in sys.modules:
        return None
    from . import device

    return device.snapshot()


class _State:
    on = False
    run: _Run | None = None


def turn(on: bool) -> None:
    """From the next cell on there is a line under each, or none."""
    _State.on = on


def is_on() -> bool:
    return _State.on


def begin(parent: Parent) -> None:
    """A cell of the main shell begins."""
    if _State.on:
        _State.run = _Run(parent)


def end() -> None:
    """It is over, however it ended, and so is what it queued on the device."""
    run, _State.run = _State.run, None
    if run is not None:
        run.end()
