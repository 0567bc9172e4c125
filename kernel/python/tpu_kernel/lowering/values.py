"""What a live value is to the lowering: on the device, a number, a tool, or ordinary Python.

Looks at values without running any of their code: no property, no `repr`, no `len` of a
user's class. Torch is looked up, never imported: without it nothing is device work.
"""

from __future__ import annotations

import sys
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from ..introspection.live import module_of, own_space
from .optimizers import refusal

# What a value is, as one letter: part of the key under which a plan is kept.
DEVICE = "D"  # a tensor on the device, or something that holds or reaches one
GRAPH = "G"  # a tensor on the device that was computed from what has gradients, so that it has a graph
GRAPHS = "K"  # list, tuple, dict that holds such tensors
OFF_DEVICE = "C"  # a tensor on the CPU although there is a device, or a module made of such
OPTIMIZER = "O"  # its step can go into a program
EAGER_OPTIMIZER = "E"  # it cannot
MODULE = "M"  # torch.nn.Module on the device
CONTAINER = "L"  # list, tuple, dict that holds device values
NUMBER = "N"
TOOL = "T"  # Python module, function, class, builtin
HOST = "H"
ABSENT = "-"

OPTIMIZERS = frozenset({OPTIMIZER, EAGER_OPTIMIZER})
WITH_GRAPH = frozenset({GRAPH, GRAPHS})
ON_DEVICE = frozenset({DEVICE, MODULE, CONTAINER}) | WITH_GRAPH | OPTIMIZERS
_PLAIN = frozenset({str, bytes, bool, type(None), complex, range, slice})


def torch_module() -> Any:
    return sys.modules.get("torch")


def device_type() -> str:
    """`"tpu"` where there is one; `"cpu"` where torch knows no accelerator."""
    torch = torch_module()
    if torch is None:
        return "cpu"
    accelerator = torch.accelerator.current_accelerator()
    return "cpu" if accelerator is None else accelerator.type


class Values:
    """Sorts values for one session: `home` is the device type whose work is outlined."""

    def __init__(self, home: str) -> None:
        torch = torch_module()
        self.home = home
        self.torch = torch
        self.tensor: Any = torch.Tensor if torch is not None else ()
        self.module: Any = torch.nn.Module if torch is not None else ()
        optim = sys.modules.get("torch.optim")
        self.optimizer: Any = optim.Optimizer if optim is not None else ()
        self._reached: dict[int, tuple[FunctionType, bool]] = {}

    def kind(self, value: Any) -> str:
        kind = type(value)
        if kind is float or kind is int:
            return NUMBER
        if kind in _PLAIN:
            return HOST
        if issubclass(kind, self.tensor):
            if value.device.type != self.home:
                return OFF_DEVICE
            return DEVICE if value.grad_fn is None else GRAPH
        if (
            kind is FunctionType
            or kind is BuiltinFunctionType
            or kind is ModuleType
            or issubclass(kind, type)
        ):
            return TOOL
        if issubclass(kind, self.module):
            return self._module_kind(value)
        if issubclass(kind, self.optimizer):
            return EAGER_OPTIMIZER if refusal(value) else OPTIMIZER
        if kind in (list, tuple, dict):
            return self._container_kind(value)
        return DEVICE if self._object_reaches(value, 2) else HOST

    def _module_kind(self, module: Any) -> str:
        pending, seen = [module], set()
        while pending:
            member = pending.pop()
            if member is None or id(member) in seen:
                continue
            seen.add(id(member))
            own = member.__dict__
            for table in (own.get("_parameters"), own.get("_buffers")):
                for tensor in (table or {}).values():
                    if tensor is not None:
                        return MODULE if tensor.device.type == self.home else OFF_DEVICE
            pending.extend(reversed((own.get("_modules") or {}).values()))
        return MODULE  # no state: works wherever its input is

    def _container_kind(self, container: Any) -> str:
        members = list(islice(container.values(), 8)) if type(container) is dict else container[:8]
        found = HOST
        for member in members:
            if type(member) in (list, tuple, dict):
                kind = self._container_kind(member)
            elif issubclass(type(member), (self.tensor, self.module, self.optimizer)):
                kind = self.kind(member)
            else:
                continue
            if kind == OFF_DEVICE:
                return OFF_DEVICE
            if kind in WITH_GRAPH or found == GRAPHS:
                found = GRAPHS
            elif kind != HOST:
                found = CONTAINER
        return found

    def _object_reaches(self, value: Any, depth: int) -> bool:
        """Does an instance of a class of the user's own hold something on the device?"""
        if type(value) is MethodType:
            return self._holds(value.__self__, depth) or self.reaches(value, depth)
        if module_of(type(value)).partition(".")[0] in _LIBRARIES:
            return False
        attributes = own_space(value)
        return any(self._holds(member, depth - 1) for member in list(islice(attributes.values(), 32)))

    def _holds(self, value: Any, depth: int) -> bool:
        if issubclass(type(value), (self.tensor, self.module, self.optimizer)):
            return self.kind(value) in ON_DEVICE
        if type(value) in (list, tuple, dict):
            return self._container_kind(value) in (CONTAINER, GRAPHS)
        return depth > 0 and self._object_reaches(value, depth)

    def reaches(self, function: Any, depth: int = 3) -> bool:
        """Does a Python function work with device values it was not handed (globals, closure)?"""
        function = getattr(function, "__func__", function)
        if type(function) is not FunctionType or depth == 0:
            return False
        namespace = function.__globals__
        values = [namespace[name] for name in _all_names(function.__code__) if name in namespace]
        for cell in function.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:
                continue
        values.extend(function.__defaults__ or ())
        for value in values:
            if type(value) is FunctionType:
                if (
                    value is not function
                    and value.__globals__ is namespace
                    and self.reaches(value, depth - 1)
                ):
                    return True
            elif self._holds(value, min(1, depth - 1)):
                return True
        return False


def _all_names(code: Any) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            names |= _all_names(constant)
    return names


_LIBRARIES = (sys.stdlib_module_names - {"__main__"}) | {
    "IPython",
    "ipykernel",
    "ipywidgets",
    "matplotlib",
    "numpy",
    "pandas",
    "PIL",
    "scipy",
    "sklearn",
    "torch",
    "torch_tpu",
    "torchvision",
    "tpu_kernel",
    "tqdm",
    "traitlets",
}
HOST_LIBRARIES = _LIBRARIES - {"torch", "torch_tpu", "torchvision"}
