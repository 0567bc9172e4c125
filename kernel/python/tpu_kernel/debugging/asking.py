"""Python's own debugger, which asks below the cell: an interrupt ends it and the cell.

IPython's would end only the debugger, and go on with the rest of the cell.
"""

from __future__ import annotations

from types import FrameType, ModuleType, TracebackType
from typing import Any

#: Modules of debuggers, this one and the front end's.
DEBUGGERS = ("bdb", "_pydevd_", "pydevd", "_pydev_", "debugpy")


def interruptible(debugger: ModuleType) -> type:
    """The class of debuggers to use, made from those of `IPython.core.debugger`."""

    class Pdb(debugger.InterruptiblePdb):  # type: ignore[name-defined, misc]
        """A debugger that an interrupt leaves together with the cell."""

        _interrupted = False

        def cmdloop(self, intro: Any = None) -> None:
            """Ask until the program goes on."""
            try:
                super().cmdloop(intro)
            except KeyboardInterrupt:
                self._interrupted = True
                raise

        def interaction(self, frame: FrameType | None, tb_or_exc: Any) -> None:
            """Ask about a frame or a traceback."""
            self._interrupted = False
            super().interaction(frame, tb_or_exc)
            if self._interrupted:
                raise KeyboardInterrupt

    return Pdb


def without_debugger(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback up to where a debugger's frames begin."""
    entry = traceback
    while entry is not None:
        after = entry.tb_next
        # The tracer's call adds its caller's frame a second time.
        while after is not None and after.tb_frame is entry.tb_frame:
            after = after.tb_next
        if after is not None and after.tb_frame.f_globals.get("__name__", "").startswith(DEBUGGERS):
            entry.tb_next = None
            break
        entry = entry.tb_next
    return traceback
