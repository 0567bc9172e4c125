"""The card of `%%tpu_compile --hlo`: each program's text, folded, with an index of its operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import blocks
from .compile import plural

if TYPE_CHECKING:
    from ..lowering.texts import ProgramText

#: Characters shown of one program, and of all. What is longer is cut: a card is kept in the notebook's file.
_MOST_OF_ONE = 8_000
_MOST_OF_ALL = 24_000
_MOST_OPERATIONS = 24


class HloCard:
    """The programs of a cell. `saved` are the files they were written to, in the same order."""

    def __init__(self, programs: Sequence[ProgramText], saved: Sequence[str] = ()) -> None:
        self.programs = programs
        self.saved = saved
        counts: Counter[str] = Counter()
        for program in programs:
            counts.update(program.operations)
        self.rows = [
            (operation, f"{count:,}", self._numbers(operation))
            for operation, count in counts.most_common(_MOST_OPERATIONS)
        ]
        self.more = len(counts) - len(self.rows)

    def html(self) -> str:
        parts = [blocks.headline("StableHLO", "good", self._title())]
        if not self.programs:
            parts.append(blocks.paragraph(_NONE, muted=True))
        else:
            found = [f"`{operation}` {count}× in {where}" for operation, count, where in self.rows]
            parts.append(blocks.paragraph("Operations, and the programs they are in: " + " · ".join(found)))
            if self.more:
                parts.append(blocks.paragraph(f"and {plural(self.more, 'rarer operation')}", muted=True))
        left = _MOST_OF_ALL
        for number, program in enumerate(self.programs, 1):
            shown = program.text[: min(left, _MOST_OF_ONE)]
            left -= len(shown)
            parts.append(blocks.folded(self._name(number, program, len(shown)), shown))
        if self.saved:
            files = ", ".join(f"`{file}`" for file in self.saved)
            parts.append(blocks.paragraph(f"Saved: {files}", muted=True))
        return blocks.card(*parts)

    def text(self) -> str:
        lines = [f"StableHLO · {self._title()}"]
        if not self.programs:
            lines.append(f"  {_NONE}")
        for number, program in enumerate(self.programs, 1):
            lines.append(f"  {self._name(number, program, len(program.text))}")
        lines += blocks.columns([_HEAD, *self.rows] if self.rows else [])
        lines += [f"  saved: {file}" for file in self.saved]
        return "\n".join(lines)

    def _title(self) -> str:
        return plural(len(self.programs), "program")

    def _name(self, number: int, program: ProgramText, shown: int) -> str:
        lines = sorted(set(program.lines))
        part = ", backward" if program.part == "backward" else ""
        size = plural(len(program.text), "character")
        cut = f"the first {shown:,} of {size}" if shown < len(program.text) else size
        return f"program {number}{part}: {plural(len(lines), 'line', False)} {blocks.spans(lines)}, {cut}"

    def _numbers(self, operation: str) -> str:
        """In which programs an operation stands: all there is of a search without JavaScript."""
        numbers = [n for n, program in enumerate(self.programs, 1) if program.operations[operation]]
        return blocks.spans(numbers)


_HEAD = ("operation", "times", "in program")
_NONE = "no program was made from this cell"
