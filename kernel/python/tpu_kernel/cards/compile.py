"""The card of `%%tpu_compile`: only what was measured in this run of the cell."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..reasons import reason, short_batch
from . import blocks

if TYPE_CHECKING:
    from ..lowering import Report
    from ..magics.measure import Counters


class CompileCard:
    """What one compiled cell did. `used` is None where tpu-core is not there to count."""

    def __init__(
        self,
        report: Report,
        used: Counters | None,
        seconds: float,
        programs: list[dict[str, Any]] | None = None,
        first: int = 0,
    ) -> None:
        """`programs` are all that are known; those from number `first` on came in this cell."""
        self.report = report
        self.used = used
        self.seconds = seconds
        self.compiled = report.executed > 0
        self.again = _again(programs or [], first)

    def html(self) -> str:
        pill, edge = ("compiled", "good") if self.compiled else ("ran eagerly", "warn")
        parts = [blocks.headline(pill, edge, self._title(), blocks.duration(self.seconds))]
        if pairs := self._numbers():
            parts.append(blocks.tiles([(name, value, "") for name, value in pairs]))
        if self.again:
            parts.append(blocks.table(("line", "compiled again because"), self.again))
        if rows := self._eager():
            parts.append(blocks.table(("line", "ran eagerly because"), rows))
        parts += [blocks.paragraph(note, muted=True) for note in self.report.notes]
        return blocks.card(*parts)

    def text(self) -> str:
        head = "compiled" if self.compiled else "ran eagerly"
        lines = [f"{head} · {self._title()} · {blocks.duration(self.seconds)}"]
        lines += blocks.columns(self._numbers())
        if self.again:
            lines.append("  compiled again:")
            lines += blocks.columns([(line, why.replace("`", "")) for line, why in self.again], "    ")
        if rows := self._eager():
            lines.append("  ran eagerly:")
            lines += blocks.columns([(f"line {line}", why.replace("`", "")) for line, why in rows], "    ")
        lines += [f"  {note.replace('`', '')}" for note in self.report.notes]
        return "\n".join(lines)

    def _title(self) -> str:
        lines = self.report.compiled_lines()
        if not self.compiled:
            return "no program was made from this cell"
        return f"line{'s' if len(lines) != 1 else ''} {blocks.spans(lines)}" if lines else "parts of lines"

    def _numbers(self) -> list[tuple[str, str]]:
        used = self.used
        if used is None:
            return [
                ("programs captured", f"{self.report.graphs:,}"),
                ("runs of them", f"{self.report.executed:,}"),
            ]
        return [
            ("programs compiled", f"{used.compiles:,}"),
            ("compile time", blocks.duration(used.compile_seconds)),
            ("cache hits", f"{used.cache_hits:,}"),
            ("programs executed", f"{used.executions:,}"),
        ]

    def _eager(self) -> list[tuple[str, str]]:
        """Lines that touch the device but ran eagerly, those with the same reason together."""
        rows = []
        for why, group in groupby(self.report.eager_lines(), key=lambda row: row[1]):
            rows.append((blocks.spans([line for line, _ in group]), why))
        return rows


_MOST_AGAIN = 5


def _again(programs: list[dict[str, Any]], first: int) -> list[tuple[str, str]]:
    """Lines and reasons of what this cell compiled again; of programs that do the same, the last one's."""
    known = {each["number"]: each for each in programs}
    families: dict[str, list[dict[str, Any]]] = {}
    for each in programs:
        if each["number"] >= first and each["stage"] == "compiled" and each["why"] != "first":
            families.setdefault(each["family"], []).append(each)
    counts: dict[tuple[str, str], int] = {}
    for members in families.values():
        last = members[-1]
        why = short_batch(last, known) if len(members) == 1 else None
        row = last.get("place", ""), why or reason(last)
        counts[row] = counts.get(row, 0) + len(members)
    rows = sorted(counts.items(), key=lambda row: -row[1])[:_MOST_AGAIN]
    return [(place, f"{why} ({count:,} programs)" if count > 1 else why) for (place, why), count in rows]
