"""The errors of cells as messages: one `error` for each cell that fails, whatever interrupts it meanwhile.

While an error is made ready and sent, further interrupts are held. Once the error that ends a cell is shown,
a KeyboardInterrupt that still comes (in what runs after a cell's own code) is not shown beside it.
"""

from __future__ import annotations

import functools
import sys
import traceback
from typing import Any

from IPython.core.events import EventManager
from IPython.core.interactiveshell import InteractiveShell

from .. import _kernel
from ..debugging.asking import without_debugger
from ..output import jsontext
from ..parent import PARENT
from . import interrupts
from .turn import OfThread

_OWN_HOOKS = frozenset({"IPython.core.displaypub", "IPython.core.interactiveshell"})


class ErrorShell(InteractiveShell):
    """The part of the shell that shows errors."""

    last_traceback = OfThread(())
    error_while_displaying = OfThread()
    #: The error that ended the cell, once it is shown, and its text.
    ended_by = OfThread()
    ended_with = OfThread("")
    _left_out = OfThread(0)
    #: How many pieces of code run, one inside the other; whether IPython is at those of the cell.
    _depth = OfThread(0)
    _at_code = OfThread(False)

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        super().init_traceback_handlers(custom_exceptions)
        made = self.InteractiveTB.structured_traceback
        self.InteractiveTB.structured_traceback = functools.partial(self._structured_traceback, made)

    def _structured_traceback(
        self, made: Any, etype: Any, value: Any = None, tb: Any = None, *arguments: Any, **options: Any
    ) -> Any:
        """As IPython's; Python's own, when that takes long and somebody interrupts it."""
        return interrupts.impatiently(
            lambda: made(etype, value, tb, *arguments, **options),
            lambda: _bare_lines(etype, tb),
        )

    def init_events(self) -> None:
        super().init_events()
        self.events.trigger = functools.partial(_trigger, self.events)  # type: ignore[method-assign]

    async def run_ast_nodes(self, *arguments: Any, **options: Any) -> bool:
        """As IPython's."""
        before, self._at_code = self._at_code, True
        try:
            return await super().run_ast_nodes(*arguments, **options)
        finally:
            self._at_code = before

    async def run_code(self, *arguments: Any, **options: Any) -> bool:
        """As IPython's; here interrupts are felt."""
        self._depth += 1
        try:
            with interrupts.felt():
                return await super().run_code(*arguments, **options)
        finally:
            self._depth -= 1

    def forget_errors(self, outermost: bool = False) -> None:
        """A cell begins: none of its errors is shown yet. `outermost`: no other cell of this thread runs."""
        self.last_traceback = []
        self.error_while_displaying = None
        if outermost:
            self.ended_by, self.ended_with, self._depth, self._at_code = None, "", 0, False

    def ends_cell(self, error: BaseException) -> None:
        """This error is shown, and is the cell's."""
        if self.ended_by is None:
            self.ended_by = error

    def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
        """As IPython's; also groups of exceptions become an `error` message, and none is slow."""
        # not those of hooks, and not what the cell's own code shows and goes on
        ends = self._depth == 0 and (self._at_code or exc_tuple is not None)
        ends = ends or (self._depth == 1 and bool(options.get("running_compiled_code")))
        with interrupts.held():
            try:
                etype, value, tb = interrupts.impatiently(
                    lambda: self._get_exc_info(exc_tuple),
                    lambda: InteractiveShell._get_exc_info(self, exc_tuple),
                )
            except ValueError:
                return super().showtraceback(exc_tuple, *arguments, **options)
            if self._depth == 0 and self.ended_by is not None and isinstance(value, KeyboardInterrupt):
                return None
            if _kernel.stopping():  # making the stack takes time that exit functions need
                self._showtraceback(etype, value, [f"{etype.__name__}: the kernel ends"])
            else:
                self._make_and_show((etype, value, tb), arguments, options)
            if ends:
                self.ends_cell(value)
                interrupts.forget()
        return None

    def _make_and_show(self, exc_tuple: Any, arguments: Any, options: dict[str, Any]) -> None:
        from . import tracebacks

        etype, value, tb = exc_tuple
        interrupts.impatiently(lambda: tracebacks.advise(value), lambda: None)
        if tracebacks.has_group(value):
            lines = interrupts.impatiently(
                lambda: tracebacks.group_lines(etype, value, tb), lambda: _bare_lines(etype, tb)
            )
            self._showtraceback(etype, value, lines)
            if self.call_pdb:
                self.debugger(force=True)
            return
        tb, self._left_out = tracebacks.shorten(tb, etype is KeyboardInterrupt)
        with tracebacks.without_circles(self.InteractiveTB):
            super().showtraceback((etype, value, tb), *arguments, **options)

    def showsyntaxerror(self, *arguments: Any, **options: Any) -> None:
        """As IPython's."""
        with interrupts.held():
            super().showsyntaxerror(*arguments, **options)
            if self._depth == 0 and (error := sys.exc_info()[1]) is not None:
                self.ends_cell(error)

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        name = str(etype.__name__)
        text = _text_of(evalue)
        if self.displayhook.publishing:
            self.error_while_displaying = (name, text)
        if self._left_out:
            stb = [*stb[:-1], f"[... {self._left_out} frames in the middle are not shown ...]", *stb[-1:]]
            self._left_out = 0
        content = jsontext.dumps({"ename": name, "evalue": text, "traceback": stb})
        self.last_traceback = stb
        if self.ended_by is None:
            self.ended_with = text
        _kernel.publish("error", content, parent=PARENT.get())

    def _format_exception_for_storage(self, exception: BaseException, *_: Any, **__: Any) -> dict[str, Any]:
        """For the history: as it was shown. To make a traceback takes long, and IPython makes it twice."""
        shown = list(self.last_traceback)
        return {"ename": type(exception).__name__, "evalue": _text_of(exception), "traceback": shown}

    def _get_exc_info(self, exc_tuple: Any = None) -> tuple[Any, Any, Any]:
        """The error to show: a device that is full says so in full, a debugger's frames are left out."""
        etype, value, trace = super()._get_exc_info(exc_tuple)
        if etype is KeyboardInterrupt:
            trace = without_debugger(trace)
        if "torch" in sys.modules and isinstance(value, RuntimeError | KeyboardInterrupt):
            from ..memory import shortage
            from ..tpu import cancelling, device

            value, trace = cancelling.as_interrupt(value, trace)
            shown, value = value, shortage.explained(device.cause_of(value))
            device.note(shown)
            etype = type(value)
        return etype, value, trace


def _text_of(error: BaseException) -> str:
    return interrupts.impatiently(
        lambda: safe_str(error), lambda: f"<{type(error).__name__} whose str() takes long>"
    )


def _bare_lines(etype: type[BaseException], tb: Any) -> list[str]:
    """What of an error can be told without a call of its own code."""
    return ["Traceback (most recent call last):", *traceback.format_tb(tb), etype.__name__]


def _trigger(events: EventManager, event: str, *arguments: Any, **options: Any) -> None:
    """Run hooks. In those that are not IPython's own, which only set something, interrupts are felt."""
    if all(_is_own(hook) for hook in events.callbacks[event]):
        EventManager.trigger(events, event, *arguments, **options)
        return
    with interrupts.felt():
        EventManager.trigger(events, event, *arguments, **options)


def _is_own(hook: Any) -> bool:
    return getattr(hook, "__module__", None) in _OWN_HOOKS


def safe_str(value: object) -> str:
    """`str(value)`, also for objects whose `__str__` fails."""
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001
        return f"<{type(value).__name__} whose str() raised {type(error).__name__}>"
