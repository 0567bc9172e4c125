"""Which names of the notebook its functions read or change behind a statement's back.

An outlined run keeps what it assigns in locals until it ends. That is only right when nothing
it calls looks the same name up in the notebook. This module reads those names from code;
`functions` knows whose.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType

from .names import SCOPE_READERS

_HIDDEN = SCOPE_READERS - {"super", "compile"}
_IN_PLACE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
_READ = {"LOAD_GLOBAL", "LOAD_NAME"}
_WRITE = {"STORE_GLOBAL", "DELETE_GLOBAL"}


@dataclass(frozen=True)
class Hazards:
    """Names that functions of the notebook read, and names they rebind."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    # Some function uses exec, globals() or the like: it may read any name.
    everything: bool = False

    def reads(self, name: str) -> bool:
        return self.everything or name in self.read

    def __or__(self, other: Hazards) -> Hazards:
        everything = self.everything or other.everything
        return Hazards(self.read | other.read, self.written | other.written, everything)

    def __le__(self, other: Hazards) -> bool:
        return (
            self.read <= other.read
            and self.written <= other.written
            and (other.everything or not self.everything)
        )

    def restricted(self, names: frozenset[str]) -> Hazards:
        """The part that concerns `names`."""
        return Hazards(self.read & names, self.written & names, self.everything)


def of_codes(codes: Iterable[CodeType]) -> Hazards:
    """Hazards of functions with this code."""
    read: set[str] = set()
    written: set[str] = set()
    for code in codes:
        reads, writes = code_names(code)
        read |= reads
        written |= writes
    return Hazards(frozenset(read), frozenset(written), bool(read & _HIDDEN))


def defined(code: CodeType) -> Hazards:
    """Hazards of what a cell of this code defines. What a comprehension reads, it reads in place."""
    inner = _nested(code)
    while any(each.co_name in _IN_PLACE for each in inner):
        inner = [made for each in inner for made in (_nested(each) if each.co_name in _IN_PLACE else [each])]
    return of_codes(inner)


def _nested(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


_CODE_NAMES: dict[CodeType, tuple[frozenset[str], frozenset[str]]] = {}


def code_names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Global names a code object (and those nested in it) reads, and those it rebinds."""
    known = _CODE_NAMES.get(code)
    if known is not None:
        return known
    read: set[str] = set()
    written: set[str] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opname in _READ:
            read.add(instruction.argval)
        elif instruction.opname in _WRITE:
            written.add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            reads, writes = code_names(constant)
            read |= reads
            written |= writes
    if len(_CODE_NAMES) > 10_000:
        _CODE_NAMES.clear()
    _CODE_NAMES[code] = frozenset(read), frozenset(written)
    return _CODE_NAMES[code]
