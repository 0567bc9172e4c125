"""One cell, lowered: which parts are module code, which are outlined, and how it is run.

A cell is compiled untouched first, so only valid cells go on. Then each top-level statement is
either a step of its own (as IPython runs it), a compound statement whose blocks call their runs,
or part of a run. The lowered cell is kept, so the same text run again reuses every function.
"""

from __future__ import annotations

import ast
import copy
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .classify import Classifier
from .dynamo import Trace
from .errors import NotWhole
from .findings import Findings
from .functions import NotebookFunctions
from .hazards import Hazards, defined
from .names import CODE_RUNNERS, decides_on, is_simple
from .outline import Compiler, Outlined
from .report import Report
from .run import Run
from .values import Values

_MARK = "tpu_kernel.lowering.run"
BRANCH = "the branch depends on values of a tensor"


@dataclass
class Step:
    """A top-level part of the cell: code for `exec` or `eval`, or a run."""

    lines: tuple[int, ...]
    code: CodeType | None = None
    mode: str = "exec"
    run: Run | None = None
    #: Names on whose values its condition depends.
    decides_on: frozenset[str] = frozenset()


class LoweredCell:
    """A cell ready to run, as often as wanted, on one namespace."""

    def __init__(
        self,
        tree: ast.Module,
        filename: str,
        namespace: dict[str, Any],
        compiler: Compiler,
        backend: Any,
        interactivity: str = "last_expr",
        functions: NotebookFunctions | None = None,
    ) -> None:
        self.filename = filename
        self.namespace = namespace
        self.backend = backend
        self._compiler = compiler
        self._functions = functions or NotebookFunctions(namespace, compiler)
        compiler(copy.deepcopy(tree), filename, "exec")
        self.tree = tree
        loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
        self._looped = frozenset(
            line for loop in loops for line in range(loop.lineno, (loop.end_lineno or 0) + 1)
        )
        self.values: Values = backend.values()
        self.classifier: Classifier = backend.classifier(self.values, namespace)
        self.hazards = Hazards()
        self.report = Report(looped=self._looped)
        self.findings = Findings(filename, self._known_as)
        self.runs: list[Run] = []
        self.running = False
        self._state: tuple[Any, ...] = ()
        self._mentioned = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
        self._own_hazards = defined(tree).restricted(self._mentioned)
        self._runs_code = bool(self._mentioned & CODE_RUNNERS)
        self.steps = self._split(tree.body, interactivity)

    # -- building ------------------------------------------------------------------

    def quiet(self, node: ast.AST, filename: str, mode: str) -> CodeType:
        """Compile a part of the cell. Its warnings were shown when the whole was compiled."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._compiler(node, filename, mode)

    def _split(self, body: list[ast.stmt], interactivity: str) -> list[Step]:
        body = list(body)
        if interactivity == "last_expr_or_assign" and body:
            body.extend(_shown_name(body[-1]))
        wanted = interactivity in ("last_expr", "last_expr_or_assign")
        steps: list[Step] = []
        pending: list[ast.stmt] = []

        def flush(last: bool) -> None:
            if pending:
                returns = last and wanted and isinstance(pending[-1], ast.Expr)
                steps.append(Step(_lines(*pending), run=self._new_run(list(pending), returns, set())))
                pending.clear()

        for statement in body:
            shown = isinstance(statement, ast.Expr) and (
                interactivity == "all" or (wanted and statement is body[-1])
            )
            if is_simple(statement) if not shown else wanted:
                pending.append(statement)
                continue
            flush(last=False)
            if shown:
                code = self.quiet(ast.Interactive([statement]), self.filename, "single")
            else:
                plain = not self.classifier.outlines
                lowered = statement if plain else self._lower(copy.deepcopy(statement), set())
                code = self._patched(self.quiet(ast.Module([lowered], []), self.filename, "exec"))
            test = getattr(statement, "test", None) if isinstance(statement, (ast.If, ast.While)) else None
            decides = frozenset(decides_on(test)) if test is not None else frozenset()
            steps.append(Step(_header_lines(statement), code=code, decides_on=decides))
        flush(last=True)
        return steps

    def _new_run(self, statements: list[ast.stmt], returns: bool, loop_names: set[str]) -> Run:
        run = Run(self, statements, returns, loop_names)
        self.runs.append(run)
        return run

    def _lower(self, statement: ast.stmt, loop_names: set[str]) -> ast.stmt:
        """Replaces the straight-line runs in the blocks of a module-level compound statement."""
        match statement:
            case ast.For() | ast.While():
                loop_names = loop_names | _counted(statement)
            case ast.If() | ast.With() | ast.Try() | ast.Match():
                pass
            case _:
                if type(statement).__name__ != "TryStar":
                    return statement
        for block in _blocks(statement):
            block[:] = self._lower_block(block, loop_names)
        return statement

    def _lower_block(self, block: list[ast.stmt], loop_names: set[str]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        pending: list[ast.stmt] = []

        def flush() -> None:
            if pending:
                run = self._new_run(list(pending), False, loop_names)
                result.append(_run_call(len(self.runs) - 1, run.statements[0]))
                pending.clear()

        for statement in block:
            if is_simple(statement):
                pending.append(statement)
            else:
                flush()
                result.append(self._lower(statement, loop_names))
        flush()
        return result

    def _patched(self, code: CodeType) -> CodeType:
        """Puts the function that executes a run where the lowered tree has its mark."""
        if _MARK not in code.co_consts:
            return code
        constants = tuple(self._execute_run if c == _MARK else c for c in code.co_consts)
        return code.replace(co_consts=constants)

    def _execute_run(self, number: int) -> None:
        if self._runs_code:
            self.look_around(afresh=True)
        self.runs[number].execute()

    # -- running -------------------------------------------------------------------

    def prepare(self, outlined: Outlined) -> None:
        """Make an outlined function callable through the backend."""
        outlined.call = self.backend.compile(outlined)

    def call(self, outlined: Outlined) -> Any:
        return self.backend.call(self, outlined)

    def waits_for(self, names: Iterable[str]) -> bool:
        """Is one of these a tensor on the device? A condition on it has to be brought to the host."""
        tensor, home = self.values.tensor, self.values.home
        found = (self.namespace.get(name) for name in names)
        return home != "cpu" and any(isinstance(v, tensor) and v.device.type == home for v in found)

    def leave(self, lines: tuple[int, ...], why: str) -> None:
        """A statement is to run eagerly now."""
        self.report.ran_eagerly(lines, why)
        if why and self.backend.fullgraph:
            raise NotWhole(lines[0], why, "", lines[0])

    def run_code(self, code: CodeType, mode: str) -> Any:
        if mode == "eval":
            return eval(code, self.namespace)
        exec(code, self.namespace)  # noqa: S102 - a notebook runs cells
        return None

    def execute(self) -> tuple[Any, Report]:
        """Run the cell once; the value of its last expression, and what happened.

        When the cell raises, `self.report` still holds what happened so far.
        """
        self.report = Report(self.filename, self._looped)
        self.running = True
        started = time.perf_counter()
        value = None
        try:
            with self.backend.session(self):
                self.look_around()
                for step in self.steps:
                    value = None
                    if step.run is not None:
                        if self._runs_code:
                            self.look_around(afresh=True)
                        value = step.run.execute()
                    else:
                        assert step.code is not None
                        self.report.ran_eagerly(step.lines, "")
                        if self.waits_for(step.decides_on):
                            self.leave(step.lines[:1], BRANCH)
                        self.run_code(step.code, step.mode)
        finally:
            self.running = False
            self.report.seconds = time.perf_counter() - started
        return value, self.report

    def learn(self, trace: Trace | None) -> None:
        """Dynamo's part of the report. What was found when programs were made holds as long as they do."""
        report = self.report
        if trace is not None:
            report.traced = trace.graphs, trace.breaks
            made = [outlined.lines for run in self.runs for outlined in run.functions.values()]
            self.findings.learn(trace, made)
            report.retraced = self.findings.guards(trace)
        report.take_over(self.findings)

    def _known_as(self, file: str) -> str:
        """`In[3]` of a cell; of a file its name."""
        name = getattr(self._compiler, "format_code_name", lambda _: None)(file)
        return name[1] if name else file.rpartition("/")[2]

    def look_around(self, afresh: bool = False) -> None:
        """Find out which functions of the notebook see which names; plans for another
        situation are void (the functions they made are kept)."""
        if not self.classifier.outlines:
            return
        self.hazards = self._functions.hazards(self.filename, self._mentioned, afresh) | self._own_hazards
        functions = tuple(
            (name, code)
            for name in sorted(self._mentioned)
            if (code := getattr(self.namespace.get(name), "__code__", None)) is not None
        )
        state = (self.hazards, functions)
        if state != self._state:
            self._state = state
            for run in self.runs:
                run.forget_plans()


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in blocks if block]


def _counted(loop: ast.For | ast.While) -> set[str]:
    """Names whose number changes with each turn: targets of loops, and what is added to."""
    counted: set[str] = set()
    for node in ast.walk(loop):
        target = node.target if isinstance(node, (ast.For, ast.AugAssign)) else None
        if target is not None:
            counted |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return counted


def _run_call(number: int, first: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Constant(_MARK), [ast.Constant(number)], []))
    return ast.fix_missing_locations(ast.copy_location(call, first))


def _lines(*statements: ast.stmt) -> tuple[int, ...]:
    return tuple(n for s in statements for n in range(s.lineno, (s.end_lineno or s.lineno) + 1))


def _header_lines(statement: ast.stmt) -> tuple[int, ...]:
    """Lines of a compound statement that are not in one of its blocks; all of a simple one."""
    inner = {line for block in _blocks(statement) for line in _lines(*block)}
    return tuple(line for line in _lines(statement) if line not in inner)


def _shown_name(last: ast.stmt) -> list[ast.stmt]:
    """What `last_expr_or_assign` shows after an assignment: the name it bound."""
    target: ast.expr | None = None
    if isinstance(last, ast.Assign):
        target = last.targets[0]
    elif isinstance(last, (ast.AugAssign, ast.AnnAssign)):
        target = last.target
    if not isinstance(target, ast.Name):
        return []
    name = ast.copy_location(ast.Name(target.id, ast.Load()), last)
    return [ast.copy_location(ast.Expr(name), last)]
