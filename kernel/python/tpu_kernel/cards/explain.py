"""The cards of `%tpu_explain`: an error in plain words, and what old names are called now."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import blocks

if TYPE_CHECKING:
    from ..explain import Advice
    from ..explain.names import Renamed

_MOST_SAID = 600


class ErrorCard:
    """What an error means. `place` is its line in a cell, or ""."""

    def __init__(self, name: str, said: str, place: str, advice: Advice, known: bool) -> None:
        self.name = name
        self.said = said if len(said) <= _MOST_SAID else f"{said[:_MOST_SAID]}…"
        self.place = place
        self.advice = advice
        self.known = known

    def html(self) -> str:
        parts = [
            blocks.headline(*self._pill(), self.name, *([self.place] if self.place else [])),
            blocks.paragraph(self.advice.words),
            blocks.paragraph(self.advice.cure),
        ]
        if self.advice.code:
            parts.append(blocks.paragraph(f"`{self.advice.code}`"))
        if self.said:
            parts.append(blocks.folded("the error's own words", self.said))
        return blocks.card(*parts)

    def text(self) -> str:
        lines = [" · ".join(filter(None, (self._pill()[0], self.name, self.place)))]
        lines += [*_wrapped(self.advice.words, "  "), *_wrapped(self.advice.cure, "  ")]
        if self.advice.code:
            lines.append(f"      {self.advice.code}")
        return "\n".join(lines)

    def _pill(self) -> tuple[str, str]:
        return ("known error", "good") if self.known else ("error", "warn")


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most 80 characters."""
    return textwrap.wrap(text, 80, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


class NamesCard:
    """Old names and new ones."""

    def __init__(self, asked: str, found: Sequence[Renamed]) -> None:
        self.asked = asked
        self.found = found

    def html(self) -> str:
        same: dict[str, list[str]] = {}
        for each in self.found:
            now = f"`{each.new}`" if each.new else "nothing"
            same.setdefault(f"{now} · {each.words}" if each.words else now, []).append(each.old)
        rows = [(", ".join(old), now) for now, old in same.items()]
        return blocks.card(
            blocks.headline("new names", "good", self.asked),
            blocks.table(("old", "now"), rows, widths=("40%",)),
        )

    def text(self) -> str:
        lines = [f"new names · {self.asked}"]
        for each in self.found:
            line = f"  {each.old} -> {each.new or 'nothing'}"
            lines += [line] if len(line) <= 80 else [f"  {each.old} ->", f"      {each.new}"]
            if each.words:
                lines += _wrapped(each.words.replace("`", ""), "      ")
        return "\n".join(lines)
