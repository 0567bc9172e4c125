"""The state a cell starts from, kept and put back bit-equal: so that it can run again on the same inputs.

Kept is the notebook's list of names, every tensor, container and object that can be reached from the names a
cell mentions (attributes, members, closures, what its functions read), and the random number generators.
Values of tensors are kept on the host. What cannot be put back is named. Nothing of the user's is called.
"""

from __future__ import annotations

import collections
import datetime
import enum
import io
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ..introspection.live import bases, class_space, module_of, own_space
from ..lowering.hazards import code_names
from ..lowering.values import HOST_LIBRARIES
from .eagermode import quietly

_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), range, slice, frozenset),
    *(CodeType, ModuleType, BuiltinFunctionType, enum.Enum, datetime.date, datetime.timedelta, Fraction),
)
_LISTS = (list, tuple, set, collections.deque)
#: Objects looked at, at most: a person may hold a list of millions.
MOST_OBJECTS = 200_000
_MISSING = object()


def reached(roots: Iterable[tuple[str, Any]], namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Everything that can change and is reached from `roots`, once each, by the path that leads there.

    What several lead to is found under a module first: that is what people call a parameter by.
    """
    seen: dict[int, Any] = {}  # what is kept alive cannot lend its id to another
    for root in sorted(roots, key=lambda root: not hasattr(type(root[1]), "named_parameters")):
        waiting = collections.deque([root])
        while waiting and len(seen) < MOST_OBJECTS:
            path, value = waiting.popleft()
            if issubclass(type(value), _PLAIN) or id(value) in seen:
                continue
            seen[id(value)] = value
            yield path, value
            waiting.extend(_members(path, value, namespace))


def _members(path: str, value: Any, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    torch = sys.modules.get("torch")
    kind = type(value)  # what `isinstance` asks of a proxy as well, its `__class__`, is the user's code
    if torch is not None and issubclass(kind, torch.Tensor):
        if value.is_leaf and value.grad is not None:
            yield f"{path}.grad", value.grad
        if value._base is not None:
            yield f"{path}._base", value._base
    elif issubclass(kind, dict):
        for number, (key, member) in enumerate(list(dict.items(value))):
            known = issubclass(type(key), (str, int))
            yield f"{path}[{key!r}]" if known else f"{path}[#{number}]", member
            if not issubclass(type(key), _PLAIN):
                yield f"{path}.keys()[{number}]", key
    elif issubclass(kind, _LISTS):
        for number, member in enumerate(listed(value)):
            yield f"{path}[{number}]", member
    elif issubclass(kind, MethodType):
        yield path, value.__self__
        yield path, value.__func__
    elif issubclass(kind, FunctionType):
        yield from _of_function(path, value, namespace)
    elif issubclass(kind, type):
        if module_of(value) == "__main__":
            for name, member in list(class_space(value).items()):
                yield f"{path}.{name}", _function_of(member)
    elif has_attributes(value):
        for name, member in list(own_space(value).items()):
            yield f"{path}.{name}", member
        yield path, kind


def _function_of(member: Any) -> Any:
    """The function in a class or static method; else what is given."""
    return member.__func__ if issubclass(type(member), (classmethod, staticmethod)) else member


def listed(value: Any) -> list[Any]:
    """The members of a list, tuple, set or deque, or of a class derived from one."""
    return list(next(kind for kind in _LISTS if issubclass(type(value), kind)).__iter__(value))


def _of_function(path: str, function: FunctionType, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for cell in function.__closure__ or ():
        if (content := _content(cell)) is not _MISSING:
            yield path, content
    for value in function.__defaults__ or ():
        yield path, value
    if function.__globals__ is namespace:
        for name in code_names(function.__code__)[0]:
            if name in namespace:
                yield name, namespace[name]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def has_attributes(value: Any) -> bool:
    """An object whose attributes are all there is to it: of the user's own class, or of PyTorch's."""
    package = module_of(type(value)).partition(".")[0]
    # where there is none, each look gives another
    return package not in HOST_LIBRARIES and own_space(value) is own_space(value)


class Snapshot:
    """What was there before a cell, and how to bring it back."""

    def __init__(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        self._namespace = namespace
        self._names = dict(namespace)
        self._undo: list[Callable[[], None]] = []
        #: Path and type of what is not put back.
        self.lost: list[tuple[str, str]] = []
        #: Path and type of what the cell would use up.
        self.used_up: list[tuple[str, str]] = []
        self.tensors = 0
        #: Values on the host of tensors and arrays, by their ids: each of them lives as long as this.
        self.copies: dict[int, Any] = {}
        self.roots = sorted(name for name in names if name in namespace)
        count = 0
        roots = [(name, namespace[name]) for name in self.roots]
        for path, value in reached(roots, namespace):
            self._keep(path, value)
            count += 1
        if count >= MOST_OBJECTS:
            self.lost.append(("what lies beyond", f"the first {count:,} objects"))
        self.generators = _generators(self._undo)

    def name_before(self, name: str) -> Any:
        """What the notebook had under a name."""
        return self._names.get(name, _MISSING)

    def restore(self) -> None:
        """Put everything back: values of tensors last, when they are where they were."""
        for name in [name for name in self._namespace if name not in self._names]:
            del self._namespace[name]
        for name, value in self._names.items():
            if self._namespace.get(name, _MISSING) is not value:
                self._namespace[name] = value
        for undo in reversed(self._undo):
            undo()

    def _keep(self, path: str, value: Any) -> None:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        kind = type(value)
        if torch is not None and issubclass(kind, torch.Tensor):
            self._keep_tensor(path, value)
        elif issubclass(kind, dict):
            self._put_back(value, dict(dict.items(value)), dict.clear, dict.update)
        elif issubclass(kind, list):
            self._put_back(value, listed(value), list.clear, list.extend)
        elif issubclass(kind, set):
            self._put_back(value, set(listed(value)), set.clear, set.update)
        elif issubclass(kind, collections.deque):
            self._put_back(value, listed(value), collections.deque.clear, collections.deque.extend)
        elif issubclass(kind, (tuple, MethodType)):
            pass
        elif issubclass(kind, FunctionType):
            for cell in value.__closure__ or ():
                if (content := _content(cell)) is not _MISSING:
                    self._undo.append(lambda cell=cell, content=content: _fill(cell, content))
        elif issubclass(kind, type):
            if module_of(value) == "__main__":
                members = dict(class_space(value))
                self._undo.append(lambda: _restore_class(value, members))
        elif numpy is not None and issubclass(kind, numpy.ndarray):
            copy = self.copies[id(value)] = value.copy()
            self._undo.append(lambda: numpy.copyto(value, copy) if value.flags.writeable else None)
        elif not self._keep_generator(value):
            self._keep_object(path, value)

    def _keep_tensor(self, path: str, tensor: Any) -> None:
        torch = sys.modules["torch"]
        if tensor.layout is not torch.strided:
            self.lost.append((path, f"{str(tensor.layout).removeprefix('torch.')} tensor"))
            return
        marks = tensor.requires_grad, tensor.grad if tensor.is_leaf else None
        self.tensors += 1
        if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape, strict=True)):
            return  # its values are those of a tensor that it shows many times
        values = tensor.detach().cpu()
        values = values.clone() if values.data_ptr() == tensor.data_ptr() else values
        self.copies[id(tensor)] = values

        def undo() -> None:
            if tensor.is_inference():
                with torch.inference_mode():
                    tensor.copy_(values)
                return
            if tensor.is_leaf:
                if tensor.requires_grad is not marks[0]:
                    tensor.requires_grad_(marks[0])
                if tensor.grad is not marks[1]:
                    tensor.grad = marks[1]
            with torch.no_grad():
                tensor.data.copy_(values)

        self._undo.append(undo)

    def _put_back(self, value: Any, copy: Any, clear: Any, fill: Any) -> None:
        def undo() -> None:
            clear(value)
            fill(value, copy)

        self._undo.append(undo)

    def _keep_generator(self, value: Any) -> bool:
        """A generator of random numbers of somebody's own."""
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        kind = type(value)
        if issubclass(kind, random.Random):
            state = value.getstate()
            self._undo.append(lambda: value.setstate(state))
        elif torch is not None and issubclass(kind, torch.Generator):
            kept = value.get_state()
            self._undo.append(lambda: value.set_state(kept))
        elif numpy is not None and issubclass(kind, numpy.random.Generator):
            bits, drawn = value.bit_generator, value.bit_generator.state
            self._undo.append(lambda: setattr(bits, "state", drawn))
        else:
            return False
        return True

    def _keep_object(self, path: str, value: Any) -> None:
        kind = type(value)
        if issubclass(kind, io.IOBase) or any("__next__" in class_space(cls) for cls in bases(kind)):
            at_hand = path in self.roots
            (self.used_up if at_hand else self.lost).append((path, kind.__name__))
        elif has_attributes(value):
            attributes = own_space(value)
            self._put_back(attributes, dict(attributes), dict.clear, dict.update)
        elif not callable(value) and not _is_constant(value):
            self.lost.append((path, kind.__name__))


def _is_constant(value: Any) -> bool:
    module = module_of(type(value))
    return module.partition(".")[0] in ("builtins", "torch", "torch_tpu") or module in ("typing", "types")


def _fill(cell: Any, content: Any) -> None:
    if _content(cell) is not content:
        cell.cell_contents = content


def _restore_class(kind: type, members: dict[str, Any]) -> None:
    for name in [name for name in vars(kind) if name not in members]:
        type.__delattr__(kind, name)
    for name, member in members.items():
        if vars(kind).get(name, _MISSING) is not member:
            type.__setattr__(kind, name, member)


def _seed_device(state: Any) -> None:
    with quietly():
        sys.modules["torch"].tpu.set_rng_state(state)


def _generators(undo: list[Callable[[], None]]) -> list[str]:
    """Keep the state of the random number generators everybody shares, and PyTorch's modes; their names."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    state = random.getstate()
    undo.append(lambda: random.setstate(state))
    kept = ["Python"]
    if numpy is not None:
        drawn = numpy.random.get_state()
        undo.append(lambda: numpy.random.set_state(drawn))
        kept.append("NumPy")
    if torch is not None:
        ours, gradients, dtype = torch.get_rng_state(), torch.is_grad_enabled(), torch.get_default_dtype()
        undo.append(lambda: torch.set_rng_state(ours))
        undo.append(lambda: torch.set_grad_enabled(gradients))
        undo.append(lambda: torch.set_default_dtype(dtype))
        kept.append("CPU")
        if hasattr(torch, "tpu"):
            seed = torch.accelerator.random.get_rng_state()
            undo.append(lambda: _seed_device(seed))
            kept.append("device")
    return kept
