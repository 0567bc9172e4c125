"""Statements that take slices: no work of the device, and where a number that changes does no harm."""

from __future__ import annotations

import ast
from collections.abc import Callable


def is_slice(statement: ast.stmt, is_tensor: Callable[[str], bool]) -> bool:
    """Does it give names to slices of tensors, as `x, y = X[i : i + 64], Y[:, i]`, and nothing else?"""
    if not isinstance(statement, ast.Assign):
        return False
    value = statement.value
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    targets = [
        each
        for target in statement.targets
        for each in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    return all(isinstance(each, ast.Name) for each in targets) and all(
        isinstance(part, ast.Subscript)
        and isinstance(part.value, ast.Name)
        and not any(is_tensor(name) for name in _names(part.slice))
        for part in parts
    )


def is_place(statement: ast.stmt, name: str) -> bool:
    """Is a number used for nothing but to say which part of something is meant?"""
    places = [node.slice for node in ast.walk(statement) if isinstance(node, ast.Subscript)]
    inside = {id(node) for place in places for node in ast.walk(place)}
    uses = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
    return all(id(use) in inside for use in uses)


def _names(node: ast.AST) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
