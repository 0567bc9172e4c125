"""Who holds device memory: each live storage traced to the names a person knows it by.

Nothing here touches the device: tensors are found by the garbage collector and named by walking
from the notebook's variables through modules, optimizers, containers, objects and tracebacks.
A tensor, property or `repr` of the user's is never called.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .roots import frame, roots, traceback

#: Values looked at, and seconds spent, before the rest stays unnamed.
_MOST_VISITED = 200_000
_MOST_SECONDS = 2.0
_MOST_NODES = 50_000

_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), range)
#: Where Python's own modules are.
_LIBRARY = os.path.dirname(os.__file__)
#: They make of functions and containers what has no attributes to walk.
_WRAPPERS = ("functools", "itertools", "builtins", "_queue", "collections")


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

    @property
    def root(self) -> str:
        """The variable, output or traceback to let go of; "" when the notebook has no name for it."""
        name = self.names[0] if self.names else ""
        if self.kind in ("traceback", "graph", "running"):
            return name.partition(": ")[0] if ": " in name else name
        for end, letter in enumerate(name):
            if letter == "." or (letter == "[" and not name.startswith("Out")):
                return name[:end]
        return name


@dataclass
class Table:
    """All storages, largest first, against what tpu-core counts."""

    holdings: list[Holding]
    #: Bytes tpu-core counts.
    live: int
    #: Names of tensors whose computation failed: reading them raises.
    lost: list[str] = field(default_factory=list)

    @property
    def named(self) -> int:
        """Bytes with a name."""
        return sum(holding.bytes for holding in self.holdings if holding.names)

    @property
    def unnamed(self) -> int:
        """Bytes of tensors Python has but the notebook has no name for."""
        return sum(holding.bytes for holding in self.holdings if not holding.names)

    @property
    def rest(self) -> int:
        """Bytes no Python tensor holds: scalars TorchTPU keeps, results of a program that wait for others.

        Below zero by the bytes of copies that share memory until one is written.
        """
        return self.live - self.named - self.unnamed

    def by_root(self) -> list[tuple[str, str, int, int]]:
        """Name, kind, number of storages and bytes for each thing to let go of, largest first."""
        groups: dict[str, list[Holding]] = {}
        for holding in self.holdings:
            groups.setdefault(holding.root, []).append(holding)
        rows = []
        for name, group in groups.items():
            kinds = {holding.kind for holding in group}
            kind = kinds.pop() if len(kinds) == 1 else "variable"
            rows.append((name, kind, len(group), sum(holding.bytes for holding in group)))
        return sorted(rows, key=lambda row: -row[3])


def table(
    namespace: dict[str, Any], live: int, error: BaseException | None = None, failures: bool = False
) -> Table:
    """Who holds the device's memory now. `live` is tpu-core's count; `error` is being reported.

    `failures`: something failed on the device in this session, so each tensor is asked whether it
    was lost. That waits for what is being computed into it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return Table([], live)
    found, makers = _storages(torch, failures)
    _Walk(torch, found, makers).run(roots(namespace, error))
    lost = sorted({holding.names[0] for holding in found.values() if holding.lost and holding.names})
    kept = [holding for holding in found.values() if not holding.lost]
    return Table(sorted(kept, key=lambda holding: -holding.bytes), live, lost)


def _is_tensor(torch: Any, value: Any) -> bool:
    return issubclass(type(value), torch.Tensor)


def _on_device(tensor: Any) -> bool:
    return tensor.device.type == "tpu" and not tensor.is_sparse


def _key(tensor: Any) -> int | None:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return None  # a tensor without memory of its own: fake, sparse, wrapped


def _storages(torch: Any, failures: bool) -> tuple[dict[int, Holding], dict[int, Any]]:
    """Each storage that has a buffer, by its address; and the nodes of the graph that made some."""
    from torch_tpu._internal.sync import _tpu_torch_sync as sync

    found: dict[int, Holding] = {}
    makers: dict[int, Any] = {}

    def add(tensor: Any) -> None:
        if not _on_device(tensor) or (key := _key(tensor)) is None or key in found:
            return
        storage = tensor.untyped_storage()
        if storage.nbytes() and _has_buffer(sync, tensor):
            if not tensor.is_leaf:
                makers[key] = tensor.grad_fn
            dtype = str(tensor.dtype).removeprefix("torch.")
            lost = failures and _lost(sync, tensor)
            found[key] = Holding(storage.nbytes(), tuple(tensor.shape), dtype, lost=lost)

    for value in gc.get_objects():
        if _is_tensor(torch, value):
            for each in _with_hidden(value):
                add(each)
    return found, makers


def lost_tensors() -> list[Any]:
    """Tensors whose computation failed. Waits for what is being computed."""
    import torch
    from torch_tpu._internal.sync import _tpu_torch_sync as sync

    tensors = [value for value in gc.get_objects() if _is_tensor(torch, value) and _on_device(value)]
    started = (tensor for tensor in tensors if _has_buffer(sync, tensor))
    return [tensor for tensor in started if _lost(sync, tensor)]


def _has_buffer(sync: Any, tensor: Any) -> bool:
    try:
        return sync._is_materialized(tensor) or sync._is_materializing(tensor)
    except NotImplementedError:
        return False  # one of the compiler's, which only describes a tensor


def _lost(sync: Any, tensor: Any) -> bool:
    try:
        sync._synchronize_tensor(tensor.detach(), True)
    except RuntimeError:
        return True
    return False


def _with_hidden(tensor: Any) -> Iterator[Any]:
    """A tensor, and those only it leads to: its gradient, and what its graph keeps for `backward()`."""
    yield tensor
    if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
        yield tensor.grad
    if tensor.grad_fn is not None:
        for node in _graph(tensor.grad_fn):
            yield from _saved(node)


def _graph(node: Any) -> set[Any]:
    """The nodes `backward()` would go through."""
    seen, waiting = {node}, [node]
    while waiting and len(seen) < _MOST_NODES:
        for parent, _ in waiting.pop().next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return seen


def _saved(node: Any) -> Iterator[Any]:
    """Tensors a node keeps for `backward()`, as far as it says so."""
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                value = getattr(node, name)
            except RuntimeError:
                continue  # freed by `backward()`, or never set
            values = value if isinstance(value, (tuple, list)) else (value,)
            yield from (each for each in values if type(each).__name__ in ("Tensor", "Parameter"))


def _foreign(value: Any) -> bool:
    """A class or module somebody else wrote: what hangs there is not the notebook's."""
    if isinstance(value, type):
        return value.__module__ != "__main__"
    if not isinstance(value, types.ModuleType):
        return False
    name, file = value.__name__, getattr(value, "__file__", None) or ""
    return not file or "site-packages" in file or file.startswith(_LIBRARY) or name.startswith("tpu_kernel")


class _Walk:
    """Breadth first, so that the shortest path to a tensor is its first name."""

    def __init__(self, torch: Any, found: dict[int, Holding], makers: dict[int, Any]) -> None:
        self._torch = torch
        self._found = found
        self._makers = makers
        self._seen: set[int] = set()
        self._names: dict[int, str] = {}

    def run(self, roots: Iterable[tuple[str, str, Any]]) -> None:
        waiting = deque(roots)
        deadline = time.monotonic() + _MOST_SECONDS
        optimizers: list[tuple[str, Any]] = []
        graphs: list[tuple[str, Any]] = []
        while waiting and len(self._seen) < _MOST_VISITED and time.monotonic() < deadline:
            path, kind, value = waiting.popleft()
            if isinstance(value, _LEAVES) or id(value) in self._seen or _foreign(value):
                continue
            self._seen.add(id(value))
            if _is_tensor(self._torch, value):
                self._tensor(path, kind, value)
                if not value.is_leaf and value.grad_fn is not None:
                    graphs.append((path, value))
            elif isinstance(value, self._torch.optim.Optimizer):
                optimizers.append((path, value))
            else:
                waiting.extend(self._children(path, kind, value))
        # Last, because they are named by what they belong to.
        for path, optimizer in optimizers:
            self._optimizer(path, optimizer)
        for path, tensor in graphs:
            nodes = _graph(tensor.grad_fn)
            for node in nodes:
                for saved in _saved(node):
                    self._name(saved, f"graph of {path}", "graph")
            # Nodes of TorchTPU's own keep tensors without saying so: those that stand in this graph.
            for key, maker in self._makers.items():
                holding = self._found[key]
                if maker in nodes and not holding.names:
                    holding.names, holding.kind = [f"graph of {path}"], "graph"

    def _tensor(self, path: str, kind: str, tensor: Any) -> None:
        if kind == "variable" and type(tensor) is self._torch.nn.Parameter:
            kind = "parameter"
        self._names[id(tensor)] = path
        self._name(tensor, path, kind)
        if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
            self._name(tensor.grad, f"{path}.grad", kind if kind == "traceback" else "gradient")

    def _name(self, tensor: Any, path: str, kind: str) -> None:
        if not _on_device(tensor) or (key := _key(tensor)) is None:
            return
        holding = self._found.get(key)
        if holding is not None and path not in holding.names:
            if not holding.names:
                holding.kind = kind
            holding.names.append(path)

    def _optimizer(self, path: str, optimizer: Any) -> None:
        """State by the parameter it belongs to, and parameters nobody else names."""
        for group in optimizer.param_groups:
            for number, parameter in enumerate(group["params"]):
                if id(parameter) not in self._names:
                    self._tensor(f"{path}.params[{number}]", "parameter", parameter)
        for parameter, state in list(optimizer.state.items()):
            owner = self._names.get(id(parameter), "?")
            for key, value in list(state.items()) if isinstance(state, dict) else ():
                if _is_tensor(self._torch, value):
                    self._name(value, f"{path}.state[{owner}].{key}", "optimizer")

    def _children(self, path: str, kind: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        if isinstance(value, self._torch.nn.Module):
            yield from self._module(path, kind, value)
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                yield f"{path}[{key!r}]" if isinstance(key, (str, int)) else f"{path}[…]", kind, item
        elif isinstance(value, (list, tuple, deque)):
            for number, item in enumerate(list(value)):
                yield f"{path}[{number}]", kind, item
        elif isinstance(value, (set, frozenset)):
            for item in list(value):
                yield f"{path}{{…}}", kind, item
        elif isinstance(value, types.FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
                try:
                    yield f"{path}().{name}", kind, cell.cell_contents
                except ValueError:
                    continue
            for item in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
                yield f"{path}() default", kind, item
            for name, item in list(value.__dict__.items()):
                yield f"{path}.{name}", kind, item
        elif isinstance(value, types.MethodType):
            yield path, kind, value.__self__
        elif isinstance(value, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
            for place in ("gi_frame", "cr_frame", "ag_frame"):
                yield from frame(path, kind, getattr(value, place, None))
        elif isinstance(value, BaseException):
            yield from traceback(path, kind, value)
            yield from self._attributes(path, kind, value)
        else:
            yield from self._attributes(path, kind, value)

    def _module(self, path: str, kind: str, module: Any) -> Iterator[tuple[str, str, Any]]:
        attributes = object.__getattribute__(module, "__dict__")
        for place in ("_parameters", "_buffers", "_modules"):
            for name, item in list((attributes.get(place) or {}).items()):
                yield f"{path}.{name}", kind, item
        for name, item in list(attributes.items()):
            if name not in ("_parameters", "_buffers", "_modules"):
                yield f"{path}.{name}", kind, item

    def _attributes(self, path: str, kind: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        try:
            attributes = (
                vars(value) if isinstance(value, type) else object.__getattribute__(value, "__dict__")
            )
        except AttributeError:
            attributes = {}
        if isinstance(attributes, (dict, types.MappingProxyType)):
            for name, item in list(attributes.items()):
                if name != "__builtins__":
                    yield f"{path}.{name}", kind, item
        if type(value).__module__ in _WRAPPERS and not isinstance(value, type):
            for item in gc.get_referents(value):
                yield f"{path}{{…}}", kind, item
        for each in type(value).__mro__:
            slots = each.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                member = each.__dict__.get(name)
                if isinstance(member, types.MemberDescriptorType):
                    try:
                        yield f"{path}.{name}", kind, member.__get__(value)
                    except AttributeError:
                        continue
