"""Device work or Python? The run-time half of the decision, on one statement at a time.

Correctness first: whatever is not known to be right inside a compiled function stays module
code, with the reason in plain words for the card.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

from . import values as v
from .gradients import method_call, method_of, stepped_name, stores_gradient, trains, used_up
from .names import Names, walks_parameters
from .optimizers import refusal
from .places import is_place, is_slice

_BUILTINS_TRACED = frozenset(
    [
        "len",
        "range",
        "sum",
        "min",
        "max",
        "abs",
        "pow",
        "zip",
        "enumerate",
        "tuple",
        "list",
        "dict",
        "set",
        "isinstance",
        "reversed",
        "divmod",
        "getattr",
    ]
)
_FACTORIES = frozenset(
    [
        "ones",
        "zeros",
        "empty",
        "full",
        "rand",
        "randn",
        "randint",
        "arange",
        "linspace",
        "logspace",
        "eye",
        "randperm",
    ]
)
_TORCH_HOST = frozenset(
    [
        "manual_seed",
        "seed",
        "save",
        "load",
        "compile",
        "tensor",
        "as_tensor",
        "from_numpy",
        "set_default_device",
        "set_default_dtype",
        "set_grad_enabled",
        "set_float32_matmul_precision",
        "get_rng_state",
        "set_rng_state",
        "set_num_threads",
        "device",
        "frombuffer",
        "asarray",
        "scalar_tensor",
        "is_tensor",
    ]
)
_TORCH_HOST_MODULES = (
    "torch.accelerator",
    "torch.compiler",
    "torch.cuda",
    "torch.distributed",
    "torch.jit",
    "torch.onnx",
    "torch.profiler",
    "torch.tpu",
    "torch.utils",
    "torch_tpu",
)
_CONTEXTS = frozenset({"no_grad", "enable_grad"})
_MODULE_SETUP = frozenset(
    [
        "train",
        "eval",
        "half",
        "float",
        "double",
        "bfloat16",
        "apply",
        "load_state_dict",
        "state_dict",
        "add_module",
        "register_module",
        "register_parameter",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "compile",
        "register_full_backward_hook",
        "children",
        "modules",
        "named_children",
        "named_modules",
        "zero_grad",
        "to_empty",
    ]
)
_NOTHING = object()
_WORK = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.AugAssign)


@dataclass
class Verdict:
    """`device` true: outline it. Else `why` says why not; empty for ordinary Python."""

    device: bool
    why: str = ""


class Classifier:
    """Judges statements against the notebook as it is now."""

    #: Whether any statement can be device work.
    outlines = True

    def __init__(self, values: v.Values, namespace: dict[str, Any]) -> None:
        self.values = values
        self.namespace = namespace

    def judge(
        self, statement: ast.stmt, names: Names, local: set[str], kinds: dict[str, str], varying: set[str]
    ) -> Verdict:
        """`local`: names the run under way has bound; `kinds`: what the names it reads are."""
        reads = [name for name in names.reads if name not in local]
        touches = any(name in local for name in names.reads) or any(
            kinds.get(n) in v.ON_DEVICE for n in reads
        )
        if not touches:
            touches = self._makes_on_device(statement) or self._reaches(statement, local)
        off = [name for name in reads if kinds.get(name) == v.OFF_DEVICE]
        if names.obstacle:
            return Verdict(False, names.obstacle if touches or off else "")
        if not touches:
            return Verdict(False)
        if off:
            return Verdict(False, f"`{off[0]}` is on the CPU")
        for name in reads:
            if kinds.get(name, v.ABSENT) == v.ABSENT and not hasattr(builtins, name):
                return Verdict(False, f"`{name}` is not defined yet")
            if name in varying:
                if is_slice(statement, lambda n: n in local or kinds.get(n) in v.ON_DEVICE):
                    return Verdict(False)
                what = "place" if is_place(statement, name) else "number"
                return Verdict(False, f"the {what} `{name}` changes from run to run")
        for node in ast.walk(statement):
            why = self._obstacle(node, local)
            if why:
                return Verdict(False, why)
        why_not = self._training_obstacle(statement, names, local, kinds)
        return Verdict(True) if why_not is None else Verdict(False, why_not)

    def _training_obstacle(
        self, statement: ast.stmt, names: Names, local: set[str], kinds: dict[str, str]
    ) -> str | None:
        """What would be wrong about gradients or the optimizer in a program."""
        if not any(isinstance(node, _WORK) for node in ast.walk(statement)):
            return ""  # nothing is computed
        if stores_gradient(statement):
            return "sets a gradient"
        call = method_call(statement, "backward")
        if call is not None and not used_up([statement]) & local:
            return "`backward()` goes through a graph made before this run"
        optimizer = next((name for name in names.reads if kinds.get(name) in v.OPTIMIZERS), None)
        if (
            optimizer is not None
            and stepped_name(statement) is None
            and method_call(statement, "zero_grad") is None
        ):
            return f"reads the optimizer `{optimizer}`"
        return None

    def _obstacle(self, node: ast.AST, local: set[str]) -> str:
        match node:
            case ast.With(items=items):
                for item in items:
                    if not self._is_grad_context(item.context_expr, local):
                        return "the context manager is Python"
            case ast.For(iter=iterator) if walks_parameters(iterator):
                receiver = iterator.func.value  # type: ignore[attr-defined]
                if not isinstance(self.resolve(receiver, local), self.values.module or ()):
                    return "the loop itself is Python"
            case ast.Call():
                return self._call_obstacle(node, local)
        return ""

    def _call_obstacle(self, call: ast.Call, local: set[str]) -> str:
        shown = ast.unparse(call.func)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        target = self.resolve(call.func, local)
        if self._trains(call.func, target, local):
            return f"`{shown}` runs `backward()` inside"
        if isinstance(call.func, ast.Attribute):
            receiver = self.resolve(call.func.value, local)
            why = self._method_obstacle(receiver, call.func.attr, shown, call)
            if why is not None:
                return why
        elif target is _NOTHING:
            return ""
        if isinstance(target, type):
            if target in (range, zip, enumerate, tuple, list, dict, set, reversed):
                return ""
            if self._in_torch(target) and target.__name__ in _CONTEXTS:
                return ""
            return f"`{shown}` builds an object"
        if isinstance(target, FunctionType) or callable(target):
            module = getattr(target, "__module__", None) or ""
            name = getattr(target, "__name__", "")
            if module == "builtins":
                known = name in _BUILTINS_TRACED
                return "" if known else f"`{shown}` is ordinary Python"
            if module.partition(".")[0] in v.HOST_LIBRARIES and module != "__main__":
                return f"`{shown}` runs on the host"
            if self._in_torch(target):
                if name in _TORCH_HOST or module.startswith(_TORCH_HOST_MODULES):
                    return f"`{shown}` runs on the host"
                if name in _FACTORIES and not self._device_argument(call, local):
                    return f"`{shown}` makes its result on the CPU"
                if any(keyword.arg == "requires_grad" for keyword in call.keywords):
                    return f"`{shown}` makes a leaf"
        return ""

    def _method_obstacle(self, receiver: Any, method: str, shown: str, call: ast.Call) -> str | None:
        """None: judge the function itself (the receiver is a Python module)."""
        values = self.values
        if isinstance(receiver, ModuleType):
            return None
        if method == "backward" and (call.args or call.keywords):
            return "`backward()` is given arguments"
        if receiver is _NOTHING or isinstance(receiver, values.tensor):
            return ""
        if isinstance(receiver, values.module):
            if method == "zero_grad" and not call.args:
                return ""
            return f"`{shown}` sets up the module" if method in _MODULE_SETUP else ""
        if isinstance(receiver, values.optimizer):
            if method == "zero_grad":
                return ""
            if method != "step":
                return f"`{shown}` sets up the optimizer"
            return f"`{shown}` is given a closure" if call.args or call.keywords else refusal(receiver)
        if isinstance(receiver, (list, dict, set, str, bytes)):
            return f"`{shown}` works on a Python {type(receiver).__name__}"
        if isinstance(receiver, type):
            return f"`{shown}` is a method of a class"
        kind = type(receiver).__module__ or ""
        if kind != "__main__" and kind.partition(".")[0] in v.HOST_LIBRARIES | {"torch"}:
            return f"`{shown}` runs on the host"
        return ""

    def _trains(self, function: ast.expr, target: Any, local: set[str]) -> bool:
        if isinstance(target, self.values.module or ()):
            return trains(method_of(target, "forward"))
        if target is _NOTHING and isinstance(function, ast.Attribute):
            owner = self.resolve(function.value, local)
            target = None if owner is _NOTHING else method_of(owner, function.attr)
        elif not isinstance(target, (FunctionType, MethodType, type)):
            target = method_of(target, "__call__")
        return trains(target)

    def _is_grad_context(self, node: ast.expr, local: set[str]) -> bool:
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            return False
        target = self.resolve(node.func, local)
        return isinstance(target, type) and self._in_torch(target) and target.__name__ in _CONTEXTS

    def _in_torch(self, target: Any) -> bool:
        module = getattr(target, "__module__", None)
        if module is None:  # builtins of torch do not say where they come from
            torch = self.values.torch
            return torch is not None and getattr(torch, getattr(target, "__name__", ""), None) is target
        return module.partition(".")[0] in ("torch", "torch_tpu")

    def _makes_on_device(self, statement: ast.stmt) -> bool:
        """`torch.ones(3, device="tpu")`: device work without any device value to read."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                target = self.resolve(node.func, set())
                name = getattr(target, "__name__", "")
                if name in _FACTORIES and self._in_torch(target) and self._device_argument(node, set()):
                    return True
        return False

    def _reaches(self, statement: ast.stmt, local: set[str]) -> bool:
        """Calls a function of the notebook that works with device values of its own."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                target = self.resolve(node.func, local)
                if target is not _NOTHING and self.values.reaches(target):
                    return True
        return False

    def _device_argument(self, call: ast.Call, local: set[str]) -> bool:
        """Does this factory call make its result on the device?"""
        torch = self.values.torch
        for keyword in call.keywords:
            if keyword.arg == "device":
                value: Any
                if isinstance(keyword.value, ast.Constant):
                    value = keyword.value.value
                else:
                    value = self.resolve(keyword.value, local)
                    if value is _NOTHING:
                        # `x.device` of a value the run itself makes: it is on the device.
                        return isinstance(keyword.value, ast.Attribute) and keyword.value.attr == "device"
                if isinstance(value, str):
                    return value.partition(":")[0] == self.values.home
                return isinstance(value, torch.device) and value.type == self.values.home
        return torch is not None and torch.get_default_device().type == self.values.home

    def resolve(self, node: ast.expr, local: set[str]) -> Any:
        """The value of a name or dotted name, without running anyone's code."""
        if isinstance(node, ast.Name):
            if node.id in local:
                return _NOTHING
            return self.namespace.get(node.id, getattr(builtins, node.id, _NOTHING))
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value, local)
            if isinstance(owner, ModuleType):
                return getattr(owner, node.attr, _NOTHING)
            if isinstance(owner, self.values.tensor) and node.attr == "device":
                return owner.device
            if isinstance(owner, self.values.module):
                tables = (owner.__dict__, owner.__dict__.get("_modules") or {})
                return next((table[node.attr] for table in tables if node.attr in table), _NOTHING)
            attributes = getattr(owner, "__dict__", None) if owner is not _NOTHING else None
            if type(attributes) is dict:
                return attributes.get(node.attr, _NOTHING)
        return _NOTHING
