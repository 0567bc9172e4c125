"""The card of `%%tpu_compile --explain`: what can be said of a cell that was not run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import blocks
from .compile import WIDTH, fitting, outside_table, outside_text, plural

if TYPE_CHECKING:
    from ..lowering.preview import Explanation

_HONEST = (
    "Nothing was run. Only a run tells what breaks after the first break of a part, what is compiled again, "
    "and how long things take."
)


class PreviewCard:
    """What would become programs, what would not and why, and what cannot be known yet."""

    def __init__(self, explanation: Explanation, source: Sequence[str] = ()) -> None:
        self.source = source
        self.report = explanation.report
        self.outside = self.report.outside()
        self.open = explanation.open_questions()
        assumed = sorted(explanation.assumed)
        self.notes = [_HONEST]
        if assumed:
            names = ", ".join(f"`{name}`" for name in assumed)
            self.notes.insert(0, f"Taken as they are now: {names}.")

    def html(self) -> str:
        return fitting(self._html, len(self.outside))

    def _html(self, most: int) -> str:
        breaks = sum(each.broke for each in self.report.breaks)
        facts: list[str | tuple[str, str]] = [(f"graph breaks in {plural(breaks, 'place')}", "warn")]
        return blocks.card(
            blocks.headline("not run", "good", self._title(), *(facts if breaks else [])),
            outside_table(self.outside, self.source, most),
            outside_table(self.open[:5], self.source, 5, "only a run can tell") if self.open else "",
            *(blocks.paragraph(note, muted=True) for note in self.notes),
        )

    def text(self) -> str:
        breaks = sum(each.broke for each in self.report.breaks)
        head = ["not run", self._title()] + ([f"graph breaks in {plural(breaks, 'place')}"] if breaks else [])
        lines = [" · ".join(head), *outside_text(self.outside, self.source)]
        lines += outside_text(self.open, self.source, "only a run can tell")
        for note in self.notes:
            words = note.replace("`", "")
            lines += textwrap.wrap(words, WIDTH, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def _title(self) -> str:
        lines = self.report.compiled_lines()
        if not lines:
            return "no program would be made"
        return f"{plural(len(lines), 'line', False)} {blocks.spans(lines)} would be compiled"
