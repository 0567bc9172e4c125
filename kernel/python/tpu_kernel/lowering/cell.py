"""One cell, lowered: which parts are module code, which are outlined, and how it is run.

A cell is compiled untouched first, so only valid cells go on. Then each top-level statement is
either a step of its own (as IPython runs it), a compound statement whose blocks call their runs,
or part of a run. The lowered cell is kept, so the same text run again reuses every function.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .body import Body, blocks
from .callees import Functions
from .calls import CALLEE, DECIDES, RUN, asking, patched
from .classify import Classifier
from .dynamo import Trace
from .errors import NotWhole
from .findings import Findings
from .functions import NotebookFunctions, codes_of
from .hazards import Hazards, defined
from .names import CODE_RUNNERS, is_simple
from .outline import Compiler
from .report import Report
from .run import Run
from .values import Values


@dataclass
class Step:
    """A top-level part of the cell: code for `exec` or `eval`, or a run."""

    lines: tuple[int, ...]
    code: CodeType | None = None
    mode: str = "exec"
    run: Run | None = None


class LoweredCell(Body):
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
        lowered: Functions | None = None,
    ) -> None:
        self.root = self
        self.functions = lowered or Functions()
        self.filename = filename
        self.namespace = namespace
        self.backend = backend
        self._compiler = compiler
        self._functions = functions or NotebookFunctions(namespace, compiler)
        code = compiler(copy.deepcopy(tree), filename, "exec")
        self.tree = tree
        loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
        self.looped = frozenset(
            line for loop in loops for line in range(loop.lineno, (loop.end_lineno or 0) + 1)
        )
        self.values: Values = backend.values()
        self.classifier: Classifier = backend.classifier(self.values, namespace)
        self.classifier.functions = self.functions
        #: Another one after each look around.
        self.looked: object = None
        self.hazards = Hazards()
        self.report = Report(looped=self.looped)
        self.findings = Findings(filename, self._known_as)
        self.runs: list[Run] = []
        self.running = False
        self._state: Any = None
        self._seen: Hazards | None = None
        self._mentioned = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name))
        self._names = sorted(self._mentioned)
        self._own_hazards = defined(code).restricted(self._mentioned)
        self._runs_code = bool(self._mentioned & CODE_RUNNERS)
        self.steps = self._split(tree.body, interactivity)

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
                steps.append(Step(_lines(*pending), run=self.new_run(list(pending), returns, set())))
                pending.clear()

        for statement in body:
            shown = isinstance(statement, ast.Expr) and (
                interactivity == "all" or (wanted and statement is body[-1])
            )
            if is_simple(statement) if not shown else wanted:
                pending.append(statement)
                continue
            flush(last=False)
            plain = not self.classifier.outlines
            if shown:
                made = statement if plain else asking(statement)
                code = self._code(ast.Interactive([made]), "single")
            else:
                made = statement if plain else self.lowered(copy.deepcopy(statement), set())
                code = self._code(ast.Module([made], []), "exec")
            steps.append(Step(_header_lines(statement), code=code))
        flush(last=True)
        return steps

    def _code(self, node: ast.mod, mode: str) -> CodeType:
        return self.patched(self.quiet(node, self.filename, mode))

    def patched(self, code: CodeType) -> CodeType:
        """Puts the functions that lowered code calls where their marks are."""
        marks = {RUN: self._execute_run, CALLEE: self.functions.callee, DECIDES: self.functions.decides}
        return patched(code, marks)

    def _execute_run(self, number: int) -> None:
        if self._runs_code:
            self.look_around(afresh=True)
        self.runs[number].execute()

    def waits_for(self, names: Iterable[str]) -> bool:
        """Is one of these a tensor on the device? A condition on it has to be brought to the host."""
        return any(self.is_on_device(self.namespace.get(name)) for name in names)

    def is_on_device(self, value: Any) -> bool:
        """Is it a tensor on the device? A condition on it has to be brought to the host."""
        home = self.values.home
        return home != "cpu" and isinstance(value, self.values.tensor) and value.device.type == home

    def leave(self, lines: tuple[int, ...], why: str) -> None:
        """A statement is to run eagerly now."""
        self.report.ran_eagerly(lines, why)
        if why and self.backend.fullgraph:
            raise NotWhole(lines[0], why, "", lines[0])

    def ran(self, lines: tuple[int, ...]) -> None:
        self.report.compiled.update(lines)

    def stayed(self, lines: tuple[int, ...], why: str) -> None:
        self.report.ran_eagerly(lines, why)

    def run_code(self, code: CodeType, mode: str) -> Any:
        if mode == "eval":
            return eval(code, self.namespace)
        exec(code, self.namespace)  # noqa: S102 - a notebook runs cells
        return None

    def execute(self) -> tuple[Any, Report]:
        """Run the cell once; the value of its last expression, and what happened.

        When the cell raises, `self.report` still holds what happened so far.
        """
        self.report = Report(self.filename, self.looped)
        self.findings.begin()
        self.running = True
        started = time.perf_counter()
        value = None
        before = self.functions.serve(self)
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
                        self.run_code(step.code, step.mode)
        finally:
            self.functions.serve(*before)
            self.running = False
            self.report.seconds = time.perf_counter() - started
        return value, self.report

    def learn(self, trace: Trace | None) -> None:
        """Dynamo's part of the report. What was found when programs were made holds as long as they do."""
        report = self.report
        if trace is not None:
            report.traced = trace.graphs, trace.breaks
            self.findings.learn(trace, self.runs)
            report.retraced = self.findings.guards(trace)
        report.take_over(self.findings)

    def _known_as(self, file: str) -> str:
        """`In[3]` of a cell; of a file its name."""
        name = getattr(self._compiler, "format_code_name", lambda _: None)(file)
        return name[1] if name else file.rpartition("/")[2]

    def hazards_of(self, names: frozenset[str], afresh: bool = False) -> Hazards:
        """Which of these names functions of the notebook see."""
        return self._functions.hazards(self.filename, names, afresh)

    def look_around(self, afresh: bool = False) -> None:
        """Find out which functions of the notebook see which names; plans for another
        situation are void (the functions they made are kept)."""
        if not self.classifier.outlines:
            return
        self.looked = object()
        seen = self.hazards_of(self._mentioned, afresh)
        if seen is not self._seen:
            self._seen, self.hazards = seen, seen | self._own_hazards
        state = (self.hazards, codes_of(self._names, self.namespace))
        if state != self._state:
            self._state = state
            for run in self.runs:
                run.forget_plans()


def _lines(*statements: ast.stmt) -> tuple[int, ...]:
    return tuple(n for s in statements for n in range(s.lineno, (s.end_lineno or s.lineno) + 1))


def _header_lines(statement: ast.stmt) -> tuple[int, ...]:
    """Lines of a compound statement that are not in one of its blocks; all of a simple one."""
    inner = {line for block in blocks(statement) for line in _lines(*block)}
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
