"""One straight-line run of a cell: decided, outlined and called piece by piece.

The statements of a run are judged one after the other against the notebook as it is when they
are reached, so a loop body is planned on its first iteration and the plan is kept under the
kinds of the names it mentions.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING, Any

from . import values as v
from .calls import asking
from .classify import Verdict, asks_length
from .gradients import clears_by_hand, gone_through, ignores_gradients, method_call, older_graph, stepped_name
from .names import counted_name, names_of
from .outline import Outlined, outline

if TYPE_CHECKING:
    from .body import Body

# A number seen with this many different values is taken to change from run to run.
_DISTINCT_NUMBERS = 3


@dataclass
class Piece:
    """The statements from one index up to `end`: outlined, or one of module code."""

    end: int
    outlined: Outlined | None = None
    code: CodeType | None = None
    mode: str = "exec"
    why: str = ""
    lines: tuple[int, ...] = ()
    numbers: tuple[str, ...] = ()
    # Statements that clear gradients, moved ahead of the outlined ones.
    first: tuple[CodeType, ...] = ()
    # It calls a function that is lowered itself.
    lowers: bool = False


class Run:
    """Consecutive statements that may be outlined, at module level or in a loop or branch."""

    def __init__(self, cell: Body, statements: list[ast.stmt], returns: bool, loop_names: set[str]) -> None:
        self.cell = cell
        self.statements = statements
        self.names = [names_of(statement) for statement in statements]
        self.returns = returns
        self.loop_names = loop_names
        self.mentioned = [
            tuple(sorted(set().union(*(n.reads | n.maybe for n in self.names[start:]))))
            for start in range(len(statements))
        ]
        self.plans: dict[tuple[int, tuple[str, ...]], Piece] = {}
        self.functions: dict[tuple[Any, ...], Outlined] = {}
        self.numbers: dict[str, set[Any]] = {}
        self.varying: set[str] = set()
        #: What the last piece gave.
        self.value: Any = None
        # From each statement on, attributes whose kind decides: optimizers that are stepped, what is added to.
        names = [stepped_name(s) or counted_name(s) or "" for s in statements]
        self._dotted = [
            tuple(name for name in names[start:] if "." in name) for start in range(len(statements))
        ]

    def execute(self) -> Any:
        """Run the statements; the last expression's value when it is the cell's."""
        index, value = 0, None
        while index < len(self.statements):
            piece = self.advance(index)
            value = self.value
            if piece.code is not None:
                value = self.cell.run_code(piece.code, piece.mode)
            index = piece.end
        return value

    def advance(self, index: int) -> Piece:
        """The piece that begins here: called when it is outlined, else said to run as it is."""
        cell = self.cell
        piece = self._piece(index)
        while piece.outlined is not None and self._numbers_changed(piece):
            piece = self._piece(index)
        self.value = None
        if piece.outlined is None:
            cell.leave(piece.lines, piece.why)
            return piece
        for code in piece.first:
            cell.run_code(code, "exec")
        self.value = cell.call(piece.outlined)
        return piece

    def forget_plans(self) -> None:
        self.plans.clear()

    def _piece(self, start: int) -> Piece:
        namespace = self.cell.namespace
        kind = self.cell.values.kind
        names, dotted = self.mentioned[start], self._dotted[start]
        key = tuple([kind(namespace[name]) if name in namespace else v.ABSENT for name in names])
        if dotted:
            key += tuple([kind(self.cell.classifier.named(name)) for name in dotted])
        piece = self.plans.get((start, key))
        if piece is None:
            piece = self._plan(start, dict(zip(names + dotted, key, strict=True)))
            self.plans[start, key] = piece
        return piece

    def _plan(self, start: int, kinds: dict[str, str]) -> Piece:
        judge = self.cell.classifier.judge
        hazards = self.cell.hazards
        bound: set[str] = set()
        maybe: set[str] = set()
        end = start
        moved: set[int] = set()
        while end < len(self.statements):
            names = self.names[end]
            if self._clears_gradients(end, bound):
                if end == start:
                    return self._module_piece(start, "")
                earlier = [self.statements[i] for i in range(start, end) if i not in moved]
                if not all(ignores_gradients(s, self.cell.classifier, bound) for s in earlier):
                    break
                moved.add(end)
                end += 1
                continue
            if end == start and asks_length(self.statements[end], kinds):
                return self._module_piece(start, "")
            verdict = judge(self.statements[end], names, bound, kinds, self.varying)
            rebound = (names.reads | names.writes | names.maybe) & hazards.written
            if rebound and verdict.device:
                verdict = Verdict(False, f"a function of the notebook changes `{min(rebound)}`")
            if verdict.device and self._goes_through_older(start, end, moved, kinds):
                verdict = Verdict(False, older_graph(self.statements[end]))
            if end == start and not verdict.device:
                return self._module_piece(start, verdict.why, verdict.lowers)
            if not verdict.device or names.reads & maybe:
                break
            if isinstance(self.statements[end], (ast.With, ast.For)):
                seen = next((n for n in sorted(names.maybe | names.writes) if hazards.reads(n)), None)
                if seen is not None:
                    if end > start:
                        break
                    return self._module_piece(start, f"a function of the notebook reads `{seen}`")
            bound |= names.writes
            maybe |= names.maybe - bound
            end += 1
            # A function called later must find what this statement bound in the notebook.
            if any(hazards.reads(name) for name in names.writes | names.maybe):
                break
        return self._outlined_piece(start, end, moved, kinds)

    def _goes_through_older(self, start: int, end: int, moved: set[int], kinds: dict[str, str]) -> bool:
        """Does the last statement compute gradients through a graph from before the run?

        A program would go through what it was handed as if it had no graph.
        """
        kept = [self.statements[index] for index in range(start, end + 1) if index not in moved]
        return any(kinds.get(name) in v.WITH_GRAPH for name in gone_through(kept))

    def _clears_gradients(self, index: int, bound: set[str]) -> bool:
        """`opt.zero_grad()`, `model.zero_grad()`, `w.grad = None`: host work that no program may contain."""
        if clears_by_hand(self.statements[index]):
            return not self.names[index].reads & bound
        call = method_call(self.statements[index], "zero_grad")
        if call is None or not isinstance(call.func, ast.Attribute):
            return False
        owner = self.cell.classifier.resolve(call.func.value, bound)
        values = self.cell.values
        return isinstance(owner, (values.optimizer, values.module))

    def _outlined_piece(self, start: int, end: int, moved: set[int], kinds: dict[str, str]) -> Piece:
        bound: set[str] = set()
        needed: set[str] = set()
        maybe: set[str] = set()
        kept = [i for i in range(start, end) if i not in moved]
        optimizers = frozenset(name for name, kind in kinds.items() if kind == v.OPTIMIZER)
        for index in kept:
            names = self.names[index]
            if stepped_name(self.statements[index]) in optimizers:
                continue
            needed |= names.reads - bound
            bound |= names.writes
            maybe |= names.maybe
        outputs = tuple(sorted(bound | maybe))
        parameters = tuple(
            sorted(
                name
                for name in needed | (maybe - bound)
                if name in outputs or kinds.get(name, v.ABSENT) not in (v.ABSENT, v.TOOL)
            )
        )
        returns = self.returns and end == len(self.statements)
        key = (start, end, parameters, outputs, optimizers)
        outlined = self.functions.get(key)
        if outlined is None:
            cell = self.cell
            outlined = outline(
                [self.statements[i] for i in kept],
                parameters,
                outputs,
                cell.namespace,
                cell.filename,
                cell.quiet,
                returns,
                optimizers,
                cell.name,
            )
            cell.prepare(outlined)
            self.functions[key] = outlined
        numbers = tuple(name for name in parameters if kinds.get(name) == v.NUMBER)
        first = tuple(
            self.cell.quiet(ast.Module([self.statements[i]], []), self.cell.filename, "exec")
            for i in sorted(moved)
        )
        return Piece(end, outlined, lines=outlined.lines, numbers=numbers, first=first)

    def _module_piece(self, start: int, why: str, lowers: bool = False) -> Piece:
        statement = self.statements[start]
        cell = self.cell
        lines = tuple(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        if not cell.is_module:
            return Piece(start + 1, why=why, lines=lines, lowers=lowers)
        if cell.classifier.outlines:
            statement = asking(statement)
        if self.returns and start == len(self.statements) - 1 and isinstance(statement, ast.Expr):
            code = cell.patched(cell.quiet(ast.Expression(statement.value), cell.filename, "eval"))
            return Piece(start + 1, code=code, mode="eval", why=why, lines=lines, lowers=lowers)
        code = cell.patched(cell.quiet(ast.Module([statement], []), cell.filename, "exec"))
        return Piece(start + 1, code=code, why=why, lines=lines, lowers=lowers)

    def _numbers_changed(self, piece: Piece) -> bool:
        """True when a number turned out to vary: the plans are void, plan again."""
        namespace = self.cell.namespace
        changed = False
        for name in piece.numbers:
            seen = self.numbers.setdefault(name, set())
            if len(seen) < _DISTINCT_NUMBERS:
                seen.add((type(namespace[name]), namespace[name]))
            limit = 1 if name in self.loop_names else _DISTINCT_NUMBERS
            if len(seen) >= limit and name not in self.varying:
                self.varying.add(name)
                changed = True
        if changed:
            self.forget_plans()
        return changed
