"""The card of a tensor on the device: what it is, where it lies, what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..output import tensors
from . import blocks

if TYPE_CHECKING:
    from ..output.tensors import Summary


class TensorCard:
    """Shape, type, HBM, the spread of the values; the picture itself where it is one."""

    def __init__(self, summary: Summary, values: str) -> None:
        self.summary = summary
        self.values = values

    def html(self) -> str:
        s = self.summary
        memory = f"{'view of ' if s.view else ''}{blocks.size(s.bytes)} of HBM"
        facts = [memory, *([s.gradient] if s.gradient else [])]
        return blocks.card(
            blocks.headline(s.dtype, "good", " × ".join(str(side) for side in s.shape), s.device, *facts),
            blocks.tiles([(name, value, "") for name, value in s.numbers]) if s.numbers else "",
            self._picture() if s.picture else blocks.histogram(s.histogram),
            blocks.folded("values", self.values, unfolded=not s.picture),
        )

    def text(self) -> str:
        return self.values

    def _picture(self) -> str:
        width, height = self.summary.sides
        scale = max(1, 160 // max(width, height))
        address = tensors.data_uri(self.summary.picture)
        return (
            f'<img src="{address}" alt="the tensor as a picture of {width} × {height} pixels" '
            f'style="display:block;margin:8px 0 0;width:{width * scale}px;max-width:100%;image-rendering:pixelated">'
        )
