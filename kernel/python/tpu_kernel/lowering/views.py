"""Slices that a loop hands to a program: PyTorch compiles anew for each place in a tensor they begin at.

`X[i : i + 64]` and the pieces of `X.split(64)` differ in their offset alone. An outlined function gets
such a piece as a tensor of its own, and what it does to it is done to the slice.
"""

from __future__ import annotations

import sys
from typing import Any


class Slices:
    """The arguments of one call in place of slices, and the slices."""

    def __init__(self, arguments: list[Any]) -> None:
        self._pairs: list[tuple[Any, Any, int]] = []
        for at, value in enumerate(arguments):
            if _is_slice(value):
                copy = _copy(value)
                self._pairs.append((value, copy, copy._version))
                arguments[at] = copy

    def settle(self) -> None:
        """What the function changed in place is changed in the slices."""
        for value, copy, version in self._pairs:
            if copy._version != version:
                value.copy_(copy)

    def result(self, value: Any) -> Any:
        """A result that is a part of an argument is that part of the slice."""
        if self._pairs and type(value) is type(self._pairs[0][1]):
            storage = value.untyped_storage()._cdata
            for original, copy, _ in self._pairs:
                if value is copy:
                    return original
                if copy.untyped_storage()._cdata == storage:
                    offset = original.storage_offset() + value.storage_offset()
                    return original.as_strided(value.size(), value.stride(), offset)
        return value


def _is_slice(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(value) is torch.Tensor
        and value.device.type != "cpu"
        and not value.requires_grad
        and value.layout is torch.strided
        and value.storage_offset() > 0
        and value.is_contiguous()
    )


def _copy(value: Any) -> Any:
    """The slice as a tensor of its own. Rows are picked by their numbers: one program for all of them."""
    torch = sys.modules["torch"]
    base = value._base
    with torch.no_grad():
        if (
            base is not None
            and 0 < value.dim() == base.dim()
            and value.shape[1:] == base.shape[1:]
            and base.is_contiguous()
            and base.storage_offset() == 0
            and base.stride(0) > 0
        ):
            first = value.storage_offset() // base.stride(0)
            rows = torch.arange(first, first + value.shape[0]).to(value.device)
            return base.detach().index_select(0, rows)
        return value.clone()
