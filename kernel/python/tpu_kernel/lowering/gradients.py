"""Training steps in a run: what zero_grad, backward and step need to be right in one program.

Dynamo traces `backward()`, but gets it wrong when a gradient is set or cleared in the same
function (measured on torch 2.15: parameters then silently stop moving). So gradients are
cleared outside of programs; what `backward()` has used up is handed out without its graph.
"""

from __future__ import annotations

import ast
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classify import Classifier

# Names in a function's code that show it computes, sets or uses up gradients.
_TRAINING_NAMES = frozenset({"backward", "zero_grad"})
_GRADIENT_WORDS = frozenset({"backward", "grad", "step", "zero_grad", "autograd"})


def method_call(statement: ast.stmt, method: str) -> ast.Call | None:
    """`<anything>.method(...)` as a statement."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == method:
            return call
    return None


def runs_backward(statement: ast.stmt) -> bool:
    return method_call(statement, "backward") is not None


def stepped_name(statement: ast.stmt) -> str | None:
    """`opt` of a plain `opt.step()`."""
    call = method_call(statement, "step")
    if call is not None and not call.args and not call.keywords:
        owner = call.func.value  # type: ignore[attr-defined]
        return owner.id if isinstance(owner, ast.Name) else None
    return None


def stores_gradient(statement: ast.stmt) -> bool:
    """Sets or clears a `.grad`."""
    return any(
        isinstance(n, ast.Attribute) and n.attr == "grad" and not isinstance(n.ctx, ast.Load)
        for n in ast.walk(statement)
    )


def ignores_gradients(statement: ast.stmt, classifier: Classifier, local: set[str]) -> bool:
    """Nothing in it can look at a gradient: clearing gradients may move ahead of it."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr in _GRADIENT_WORDS:
            return False
        if isinstance(node, ast.Call):
            target: Any = classifier.resolve(node.func, local)
            if type(target) is FunctionType and not (target.__module__ or "").startswith("torch"):
                return False
            if isinstance(node.func, ast.Name) and node.func.id in local:
                return False
            if isinstance(node.func, ast.Attribute):
                owner: Any = classifier.resolve(node.func.value, local)
                if isinstance(owner, classifier.values.module or ()) or type(owner).__module__ == "__main__":
                    return False
            if type(target).__module__ == "__main__" and not isinstance(
                target, classifier.values.module or ()
            ):
                return False
    return True


def used_up(statements: list[ast.stmt]) -> set[str]:
    """Names bound in `statements` whose graph a `backward()` among them goes through."""
    names: set[str] = set()
    for statement in reversed(statements):
        call = method_call(statement, "backward")
        if call is not None:
            names |= _loaded(call.func)
            continue
        if isinstance(statement, (ast.Assign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            bound = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if bound & names:
                names |= _loaded(statement.value)
    return names


def _loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def trains(target: Any, depth: int = 4) -> bool:
    """Does a function of the user's own run `backward()` or clear gradients, itself or through
    functions it calls? Such a function may not be traced as part of a larger program."""
    function = getattr(target, "__func__", target)
    function = getattr(function, "__wrapped__", function)
    if type(function) is not FunctionType or depth == 0 or _is_torch(function):
        return False
    names = _code_names(function.__code__)
    if names & _TRAINING_NAMES:
        return True
    called = [function.__globals__.get(name) for name in names]
    for cell in function.__closure__ or ():
        try:
            called.append(cell.cell_contents)
        except ValueError:
            continue
    return any(trains(each, depth - 1) for each in called if each is not None and each is not target)


def method_of(owner: Any, name: str) -> Any:
    """A method of a user's object, found without running anything of theirs."""
    for base in type(owner).__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _is_torch(function: FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in ("torch", "torch_tpu")


def _code_names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _code_names(constant)
    return names
