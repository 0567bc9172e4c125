"""What in a cell wanted more device memory than there was: the line, the program.

All of it is read from the cell's text, from names and from what tpu-core knows of its programs. Python
hands operations to the device and goes on, so outside of the debug mode the line is found by the name
whose value was lost.
"""

from __future__ import annotations

import ast
import linecache
import sys
import types
from dataclasses import dataclass, field
from typing import Any

from .. import _kernel
from ..introspection.live import module_of
from .storages import root_of

#: Cells looked through for the one that assigned a name.
_MOST_CELLS = 200
_LONGEST_LINE = 100
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.With)


@dataclass
class Cell:
    """A cell of the history."""

    number: int
    code: str

    def tree(self) -> ast.Module:
        """Its syntax; lines for IPython count as empty."""
        lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in self.code.splitlines()]
        try:
            return ast.parse("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module([], [])

    def line(self, number: int) -> str:
        lines = self.code.splitlines()
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def running_cell() -> Cell | None:
    """The cell that runs now, as it was typed."""
    shell = _shell()
    running = _kernel.running()
    if shell is None or running is None:
        return None
    for number, parent in reversed(list(getattr(shell, "cell_parents", {}).items())):
        if parent == running:
            return _cell(shell, number)
    return None


@dataclass
class Place:
    """Where memory was wanted."""

    #: As `In[8], line 3`; "" where nobody knows.
    words: str = ""
    #: Its number in its cell, and the line for people.
    number: int = 0
    line: str = ""
    #: The statement, and names it may use that are not the notebook's.
    source: str = ""
    names: dict[str, Any] = field(default_factory=dict)
    #: The tensor that was to be made, as `f32 8×4`, and its sides; empty where it is not one tensor.
    shape: str = ""
    sides: tuple[int, ...] = ()


def place_of(
    error: BaseException | None, cell: Cell | None, lost: list[str], names: dict[str, Any], wanted: int
) -> Place:
    """Where the memory was wanted."""
    if cell is None or _blocking() or "copied from the host" in str(error):
        return _deepest(error)
    tree = cell.tree()
    roots = {root_of(name, "variable") for name in lost}
    found = [node for node in ast.walk(tree) if isinstance(node, _STATEMENTS) and _targets(node) & roots]
    if not found and lost:
        found = _steps(tree, lost)
    if not found:
        return _deepest(error)
    first, *others = sorted(found, key=lambda node: node.lineno)
    place = _at(cell, first)
    if isinstance(first, _STATEMENTS):
        assigned = _targets(first) & roots
        again = [node for node in others if _targets(node) & assigned]
        for name in assigned:
            _describe(place, names.get(name), wanted)
        # a name has the value that was given to it last
        if again and place.shape:
            place = _at(cell, again[-1], place)
        elif again:
            place.words += " or after"
            return place
    # of a later turn what an earlier line of the loop makes is lost too
    if not place.shape and any(_is_inside(first, loop) for loop in ast.walk(tree)):
        place.words += " or after"
    return place


def _at(cell: Cell, node: ast.stmt, known: Place | None = None) -> Place:
    text = _text(cell, node)
    place = Place(f"In[{cell.number}], line {node.lineno}", node.lineno, _cut(text.splitlines()[0]), text)
    if known is not None:
        place.shape, place.sides = known.shape, known.sides
    return place


def _steps(tree: ast.AST, lost: list[str]) -> list[ast.stmt]:
    """Statements that make gradients, where such were lost, else those that make steps: they assign no name."""
    called = "backward" if any(name.endswith(".grad") for name in lost) else "step"
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == called
    ]


def _is_inside(node: ast.AST, loop: ast.AST) -> bool:
    return isinstance(loop, ast.For | ast.While) and node is not loop and node in ast.walk(loop)


def _describe(place: Place, value: Any, wanted: int) -> None:
    """What was to be made, where it is one tensor, and that is what did not fit."""
    from ..cards.memory import shape_of

    torch = sys.modules["torch"]
    if issubclass(type(value), torch.Tensor):
        place.sides = tuple(value.shape)
        if value.numel() * value.element_size() == wanted:
            place.shape = shape_of(place.sides, str(value.dtype).removeprefix("torch."))


def _blocking() -> bool:
    from ..magics import eagermode

    return eagermode.in_force() == "debug"


def _deepest(error: BaseException | None) -> Place:
    """The innermost line of a cell in a traceback. What wanted memory stands there or before: certainly there in
    the debug mode, and where it was copied from the host."""
    exact = _blocking() or "copied from the host" in str(error)
    shell, found = _shell(), Place()
    step = error.__traceback__ if error is not None else None
    while step is not None and shell is not None:
        frame = step.tb_frame
        if (name := shell.compile.format_code_name(frame.f_code.co_filename)) is not None:
            line = linecache.getline(frame.f_code.co_filename, step.tb_lineno).strip()
            words = f"{name[1].removeprefix('Cell ')}, line {step.tb_lineno}"
            found = Place(words if exact else f"{words} or before", step.tb_lineno, _cut(line), line)
            if frame.f_locals is not frame.f_globals:
                found.names = dict(frame.f_locals)
        step = step.tb_next
    return found


def _text(cell: Cell, node: ast.AST) -> str:
    """A statement's own text: of a loop or block its head."""
    if isinstance(node, ast.For | ast.With):
        return cell.line(node.lineno)
    return ast.get_source_segment(cell.code, node) or cell.line(node.lineno)


def _cut(source: str) -> str:
    return source if len(source) <= _LONGEST_LINE else source[: _LONGEST_LINE - 1] + "…"


def _targets(node: ast.AST) -> set[str]:
    """Names a statement assigns itself."""
    if isinstance(node, ast.Assign):
        places: list[Any] = node.targets
    elif isinstance(node, ast.With):
        places = [item.optional_vars for item in node.items if item.optional_vars is not None]
    else:
        places = [node.target]  # type: ignore[attr-defined]
    return {each.id for place in places for each in ast.walk(place) if isinstance(each, ast.Name)}


def names_used(code: str, names: dict[str, Any]) -> set[str]:
    """Names of the notebook that a cell uses or assigns, also those that its functions and classes use."""
    found = {node.id for node in ast.walk(Cell(0, code).tree()) if isinstance(node, ast.Name)}
    waiting = list(found)
    while waiting:
        more = {name for each in _codes(names.get(waiting.pop())) for name in _names_of(each)}
        more = (more & set(names)) - found
        found |= more
        waiting += more
    return found


def _codes(value: Any) -> list[types.CodeType]:
    """The code of a function or class of the notebook, or of the class of an object."""
    if issubclass(type(value), types.MethodType):
        value = value.__func__
    if issubclass(type(value), types.FunctionType):
        return [value.__code__]
    kinds = type.mro(value) if issubclass(type(value), type) and value is not type else type(value).__mro__
    own = [kind for kind in kinds if module_of(kind) == "__main__"]
    return [each.__code__ for kind in own for each in vars(kind).values() if type(each) is types.FunctionType]


def _names_of(code: types.CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*map(_names_of, inner))


def assigned_in(name: str, cell: Cell | None, line: int) -> str:
    """The cell that gave a variable the value it has while `cell` is in `line`, as `In[4]`; "" for none."""
    shell = _shell()
    if shell is None or not name.isidentifier():
        return ""
    codes = shell.history_manager.input_hist_raw
    last = cell.number if cell is not None else len(codes)
    if cell is not None and name in _assigned(cell, line):
        return f"In[{cell.number}]"
    for number in range(last - 1, max(0, last - _MOST_CELLS), -1):
        if name in codes[number] and name in _assigned(Cell(number, codes[number])):
            return f"In[{number}]"
    return ""


def overwritten(names: list[str], cell: Cell | None) -> bool:
    """Has a cell given one of these a new value in place of one that an earlier cell gave it?"""
    if cell is None:
        return False
    return any(name in _assigned(cell) and assigned_in(name, cell, 0) for name in names)


def assigned_again(cell: Cell | None, line: int) -> set[str]:
    """Names a cell gives a new value in this line or after it. None of a line of several statements: which of
    them had run nobody knows."""
    if (
        cell is None
        or sum(isinstance(node, ast.stmt) and node.lineno == line for node in ast.walk(cell.tree())) > 1
    ):
        return set()
    return _assigned(cell) - _assigned(cell, line) - _read_first(cell)


def _read_first(cell: Cell) -> set[str]:
    """Names whose old value a cell needs before it gives them a new one."""
    first: dict[str, int] = {}
    for node in ast.walk(cell.tree()):
        if isinstance(node, _STATEMENTS):
            for name in _targets(node):
                first[name] = min(node.end_lineno or node.lineno, first.get(name, 1 << 30))
    loads = [
        node
        for node in ast.walk(cell.tree())
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    ]
    added = [node.target for node in ast.walk(cell.tree()) if isinstance(node, ast.AugAssign)]
    return {
        node.id
        for node in [*loads, *added]
        if isinstance(node, ast.Name) and node.lineno <= first.get(node.id, 0)
    }


def _assigned(cell: Cell, before: int = 1 << 30) -> set[str]:
    """Names a cell assigns, in lines before `before`."""
    return {
        name
        for node in ast.walk(cell.tree())
        if isinstance(node, _STATEMENTS) and node.lineno < before
        for name in _targets(node)
    }


def exact(what: str, about: int) -> int:
    """The bytes wanted. The refusal rounds them; the program that was refused has them in full."""
    name = what.partition("`")[2].partition("`")[0]
    if not name:
        return about
    for program in reversed(_kernel.tpu_programs(0)[1]):
        if program["name"] == name and program["stage"] in ("compiled", "cached"):
            results = program["output_bytes"] - program["alias_bytes"]
            for bytes_ in (results + program["temporary_bytes"], results):
                if abs(bytes_ - about) <= about / 200:
                    return bytes_
    return about


def _is_number(node: ast.AST) -> bool:
    """Arithmetic of numbers written out, as `1 << 20`."""
    parts = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
    return all(isinstance(each, parts) for each in ast.walk(node))


def is_one_operation(place: Place, names: dict[str, Any]) -> bool:
    """Nothing follows in the statement what was refused: so what fits there is known."""
    try:
        tree = ast.parse(place.source.removeprefix("return "))
    except SyntaxError:
        return False
    kinds = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Subscript, ast.AugAssign)
    found = [node for node in ast.walk(tree) if isinstance(node, kinds) and not _is_number(node)]
    if len(found) != 1 or not isinstance(found[0], ast.Call):
        return len(found) == 1
    called = found[0].func
    owner = called.value if isinstance(called, ast.Attribute) else None
    value = {**names, **place.names}.get(owner.id) if isinstance(owner, ast.Name) else None
    torch = sys.modules["torch"]
    return issubclass(type(value), torch.Tensor) or value in (torch, sys.modules.get("torch.nn.functional"))


def _shell() -> Any:
    from IPython.core.getipython import get_ipython

    return get_ipython()


def _cell(shell: Any, number: int) -> Cell | None:
    codes = shell.history_manager.input_hist_raw
    return Cell(number, codes[number]) if number < len(codes) else None
