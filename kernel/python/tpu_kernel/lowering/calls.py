"""What a lowered body's Python code asks on its way: whether a function it calls can be lowered too,
and whether a condition waits for the device.

Only code that runs in place is rewritten: what a `def`, a lambda or a generator keeps is the user's.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from .names import HOST_METHODS, SCOPE_READERS, decides_on

#: Marks in the place of functions; `patched` puts the functions there.
RUN = "tpu_kernel.lowering.run"
CALLEE = "tpu_kernel.lowering.callee"
DECIDES = "tpu_kernel.lowering.decides"
LOCALS = "tpu_kernel.lowering.locals"

_KEPT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
_HOST_METHODS = frozenset(HOST_METHODS) | {"append", "extend", "format", "join", "items", "keys", "values"}
_NEVER = frozenset(dir(builtins)) | SCOPE_READERS
_Node = TypeVar("_Node", bound=ast.AST)


def asking(node: _Node) -> _Node:
    """A copy of a statement or expression whose calls ask first."""
    return ask(copy.deepcopy(node))


def ask(node: _Node) -> _Node:
    """The same, changed in place: lists of statements stay the same lists."""
    changed: _Node = _Asking().visit(node)
    return changed


def deciding(statement: ast.If | ast.While) -> None:
    """Let the condition say on which values it depends."""
    names = decides_on(statement.test)

    class Leaves(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return _marked(DECIDES, node) if node.id in names and isinstance(node.ctx, ast.Load) else node

        def generic_visit(self, node: ast.AST) -> ast.AST:
            return node if isinstance(node, _KEPT) else super().generic_visit(node)

    test = Leaves().visit(statement.test)
    statement.test = test if isinstance(test, (ast.BoolOp, ast.UnaryOp)) else _marked(DECIDES, test)


def patched(code: CodeType, functions: dict[str, Callable[..., Any]]) -> CodeType:
    """Puts functions where their marks are."""
    constants = tuple(
        functions.get(each, each)
        if isinstance(each, str)
        else patched(each, functions)
        if isinstance(each, CodeType)
        else each
        for each in code.co_consts
    )
    same = all(a is b for a, b in zip(constants, code.co_consts, strict=True))
    return code if same else code.replace(co_consts=constants)


def mark(name: str, arguments: list[ast.expr], where: ast.AST) -> ast.Call:
    """A call of what `patched` puts in the place of `name`."""
    call = ast.Call(ast.Constant(name), arguments, [])
    return ast.fix_missing_locations(ast.copy_location(call, where))


def _marked(name: str, node: ast.expr) -> ast.expr:
    return mark(name, [node], node)


class _Asking(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _KEPT) else super().visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        named = isinstance(function, ast.Name) and function.id not in _NEVER
        if named or (isinstance(function, ast.Attribute) and function.attr not in _HOST_METHODS):
            node.func = _marked(CALLEE, function)
        return node
