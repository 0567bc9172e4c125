"""Training steps in a run: what zero_grad, backward and step need to be right in one program.

Dynamo traces `backward()`, but gets it wrong when a gradient is set or cleared in the same
function (measured on torch 2.15: parameters then silently stop moving). So gradients are
cleared outside of programs; what `backward()` has used up is handed out without its graph.
"""

from __future__ import annotations

import ast
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classify import Classifier

_GRADIENT_WORDS = frozenset({"backward", "grad", "step", "zero_grad", "autograd"})


def method_call(statement: ast.stmt, method: str) -> ast.Call | None:
    """`<anything>.method(...)` as a statement."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == method:
            return call
    return None


def runs_backward(statement: ast.stmt) -> bool:
    """`loss.backward()`, or `... = torch.autograd.grad(loss, ...)`."""
    return spends(statement) is not None


def spends(statement: ast.stmt) -> set[str] | None:
    """Names through whose graph it goes, for the last time; None when it computes no gradients."""
    call = method_call(statement, "backward")
    if call is not None:
        return _loaded(call.func)
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "grad":
        owner = value.func.value
        name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
        if name == "autograd" and value.args and not value.keywords:
            return _loaded(value.args[0])
    return None


def computes_loss(statement: ast.stmt) -> bool:
    """`loss_of(net(x), y).backward()`: what it goes through is made in the statement itself."""
    call = method_call(statement, "backward")
    loss = call.func.value if call is not None else statement.value.args[0]  # type: ignore[attr-defined]
    return any(isinstance(node, (ast.Call, ast.BinOp)) for node in ast.walk(loss))


def older_graph(statement: ast.stmt) -> str:
    """Why a statement that computes gradients of something from before the run stays eager."""
    name = "backward" if method_call(statement, "backward") else "autograd.grad"
    return f"`{name}()` goes through a graph made before this run"


def clears_by_hand(statement: ast.stmt) -> bool:
    """`w.grad = None`, or that for each parameter of a module."""
    match statement:
        case ast.For(target=ast.Name(id=name), body=[ast.Assign(targets=[target]) as only], orelse=[]):
            owner = target.value if isinstance(target, ast.Attribute) else None
            return isinstance(owner, ast.Name) and owner.id == name and clears_by_hand(only)
        case ast.Assign(
            targets=[ast.Attribute(value=ast.Name() | ast.Attribute(), attr="grad")],
            value=ast.Constant(value=None),
        ):
            return True
    return False


def trains_inside(block: ast.With | ast.For) -> bool:
    """Does a block compute or clear gradients, or step an optimizer? It then is no part of a run."""
    return any(
        runs_backward(each) or method_call(each, "zero_grad") or method_call(each, "step")
        for each in ast.walk(block)
        if isinstance(each, ast.stmt)
    )


def stepped_name(statement: ast.stmt) -> str | None:
    """`opt` of a plain `opt.step()`, `self.opt` of `self.opt.step()`."""
    call = method_call(statement, "step")
    if call is not None and not call.args and not call.keywords:
        owner = call.func.value  # type: ignore[attr-defined]
        return ast.unparse(owner) if _is_dotted(owner) else None
    return None


def _is_dotted(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_dotted(node.value))


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


def gone_through(statements: list[ast.stmt]) -> set[str]:
    """Names from before `statements` whose graph a `backward()` among them goes through."""
    names: set[str] = set()
    for statement in reversed([inner for each in statements for inner in _flat(each)]):
        if _bound(statement) & names:
            if isinstance(statement, ast.Assign):
                names -= _bound(statement)
            names |= _loaded(statement.value)  # type: ignore[attr-defined]
        names |= spends(statement) or set()
    return names


def _flat(statement: ast.stmt) -> list[ast.stmt]:
    """The simple statements of a block."""
    body = getattr(statement, "body", None)
    return [inner for each in body for inner in _flat(each)] if isinstance(body, list) else [statement]


def _bound(statement: ast.stmt) -> set[str]:
    if not isinstance(statement, (ast.Assign, ast.AugAssign)):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
