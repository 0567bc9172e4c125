"""Letting go of device memory: what nobody names, what a person names, or all of it.

What a step freed is what tpu-core counts less after it. Nothing of the host's is let go of, save what
belongs to a module or an optimizer that lived on the device.
"""

from __future__ import annotations

import gc
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from ..tpu import device
from . import roots
from .storages import on_device

#: Seconds TorchTPU is given to free what was let go of, which it does on a thread of its own.
_PATIENCE, _LOOK = 0.5, 0.01
#: What stood before another in a graph or a view is free only when that other has gone.
_PASSES = 4

#: What was let go of, bytes that were free then.
Step = tuple[str, int]


def live() -> int:
    """Bytes in use, once the device has done what was asked of it and what was let go of is free."""
    torch = sys.modules["torch"]
    torch.accelerator.synchronize()
    deadline = time.monotonic() + _PATIENCE
    counted, same = -1, 0
    while same < 3 and time.monotonic() < deadline:
        now = (device.snapshot() or {"live_bytes": 0})["live_bytes"]
        same = same + 1 if now == counted else 0
        counted = now
        time.sleep(_LOOK)
    return counted


class Freeing:
    """Steps taken, and what each of them freed."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.names: dict[str, Any] = shell.user_ns
        self.before = self.now = live()
        self.steps: list[Step] = []

    def step(self, what: str, action: Callable[[], object]) -> int:
        """Do something; the bytes that freed."""
        action()
        now = live()
        freed, self.now = self.now - now, now
        self.steps.append((what, freed))
        return freed

    def unnamed(self) -> None:
        """What nobody names: reference cycles, and what the last traceback keeps."""
        self.step("reference cycles", gc.collect)
        if _last_error() is not None:
            self.step("last traceback", self._forget_traceback)

    def outputs(self) -> None:
        """`Out`, and IPython's names for outputs."""
        self.step("Out[]", self._forget_outputs)

    def programs(self) -> None:
        """Programs TorchTPU keeps loaded. One that is wanted again comes back from disk."""
        self.step("loaded programs", _clear_programs)

    def variable(self, name: str) -> int:
        """A variable, or an output as `Out[3]`."""
        return self.step(f"`{name}`", lambda: self._forget(name))

    def has(self, name: str) -> bool:
        """There is such a variable or output, and it is the notebook's."""
        if (number := output_number(name)) is not None:
            return number in self.names.get("_oh", {})
        return name in self.names and name not in roots.SHELLS_OWN

    def everything(self) -> tuple[list[str], list[str]]:
        """All of the device's memory; the names that are gone, and those that were emptied in place."""
        gone = [name for name, value in list(self.names.items()) if self._goes(name, value)]
        outputs = [
            number for number, value in list(self.names.get("_oh", {}).items()) if lives_on_device(value)
        ]
        gone += [f"Out[{number}]" for number in outputs]
        if gone:
            self.step("variables", lambda: [self._forget(name) for name in gone])
        self.unnamed()
        emptied: list[str] = []
        self.step("inside of what stays", lambda: emptied.extend(self._empty()))
        self.programs()
        return gone, emptied

    def _goes(self, name: str, value: Any) -> bool:
        return name not in roots.SHELLS_OWN and not roots.is_numbered(name) and lives_on_device(value)

    def _forget(self, name: str) -> None:
        number = output_number(name)
        value = self.names.pop(name, None) if number is None else self.names["_oh"].pop(number, None)
        if value is None:
            return
        for latest in roots.LATEST:
            if self.names.get(latest) is value:
                self._forget_latest(latest)
        if number is not None:
            for key in [key for key in self.names if roots.is_output(key) and self.names[key] is value]:
                self.names.pop(key)
                self.shell.user_ns_hidden.pop(key, None)

    def _forget_latest(self, name: str) -> None:
        """One of IPython's names for the last outputs, in each of the places where it keeps it."""
        setattr(self.shell.displayhook, name, "")
        self.names[name] = self.shell.user_ns_hidden[name] = ""

    def _forget_outputs(self) -> None:
        self.shell.displayhook.flush()
        for name in roots.LATEST:
            self._forget_latest(name)

    def _forget_traceback(self) -> None:
        for name in ("last_exc", "last_value", "last_traceback", "last_type"):
            with suppress(AttributeError):
                delattr(sys, name)
        forget_shown()
        gc.collect()

    def _empty(self) -> list[str]:
        """Turn device tensors inside of containers, objects and functions into ones without memory."""
        from . import holders, shortage

        table = holders.table(shortage.namespace(), 0)
        wanted = {number for holding in table.holdings if holding.names for number in holding.tensors}
        emptied = sorted({holding.names[0] for holding in table.holdings if holding.names})
        for _ in range(_PASSES):
            if not _empty_tensors(wanted):
                break
            gc.collect()
        return emptied


def _empty_tensors(wanted: set[int]) -> bool:
    """Empty these tensors as far as nothing else stands on them; whether some are left."""
    import torch

    left = False
    for tensor in [value for value in gc.get_objects() if id(value) in wanted]:
        if not issubclass(type(tensor), torch.Tensor) or not on_device(tensor):
            continue
        if tensor.is_leaf:
            tensor.grad = None
        empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta", requires_grad=False)
        if tensor.is_leaf and tensor.requires_grad:
            empty.requires_grad_()
        try:
            torch._C._swap_tensor_impl(tensor, empty)
        except RuntimeError:
            left = True  # a view of it, or a graph, is still there
    return left


def lives_on_device(value: Any) -> bool:
    """A tensor, module or optimizer all of whose tensors are on the device."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if issubclass(type(value), torch.Tensor):
        return on_device(value)
    if issubclass(type(value), torch.optim.Optimizer):
        parameters = [each for group in value.param_groups for each in group["params"]]
    elif issubclass(type(value), torch.nn.Module):
        parameters = list(_tensors_of(value))
    else:
        return False
    return bool(parameters) and all(map(on_device, parameters))


def _tensors_of(module: Any) -> Iterator[Any]:
    """Parameters and buffers of a module and its parts; nothing of the user's is called."""
    waiting, seen = [module], set()
    while waiting:
        attributes = object.__getattribute__(waiting.pop(), "__dict__")
        for place in ("_parameters", "_buffers"):
            yield from (each for each in (attributes.get(place) or {}).values() if each is not None)
        for part in (attributes.get("_modules") or {}).values():
            if part is not None and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)


def output_number(name: str) -> int | None:
    """The number in `Out[3]`."""
    inside = name.removeprefix("Out[").removesuffix("]")
    return int(inside) if name == f"Out[{inside}]" and inside.isdecimal() else None


def forget_shown() -> None:
    """The error that was shown last, where the shell keeps it besides."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        return
    shell.last_execution_result = None
    for shown in (shell.InteractiveTB, shell.SyntaxTB):
        for name in ("tb", "value", "etype", "last_syntax_error"):
            if hasattr(shown, name):
                setattr(shown, name, None)


def forget_shown_and_count() -> int:
    """The same; bytes in use without it. The device is not waited for."""
    from ..magics import memory

    forget_shown()
    return memory.counted()["live_bytes"]


def forget_full(code: str) -> None:
    """A cell begins after one for which memory ran out: what that one's functions held is wanted back. Magics that
    look at the error, such as `%debug`, come first."""
    error = _last_error()
    torch = sys.modules["torch"]
    if not isinstance(error, torch.OutOfMemoryError) or re.match(r"\s*(%(?!%)|!|\?)", code):
        return
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error, *getattr(error, "_tpu_from", ())]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += (one.__cause__, one.__context__)
            one.__traceback__ = None
    with suppress(AttributeError):
        del sys.last_traceback
    forget_shown()
    gc.collect()


def _last_error() -> BaseException | None:
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _clear_programs() -> None:
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()
    module: Any = sys.modules.get("torch_tpu._internal.device._device_module")
    if module is not None:
        module.TpuDeviceModule._clear_cache()
