"""The card of `%tpu_stats`: the counters of the session."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from ..tpu.reasons import reason, short_batch
from . import blocks

if TYPE_CHECKING:
    from ..magics.measure import Counters


class StatsCard:
    """What the session did since it started."""

    def __init__(
        self,
        device: str,
        counters: Counters,
        mode: str,
        limit: str = "",
        programs: list[dict[str, Any]] | None = None,
    ) -> None:
        self.device = device
        self.counters = counters
        self.mode = mode
        #: Where the limit comes from, when it is not the chip's own.
        self.limit = limit.strip(" ()")
        compiled = [each for each in programs or [] if each["stage"] == "compiled"]
        self.costly = sorted(compiled, key=lambda each: -each["duration_ns"])[:_MOST_COSTLY]
        self.again = [each for each in compiled if each["why"] != "first"]
        self.known = {each["number"]: each for each in programs or []}

    def html(self) -> str:
        kind = "emulated" if self.counters.emulated else "chip"
        limit = self.counters.limit_bytes or 1
        rows = [
            ("HBM in use", self.counters.live_bytes / limit, self._of_limit()),
            ("peak", self.counters.peak_bytes / limit, blocks.size(self.counters.peak_bytes)),
        ]
        return blocks.card(
            blocks.headline(kind, "good", self.device),
            blocks.bars(rows),
            blocks.tiles(self._numbers()),
            blocks.table(_HEAD, self._rows(self.costly)) if self.costly else "",
            blocks.table(_HEAD_AGAIN, self._rows_again(), widths=("15%", "20%")) if self.again else "",
            blocks.paragraph(self.mode, muted=True),
            blocks.paragraph(f"HBM limit: {self.limit}", muted=True) if self.limit else "",
        )

    def text(self) -> str:
        kind = " (emulated)" if self.counters.emulated else ""
        rows = [("HBM in use", self._of_limit()), ("HBM peak", blocks.size(self.counters.peak_bytes))]
        rows += [
            (name, f"{value} ({detail})" if detail else value) for name, value, detail in self._numbers()
        ]
        rows += [("mode", self.mode), *([("HBM limit", self.limit)] if self.limit else [])]
        lines = [f"{self.device}{kind}", *blocks.columns(rows)]
        if self.costly:
            lines += ["  compiled, the longest first:", *_plain([_HEAD, *self._rows(self.costly)])]
        if self.again:
            lines += ["  compiled again, the last ones:", *_plain([_HEAD_AGAIN, *self._rows_again()])]
        return "\n".join(lines)

    def _rows(self, programs: list[dict[str, Any]]) -> list[tuple[str, ...]]:
        return [
            (
                _where(each),
                f"`{_name(each)}`",
                blocks.duration(each["duration_ns"] / 1e9),
                _memory(each),
                f"{each['runs']:,}",
            )
            for each in programs
        ]

    def _rows_again(self) -> list[tuple[str, str, str]]:
        return [
            (_where(each), f"`{_name(each)}`", short_batch(each, self.known) or reason(each))
            for each in self.again[-_MOST_AGAIN:]
        ]

    def _of_limit(self) -> str:
        live, limit = self.counters.live_bytes, self.counters.limit_bytes
        return f"{blocks.size(live)} of {blocks.size(limit)}" if limit else blocks.size(live)

    def _numbers(self) -> list[tuple[str, str, str]]:
        c = self.counters
        return [
            ("compiled", f"{c.compiles:,}", f"in {blocks.duration(c.compile_seconds)}"),
            ("cache hits", f"{c.cache_hits:,}", f"{c.memory_hits:,} in memory"),
            ("executions", f"{c.executions:,}", f"busy {blocks.duration(c.busy_seconds)}"),
            ("to device", blocks.size(c.upload_bytes), _transfers(c.uploads)),
            ("from device", blocks.size(c.download_bytes), _transfers(c.downloads)),
        ]


#: Of the text, and what its last column has at least of that where it is long.
_WIDTH, _LEAST = 80, 20
_MOST_COSTLY = 3
_MOST_AGAIN = 5
_HEAD = ("where", "program", "compiled in", "memory", "runs")
_HEAD_AGAIN = ("where", "program", "compiled again because")


def _plain(rows: list[tuple[str, ...]]) -> list[str]:
    plain = [tuple(cell.replace("`", "") for cell in row) for row in rows]
    lines = blocks.columns(plain, "    ")
    longest = max(len(row[-1]) for row in plain)
    more = lines[0].rindex(plain[0][-1]) + min(_LEAST, longest) - _WIDTH
    if more > 0:  # names of programs may be shorter
        most = max(8, max(len(row[1]) for row in plain) - more)
        plain = [
            (row[0], row[1] if len(row[1]) <= most else row[1][: most - 1] + "…", *row[2:]) for row in plain
        ]
        lines = blocks.columns(plain, "    ")
    # the last column is the one that may be long
    start = lines[0].rindex(plain[0][-1])
    return [part for line in lines for part in _broken(line, start)]


def _broken(line: str, start: int) -> list[str]:
    """A line in parts of at most 80 characters, the further ones below its last column."""
    said = textwrap.wrap(line[start:], max(_LEAST, _WIDTH - start), break_on_hyphens=False)
    return [line[:start] + said[0], *(" " * start + more for more in said[1:])] if said else [line]


def _where(program: dict[str, Any]) -> str:
    return program.get("place", "")


def _name(program: dict[str, Any]) -> str:
    name = program["name"].removeprefix("tt_jit_")
    # What TorchTPU calls a compiled function is a place in its own source.
    return "torch.compile" if name.startswith("export_") else name


def _memory(program: dict[str, Any]) -> str:
    """HBM while it runs: arguments, results and temporaries, each once."""
    parts = ("argument_bytes", "output_bytes", "temporary_bytes")
    return blocks.size(max(0, sum(program[part] for part in parts) - program["alias_bytes"]))


def _transfers(count: int) -> str:
    return f"in {count:,} transfer{'' if count == 1 else 's'}"
