"""Functions that a compiled cell calls: which are lowered, and why the others are not.

A function of the notebook, or of a file of the user's own, whose body runs `backward()` may not be
traced as part of a larger program; one whose loop reads values on the host cannot be. It is lowered
as the cell is, and called in its own place: the function itself is never touched. What was made of one
is kept as long as its code stays the same.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from .files import is_library
from .sources import Unknown
from .training import method_of

if TYPE_CHECKING:
    from .body import Body
    from .cell import LoweredCell
    from .function import LoweredFunction

_KEPT_FUNCTIONS = 256
#: A cell, and what is known of functions it called.
Served = tuple["LoweredCell | None", dict[int, Any]]
_NEVER = frozenset({BuiltinFunctionType, type, ModuleType})


class _Running(threading.local):
    """For whom the functions that a thread calls are lowered, and which it called: by the number of their
    code, the code and what `of` said."""

    cell: LoweredCell | None = None

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}


class Functions:
    """The lowered functions of one shell and backend."""

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[Any, ...], LoweredFunction | str] = OrderedDict()
        #: Lowered code -> the function it belongs to.
        self._of_code: dict[CodeType, LoweredFunction] = {}
        #: Code of functions that were handed one that trains.
        self._handed: set[CodeType] = set()
        self._running = _Running()

    def serve(self, cell: LoweredCell | None, known: dict[int, Any] | None = None) -> Served:
        """From now on the functions that `cell` calls in this thread are lowered for it; whom they were before."""
        running = self._running
        before = running.cell, running.known
        running.cell, running.known = cell, {} if known is None else known
        return before

    @property
    def cell(self) -> LoweredCell | None:
        return self._running.cell

    def callee(self, target: Any, /) -> Any:
        """What lowered code calls in the place of `target`."""
        kind = type(target)
        if kind is FunctionType:
            return self._lowered(target, target)
        if kind is MethodType:
            return self._lowered(target, target.__func__)
        if kind in _NEVER or self.cell is None:
            return target
        if kind is functools.partial:
            function = self.callee(target.func)
            same = function is target.func
            return target if same else functools.partial(function, *target.args, **target.keywords)
        called = method_of(target, "__call__")
        if type(called) is FunctionType and not is_library(called.__code__.co_filename):
            made = self._lowered(MethodType(called, target), called)
            return target if made.__func__ is called else made
        return target

    def decides(self, value: Any, /) -> Any:
        """A value that a condition depends on."""
        cell = self.cell
        if cell is not None and type(value) not in (bool, int) and cell.is_on_device(value):
            from .body import BRANCH

            body, line = self._place(sys._getframe(1), cell)
            body.leave((line,), BRANCH)
        return value

    def _lowered(self, target: Any, function: Any) -> Any:
        known = self._running.known
        if self.cell is None or type(function) is not FunctionType:
            return target
        found = known.get(id(function.__code__))
        if found is None:
            # The code is kept, so that its number stays its own.
            found = known[id(function.__code__)] = function.__code__, self.of(target)
        made = found[1]
        if made is None:
            return target
        cell = self.cell
        frame = sys._getframe(2)
        while frame.f_globals.get("__name__", "").startswith(__package__) and frame.f_back is not None:
            frame = frame.f_back
        body, line = self._place(frame, cell)
        if isinstance(made, str):
            body.leave((line,), f"`{function.__name__}` runs `backward()` inside: {made}")
            return target
        made.enter(cell, body, line)
        lowered = made.bound(function)
        return lowered if target is function else MethodType(lowered, target.__self__)

    def _place(self, frame: FrameType, cell: LoweredCell) -> tuple[Body, int]:
        """Which lowered body, and its line."""
        return self._of_code.get(frame.f_code, cell), frame.f_lineno

    def of(self, target: Any) -> LoweredFunction | str | None:
        """The lowered function, or why there is none; None when it does not train."""
        cell = self.cell
        function = getattr(target, "__func__", target)
        if cell is None or type(function) is not FunctionType:
            return None
        code = function.__code__
        trains = code in self._handed or cell.classifier.trains(target)
        if not trains and not cell.classifier.loops(target):
            return None
        key = (code.co_filename, code, id(function.__globals__))
        made = self._made.get(key)
        if made is None:
            made = self._make(function, cell)
            self._made[key] = made
            if not isinstance(made, str):
                self._of_code[made.code] = made
            while len(self._made) > _KEPT_FUNCTIONS:
                old = self._made.popitem(last=False)[1]
                if not isinstance(old, str):
                    self._of_code.pop(old.code, None)
        # What does not train may be traced by Dynamo.
        return made if trains or not isinstance(made, str) else None

    def handed(self, target: Any) -> None:
        """A function is handed one that trains, so it trains."""
        function = getattr(target, "__func__", target)
        if type(function) is FunctionType and not is_library(function.__code__.co_filename):
            self._handed.add(function.__code__)
            self._running.known.pop(id(function.__code__), None)

    def _make(self, function: FunctionType, cell: LoweredCell) -> LoweredFunction | str:
        from .function import LoweredFunction, refusal

        try:
            return refusal(function) or LoweredFunction(function, cell)
        except Unknown as error:
            return str(error)
