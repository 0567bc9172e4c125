"""The card of `%%tpu_compile`: only what was measured in this run of the cell."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..tpu.reasons import reason, short_batch
from . import blocks

if TYPE_CHECKING:
    from ..lowering import Finding, Report
    from ..magics.measure import Counters

#: Stands for the time a cell took in a card that is made once for all runs that differ in it alone.
_TOOK = "\0" * 9
#: A card is kept in the notebook's file.
_MOST_BYTES = 6144
_MOST_TEXT = 72
WIDTH = 80
_OUTSIDE = "not in a program"


class CompileCard:
    """What one compiled cell did. `used` is None where tpu-core is not there to count."""

    def __init__(
        self,
        report: Report,
        used: Counters | None,
        seconds: float,
        programs: list[dict[str, Any]] | None = None,
        began: int = 0,
        source: Sequence[str] = (),
        ended: bool = False,
    ) -> None:
        """`programs` are all that are known; those that began at `began` (of the Unix clock,
        in ns) or later came in this cell. `source` are the lines of the cell. `ended`: it was not to go on with anything eager."""
        self.report = report
        self.used = used
        self.seconds = seconds
        self.source = source
        self.compiled = report.executed > 0
        self.ended = ended
        self.pill = "ended early" if ended else "compiled" if self.compiled else "ran eagerly"
        self.edge = "good" if self.compiled and not ended else "warn"
        self.outside = report.outside()
        self._title, self._broken = self._told(), self._breaks()
        self._numbers = self._counts()
        # Where Dynamo says which name changed, what tpu-core finds to differ is the same told worse.
        self.again, short = _again(programs or [], began)
        if report.traced is not None and not short:
            self.again = _retraced(report.retraced)

    def html(self) -> str:
        return self._made[0].replace(_TOOK, blocks.duration(self.seconds))

    def text(self) -> str:
        return self._made[1].replace(_TOOK, blocks.duration(self.seconds))

    def is_of(self, report: Report, ended: bool) -> bool:
        """Does it tell of a run that did the same, as far as this half of the kernel knows?"""
        return self.ended == ended and self.report == report

    def repeated(self, used: Counters | None, seconds: float) -> CompileCard | None:
        """The card of such a run that differs in its time alone; None when it did other things on the device."""
        if used is None or self.used is None or used.compiles or _told_of(used) != _told_of(self.used):
            return None
        self.seconds = seconds
        return self

    @cached_property
    def _made(self) -> tuple[str, str]:
        return fitting(self._html, len(self.outside)), self._text()

    def _html(self, most: int) -> str:
        facts: list[str | tuple[str, str]] = [_TOOK]
        if self._broken:
            facts.append((self._broken, "warn"))
        parts = [blocks.headline(self.pill, self.edge, self._title, *facts), blocks.tiles(self._numbers)]
        if self.again:
            parts.append(blocks.table(("line", "compiled again because"), self.again))
        parts.append(outside_table(self.outside, self.source, most))
        parts += [blocks.paragraph(note, muted=True) for note in self.report.notes]
        return blocks.card(*parts)

    def _text(self) -> str:
        facts = [self.pill, self._title, _TOOK, self._broken]
        lines = [" · ".join(filter(None, facts))]
        lines += blocks.columns(
            [(name, f"{value} ({detail})" if detail else value) for name, value, detail in self._numbers]
        )
        if self.again:
            lines.append("  compiled again:")
            lines += blocks.columns([(line, why.replace("`", "")) for line, why in self.again], "    ")
        lines += outside_text(self.outside, self.source)
        for note in self.report.notes:
            lines += textwrap.wrap(note.replace("`", ""), WIDTH, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def _told(self) -> str:
        lines = self.report.compiled_lines()
        if not self.compiled:
            return "no program was made from this cell"
        return f"{plural(len(lines), 'line', False)} {blocks.spans(lines)}" if lines else "parts of lines"

    def _breaks(self) -> str:
        count = sum(each.broke for each in self.report.breaks)
        return f"graph breaks in {plural(count, 'place')}" if count else ""

    def _counts(self) -> list[tuple[str, str, str]]:
        used, traced = self.used, self.report.traced
        graphs = []
        if traced is not None:
            graphs = [("graphs traced", f"{traced[0]:,}", plural(traced[1], "break"))]
        if used is None:
            return [
                ("programs captured", f"{self.report.graphs:,}", ""),
                ("runs of them", f"{self.report.executed:,}", ""),
                *graphs,
            ]
        return [
            ("programs compiled", f"{used.compiles:,}", ""),
            ("compile time", blocks.duration(used.compile_seconds), ""),
            ("cache hits", f"{used.cache_hits:,}", ""),
            ("programs executed", f"{used.executions:,}", ""),
            *graphs,
        ]


def _told_of(used: Counters) -> tuple[float, ...]:
    """What of it a card shows."""
    return used.compiles, used.compile_seconds, used.cache_hits, used.executions


def fitting(html: Callable[[int], str], rows: int) -> str:
    """The HTML of a card with as many of its rows as its size allows."""
    while True:
        made = html(rows)
        if len(made.encode()) <= _MOST_BYTES or rows == 0:
            return made
        rows -= 1


def plural(count: int, word: str, number: bool = True) -> str:
    """`3 places`."""
    words = word if count == 1 else f"{word}s"
    return f"{count:,} {words}" if number else words


def outside_table(found: Sequence[Finding], source: Sequence[str], most: int, head: str = _OUTSIDE) -> str:
    """What was not in a program: line, its text, why and the cure."""
    if not found:
        return ""
    rows = [
        (
            _lines(each),
            f"`{_code(each, source)}`" + (f" in {each.place}" if each.place else ""),
            each.why + (f". Instead: {each.cure}" if each.cure else ""),
        )
        for each in found[:most]
    ]
    more = len(found) - len(rows)
    rest = blocks.paragraph(f"and {more} more: the text form of this card has them all", True) if more else ""
    return blocks.table(("line", head, "because"), rows, widths=("9%", "31%")) + rest


def outside_text(found: Sequence[Finding], source: Sequence[str], head: str = _OUTSIDE) -> list[str]:
    """The same, for a terminal."""
    if not found:
        return []
    lines = [f"  {head}:"]
    for each in found:
        lines.append(f"    line {_lines(each)}  {_code(each, source)}")
        words = [f"in {each.place}: {each.why}" if each.place else each.why]
        words += [f"Instead: {each.cure}"] if each.cure else []
        for part in words:
            indent = " " * 8
            lines += textwrap.wrap(
                part.replace("`", ""), WIDTH, initial_indent=indent, subsequent_indent=indent
            )
    return lines


def _lines(found: Finding) -> str:
    if not found.line:
        return "?"
    return str(found.line) if found.last == found.line else f"{found.line}–{found.last}"


def _code(found: Finding, source: Sequence[str]) -> str:
    """The text of the place, as one line."""
    text = found.text
    if not text and 0 < found.line <= len(source):
        text = source[found.line - 1].strip() + (" …" if found.last > found.line else "")
    text = text.replace("`", "'")
    return text if len(text) <= _MOST_TEXT - 12 else text[: _MOST_TEXT - 13] + "…"


_MOST_AGAIN = 5


def _retraced(guards: list[Finding]) -> list[tuple[str, str]]:
    """Lines and guards that failed there; of one that failed time after time the last."""
    times: dict[tuple[str, str], list[str]] = {}
    for each in guards:
        times.setdefault((f"line {_lines(each)}", each.why.partition(" was ")[0]), []).append(each.why)
    rows = list(times.items())
    told = [
        (line, f"{whys[-1]} ({len(whys):,} times)" if len(whys) > 1 else whys[-1])
        for (line, _), whys in rows[:_MOST_AGAIN]
    ]
    more = sum(len(whys) for _, whys in rows[_MOST_AGAIN:])
    return [*told, ("", f"and {more:,} more")] if more else told


def _again(programs: list[dict[str, Any]], began: int) -> tuple[list[tuple[str, str]], bool]:
    """Lines and reasons of what this cell compiled again, of programs that do the same the last one's;
    and whether one of them is a last short batch."""
    known = {each["number"]: each for each in programs}
    families: dict[str, list[dict[str, Any]]] = {}
    for each in programs:
        if each["started_unix_ns"] >= began and each["stage"] == "compiled" and each["why"] != "first":
            families.setdefault(each["family"], []).append(each)
    counts: dict[tuple[str, str], int] = {}
    short = False
    for members in families.values():
        last = members[-1]
        why = short_batch(last, known) if len(members) == 1 else None
        short = short or why is not None
        row = last.get("place", ""), why or reason(last)
        counts[row] = counts.get(row, 0) + len(members)
    rows = sorted(counts.items(), key=lambda row: -row[1])[:_MOST_AGAIN]
    told = [(place, f"{why} ({count:,} programs)" if count > 1 else why) for (place, why), count in rows]
    return told, short
