"""Device work or Python? The run-time half of the decision, on one statement at a time.

Correctness first: whatever is not known to be right inside a compiled function stays module
code, with the reason in plain words for the card.
"""

from __future__ import annotations

import ast
import builtins
import functools
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from . import values as v
from .gradients import computes_loss, method_call, older_graph, spends, stepped_name, stores_gradient
from .known import BUILTINS_TRACED, CONTEXTS, FACTORIES, MODULE_SETUP, TORCH_HOST, TORCH_HOST_MODULES
from .names import Names, counted_name, walked
from .optimizers import refusal
from .places import is_place, is_slice
from .training import method_of, reads_in_loop, trains

if TYPE_CHECKING:
    from .callees import Functions

_NOTHING = object()
_WORK = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.AugAssign)


@dataclass
class Verdict:
    """`device` true: outline it. Else `why` says why not; empty for ordinary Python."""

    device: bool
    why: str = ""
    #: It calls a function that is lowered itself.
    lowers: bool = False


class Classifier:
    """Judges statements against the notebook as it is now."""

    #: Whether any statement can be device work.
    outlines = True

    #: The functions that can be lowered.
    functions: Functions | None = None

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
        if kinds.get(counted_name(statement) or "", v.DEVICE) in (v.NUMBER, v.HOST):
            return Verdict(False)
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
            if why is None:
                return Verdict(False, self._beside(statement, node), lowers=True)
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
        spent = spends(statement)
        if spent is not None and not spent & local and not computes_loss(statement):
            return older_graph(statement)
        optimizer = next((name for name in names.reads if kinds.get(name) in v.OPTIMIZERS), None)
        if (
            optimizer is not None
            and stepped_name(statement) is None
            and method_call(statement, "zero_grad") is None
        ):
            return f"reads the optimizer `{optimizer}`"
        return None

    def _obstacle(self, node: ast.AST, local: set[str]) -> str | None:
        """Why it stays Python; None for a call of a function that is lowered itself."""
        match node:
            case ast.With(items=items):
                for item in items:
                    if not self._is_context_of_torch(item.context_expr, local):
                        return "the context manager is Python"
            case ast.For(iter=iterator) if (receiver := walked(iterator)) is not None:
                if not isinstance(self.resolve(receiver, local), self.values.module or ()):
                    return "the loop itself is Python"
            case ast.Call():
                return self._call_obstacle(node, local)
        return ""

    def _call_obstacle(self, call: ast.Call, local: set[str]) -> str | None:
        shown = ast.unparse(call.func)
        shown = shown if len(shown) <= 40 else shown[:37] + "..."
        target = self.resolve(call.func, local)
        trained = self._trained(call, target, local)
        if trained is not None:
            made = self.functions.of(trained) if self.functions is not None else None
            if isinstance(target, self.values.module or ()):
                made = "it is the `forward` of a module"
            why = "it is not a function of the notebook" if made is None else made
            return f"`{shown}` runs `backward()` inside: {why}" if isinstance(why, str) else None
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
            if self._in_torch(target) and target.__name__ in CONTEXTS:
                return ""
            return f"`{shown}` builds an object"
        if isinstance(target, FunctionType) or callable(target):
            module = getattr(target, "__module__", None) or ""
            name = getattr(target, "__name__", "")
            if module == "builtins":
                known = name in BUILTINS_TRACED
                return "" if known else f"`{shown}` is ordinary Python"
            if module.partition(".")[0] in v.HOST_LIBRARIES and module != "__main__":
                return f"`{shown}` runs on the host"
            if self._in_torch(target):
                if name in TORCH_HOST or module.startswith(TORCH_HOST_MODULES):
                    return f"`{shown}` runs on the host"
                if name in FACTORIES and not self._device_argument(call, local):
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
            return f"`{shown}` sets up the module" if method in MODULE_SETUP else ""
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

    def trains(self, target: Any) -> bool:
        return trains(target, self.values.optimizer)

    def loops(self, target: Any) -> bool:
        return reads_in_loop(target)

    def _trained(self, call: ast.Call, target: Any, local: set[str]) -> Any:
        """What a call runs, if that is to be lowered by itself."""
        function = call.func
        if type(target) is functools.partial:
            target = target.func
        if isinstance(target, self.values.module or ()):
            forward = method_of(target, "forward")
            return forward if self.trains(forward) else None
        if target is _NOTHING and isinstance(function, ast.Attribute):
            owner = self.resolve(function.value, local)
            target = None if owner is _NOTHING else method_of(owner, function.attr)
            target = MethodType(target, owner) if type(target) is FunctionType else target
        elif not isinstance(target, (FunctionType, MethodType, type)):
            owner, target = target, method_of(target, "__call__")
            target = MethodType(target, owner) if type(target) is FunctionType else target
        if self.trains(target) or self._loops(target):
            return target
        # A function that is handed one that trains is to call it.
        given = [self.resolve(each, local) for each in (*call.args, *(k.value for k in call.keywords))]
        if self.functions is not None and any(self.trains(getattr(each, "func", each)) for each in given):
            self.functions.handed(target)
            return target
        return None

    def _beside(self, statement: ast.stmt, call: ast.AST) -> str:
        """What else a statement computes that calls a function of programs of its own."""
        value = getattr(statement, "value", None)
        if isinstance(statement, (ast.Assign, ast.Expr)) and (
            value is call or not any(isinstance(n, (ast.BinOp, ast.UnaryOp)) for n in ast.walk(value))
        ):
            return ""
        assert isinstance(call, ast.Call)
        return f"computes with what `{ast.unparse(call.func)}` returns, which is programs of its own"

    def _loops(self, target: Any) -> bool:
        """Only where it can be lowered: Dynamo makes something of the others."""
        return self.functions is not None and self.loops(target) and self.functions.of(target) is not None

    def named(self, name: str) -> Any:
        """The value of a dotted name."""
        return self.resolve(ast.parse(name, mode="eval").body, set())

    def _is_context_of_torch(self, node: ast.expr, local: set[str]) -> bool:
        if not isinstance(node, ast.Call):
            return False
        target = self.resolve(node.func, local)
        return isinstance(target, type) and self._in_torch(target) and target.__name__ in CONTEXTS

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
                if name in FACTORIES and self._in_torch(target) and self._device_argument(node, set()):
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


def asks_length(statement: ast.stmt, kinds: dict[str, str]) -> bool:
    """Of what is on the device it wants only how many there are: `total / len(loader)`."""
    asked, other = set(), set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len":
            asked |= {id(each) for each in node.args if isinstance(each, ast.Name)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and kinds.get(node.id) in v.ON_DEVICE:
            (other if id(node) not in asked or kinds[node.id] in (v.DEVICE, v.GRAPH) else set()).add(node.id)
    called = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    plain = all(isinstance(each, ast.Name) and hasattr(builtins, each.id) for each in called)
    return bool(asked) and not other and plain
