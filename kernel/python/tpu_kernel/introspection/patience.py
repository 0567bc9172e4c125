"""Do something that may take too long, and give up on it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ..cells import interrupts
from ..threads import own

STOP_SECONDS = 0.02


class TooSlow(TimeoutError):
    """It took longer than anybody waits."""


def within(seconds: float, function: Callable[..., Any], *arguments: Any, stop: bool = True) -> Any:
    """The result of `function(*arguments)`, or its exception; `TooSlow` after `seconds`.

    It runs in a thread of its own, which is told to stop (`stop`) when nobody waits for it any more.
    """
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, function(*arguments)))
        except BaseException as failure:  # noqa: BLE001
            outcome.append((False, failure))

    context = contextvars.copy_context()
    thread = own(threading.Thread(target=context.run, args=(work,), name="question", daemon=True))
    thread.start()
    thread.join(seconds)
    if not outcome:
        if stop:
            _stop(thread)
        raise TooSlow(f"no answer in {seconds:g} s")
    succeeded, value = outcome[0]
    if succeeded:
        return value
    raise value


def _stop(thread: threading.Thread) -> None:
    """Raise in the thread as soon as it runs Python code; it may be at its end, or wait in C for ever."""
    import ctypes

    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TooSlow))
    thread.join(STOP_SECONDS)
    interrupts.settle()
