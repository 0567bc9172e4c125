"""The card of `%tpu_stats`: the counters of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import blocks

if TYPE_CHECKING:
    from ..magics.measure import Counters


class StatsCard:
    """What the session did since it started."""

    def __init__(self, device: str, counters: Counters, mode: str, limit: str = "") -> None:
        self.device = device
        self.counters = counters
        self.mode = mode
        #: Where the limit comes from, when it is not the chip's own.
        self.limit = limit.strip(" ()")

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
        return "\n".join([f"{self.device}{kind}", *blocks.columns(rows)])

    def _of_limit(self) -> str:
        live, limit = self.counters.live_bytes, self.counters.limit_bytes
        return f"{blocks.size(live)} of {blocks.size(limit)}" if limit else blocks.size(live)

    def _numbers(self) -> list[tuple[str, str, str]]:
        c = self.counters
        return [
            ("compiled", f"{c.compiles:,}", f"in {blocks.duration(c.compile_seconds)}"),
            ("cache hits", f"{c.cache_hits:,}", ""),
            ("executions", f"{c.executions:,}", f"busy {blocks.duration(c.busy_seconds)}"),
            ("to device", blocks.size(c.upload_bytes), _transfers(c.uploads)),
            ("from device", blocks.size(c.download_bytes), _transfers(c.downloads)),
        ]


def _transfers(count: int) -> str:
    return f"in {count:,} transfer{'' if count == 1 else 's'}"
