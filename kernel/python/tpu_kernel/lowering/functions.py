"""The functions of a notebook, and which of its names they read and rebind.

Only the garbage collector knows them all, and to ask it takes tens of milliseconds. So it is asked when a
cell that ran in between may have changed the answer for the cell that wants it: what a cell's text can
have made is read from its code.
"""

from __future__ import annotations

import ast
import gc
import warnings
import weakref
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

from ..cells.compiler import RUNS_OTHER_CODE
from .hazards import Hazards, of_codes

_RUN_THEIR_BODY = frozenset({"time", "timeit", "capture", "prun"})
#: They have their body compiled as a cell, which is noted by itself.
_LOWERED = frozenset({"tpu_compile", "tpu_eager", "tpu_profile"})
_MOST_KEPT = 1_000
_FUNCTIONS = (FunctionType, MethodType)


class NotebookFunctions:
    """What the functions of a notebook read and rebind. Its compiler notes the cells that may make some."""

    def __init__(self, namespace: dict[str, Any], compiler: Any) -> None:
        self.namespace = namespace
        self._compiler = compiler
        #: As of the last look.
        self._found: Hazards | None = None
        #: Cells that ran since, and all that functions they made can do.
        self._since: set[str] = set()
        self._made = Hazards()
        #: Cells that, run again, make the functions that were found.
        self._same: set[str] = set()
        #: Answers that hold until a cell that may make functions has run.
        self._answers: dict[frozenset[str], Hazards] = {}
        #: By cell, what its text can make; None where that does not tell.
        self._by_cell: dict[str, Hazards | None] = {}

    def hazards(self, cell: str, mentioned: frozenset[str], afresh: bool = False) -> Hazards:
        """For a cell that is named `cell`, of the names it mentions; without what it will define itself.

        `afresh`: the cell may run code that no compiler sees.
        """
        noted: dict[str, str] | None = getattr(self._compiler, "noted", None)
        unknown = noted is None or afresh
        others = [name for name in noted or () if name != cell]
        if not others and not unknown and mentioned in self._answers:
            return self._answers[mentioned]
        self._answers.clear()
        answer = self._answers[mentioned] = self._answer(others, mentioned, unknown)
        return answer

    def _answer(self, others: list[str], mentioned: frozenset[str], unknown: bool) -> Hazards:
        for name in others:
            made = self._made_by(name, self._compiler.noted.pop(name))
            unknown = unknown or made is None
            self._made |= made or Hazards()
            self._since.add(name)
        if self._found is None or unknown:
            return self._look().restricted(mentioned)
        found = self._found.restricted(mentioned)
        # A function that was written anew may no longer read what it did.
        outdated = found != Hazards() and not self._since <= self._same
        if outdated or not self._made.restricted(mentioned) <= found:
            return self._look().restricted(mentioned)
        return found

    def _look(self) -> Hazards:
        found = _live(self.namespace)
        self._same = self._since if found != self._found else self._same | self._since
        self._found, self._made, self._since = found, Hazards(), set()
        return found

    def _made_by(self, name: str, text: str) -> Hazards | None:
        if name not in self._by_cell:
            if len(self._by_cell) >= _MOST_KEPT:
                self._by_cell.clear()
            self._by_cell[name] = made_by(text)
        return self._by_cell[name]


_KNOWN: weakref.WeakKeyDictionary[Any, NotebookFunctions] = weakref.WeakKeyDictionary()


def functions_of(shell: Any) -> NotebookFunctions:
    """Those of a shell's notebook: one for all who ask, since what its compiler notes is told once."""
    known = _KNOWN.get(shell)
    if known is None or known.namespace is not shell.user_ns:
        known = _KNOWN[shell] = NotebookFunctions(shell.user_ns, shell.compile)
    return known


def codes_of(names: Iterable[str], namespace: Mapping[str, Any]) -> list[tuple[str, CodeType]]:
    """Which code the names stand for that are functions."""
    values = [(name, namespace.get(name)) for name in names]
    return [(name, value.__code__) for name, value in values if issubclass(type(value), _FUNCTIONS)]


def made_by(text: str) -> Hazards | None:
    """What functions that a cell's text makes read and rebind; None where it may run other code too."""
    python = _body(text)
    if python is None or RUNS_OTHER_CODE.search(python):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the cell ran
            code = compile(python, "", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return of_codes(inner for inner in code.co_consts if isinstance(inner, CodeType))


def _body(text: str) -> str | None:
    """The Python in a cell below `%%time` and the like; None below other magics."""
    if not text.startswith("get_ipython().run_cell_magic("):
        return text
    try:
        call: Any = ast.parse(text).body[0]
        name, _, body = map(ast.literal_eval, call.value.args)
    except (SyntaxError, ValueError, AttributeError):
        return None
    while name in _RUN_THEIR_BODY and body.lstrip().startswith("%%"):
        first, _, body = body.lstrip().partition("\n")
        name = first[2:].split(maxsplit=1)[0] if first[2:].strip() else ""
    return "" if name in _LOWERED else body if name in _RUN_THEIR_BODY else None


def _live(namespace: dict[str, Any]) -> Hazards:
    """Hazards of all live functions of `namespace`."""
    codes: set[CodeType] = set()
    for referrer in gc.get_referrers(namespace):
        if type(referrer) is FunctionType and referrer.__globals__ is namespace:
            code = referrer.__code__
            # A cell that is being executed, or timed: nobody calls it.
            if code.co_name != "<module>" and code.co_filename != "<magic-timeit>":
                codes.add(code)
    return of_codes(codes)
