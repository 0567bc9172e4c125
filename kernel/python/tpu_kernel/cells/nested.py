"""Runs a coroutine to its end from code that the event loop itself is running.

That is how `%%capture`, `%run` and other magics run a cell that awaits: they call the shell from
within a cell, and the loop, which runs the cell, must go on inside it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Coroutine
from typing import Any

from . import interrupts


class Runner:
    """The shell's `loop_runner` for asyncio."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The result of the coroutine."""
        import asyncio

        context = contextvars.copy_context()
        loop = self._loop()
        try:
            if loop.is_running():
                return _run_inside(loop, coroutine, context)
            before = asyncio._get_running_loop()
            asyncio._set_running_loop(None)
            try:
                return loop.run_until_complete(loop.create_task(coroutine, context=context))
            finally:
                asyncio._set_running_loop(before)
        finally:
            _take_over(context)

    @staticmethod
    def _loop() -> Any:
        """The loop of this thread: its shell's own where it is one."""
        import asyncio

        from IPython.core.async_helpers import get_asyncio_loop

        from .. import loop

        own = loop.OF_THREAD.loop
        return asyncio._get_running_loop() or (own.event_loop() if own else get_asyncio_loop())

    def __str__(self) -> str:
        return "asyncio"


RUNNER = Runner()


def _run_inside(loop: Any, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> Any:
    """Turn the loop until the coroutine ends, and leave it to whoever turns it as it was found."""
    import asyncio

    cancellation = interrupts.Cancellation(loop)
    cancellation.task = task = loop.create_task(cancellation.drive(coroutine), context=context)
    current = asyncio.current_task(loop)
    waiting = len(loop._ready)
    interrupted = False
    if current is not None:
        asyncio.tasks._leave_task(loop, current)
    try:
        while not task.done():
            try:
                loop._run_once()
            except KeyboardInterrupt:
                if interrupted:
                    raise
                interrupted = True
                cancellation.cancel()
    finally:
        # the turn of the loop that runs us counted on so many callbacks
        while len(loop._ready) < waiting:
            loop.call_soon(_nothing)
        if current is not None:
            asyncio.tasks._enter_task(loop, current)
    return task.result()


def _nothing() -> None:
    """Keeps a place in the loop's queue."""


def _take_over(context: contextvars.Context) -> None:
    """Let context variables that the coroutine set stay set."""
    for variable, value in context.items():
        if variable.get(context) is not value:
            variable.set(value)
