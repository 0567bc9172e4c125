"""The batch that would have fitted where device memory ran out, if it is plain what the batch is.

What a line makes has the sides of the tensors it is made from. Only one whose rows are one of those sides
explains the size; where nothing is plain, nothing is said.
"""

from __future__ import annotations

import ast
import re
import sys
from typing import TYPE_CHECKING, Any

from .storages import Holding, on_device

if TYPE_CHECKING:
    from .demand import Place
    from .shortage import Diagnosis

Sides = tuple[int, ...]

#: Names of what nobody takes fewer rows of.
_WEIGHTS = re.compile(r"w([a-z]?\d*|_.*)|.*(weight|kernel|embed|codebook).*", re.IGNORECASE)
_TURNED = r"\b{name}\.(T\b|mT\b|t\(|transpose\(|permute\()"
#: Functions and methods whose result has the sides of the first argument.
_SAME = re.compile(
    "abs|clone|cos|dropout|exp|float|gelu|half|log|log_softmax|relu|sigmoid|silu|sin|softmax|sqrt|square|tanh"
)


def fitting(diagnosis: Diagnosis, place: Place, names: dict[str, Any], freed: int) -> tuple[int, int, str]:
    """The batch that explains what was wanted, the one that would fit, and, where not plainly a batch, the name
    of the tensor that has it as its rows; else zeros.

    In one operation nothing but its result shrinks with the batch. Else it is the most that can fit: so much of
    what there was as may have shrunk counts as such, what is `freed` by now too.
    """
    batch, name = _batch(place, {**names, **place.names})
    if batch < 2 or not diagnosis.wanted or diagnosis.wanted % batch:
        return 0, 0, ""
    same = 0 if diagnosis.certain else max(0, freed - _weights(diagnosis.held.gone))
    for holding in diagnosis.held.holdings:
        first = holding.shape[0] if holding.shape else 0
        is_in_graph = holding.kind == "graph" and first and first % batch == 0
        if is_in_graph or (first == batch and not diagnosis.certain and _is_read(holding, place)):
            same += holding.bytes
    fits = (diagnosis.free + same) * batch // (diagnosis.wanted + same)
    if not 1 <= fits < batch:
        return 0, 0, ""
    digits = max(0, len(str(fits)) - 2)
    return batch, fits // 10**digits * 10**digits, name


def _is_read(holding: Holding, place: Place) -> bool:
    """The line reads it, or functions that the error ended hold it."""
    if holding.kind in ("variable", "output"):
        return re.search(rf"\b{re.escape(holding.root)}\b", place.source) is not None
    return holding.kind in ("traceback", "running")


def _weights(gone: list[Holding]) -> int:
    """Bytes that lost weights had."""
    return sum(each.bytes for each in gone if each.kind == "parameter")


def _batch(place: Place, names: dict[str, Any]) -> tuple[int, str]:
    tree = _expression(place.source)
    sides = place.sides or (_sides(tree, names) if tree is not None else None)
    if tree is None or not sides:
        return 0, ""
    rows = {
        name: value
        for name, value in _tensors(tree, names).items()
        if type(value) is not sys.modules["torch"].nn.Parameter and not _WEIGHTS.fullmatch(name)
    }
    explained = [found for at in range(len(sides)) if (found := _owner(at, sides, rows, place.source))]
    if not explained:
        return 0, ""
    first = explained[0]
    return int(rows[first].shape[0]), first if len(explained) > 1 else ""


def _owner(at: int, sides: Sides, rows: dict[str, Any], source: str) -> str:
    """The tensor whose rows are this side of the result; "" where it is none, or may be several."""
    owners = [name for name, value in rows.items() if value.shape[0] == sides[at]]
    if not owners or len({tuple(rows[name].shape) for name in owners}) > 1:
        return ""
    name, shape = owners[0], tuple(rows[owners[0]].shape)
    turned = any(re.search(_TURNED.format(name=re.escape(owner)), source) for owner in owners)
    if (at == 0) == turned:
        return ""
    # With one number twice it may be the other, or the size may grow with its square.
    is_once = sides.count(sides[at]) == 1 and shape.count(sides[at]) == 1
    read_once = len(re.findall(rf"\b{re.escape(name)}\b", source)) == 1
    return name if is_once or (at == 0 and len(sides) == len(shape) > 2 and read_once) else ""


def _expression(source: str) -> ast.expr | None:
    """What a statement computes."""
    try:
        (statement,) = ast.parse(source.removeprefix("return ")).body
    except (SyntaxError, ValueError):
        return None
    return getattr(statement, "value", None)


def _tensors(tree: ast.expr, names: dict[str, Any]) -> dict[str, Any]:
    """Tensors on the device of at least two dimensions that an expression reads, in their order."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    read = {node.id: names.get(node.id) for node in sorted(found, key=lambda n: (n.lineno, n.col_offset))}
    return {name: value for name, value in read.items() if _is_tensor(value) and value.dim() > 1}


def _is_tensor(value: Any) -> bool:
    return issubclass(type(value), sys.modules["torch"].Tensor) and on_device(value)


def _sides(node: ast.expr, names: dict[str, Any]) -> Sides | None:
    """The sides of what plain arithmetic makes; None where it is more than that."""
    if isinstance(node, ast.Constant):
        return ()
    if isinstance(node, ast.Name):
        value = names.get(node.id)
        return tuple(value.shape) if _is_tensor(value) else None
    if isinstance(node, ast.UnaryOp):
        return _sides(node.operand, names)
    if isinstance(node, ast.BinOp):
        left, right = _sides(node.left, names), _sides(node.right, names)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.MatMult):
            return (left[0], right[1]) if len(left) == len(right) == 2 else None
        return tuple(sys.modules["torch"].broadcast_shapes(left, right))
    turned = isinstance(node, ast.Attribute) and node.attr in ("T", "mT")
    called = node.func if isinstance(node, ast.Call) else None
    if turned or (isinstance(called, ast.Attribute) and called.attr == "t"):
        inner = _sides((node if turned else called).value, names)  # type: ignore[union-attr]
        return inner[::-1] if inner is not None and len(inner) == 2 else None
    if isinstance(node, ast.Call) and isinstance(called, ast.Attribute) and _SAME.fullmatch(called.attr):
        owner = _sides(called.value, names)
        return owner if owner is not None or not node.args else _sides(node.args[0], names)
    return None
