"""The card of `%%tpu_compile --hlo`: each program's text, folded, with an index of its operations."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from . import blocks
from .compile import plural

if TYPE_CHECKING:
    from ..lowering.texts import ProgramText

#: Bytes of a whole card, and those a text must have room for to be shown at all.
_MOST, _LEAST_OF_ONE = 6144, 600
_MOST_OPERATIONS, _MOST_IN_HTML = 24, 10
_MOST_OF_PROBLEM = 200
_KINDS = ("StableHLO", "optimised HLO")
_GIVEN = (" parameter(", " constant(", " stablehlo.constant ")


@dataclass(frozen=True)
class _Text:
    """A text to fold: whose it is, and its lines."""

    name: str
    lines: list[str]

    def folded(self, room: int) -> str:
        """As much of it as there is room for, and how much that is."""
        whole = self._fold(plural(len(self.lines), "line"), self.lines)
        if _size(whole) <= room:
            return whole
        # What it is given stands in its first line too, and what is built in says little.
        lines = [line for line in self.lines if not any(word in line for word in _GIVEN)]
        left = " without parameters and constants" if len(lines) < len(self.lines) else ""
        of = f"of {plural(len(lines), 'line')}{left}"
        room -= _size(self._fold(f"the first {len(lines):,} {of}", []))
        shown = 0
        for line in lines:
            room -= _size(escape(line)) + 1
            if room < 0:
                break
            shown += 1
        return self._fold(f"the first {shown:,} {of}", lines[:shown]) if shown else ""

    def _fold(self, how_much: str, lines: list[str]) -> str:
        return blocks.folded(f"{self.name}, {how_much}", "\n".join(lines), wrap=False)


def _size(text: str) -> int:
    return len(text.encode())


class HloCard:
    """The programs of a cell. `saved` says where their whole texts are."""

    def __init__(self, programs: Sequence[ProgramText], saved: str = "") -> None:
        self.programs = programs
        self.saved = saved
        self.problems = sorted({one.optimized.problem for one in programs if one.optimized.problem})
        self.indexes = [
            self._index(lambda program: program.operations),
            self._index(lambda program: program.optimized.operations),
        ]

    def html(self) -> str:
        parts = [blocks.headline("HLO", "good", self._title())]
        if not self.programs:
            parts.append(blocks.paragraph(_NONE, muted=True))
        for kind, rows in zip(_KINDS, self.indexes, strict=True):
            if rows:
                where = " in {}" if len(self.programs) > 1 else ""
                shown = [f"`{name}` {count}×{where.format(of)}" for name, count, of in rows[:_MOST_IN_HTML]]
                if more := len(rows) - len(shown):
                    shown.append(plural(more, "rarer operation"))
                which = " (in which programs)" if where else ""
                parts.append(blocks.paragraph(f"{kind[0].upper()}{kind[1:]}{which}: " + " · ".join(shown)))
        ends = [blocks.paragraph(said, muted=True) for said in [*self._problems(), *self._files()]]
        # With all that texts bring of style.
        frame = (blocks.folded("", ""), blocks.paragraph("``", muted=True))
        room = _MOST - _size(blocks.card(*parts, *frame, *ends))
        return blocks.card(*parts, *self._texts(room), *ends)

    def text(self) -> str:
        lines = [f"HLO · {self._title()}"]
        if not self.programs:
            lines.append(f"  {_NONE}")
        for number, program in enumerate(self.programs, 1):
            sizes = [f"{kind} {plural(len(lines), 'line')}" for kind, lines in _texts_of(program)]
            lines.append(f"  {_name(number, program)}: {', '.join(sizes)}")
        for kind, rows in zip(_KINDS, self.indexes, strict=True):
            if rows:
                lines += ["", *blocks.columns([(kind, "times", "in program"), *rows])]
        lines += blocks.wrapped(said.replace("`", "") for said in self._problems())
        # A path is in one piece.
        return "\n".join([*lines, *(f"  {said.replace('`', '')}" for said in self._files())])

    def _title(self) -> str:
        return plural(len(self.programs), "program")

    def _problems(self) -> list[str]:
        why = [textwrap.shorten(problem, _MOST_OF_PROBLEM) for problem in self.problems[:1]]
        return [f"Optimised HLO: the plug-in does not give it ({problem})" for problem in why]

    def _files(self) -> list[str]:
        return [f"Saved: {self.saved}"] if self.saved else []

    def _index(self, of: Callable[[ProgramText], Counter[str]]) -> list[tuple[str, str, str]]:
        """In which programs an operation stands: all there is of a search without JavaScript."""
        each = [of(program) for program in self.programs]
        return [
            (name, f"{count:,}", blocks.spans([n for n, counts in enumerate(each, 1) if counts[name]]))
            for name, count in sum(each, Counter()).most_common(_MOST_OPERATIONS)
        ]

    def _texts(self, room: int) -> list[str]:
        """Texts in the room there is: where that is too little for all, those of the largest programs."""
        numbered = list(enumerate(self.programs, 1))
        by_size = sorted(numbered, key=lambda one: -sum(one[1].operations.values()))
        many = max(1, room // (_LEAST_OF_ONE * len(_KINDS)))
        chosen = sorted(by_size[:many], key=lambda one: one[0])
        ends = []
        if more := len(numbered) - len(chosen):
            files = "" if self.saved else ": `--save-hlo FOLDER` writes all"
            ends.append(blocks.paragraph(f"and {plural(more, 'smaller program')}{files}", muted=True))
            room -= _size(ends[0])
        texts = [
            _Text(f"{_name(number, program)}: {kind}", lines)
            for number, program in chosen
            for kind, lines in _texts_of(program)
        ]
        return [*_shared(texts, room), *ends]


def _shared(texts: Sequence[_Text], room: int) -> list[str]:
    """Each text with its part of the room; what a short one leaves goes to the others."""
    folded: dict[int, str] = {}
    for left, index in enumerate(sorted(range(len(texts)), key=lambda index: len(texts[index].lines))):
        folded[index] = texts[index].folded(room // (len(texts) - left))
        room -= _size(folded[index])
    return [folded[index] for index in range(len(texts))]


def _texts_of(program: ProgramText) -> list[tuple[str, list[str]]]:
    """What there is of a program: kind of text, its lines."""
    texts = [(_KINDS[0], program.text.splitlines())]
    if computations := program.optimized.computations:
        texts.append((_KINDS[1], "\n\n".join(computations).splitlines()))
    return texts


def _name(number: int, program: ProgramText) -> str:
    lines = sorted(set(program.lines))
    part = ", backward" if program.part == "backward" else ""
    return f"program {number}{part}, {plural(len(lines), 'line', False)} {blocks.spans(lines)}"


_NONE = "no program was made from this cell"
