"""`%gui tk` and `%gui qt`: windows are served by the notebook's own event loop.

The loop lets the toolkit handle what is waiting many times a second, between cells and in cells
that await; so neither loop runs inside the other, and tasks and requests go on.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError

SECONDS = 0.02
QT_BINDINGS = {"6": ["PyQt6", "PySide6"], "5": ["PyQt5", "PySide2"]}
ADVICE = "use `%matplotlib inline` or `%matplotlib widget`"

Step = Callable[[], object]


class Service:
    """Calls a toolkit's step again and again from the event loop."""

    def __init__(self) -> None:
        self._timer: Any = None
        self._step: Step | None = None

    def start(self, step: Step) -> None:
        """Serve this toolkit from now on, instead of the one before."""
        self.stop()
        self._step = step
        self._again()

    def stop(self) -> None:
        """Serve none."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._step = None

    def _again(self) -> None:
        from .. import loop

        if self._step is None:
            return
        self._timer = loop.own_loop().event_loop().call_later(SECONDS, self._turn)

    def _turn(self) -> None:
        try:
            if self._step is not None:
                self._step()
        except Exception:  # noqa: BLE001  a callback of a window, or the window is gone
            sys.excepthook(*sys.exc_info())
        finally:
            self._again()


SERVICE = Service()


def enable(gui: str) -> None:
    """Serve the windows of a toolkit, or say in one line why they cannot be opened."""
    if gui in ("tk", "tkinter"):
        SERVICE.start(tk_step())
    elif gui in ("qt", "qt5", "qt6"):
        SERVICE.start(qt_step(gui))
    else:
        raise UsageError(f"`%gui {gui}`: this kernel serves the windows of tk and qt; else {ADVICE}")


def tk_step() -> Step:
    """Tk's step; its root window stays hidden, as figures open their own."""
    try:
        import tkinter
    except ImportError:
        raise UsageError(f"`%gui tk`: this Python has no tkinter (Debian: `python3-tk`); {ADVICE}") from None
    root = getattr(tkinter, "_default_root", None)
    if root is None:
        try:
            root = tkinter.Tk()
        except tkinter.TclError as error:
            raise UsageError(f"`%gui tk`: no window can be opened here ({error}); {ADVICE}") from None
        root.withdraw()

    def step() -> None:
        while root.dooneevent(tkinter._tkinter.DONT_WAIT):  # type: ignore[attr-defined]
            pass

    return step


def qt_step(gui: str) -> Step:
    """Qt's step. Without a display Qt would end the process, so that is looked at first."""
    wanted = QT_BINDINGS.get(gui[2:], [name for names in QT_BINDINGS.values() for name in names])
    found = [name for name in wanted if name in sys.modules] or [
        name for name in wanted if importlib.util.find_spec(name) is not None
    ]
    if not found:
        names = " or ".join(wanted)
        raise UsageError(f"`%gui {gui}`: {names} is not installed; `%pip install {wanted[0]}`, or {ADVICE}")
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        raise UsageError(f"`%gui {gui}`: no window can be opened here ($DISPLAY is not set); {ADVICE}")
    widgets = importlib.import_module(f"{found[0]}.QtWidgets")
    application = widgets.QApplication.instance() or widgets.QApplication(["notebook"])
    application.setQuitOnLastWindowClosed(False)
    return application.processEvents
