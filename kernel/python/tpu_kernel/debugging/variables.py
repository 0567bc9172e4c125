"""How the debugger shows variables: short texts, what is inside, rich representations.

A tensor on the device is never formatted there: that would compile and run programs on it. Lists show
its shape and type; who looks at it alone gets a copy on the host.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from ..introspection.description import is_tensor
from ..introspection.live import own_space

#: Longest text of a value, most children of one.
TEXT, CHILDREN = 200, 1000
#: Elements that are copied to be shown.
COPIED_ELEMENTS = 10_000


def on_device(value: Any) -> bool:
    """A tensor that is not on the host."""
    return is_tensor(value) and value.device.type not in ("cpu", "meta")


def summary(tensor: Any) -> str:
    """A tensor without its numbers."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{type(tensor).__name__}(shape={list(tensor.shape)}, dtype={kind}, device='{tensor.device}')"


def host_text(tensor: Any) -> str:
    """A tensor's numbers, which the kernel has PyTorch format on the host."""
    return repr(tensor.detach())


class _Short(reprlib.Repr):
    """`repr` that ends early in long things."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxdeque = 10
        self.maxstring = self.maxother = TEXT

    def repr1(self, x: Any, level: int) -> str:
        if on_device(x):
            return summary(x)
        try:
            return super().repr1(x, level)
        except Exception as failure:  # noqa: BLE001
            return f"<{type(x).__name__} whose repr raised {type(failure).__name__}>"


short = _Short().repr


class Explorer:
    """Variables as a tree that a front end opens step by step."""

    def __init__(self) -> None:
        self._opened: dict[int, Any] = {}

    def begin(self, names: Mapping[str, Any]) -> list[dict[str, Any]]:
        """A new tree; references of an earlier one end."""
        self._opened = {}
        return [self._describe(name, value, name) for name, value in names.items()]

    def children(self, reference: int) -> list[dict[str, Any]]:
        """What is inside a variable of the tree."""
        if reference not in self._opened:
            raise KeyError("these variables are not shown any more: open them again")
        return [
            self._describe(name, value, "")
            for name, value in list(inside(self._opened[reference]))[:CHILDREN]
        ]

    def _describe(self, name: str, value: Any, expression: str) -> dict[str, Any]:
        reference = 0
        if has_inside(value):
            reference = len(self._opened) + 1
            self._opened[reference] = value
        return {
            "name": name,
            "value": short(value),
            "type": type(value).__name__,
            "evaluateName": expression,
            "variablesReference": reference,
        }


def has_inside(value: Any) -> bool:
    """There is something to open."""
    kind = type(value)
    if issubclass(kind, (str, bytes, bytearray, int, float, complex, type(None), type(sys))):
        return False
    if issubclass(kind, (Mapping, Sequence, AbstractSet)):
        try:
            return len(value) > 0
        except Exception:  # noqa: BLE001  a `__len__` of somebody's own
            return False
    return on_device(value) or bool(own_space(value))


def inside(value: Any) -> Iterator[tuple[str, Any]]:
    """Name and value of each child. Only what is stored: nothing is computed, no property runs."""
    kind = type(value)
    if on_device(value):
        yield from tensor_parts(value).items()
    elif issubclass(kind, Mapping):
        for key in list(value)[:CHILDREN]:
            yield short(key), value[key]
    elif issubclass(kind, Sequence):
        for number in range(min(len(value), CHILDREN)):
            yield str(number), value[number]
    elif issubclass(kind, AbstractSet):
        for number, element in enumerate(list(value)[:CHILDREN]):
            yield str(number), element
    else:
        yield from list(own_space(value).items())


def tensor_parts(tensor: Any) -> dict[str, Any]:
    """What can be said of a tensor on the device, its numbers included when they are few."""
    parts = {
        "shape": tuple(tensor.shape),
        "dtype": str(tensor.dtype),
        "device": str(tensor.device),
        "requires_grad": tensor.requires_grad,
        "grad": tensor.grad if tensor.is_leaf else None,
    }
    if tensor.numel() <= COPIED_ELEMENTS:
        parts["values"] = tensor.detach().cpu()
    return parts


def representations(value: Any) -> dict[str, Any]:
    """All representations of a value, as its display in a cell has them."""
    from IPython import get_ipython

    if on_device(value):
        return {"data": {"text/plain": host_text(value)}, "metadata": {}}
    formatter = get_ipython().display_formatter
    data, metadata = formatter.format(value, exclude={"text/plain"})
    data.setdefault("text/plain", _plain(formatter)(value) or short(value))
    return {"data": data, "metadata": {k: v for k, v in metadata.items() if k in data}}


def _plain(formatter: Any) -> Any:
    """The notebook's text formatter, save that tensors on the device inside of things stay there."""
    plain = formatter.formatters["text/plain"]
    copied = type(plain)(parent=plain.parent)
    copied.type_printers = dict(plain.type_printers)
    copied.deferred_printers = dict(plain.deferred_printers)
    copied.float_precision = plain.float_precision
    if torch := sys.modules.get("torch"):
        for kind in (torch.Tensor, torch.nn.Parameter):
            copied.type_printers[kind] = lambda value, printer, cycle: printer.text(
                summary(value) if on_device(value) else repr(value)
            )
    return copied


class TensorResolver:
    """What pydevd shows inside a tensor on the device; its own way runs every property."""

    def can_provide(self, kind: type, name: str) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and issubclass(kind, getattr(torch, "Tensor", ()))

    def resolve(self, value: Any, attribute: str) -> Any:
        return self.get_dictionary(value)[attribute]

    def get_dictionary(self, value: Any) -> dict[str, Any]:
        return tensor_parts(value)


def teach_debugger() -> None:
    """Let pydevd, which shows the variables of frames, keep off the device too."""
    from _pydevd_bundle.pydevd_extension_api import TypeResolveProvider
    from _pydevd_bundle.pydevd_extension_utils import extensions_of_type
    from _pydevd_bundle.pydevd_safe_repr import SafeRepr

    extensions_of_type(TypeResolveProvider).insert(0, TensorResolver())
    represent = SafeRepr._repr

    def represent_on_host(self: Any, value: Any, level: int) -> Iterator[str]:
        if on_device(value):
            yield summary(value)
        else:
            yield from represent(self, value, level)

    SafeRepr._repr = represent_on_host
