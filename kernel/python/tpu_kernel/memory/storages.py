"""Memory on the device as Python objects reach it: tensors the garbage collector knows, and what hides behind them.

Nothing here touches the device: no value is read, no property or `repr` of the user's is called.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_MOST_NODES = 50_000


@dataclass
class Holding:
    """One storage on the device and what holds it."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    #: Paths as `model.layers.3.weight`, `opt.state[model.weight].exp_avg`, `Out[3]`, best first.
    names: list[str] = field(default_factory=list)
    #: What was to be computed into it failed: it has no memory, and reading it raises.
    lost: bool = False
    #: `parameter`, `gradient`, `optimizer`, `output`, `traceback`, `graph`, `running` (a thread or task),
    #: `variable`, or "" for none.
    kind: str = ""
    #: What has to go before this memory is free: variables, outputs, … (see `Walk.shares`). "" stands for
    #: something the notebook has no name for.
    holders: frozenset[str] = frozenset()
    #: The Python objects that are this memory.
    tensors: list[int] = field(default_factory=list)

    @property
    def root(self) -> str:
        """The variable, output or traceback to let go of; "" when the notebook has no name for it."""
        return root_of(self.names[0], self.kind) if self.names else ""


def root_of(name: str, kind: str) -> str:
    """The first part of a path: what a person can let go of."""
    if kind in ("traceback", "running"):
        return name.partition(": ")[0] if ": " in name else name
    if kind == "graph":
        return "graph of " + root_of(name.removeprefix("graph of "), "variable")
    for end, letter in enumerate(name):
        if letter in ".({:" or (letter == "[" and not name.startswith("Out")):
            return name[:end]
    return name


def is_tensor(torch: Any, value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def on_device(tensor: Any) -> bool:
    return tensor.device.type == "tpu" and not tensor.is_sparse


def key_of(tensor: Any) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return None  # a tensor without memory of its own: fake, sparse, wrapped


def find(torch: Any, failures: bool) -> tuple[dict[int, Holding], dict[int, Any]]:
    """Each storage that has a buffer, by its address; and the nodes of the graph that made some."""
    from torch_tpu._internal.sync import _tpu_torch_sync as sync

    found: dict[int, Holding] = {}
    makers: dict[int, Any] = {}
    nodes: set[Any] = set()

    def add(tensor: Any, is_object: bool) -> None:
        if not on_device(tensor) or (key := key_of(tensor)) is None:
            return
        if is_object and key in found:
            found[key].tensors.append(id(tensor))
        if key in found:
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() and has_buffer(sync, tensor):
            if not tensor.is_leaf:
                makers[key] = tensor.grad_fn
            dtype = str(tensor.dtype).removeprefix("torch.")
            lost = failures and is_lost(sync, tensor)
            found[key] = Holding(storage.nbytes(), tuple(tensor.shape), dtype, lost=lost)
            if is_object:
                found[key].tensors.append(id(tensor))

    for value in gc.get_objects():
        if is_tensor(torch, value) and not _is_random_state(torch, value):
            for each in with_hidden(value, nodes):
                add(each, each is value)
    return found, makers


def _is_random_state(torch: Any, tensor: Any) -> bool:
    """The state of TorchTPU's random numbers: the generator's own, in C++, though Python may have seen it."""
    return tensor.dtype is torch.uint64 and tensor.shape == (2,) and tensor._use_count() > 1


def lost_tensors() -> list[Any]:
    """Tensors whose computation failed. Waits for what is being computed."""
    import torch
    from torch_tpu._internal.sync import _tpu_torch_sync as sync

    tensors = [value for value in gc.get_objects() if is_tensor(torch, value) and on_device(value)]
    started = (tensor for tensor in tensors if has_buffer(sync, tensor))
    return [tensor for tensor in started if is_lost(sync, tensor)]


def has_buffer(sync: Any, tensor: Any) -> bool:
    try:
        return sync._is_materialized(tensor) or sync._is_materializing(tensor)
    except NotImplementedError:
        return False  # one of the compiler's, which only describes a tensor


def is_lost(sync: Any, tensor: Any) -> bool:
    try:
        sync._synchronize_tensor(tensor.detach(), True)
    except RuntimeError:
        return True
    return False


def with_hidden(tensor: Any, nodes: set[Any]) -> Iterator[Any]:
    """A tensor, and those only it leads to: its gradient, and what its graph keeps for `backward()`, but for
    the `nodes` that were gone through before."""
    yield tensor
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
        yield tensor.grad
    if tensor.grad_fn is not None:
        for node in graph_of(tensor.grad_fn, nodes):
            yield from saved_by(node)


def graph_of(node: Any, nodes: set[Any]) -> list[Any]:
    """The nodes `backward()` would go through, but for those in `nodes`, where they are put: the graphs of a
    thousand steps share most of theirs."""
    found = [] if node in nodes else [node]
    nodes.update(found)
    for each in found:
        for parent, _ in each.next_functions:
            if parent is not None and parent not in nodes and len(found) < _MOST_NODES:
                nodes.add(parent)
                found.append(parent)
    return found


def saved_by(node: Any) -> Iterator[Any]:
    """Tensors a node keeps for `backward()`, as far as it says so.

    Where hooks of the user's pack them (checkpoints, offloading), what was packed: unpacking would compute.
    """
    # PyTorch's own nodes have a name for each; those written in Python, such as `torch.compile`'s, one list.
    for name in [name for name in dir(node) if name.startswith(("_saved_", "saved_tensors"))]:
        try:
            packed = _packed(getattr(node, f"_raw_{name.removeprefix('_')}", None))
            value = getattr(node, name) if packed is None else packed
        except RuntimeError:
            continue  # freed by `backward()`, or never set
        values = value if isinstance(value, (tuple, list)) else (value,)
        yield from (each for each in values if type(each).__name__ in ("Tensor", "Parameter"))


def _packed(raw: Any) -> list[Any] | None:
    """What hooks made of saved tensors; None where there are no hooks."""
    saved = [
        each
        for each in (raw if isinstance(raw, (tuple, list)) else (raw,))
        if getattr(each, "unpack_hook", None) is not None
    ]
    if not saved:
        return None
    found: list[Any] = []
    for each in saved:
        data = each.data
        found += data if isinstance(data, (tuple, list)) else (data,)
    return found
