"""The card of `%tpu_free`: what was freed by what, what was lost, what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..memory.lost import words
from . import blocks
from .memory import aligned

if TYPE_CHECKING:
    from ..memory.freeing import Step
    from ..memory.holders import Table


class FreeCard:
    """What letting go did. All bytes are tpu-core's."""

    def __init__(
        self,
        device: str,
        counters: dict[str, Any],
        steps: list[Step],
        freed: int,
        table: Table,
        kept: list[tuple[str, int, list[str]]] | None = None,
        gone: list[str] | None = None,
        emptied: list[str] | None = None,
    ) -> None:
        self.device = device
        self.counters = counters
        self.steps = steps
        self.freed = freed
        self.table = table
        #: Names whose memory something else holds: bytes, and what.
        self.kept = kept or []
        #: After `--all`: names that were deleted, and those whose tensors have no values any more.
        self.gone = gone
        self.emptied = emptied or []

    def html(self) -> str:
        return blocks.card(
            blocks.headline("freed", "good", blocks.size(self.freed), self._now()),
            blocks.table(("let go of", "bytes"), self._rows()),
            *(blocks.paragraph(line) for line in self._notes()),
        )

    def text(self) -> str:
        rows = [tuple(cell.replace("`", "") for cell in row) for row in self._rows()]
        notes = [note.replace("`", "") for note in self._notes()]
        return "\n".join(
            [f"freed {blocks.size(self.freed)} · {self._now()}", *aligned(rows), *blocks.wrapped(notes)]
        )

    def _rows(self) -> list[tuple[str, str]]:
        return [(what, blocks.size(freed) if freed > 0 else "nothing") for what, freed in self.steps]

    def _now(self) -> str:
        live, limit = self.counters["live_bytes"], self.counters["limit_bytes"]
        now = f"{blocks.size(live)} in use"
        return f"{now} of {blocks.size(limit)}" if limit else now

    def _notes(self) -> list[str]:
        notes = []
        for name, count, others in self.kept:
            said = ", ".join(f"`{other}`" if other else "other code" for other in others)
            notes.append(f"{blocks.size(count)} of `{name}` stay: {said} {_holds(others)} them too.")
        if self.gone is not None:
            notes.append(f"Deleted: {_list(self.gone)}." if self.gone else "No variable was on the device.")
        if self.emptied:
            notes.append(f"Without values now, their shapes stay (device `meta`): {_list(self.emptied)}.")
        if self.gone is not None:
            notes.append(self._rest())
        elif self.table.holdings:
            notes.append(f"{blocks.size(self.table.named)} have names in the notebook: `%tpu_mem`.")
        return notes

    def _rest(self) -> str:
        if not self.counters["live_bytes"]:
            return "Nothing is on the device any more."
        parts = []
        if self.table.named:
            names = [holding.names[0] for holding in self.table.holdings if holding.names]
            parts.append(f"{self.table.named:,} bytes in {_list(names)}")
        if self.table.unnamed:
            parts.append(f"{self.table.unnamed:,} in tensors of other code")
        if self.table.rest > 0:
            parts.append(f"{self.table.rest:,} that TorchTPU keeps (scalars, results)")
        return f"{self.counters['live_bytes']:,} bytes are left: {', '.join(parts)}."


def _list(names: list[str]) -> str:
    return words(names)


def _holds(others: list[str]) -> str:
    return "holds" if len(others) == 1 else "hold"
