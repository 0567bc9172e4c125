"""Tensors on the device, read for people: copied to the host first, so that nothing is compiled."""

from __future__ import annotations

import base64
import itertools
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

#: A view is copied with all it is a view of, up to this many bytes: its own copy is a program.
_WHOLE_STORAGE = 64 << 20
#: Fewer elements are shown as they are, and no card is made.
_CARD_ELEMENTS = 256
#: More are not read for a card, nor to print the first and last of them.
_MOST_ELEMENTS = 1 << 26
_BINS = 40
_PICTURE_SIDES = (16, 2048)


class _Shown(threading.local):
    """What this thread reads to show one object: where that was, its memory and the copy, of the last one."""

    showing = False
    last: tuple[Any, Any, Any] = (None, None, None)


_shown = _Shown()


@contextmanager
def read_once() -> Iterator[None]:
    """While one object is shown: what is read for one of its forms does for the others."""
    before, _shown.showing = _shown.showing, True
    try:
        yield
    finally:
        _shown.showing, _shown.last = before, (None, None, None)


def on_host(tensor: Any) -> Any:
    """A copy of a device tensor in the host's memory, not to be written to. Raises what reading the tensor
    raises."""
    if not _shown.showing or tensor.is_inference():  # such a one does not say whether it was changed
        return _copied(tensor)
    storage = tensor.untyped_storage()
    place = storage._cdata, tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype
    place = *place, tensor.is_conj(), tensor.is_neg(), tensor._version
    if _shown.last[0] != place:
        _shown.last = place, storage, _copied(tensor)
    return _shown.last[2]


def to_print(tensor: Any, options: Any) -> Any:
    """A tensor on the host whose numbers PyTorch prints as those of `tensor`, with its own `options`.

    Of a huge one PyTorch prints the edges only, so only these are copied: a tiny program for each corner.
    """
    edge, threshold = options.edgeitems, options.threshold
    summarized = tensor.numel() > _MOST_ELEMENTS and threshold < _MOST_ELEMENTS
    if not summarized or tensor.layout is not _torch().strided or type(edge) is not int or edge < 1:
        return on_host(tensor)
    cut = [size > 2 * edge for size in tensor.shape]
    sides = [2 * edge + 1 if is_cut else size for is_cut, size in zip(cut, tensor.shape, strict=True)]
    if math.prod(sides) > _MOST_ELEMENTS:
        return on_host(tensor)
    longest = cut.index(True)
    # more than the threshold, so that it is printed by its edges as well: nothing between them is looked at
    sides[longest] = max(sides[longest], int(threshold) * sides[longest] // math.prod(sides) + 1)
    host, tensor = _torch().empty(sides, dtype=tensor.dtype), tensor.detach()
    ends = slice(None, edge), slice(-edge, None)
    for corner in itertools.product(*[ends if is_cut else (slice(None),) for is_cut in cut]):
        host[corner].copy_(tensor[corner].cpu())
    return host


def _torch() -> Any:
    return sys.modules["torch"]


def _copied(tensor: Any) -> Any:
    import torch

    tensor = tensor.detach()
    plain = not (tensor.is_conj() or tensor.is_neg()) and tensor.layout is torch.strided
    storage = tensor.untyped_storage()
    whole = tensor.numel() * tensor.element_size() == storage.nbytes() and tensor.is_contiguous()
    if whole or not plain or storage.nbytes() > _WHOLE_STORAGE:
        return tensor.cpu()
    host = torch.empty(0, dtype=tensor.dtype)
    return host.set_(storage.cpu(), tensor.storage_offset(), tensor.size(), tensor.stride())


@dataclass
class Summary:
    """What a card says of a tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    #: Bytes of HBM; of what it is a view of, where it is one.
    bytes: int
    view: bool
    gradient: str
    #: Name and value, in words. Of the finite elements.
    numbers: list[tuple[str, str]] = field(default_factory=list)
    #: How many finite elements lie in each of equal parts between the least and the greatest.
    histogram: list[int] = field(default_factory=list)
    #: PNG, where the tensor looks like a picture, and its sides in pixels.
    picture: bytes = b""
    sides: tuple[int, int] = (0, 0)


def summary(tensor: Any) -> Summary:
    """Read a device tensor once and describe it."""
    storage = tensor.untyped_storage().nbytes()
    own = tensor.numel() * tensor.element_size()
    gradient = "requires_grad" if tensor.requires_grad and tensor.is_leaf else ""
    if tensor.grad_fn is not None:
        gradient = f"grad_fn {tensor.grad_fn.name().removesuffix('0')}"
    found = Summary(
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        str(tensor.device),
        storage,
        storage != own,
        gradient,
    )
    if tensor.numel() <= _MOST_ELEMENTS and not tensor.is_complex():
        _read(on_host(tensor), found)
    return found


def _read(host: Any, found: Summary) -> None:
    import torch

    values = host.to(torch.float64 if host.dtype in (torch.int64, torch.float64) else torch.float32).flatten()
    finite = values[values.isfinite()] if host.is_floating_point() else values
    if finite.numel():
        least, greatest = (bound.item() for bound in finite.aminmax())
        found.numbers = [
            ("min", _number(least)),
            ("max", _number(greatest)),
            ("mean", _number(finite.mean(dtype=torch.float64).item())),
            ("std", _number(finite.to(torch.float64).std(correction=0).item())),
        ]
        found.histogram = _histogram(finite, least, greatest)
    for name, count in (("NaN", int(values.isnan().sum())), ("infinite", int(values.isinf().sum()))):
        if count:
            found.numbers.append((name, f"{count:,}"))
    found.picture, found.sides = _picture(host)


def _histogram(finite: Any, least: float, greatest: float) -> list[int]:
    width = greatest - least
    if not 0 < width < float("inf"):
        return []
    import torch

    bins = ((finite - least) * (_BINS / width)).to(torch.int64).clamp_(0, _BINS - 1)
    return torch.bincount(bins, minlength=_BINS).tolist()


def _picture(host: Any) -> tuple[bytes, tuple[int, int]]:
    """A PNG of what looks like a picture: bytes, or numbers from 0 to 1, in 1, 3 or 4 channels.

    Numbers without channels are as likely to be weights: only bytes are a grey picture.
    """
    import torch

    from .. import _kernel

    fractions = host.is_floating_point() and host.dim() == 3
    if host.dtype is not torch.uint8 and not fractions:
        return b"", (0, 0)
    if host.dim() == 2:
        host = host.unsqueeze(-1)
    elif host.dim() == 3 and host.shape[-1] not in (1, 3, 4) and host.shape[0] in (1, 3, 4):
        host = host.permute(1, 2, 0)
    if host.dim() != 3 or host.shape[-1] not in (1, 3, 4):
        return b"", (0, 0)
    height, width, channels = host.shape
    if not all(_PICTURE_SIDES[0] <= side <= _PICTURE_SIDES[1] for side in (height, width)):
        return b"", (0, 0)
    if fractions:
        host = host.to(torch.float32)
        if not bool(((host >= 0) & (host <= 1)).all()):
            return b"", (0, 0)
        host = (host * 255).round().to(torch.uint8)
    return _kernel.png(host.contiguous().numpy().tobytes(), width, height, channels), (width, height)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}"


def html(tensor: Any) -> str | None:
    """The card of a tensor as HTML; None where its values say more, or cannot be read."""
    if (
        tensor.device.type != "tpu"
        or tensor.numel() < _CARD_ELEMENTS
        or type(tensor).__module__.startswith("torch._")
    ):
        return None
    from ..cards.tensor import TensorCard

    try:
        return TensorCard(summary(tensor), repr(tensor)).html()
    except (RuntimeError, NotImplementedError):
        return None  # the plain text says why


def data_uri(png: bytes) -> str:
    """A picture as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode()
