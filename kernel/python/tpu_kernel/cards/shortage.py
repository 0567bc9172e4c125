"""The card above an error of the device's memory: what did not fit, who holds the rest, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import blocks
from .memory import aligned, name_of, shape, shortened

if TYPE_CHECKING:
    from ..memory.holders import Group
    from ..memory.shortage import Diagnosis

_MOST_ROWS = 6
_HEAD = ("holder", "what", "bytes", "kept alive by")


class ShortageCard:
    """Why a cell ran out of HBM."""

    def __init__(self, device: str, diagnosis: Diagnosis) -> None:
        self.device = device
        self.diagnosis = diagnosis
        self.groups = diagnosis.held.groups()

    def html(self) -> str:
        largest = max([self.diagnosis.wanted, *(group.bytes for group in self.groups[:1]), 1])
        rows = [
            (
                self._wanted_name(),
                self.diagnosis.shape,
                f"{self._wanted()} wanted",
                self._where(),
            )
        ]
        counts = [self.diagnosis.wanted, *(group.bytes for group in self.groups[:_MOST_ROWS])]
        rows += self._rows()
        return blocks.card(
            blocks.headline("out of HBM", "bad", self.device, *self._facts()),
            blocks.paragraph(self._sentence()),
            blocks.table(_HEAD, rows, numbers=(2,), shares=[count / largest for count in counts], alarm=True),
            *(blocks.paragraph(line) for line in self._notes()),
            edge="bad",
        )

    def text(self) -> str:
        rows = [
            (
                self._wanted_name(),
                self.diagnosis.shape,
                f"{self._wanted()} wanted",
                self._where(),
            )
        ]
        rows += self._rows(30)
        plain = [tuple(cell.replace("`", "") for cell in row) for row in [_HEAD, *rows]]
        notes = [note.replace("`", "") for note in self._notes()]
        return "\n".join(
            [
                " · ".join([f"out of HBM on {self.device}", *self._facts()]),
                *blocks.wrapped([self._sentence().replace("`", "")]),
                *aligned(plain),
                *blocks.wrapped(notes),
            ]
        )

    def _facts(self) -> list[str]:
        found = self.diagnosis
        free = blocks.size(found.free)
        if self._wanted() == free:  # by less than is shown
            return [f"wanted {found.wanted:,} B", f"free {found.free:,} B of {blocks.size(found.limit)}"]
        return [f"wanted {self._wanted()}", f"free {free} of {blocks.size(found.limit)}"]

    def _wanted(self) -> str:
        return blocks.size(self.diagnosis.wanted)

    def _sentence(self) -> str:
        if not self.diagnosis.source:
            return "What this cell asked for did not fit."
        return f"`{self.diagnosis.source}` ({self.diagnosis.place}) did not fit."

    def _wanted_name(self) -> str:
        name, equals, _ = self.diagnosis.source.partition(" = ")
        is_it = self.diagnosis.shape or self.diagnosis.certain
        if is_it and equals and name.isidentifier() and ";" not in self.diagnosis.source:
            return f"`{name}`"
        return "this line"

    def _where(self) -> str:
        return self.diagnosis.place.removesuffix(" or before").removesuffix(" or after") or "this cell"

    def _rows(self, longest: int = 40) -> list[tuple[str, ...]]:
        return [
            (name_of(group, longest), shape(group.members), blocks.size(group.bytes), self._kept(group))
            for group in self.groups[:_MOST_ROWS]
        ]

    def _kept(self, group: Group) -> str:
        if not group.name:
            return "other code"
        words = {"output": "output history", "traceback": "last traceback", "running": "code that runs"}
        if group.kind in words:
            return words[group.kind]
        cell = self.diagnosis.assigned.get(group.root, "")
        word = f"graph of `{group.root}`" if group.kind == "graph" else "variable"
        return f"{word}, {cell}" if cell else word

    def _notes(self) -> list[str]:
        notes = self.diagnosis.cures()
        if self.diagnosis.freed:
            notes.insert(
                0,
                f"{blocks.size(self.diagnosis.freed)} more were in use then and are free by now: "
                + self._freed_words(),
            )
        return [shortened(note, 400) for note in notes + self.diagnosis.losses()]

    def _freed_words(self) -> str:
        if self.diagnosis.models and not self.diagnosis.anew:
            return self.diagnosis.freed_words()
        return "variables the cell has assigned again, or what its functions held. `del` them before they are assigned."
