"""The card of a loop that compiles at every step, shown while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import blocks

if TYPE_CHECKING:
    from ..tpu.storms import Cause


class StormCard:
    """How much was compiled so far, why, and what to do."""

    def __init__(self, cause: Cause, count: int, seconds: float) -> None:
        self.cause = cause
        self.count = count
        self.seconds = seconds

    def html(self) -> str:
        return blocks.card(
            blocks.headline("compiles at every step", "warn", self._title(), blocks.duration(self.seconds)),
            blocks.paragraph(f"{self._where()}: {self.cause.words}."),
            blocks.paragraph(self.cause.advice),
        )

    def text(self) -> str:
        words = f"{self._where()}: {self.cause.words}.".replace("`", "")
        return "\n".join(
            [
                f"compiles at every step · {self._title()} · {blocks.duration(self.seconds)}",
                *blocks.wrapped([words, self.cause.advice.replace("`", "")]),
            ]
        )

    def _title(self) -> str:
        return f"{self.count:,} programs compiled in this cell"

    def _where(self) -> str:
        return self.cause.place or "This cell"
