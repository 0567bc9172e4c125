"""The line of `%tpu_watch` under a cell."""

from __future__ import annotations

from typing import Any

from . import blocks


class WatchLine:
    """What a cell did on the device. Snapshots are None while there is no device."""

    def __init__(
        self, seconds: float, before: dict[str, Any] | None, now: dict[str, Any] | None, running: bool = False
    ) -> None:
        self.seconds = seconds
        self.running = running
        self._before = before or {}
        self._now = now or {}

    def html(self) -> str:
        return blocks.line(self.parts())

    def text(self) -> str:
        return blocks.joined(self.parts())

    def parts(self) -> list[str]:
        """The time, and of the rest what there is to say."""
        parts = [f"running for {self.seconds:.0f} s" if self.running else blocks.duration(self.seconds)]
        executions, compiles = self._since("executions"), self._since("compiles")
        hits, moved = self._since("cache_hits"), self._since("uploads") + self._since("downloads")
        change = self._since("live_bytes")
        if not (executions or compiles or hits or moved or change):
            return parts
        parts.append(f"device busy {blocks.duration(self._since('busy_ns') / 1e9)}")
        if compiles:
            parts.append(f"compiled {compiles:,} in {blocks.duration(self._since('compile_ns') / 1e9)}")
        if hits:
            parts.append(f"{hits:,} from disk")
        if executions:
            found = executions - self._since("programs_run")
            parts.append(f"launched {executions:,}" + (f" ({found:,} in memory)" if found else ""))
        sign = "+" if change >= 0 else "−"
        peak = blocks.size(self._now["cell_peak_bytes"])
        parts.append(
            f"HBM {sign}{blocks.size(abs(change))}, now {blocks.size(self._now['live_bytes'])}, peak {peak}"
        )
        return parts

    def _since(self, name: str) -> int:
        return self._now.get(name, 0) - self._before.get(name, 0)
