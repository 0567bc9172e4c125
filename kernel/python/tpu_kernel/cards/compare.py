"""The card of `%%tpu_compile --compare`: times of both, and how their results differ."""

from __future__ import annotations

import statistics
import textwrap
from typing import TYPE_CHECKING

from . import blocks

if TYPE_CHECKING:
    from ..magics.compare import Comparison, Result

_MOST_RESULTS = 12


class CompareCard:
    """What the runs of one cell took, eagerly and compiled, and what they left."""

    def __init__(self, found: Comparison) -> None:
        self.found = found
        self.compiled = found.report is not None and found.report.executed > 0

    def html(self) -> str:
        pill, edge = ("compared", "good") if self.compiled else ("ran eagerly", "warn")
        parts = [blocks.headline(pill, edge, self._title(), self._runs())]
        parts.append(blocks.tiles(self._tiles()))
        if rows := self._results():
            parts.append(blocks.table(("result", "what", "largest difference", "relative"), rows))
        parts += [blocks.paragraph(note, muted=True) for note in self._notes()]
        return blocks.card(*parts)

    def text(self) -> str:
        pill = "compared" if self.compiled else "ran eagerly"
        lines = [f"{pill} · {self._title()} · {self._runs()}"]
        lines += blocks.columns([(name, f"{value}  ({detail})") for name, value, detail in self._tiles()])
        if rows := self._results():
            head = ("result", "what", "largest difference", "relative")
            lines += blocks.columns([head, *[tuple(cell.replace("`", "") for cell in row) for row in rows]])
        for note in self._notes():
            lines += textwrap.wrap(
                note.replace("`", ""), 80, initial_indent="  ", subsequent_indent="  ", break_long_words=False
            )
        return "\n".join(lines)

    def _title(self) -> str:
        if not self.compiled:
            return "no program was made from this cell"
        ratio = self.found.speed_up
        return f"compiled is {ratio:.2f} × as fast as eager"

    def _runs(self) -> str:
        count = len(self.found.eager)
        return f"{count} runs each, in turn" if count > 1 else "one run each"

    def _tiles(self) -> list[tuple[str, str, str]]:
        found = self.found
        tiles = []
        for name, times, first in (
            ("eager", found.eager, found.first[0]),
            ("compiled", found.compiled, found.first[1]),
        ):
            spread = f"{blocks.duration(min(times))} to {blocks.duration(max(times))}"
            tiles.append(
                (
                    name,
                    blocks.duration(statistics.median(times)),
                    f"{spread}; first run {blocks.duration(first)}",
                )
            )
        return tiles

    def _results(self) -> list[tuple[str, str, str, str]]:
        rows = [(f"`{r.name}`", r.what, *_numbers(r)) for r in self.found.results[:_MOST_RESULTS]]
        if (more := len(self.found.results) - len(rows)) > 0:
            worst = max(self.found.results[_MOST_RESULTS:], key=lambda result: result.relative)
            rows.append((f"{more} more", f"the worst is `{worst.name}`", *_numbers(worst)))
        return rows

    def _notes(self) -> list[str]:
        found = self.found
        notes = [f"Put back before each run: {found.restored}. The notebook is as after one compiled run."]
        if found.lost:
            shown = ", ".join(found.lost[:6]) + (
                f" and {len(found.lost) - 6} more" if len(found.lost) > 6 else ""
            )
            notes.append(f"Not put back: {shown}.")
        if not found.same_output:
            notes.append("What the cell prints differs between the two; shown is the compiled run's.")
        if not self.compiled and found.report is not None:
            lines = found.report.eager_lines()
            notes += [f"Line {line}: {why}." for line, why in lines[:4]]
        if found.report is not None:
            notes += found.report.notes
        return notes


def _numbers(result: Result) -> tuple[str, str]:
    if result.said:
        return "", result.said
    if result.largest == 0:
        return "none", ""
    return f"{result.largest:.2g}", f"{result.relative:.2g}"
