"""The syntax tree of a function that exists, and the certainty that it is the right one."""

from __future__ import annotations
import __future__

import ast
import linecache
import warnings
from dataclasses import dataclass
from types import CodeType, FunctionType

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


@dataclass
class Definition:
    """A function's `def`, and what stands around it."""

    node: ast.FunctionDef
    #: The class it is a method of.
    owner: str
    #: `from __future__` of its file.
    flags: int
    #: Names that some function of its file, or around it, declares `global`; and `nonlocal`.
    globals: frozenset[str]
    nonlocals: frozenset[str]


class Unknown(Exception):
    """There is no source, or it is not what the function was made from."""


def definition_of(function: FunctionType) -> Definition:
    """Read from the source, compiled again and compared: equal code, equal meaning."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    if not lines:
        raise Unknown("its source is not known")
    flags = code.co_flags & _FUTURE
    try:
        tree = ast.parse("".join(lines), code.co_filename)
    except (SyntaxError, ValueError):
        raise Unknown("its source is not known") from None
    # A file is compiled as a whole, a cell statement by statement, which is not quite the same code.
    alone = [ast.Module([s], []) for s in tree.body if code.co_firstlineno in _span(s)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = any(
            _holds(compile(each, code.co_filename, "exec", flags=flags, dont_inherit=True), code)
            for each in [tree, *alone]
        )
    if not same:
        raise Unknown("its source has changed since it was made")
    found = [
        (node, owner)
        for node, owner in _definitions(tree, "")
        if node.name == code.co_name and _first_line(node) == code.co_firstlineno
    ]
    if len(found) != 1 or not isinstance(found[0][0], ast.FunctionDef):
        raise Unknown("its source is not known")
    node, owner = found[0]
    declared = {ast.Global: set[str](), ast.Nonlocal: set[str]()}
    for each in ast.walk(tree):
        if isinstance(each, (ast.Global, ast.Nonlocal)):
            declared[type(each)].update(each.names)
    assert isinstance(node, ast.FunctionDef)
    return Definition(node, owner, flags, frozenset(declared[ast.Global]), frozenset(declared[ast.Nonlocal]))


def _span(node: ast.stmt) -> range:
    decorators = getattr(node, "decorator_list", [])
    return range(min([node.lineno, *(each.lineno for each in decorators)]), (node.end_lineno or 0) + 1)


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return _span(node).start


def _definitions(node: ast.AST, owner: str) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    found: list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append((child, owner))
            found += _definitions(child, "")
        else:
            found += _definitions(child, child.name if isinstance(child, ast.ClassDef) else owner)
    return found


def _holds(module: CodeType, code: CodeType) -> bool:
    return any(each == code or _holds(each, code) for each in module.co_consts if isinstance(each, CodeType))
