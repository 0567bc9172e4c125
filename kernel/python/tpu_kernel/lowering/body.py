"""What a lowered cell and a lowered function have in common: statements in blocks, and runs of them."""

from __future__ import annotations

import ast
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Any

from .calls import RUN, ask, deciding, mark
from .names import is_simple
from .outline import Compiler, Outlined
from .run import Run

if TYPE_CHECKING:
    from .cell import LoweredCell
    from .classify import Classifier
    from .findings import Findings
    from .hazards import Hazards
    from .report import Report
    from .values import Values

BRANCH = "the branch depends on values of a tensor"


class Body:
    """Statements that are lowered, on names that are the notebook's or a function's."""

    filename: str
    #: The names it runs on: a dictionary, or a function's view of what it sees.
    namespace: Any
    backend: Any
    values: Values
    classifier: Classifier
    hazards: Hazards
    report: Report
    findings: Findings
    runs: list[Run]
    #: The cell that runs it.
    root: LoweredCell
    #: Whether what stays Python is code of its own, or part of the function's.
    is_module = True

    #: What tracebacks call it.
    name = "<module>"

    _compiler: Compiler

    def patched(self, code: CodeType) -> CodeType:
        """Puts the functions that lowered code calls where their marks are."""
        raise NotImplementedError

    def quiet(self, node: ast.AST, filename: str, mode: str) -> CodeType:
        """Compile a part of it. Its warnings were shown when the whole was compiled."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._compiler(node, filename, mode)

    def new_run(self, statements: list[ast.stmt], returns: bool, loop_names: set[str]) -> Run:
        run = Run(self, statements, returns, loop_names)
        self.runs.append(run)
        return run

    def lowered(self, statement: ast.stmt, loop_names: set[str]) -> ast.stmt:
        """Replaces the straight-line runs in the blocks of a compound statement."""
        match statement:
            case ast.For() | ast.While():
                loop_names = loop_names | _counted(statement)
            case ast.If() | ast.With() | ast.Try() | ast.Match():
                pass
            case _:
                if type(statement).__name__ != "TryStar":
                    return ask(statement)
        inner = blocks(statement)
        made = [self.lowered_block(block, loop_names) for block in inner]
        for block in inner:
            block.clear()
        statement = ask(statement)
        for block, content in zip(inner, made, strict=True):
            block[:] = content
        if isinstance(statement, (ast.If, ast.While)):
            deciding(statement)
        return statement

    def lowered_block(self, block: list[ast.stmt], loop_names: set[str]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        pending: list[ast.stmt] = []

        def flush() -> None:
            if pending:
                result.extend(self.run_code_of(self.new_run(list(pending), False, loop_names)))
                pending.clear()

        for statement in self.prepared(block):
            if is_simple(statement):
                pending.append(statement)
            else:
                flush()
                result.append(self.lowered(statement, loop_names))
        flush()
        return result

    def prepared(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """The statements of a block before they are looked at."""
        return block

    def run_code_of(self, run: Run) -> list[ast.stmt]:
        """What stands in the code in the place of a run."""
        where = run.statements[0]
        call = ast.Expr(mark(RUN, [ast.Constant(len(self.runs) - 1)], where))
        return [ast.copy_location(call, where)]

    def prepare(self, outlined: Outlined) -> None:
        """Make an outlined function callable through the backend."""
        outlined.call = self.backend.compile(outlined)

    def call(self, outlined: Outlined) -> Any:
        return self.backend.call(self, outlined)

    def run_code(self, code: CodeType, mode: str) -> Any:
        raise NotImplementedError

    def leave(self, lines: tuple[int, ...], why: str) -> None:
        """A statement is to run eagerly now."""
        raise NotImplementedError

    def ran(self, lines: tuple[int, ...]) -> None:
        """Lines were in a program."""
        raise NotImplementedError

    def stayed(self, lines: tuple[int, ...], why: str) -> None:
        """Lines ran eagerly."""
        raise NotImplementedError

    def shown_lines(self, lines: tuple[int, ...]) -> tuple[int, ...]:
        """The lines of the cell where these are seen."""
        return lines


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    found = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    found += [handler.body for handler in getattr(statement, "handlers", [])]
    found += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in found if block]


def _counted(loop: ast.For | ast.While) -> set[str]:
    """Names whose number changes with each turn: targets of loops, and what is added to."""
    counted: set[str] = set()
    for node in ast.walk(loop):
        target = node.target if isinstance(node, (ast.For, ast.AugAssign)) else None
        if target is not None:
            counted |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return counted
