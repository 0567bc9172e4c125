"""The walk from what a person knows by name to the tensors on the device."""

from __future__ import annotations

import builtins
import gc
import os
import time
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..introspection.live import module_of, own_space
from .roots import frame, traceback
from .storages import Holding, graph_of, is_tensor, key_of, on_device, root_of, saved_by

#: Values looked at, and seconds spent, before the rest stays unnamed.
_MOST_VISITED = 200_000
_MOST_SECONDS = 2.0
#: Names of those that share a storage before more make no difference.
_MOST_SHARING = 8

_LEAVES = (str, bytes, bytearray, int, float, complex, bool, type(None), range)
#: Where Python's own modules are.
_LIBRARY = os.path.dirname(os.__file__)
#: They make of functions and containers what has no attributes to walk.
_WRAPPERS = ("functools", "itertools", "builtins", "_queue", "collections")


def _foreign(value: Any) -> bool:
    """A class or module somebody else wrote, or the kernel itself: what hangs there is not the notebook's."""
    kind = type(value)
    if module_of(kind).startswith(("ipykernel.", "tpu_kernel.")):
        return True
    if issubclass(kind, type):
        return module_of(value) != "__main__"
    if not issubclass(kind, types.ModuleType):
        return False
    name, file = value.__name__, getattr(value, "__file__", None) or ""
    return not file or "site-packages" in file or file.startswith(_LIBRARY) or name.startswith("tpu_kernel")


def _members(container: Any, *kinds: Any) -> list[Any]:
    """What one of Python's containers holds; a class made from it may have an `__iter__` of its own."""
    kind = next(kind for kind in kinds if issubclass(type(container), kind))
    return list(kind.__iter__(container))


def _referred(numbers: set[int]) -> set[int]:
    """Those of these objects that other Python objects refer to. A tensor that only a graph keeps has no such."""
    objects = [value for value in gc.get_objects() if id(value) in numbers]
    found: set[int] = set()
    for referrer in gc.get_referrers(*objects):
        is_arguments = type(referrer) is tuple and [*map(id, referrer)] == [*map(id, objects)]
        if referrer is not objects and not is_arguments and not isinstance(referrer, types.FrameType):
            found.update(map(id, gc.get_referents(referrer)))
    return found & numbers


class Walk:
    """Breadth first, so that the shortest path to a tensor is its first name."""

    def __init__(
        self, torch: Any, found: dict[int, Holding], makers: dict[int, Any], namespace: dict[str, Any]
    ) -> None:
        self._torch = torch
        self._found = found
        #: Storages by the node of a graph that made them, and the nodes that were met.
        self._made_by: dict[Any, list[int]] = {}
        for key, maker in makers.items():
            self._made_by.setdefault(maker, []).append(key)
        self._nodes: set[Any] = set()
        self._seen: set[int] = set()
        #: What hangs here has its names from the roots: whoever leads here does not hold it.
        self._stops = {id(vars(builtins)), id(namespace), id(namespace.get("_oh"))}
        self._names: dict[int, str] = {}
        #: Roots, what values lead to, and which values keep each storage: for `shares`.
        self._roots: dict[int, set[str]] = {}
        self._edges: dict[int, list[int]] = {}
        self._keepers: dict[int, set[int]] = {}
        self._known: set[int] = set()
        #: Names of modules that were met, and their classes.
        self.modules: dict[str, str] = {}

    def run(self, roots: Iterable[tuple[str, str, Any]]) -> None:
        """Name what is found."""
        waiting = deque((path, kind, value, 0) for path, kind, value in roots)
        deadline = time.monotonic() + _MOST_SECONDS
        optimizers: list[tuple[str, Any]] = []
        graphs: list[tuple[str, Any]] = []
        while waiting and len(self._seen) < _MOST_VISITED and time.monotonic() < deadline:
            path, kind, value, parent = waiting.popleft()
            number = id(value)
            if issubclass(type(value), _LEAVES) or number in self._stops or _foreign(value):
                continue
            if parent:
                self._edges.setdefault(parent, []).append(number)
            else:
                self._roots.setdefault(number, set()).add(self._label(path, kind, number))
            if number in self._seen:
                continue
            self._seen.add(number)
            if is_tensor(self._torch, value):
                self._tensor(path, kind, value)
                waiting.extend((*child, number) for child in self._attached(path, kind, value))
                if not value.is_leaf and value.grad_fn is not None:
                    graphs.append((path, value))
            elif issubclass(type(value), self._torch.optim.Optimizer):
                optimizers.append((path, value))
            else:
                waiting.extend((*child, number) for child in self._children(path, kind, value))
        # Last, because they are named by what they belong to.
        for path, optimizer in optimizers:
            self._optimizer(path, optimizer)
        for path, tensor in graphs:
            self._graph(path, tensor)

    def shares(self) -> None:
        """Find what has to go before each storage is free."""
        labels: dict[int, frozenset[str]] = {}
        waiting = deque((number, frozenset(names)) for number, names in self._roots.items())
        while waiting:
            number, names = waiting.popleft()
            before = labels.get(number, frozenset())
            if names <= before or len(before) >= _MOST_SHARING:
                continue
            labels[number] = before | names
            waiting.extend((child, labels[number]) for child in self._edges.get(number, ()))
        unknown = {each for holding in self._found.values() for each in holding.tensors} - self._known
        elsewhere = _referred(unknown) if unknown else unknown
        for key, holding in self._found.items():
            names = frozenset().union(*(labels.get(each, ()) for each in self._keepers.get(key, ())))
            if not elsewhere.isdisjoint(holding.tensors):
                names |= {""}
            holding.holders = names

    def _label(self, path: str, kind: str, number: int) -> str:
        """A root's name. IPython has several names for an output: they count as one."""
        root = root_of(path, kind)
        if kind == "output" and number in self._roots:
            return next((name for name in self._roots[number] if name.startswith("Out[")), root)
        return root

    def _graph(self, path: str, tensor: Any) -> None:
        """What the graph behind a tensor keeps: for `backward()`, and the leaves it ends in. A node's tensors
        are named by the first that leads to it; all that lead to it keep them."""
        self._edges.setdefault(id(tensor), []).append(id(tensor.grad_fn))
        for node in graph_of(tensor.grad_fn, self._nodes):
            number = id(node)
            self._edges[number] = [id(parent) for parent, _ in node.next_functions if parent is not None]
            for saved in saved_by(node):
                self._name(saved, f"graph of {path}", "graph")
                self._keep(saved, number)
            leaf = getattr(node, "variable", None)
            if leaf is not None and is_tensor(self._torch, leaf):
                self._keep(leaf, number)
                self._edges[number].append(id(leaf))
                if leaf.grad is not None:
                    self._keep(leaf.grad, number)
            # Nodes of TorchTPU's own keep tensors without saying so: those that they made.
            for key in self._made_by.get(node, ()):
                holding = self._found[key]
                if not holding.names:
                    holding.names, holding.kind = [f"graph of {path}"], "graph"
                if holding.kind == "graph":
                    self._keepers.setdefault(key, set()).add(number)

    def _tensor(self, path: str, kind: str, tensor: Any) -> None:
        if kind == "variable" and type(tensor) is self._torch.nn.Parameter:
            kind = "parameter"
        self._names[id(tensor)] = path
        self._name(tensor, path, kind)
        self._keep(tensor, id(tensor))
        if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None:
            self._name(tensor.grad, f"{path}.grad", kind if kind == "traceback" else "gradient")
            self._keep(tensor.grad, id(tensor))

    def _keep(self, tensor: Any, by: int) -> None:
        """`by` keeps the memory of `tensor`."""
        self._known.add(id(tensor))
        if on_device(tensor) and (key := key_of(tensor)) in self._found:
            self._keepers.setdefault(key, set()).add(by)

    def _name(self, tensor: Any, path: str, kind: str) -> None:
        if not on_device(tensor) or (key := key_of(tensor)) is None:
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
                self._edges.setdefault(id(optimizer), []).append(id(parameter))
        for parameter, state in list(optimizer.state.items()):
            owner = self._names.get(id(parameter), "?")
            for key, value in list(state.items()) if isinstance(state, dict) else ():
                if is_tensor(self._torch, value):
                    self._name(value, f"{path}.state[{owner}].{key}", "optimizer")
                    self._keep(value, id(optimizer))

    def _children(self, path: str, kind: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        made_of = type(value)
        if issubclass(made_of, self._torch.nn.Module):
            yield from self._module(path, kind, value)
        elif issubclass(made_of, dict):
            for key, item in list(dict.items(value)):
                yield f"{path}[{key!r}]" if type(key) in (str, int, bool) else f"{path}[…]", kind, item
        elif issubclass(made_of, (list, tuple, deque)):
            for number, item in enumerate(_members(value, list, tuple, deque)):
                yield f"{path}[{number}]", kind, item
        elif issubclass(made_of, (set, frozenset)):
            for item in _members(value, set, frozenset):
                yield f"{path}{{…}}", kind, item
        elif issubclass(made_of, types.FunctionType):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
                try:
                    yield f"{path}().{name}", kind, cell.cell_contents
                except ValueError:
                    continue
            for item in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
                yield f"{path}() default", kind, item
            for name, item in list(value.__dict__.items()):
                yield f"{path}.{name}", kind, item
        elif issubclass(made_of, types.MethodType):
            yield path, kind, value.__self__
        elif issubclass(made_of, (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)):
            for place in ("gi_frame", "cr_frame", "ag_frame"):
                yield from frame(path, kind, getattr(value, place, None))
        elif issubclass(made_of, BaseException):
            yield from traceback(path, kind, value)
            yield from self._attributes(path, kind, value)
        else:
            yield from self._attributes(path, kind, value)

    def _attached(self, path: str, kind: str, tensor: Any) -> Iterator[tuple[str, str, Any]]:
        """What hangs on a tensor: attributes a person gave it, hooks, and what a function of a person's own keeps
        for `backward()`."""
        yield from self._attributes(path, kind, tensor)
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            yield f"{path}.{name}", kind, getattr(self._torch._C.TensorBase, name).__get__(tensor)
        node = None if tensor.is_leaf else tensor.grad_fn
        if isinstance(node, self._torch.autograd.function.BackwardCFunction):
            yield from self._attributes(f"graph of {path}", kind, node)

    def _module(self, path: str, kind: str, module: Any) -> Iterator[tuple[str, str, Any]]:
        attributes = own_space(module)
        self.modules.setdefault(path, type(module).__name__)
        for place in ("_parameters", "_buffers", "_modules"):
            for name, item in list((attributes.get(place) or {}).items()):
                yield f"{path}.{name}", kind, item
        for name, item in list(attributes.items()):
            if name not in ("_parameters", "_buffers", "_modules"):
                yield f"{path}.{name}", kind, item

    def _attributes(self, path: str, kind: str, value: Any) -> Iterator[tuple[str, str, Any]]:
        for name, item in list(own_space(value).items()):
            if name != "__builtins__":
                yield f"{path}.{name}", kind, item
        if module_of(type(value)) in _WRAPPERS and not issubclass(type(value), type):
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
