"""What a `return` computes, or what is read on the host, is named first: so it can go into a program.

`total += (p == y).sum().item()` computes in a program, then reads the sum.
"""

from __future__ import annotations

import ast
import copy

_HOST = frozenset({"item", "tolist", "cpu", "numpy", "detach"})
_RESULT = "_tpu_result_"


def hoisted(statement: ast.Return) -> list[ast.stmt]:
    """The statements that compute what is returned, in order, and the `return` of their results."""
    if statement.value is None or _binds(statement.value):
        return [statement]
    taking = _Taking(whole=True)
    result = ast.Return(taking.take(copy.deepcopy(statement.value)))
    return [*taking.made, ast.copy_location(result, statement)]


def read_apart(statement: ast.stmt, local: frozenset[str]) -> list[ast.stmt]:
    """A statement that reads a result on the host, and before it what computes the result. `local`: names
    that nothing the statement calls can change."""
    statement = copy.deepcopy(statement)
    taking = _Taking(whole=False)
    match statement:
        case ast.Assign(value=value) if not _binds(value):
            statement.value = taking.take(value)
        case ast.AugAssign(target=ast.Name(id=name), value=value) if name in local and not _binds(value):
            statement.value = taking.take(value)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=[value], keywords=[]) as call
        ) if name in local and not _binds(value):
            call.args = [taking.take(value)]
    return [*taking.made, statement]


class _Taking:
    """Names the parts of an expression that compute, from left to right."""

    def __init__(self, whole: bool) -> None:
        """`whole`: also where nothing is read on the host."""
        self.made: list[ast.stmt] = []
        self._whole = whole

    def take(self, node: ast.expr, read: bool = False) -> ast.expr:
        match node:
            case ast.Name() | ast.Constant():
                return node
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if self._whole and not _starred(elements):
                node.elts = [self.take(each) for each in elements]
                return node
            case ast.Dict(keys=keys, values=values) if self._whole and all(
                isinstance(key, ast.Constant) for key in keys
            ):
                node.values = [self.take(each) for each in values]
                return node
            case ast.Call(func=ast.Attribute(attr=method) as function, args=[], keywords=[]) if (
                method in _HOST
            ):
                function.value = self.take(function.value, read=True)
                return node
            case ast.Call(func=ast.Name(id="float" | "int"), args=[argument], keywords=[]):
                node.args = [self.take(argument, read=True)]
                return node
            case ast.BinOp(left=ast.Call() as left) if not self._whole:
                node.left = self.take(left)
                return node
        return self._named(node) if read or self._whole else node

    def _named(self, node: ast.expr) -> ast.expr:
        name = f"{_RESULT}{len(self.made)}"
        target = ast.copy_location(ast.Name(name, ast.Store()), node)
        self.made.append(ast.copy_location(ast.Assign([target], node), node))
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _binds(node: ast.expr) -> bool:
    return any(
        isinstance(each, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for each in ast.walk(node)
    )


def _starred(elements: list[ast.expr]) -> bool:
    return any(isinstance(each, ast.Starred) for each in elements)
