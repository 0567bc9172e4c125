"""Slices that a loop hands to a program: PyTorch compiles anew for each place in a tensor they begin at.

`X[i : i + 64]`, `X[:, i]` and the pieces of `X.chunk(8, dim=1)` differ in their offset alone. An outlined
function gets such a slice as a tensor of its own, and what it does to it is done to the slice. What is
taken, and where it is put back, is said by numbers on the device: one operation for all places.

A slice that shares values with another argument is left as it is: the program has to see that they do.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cut:
    """Where a view lies in a tensor: what it takes of each dimension, and whose each of its own is."""

    ranges: tuple[range, ...]
    #: For each dimension of the view the tensor's; None where it has one place only.
    owners: tuple[int | None, ...]

    def parts(self, sizes: Sequence[int]) -> list[tuple[int, range]]:
        """The dimensions of which it takes only a part."""
        return [(d, part) for d, part in enumerate(self.ranges) if len(part) < sizes[d]]

    def is_apart(self, other: Cut) -> bool:
        """Do two views of one tensor share no value?"""
        return any(
            mine[-1] < its[0] or its[-1] < mine[0] or set(mine).isdisjoint(its)
            for mine, its in zip(self.ranges, other.ranges, strict=True)
        )


def cut_of(
    sizes: Sequence[int], strides: Sequence[int], offset: int, whole: Sequence[int], steps: Sequence[int]
) -> Cut | None:
    """How a view of these sizes and strides lies in a dense tensor of sizes `whole` and strides `steps`; None
    where its dimensions are not parts of the tensor's."""
    starts = []
    for size, step in zip(whole, steps, strict=True):
        start, offset = divmod(offset, step) if size > 1 else (0, offset)
        starts.append(start)
    ranges = [range(start, start + 1) for start in starts]
    owners: list[int | None] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            owners.append(None)
            continue
        for d, step in enumerate(steps):
            by = stride // step
            last = starts[d] + (size - 1) * by
            if whole[d] > 1 and d not in owners and by > 0 and stride % step == 0 and last < whole[d]:
                ranges[d] = range(starts[d], last + 1, by)
                owners.append(d)
                break
        else:
            return None
    return Cut(tuple(ranges), tuple(owners))


class _Slice:
    """A slice and the tensor of its own that stands for it."""

    def __init__(self, value: Any, base: Any, cut: Cut | None) -> None:
        torch = sys.modules["torch"]
        self.value = value
        tracked = value.requires_grad and torch.is_grad_enabled()
        if tracked and (value.retains_grad or value._backward_hooks):  # it is to have a gradient itself
            base, cut = value, _all_of(value)
        self._base = base if tracked else base.detach()
        order: list[int] = []
        if cut is None:
            self._base = self._base.reshape(-1)
            self._places = [(0, _numbers(value).to(value.device))]
        else:
            order = [d for d in cut.owners if d is not None]
            self._places = [
                (d, torch.arange(part.start, part.stop, part.step).to(value.device))
                for d, part in cut.parts(base.size())
            ]
        part = self._base if self._places else self._base.clone()
        for d, numbers in self._places:
            part = part.index_select(d, numbers)
        self._order = order + [d for d in range(part.dim()) if d not in order]
        self._sizes = [part.size(d) for d in self._order]
        if self._order != sorted(self._order):
            part = part.permute(self._order)
        if part.size() != value.size():
            part = part.reshape(value.size())
        #: A view would lose what is known of its gradient when it is changed without one.
        self.copy = part.clone() if tracked and part._is_view() else part
        self._version = None if self.copy.is_inference() else self.copy._version
        self._step = self.copy.grad_fn

    def settle(self) -> None:
        """What was changed in place is changed in the slice."""
        if self._version is not None and self.copy._version == self._version:
            return
        step = self.copy.grad_fn
        # What a program changes without gradients is copied with them, from what has none.
        if step is not self._step and step.next_functions[-1][0] is not None:
            self.value.copy_(self.copy)
            return
        with sys.modules["torch"].no_grad():
            back = sorted(range(len(self._order)), key=self._order.__getitem__)
            part = self.copy.detach().reshape(self._sizes).permute(back)
            self._put(part, self._base.detach(), self._places)

    def _put(self, part: Any, into: Any, places: list[tuple[int, Any]]) -> None:
        if not places:
            into.copy_(part)
            return
        (d, numbers), *others = places
        if others:
            smaller, part = part, into.index_select(d, numbers)
            self._put(smaller, part, others)
        into.index_copy_(d, numbers, part)

    def part_of_value(self, value: Any) -> Any:
        """A part of the copy as that part of the slice; what is none, as it is."""
        original, copy = self.value, self.copy
        if value is copy:
            return original
        if original.is_contiguous() and copy.is_contiguous():
            offset = original.storage_offset() + value.storage_offset()
            return original.as_strided(value.size(), value.stride(), offset)
        order = sorted(range(copy.dim()), key=lambda d: -copy.stride(d))
        sizes, steps = [copy.size(d) for d in order], [copy.stride(d) for d in order]
        cut = cut_of(value.size(), value.stride(), value.storage_offset(), sizes, steps)
        if cut is None:  # of several dimensions at once, for which a slice would have been copied too
            return value
        strides = [original.stride(d) for d in order]
        offset = sum(part.start * stride for part, stride in zip(cut.ranges, strides, strict=True))
        by = [1 if d is None else cut.ranges[d].step * strides[d] for d in cut.owners]
        return original.as_strided(value.size(), by, original.storage_offset() + offset)


class Slices:
    """The arguments of one call in place of slices, and the slices."""

    def __init__(self, arguments: list[Any]) -> None:
        self._slices: dict[int, _Slice] = {}
        found = [(at, base) for at, value in enumerate(arguments) if (base := _base_of(value)) is not None]
        if not found:
            return
        given = list(arguments)
        for at, base in found:
            value = given[at]
            made = self._slices.get(id(value))
            if made is None:
                cut = _cut(value, base)
                if _is_whole(value, base, cut) or any(_shares(value, cut, each) for each in given):
                    continue
                made = self._slices[id(value)] = _Slice(value, base, cut)
            arguments[at] = made.copy

    def settle(self) -> None:
        """What the function changed in place is changed in the slices."""
        for each in self._slices.values():
            each.settle()

    def result(self, value: Any) -> Any:
        """A result that is a part of an argument is that part of the slice."""
        if not self._slices:
            return value
        if type(value) is list:
            value[:] = map(self.result, value)
        elif type(value) is dict:
            value.update({key: self.result(each) for key, each in value.items()})
        elif type(value) is tuple:
            return tuple(map(self.result, value))
        elif type(value) is sys.modules["torch"].Tensor:
            storage = _storage(value)
            for each in self._slices.values():
                if _storage(each.copy) == storage:
                    return each.part_of_value(value)
        return value


def _base_of(value: Any) -> Any:
    """The tensor that this is a slice of; None for what is none, or is as it would be copied."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.device.type == "cpu":
        return None
    if value.layout is not torch.strided or (not value.storage_offset() and value.is_contiguous()):
        return None
    base = value._base
    if base is None:
        # in inference mode nobody keeps whose slice it is
        count = value.untyped_storage().nbytes() // value.element_size()
        is_part = count > value.numel() and (value.storage_offset() or value.is_inference())
        return value.as_strided((count,), (1,), 0) if is_part else None
    return base if base.is_contiguous() and not base.storage_offset() else None


def _all_of(value: Any) -> Cut:
    return Cut(tuple(range(size) for size in value.size()), tuple(range(value.dim())))


def _cut(value: Any, base: Any) -> Cut | None:
    return cut_of(value.size(), value.stride(), value.storage_offset(), base.size(), base.stride())


def _is_whole(value: Any, base: Any, cut: Cut | None) -> bool:
    """Is it all of its tensor in another order, or some of it several times?"""
    if not value.numel():
        return True
    if cut is not None:
        return not cut.parts(base.size())
    extent = 0
    for stride, size in sorted(zip(value.stride(), value.size(), strict=True)):
        if size > 1 and stride <= extent:
            return True
        extent += stride * (size - 1)
    return False


def _numbers(value: Any) -> Any:
    """Where the values of a slice are in its memory."""
    torch = sys.modules["torch"]
    places = torch.tensor(value.storage_offset())
    for stride, size in zip(value.stride(), value.size(), strict=True):
        places = places[..., None] + torch.arange(size) * stride
    return places.reshape(-1)


def _shares(value: Any, cut: Cut | None, argument: Any) -> bool:
    """Does an argument hold values of a slice too?"""
    torch = sys.modules["torch"]
    if argument is value:
        return False
    if issubclass(type(argument), torch.Tensor):
        if argument.layout is not torch.strided or _storage(argument) != _storage(value):
            return False
        if cut is None or argument._base is not value._base or not argument.numel():
            return bool(argument.numel())
        its = _cut(argument, argument._base)
        return its is None or not cut.is_apart(its)
    if isinstance(argument, torch.nn.Module):
        return _storage(value) in _storages(argument)
    inner = argument.values() if isinstance(argument, dict) else argument
    return isinstance(argument, (list, tuple, set, dict)) and any(_shares(value, cut, each) for each in inner)


#: The memory of modules' parameters and buffers, as they were when they were first called with a slice.
_known: weakref.WeakKeyDictionary[Any, frozenset[int]] = weakref.WeakKeyDictionary()


def _storages(module: Any) -> frozenset[int]:
    if module not in _known:
        tensors = itertools.chain(module.parameters(), module.buffers())
        _known[module] = frozenset(_storage(each) for each in tensors if _is_strided(each))
    return _known[module]


def _is_strided(value: Any) -> bool:
    return value.layout is sys.modules["torch"].strided


def _storage(value: Any) -> int:
    return value.untyped_storage()._cdata
