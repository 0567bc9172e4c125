"""`--explain`: what would become programs, without running the cell.

The cell's statements are judged as they are when it runs, on a copy of the notebook's names. What
would be a program is traced by Dynamo with a backend that refuses it, so that nothing is executed:
values it would bind are known by shape and type only, and stand for themselves further down. Names
whose value only a run can tell are unknown, and so is what depends on them.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import sys
import warnings
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from . import dynamo as books
from . import values as v
from .backend import TorchBackend, quiet_fallbacks
from .body import BRANCH
from .cell import LoweredCell
from .dynamo import Trace, Trouble
from .findings import Finding
from .gradients import stepped_name
from .names import decides_on, names_of
from .outline import Outlined
from .run import Run


class Unknown:
    """Stands for a value that only a run can tell."""


class NotTraced(Exception):
    """Dynamo did not look at the function: it must not run."""


UNKNOWN = Unknown()
_GUARD, _COMPTIME, _LOOK, _PROBE = "_tpu_guard", "_tpu_comptime", "_tpu_look", "_tpu_probe"
_BLOCKS = ("body", "orelse", "finalbody")


class ExplainBackend(TorchBackend):
    """Plans as the real one does, and calls nothing."""

    def compile(self, outlined: Outlined) -> Any:
        return None


class Explanation:
    """One cell looked through. `report` then says what is known, `unknown` what is not."""

    def __init__(self, cell: LoweredCell) -> None:
        """`cell` is lowered on a copy of the notebook's names."""
        self.cell = cell
        self.names = cell.namespace
        self.report = cell.report
        self.assumed: set[str] = set()
        self.unknown: dict[int, str] = {}
        self._runs = {run.statements[0].lineno: run for run in cell.runs}
        self._trouble: list[Trouble] = []

    def look(self) -> None:
        """Go through the cell."""
        self.cell.look_around(afresh=True)
        before = self.cell.functions.serve(self.cell)
        try:
            with quiet_fallbacks, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._block(self.cell.tree.body)
        finally:
            self.cell.functions.serve(*before)
        self.cell.findings.learn(Trace(troubles=self._trouble), ())
        self.report.take_over(self.cell.findings)

    def _block(self, statements: list[ast.stmt]) -> None:
        index = 0
        while index < len(statements):
            statement = statements[index]
            run = self._runs.get(statement.lineno)
            if run is not None and type(run.statements[0]) is type(statement):
                self._run(run)
                index += len(run.statements)
            else:
                self._module_code(statement)
                index += 1

    def _run(self, run: Run) -> None:
        start = 0
        while start < len(run.statements):
            statement, names = run.statements[start], run.names[start]
            missing = self._missing(names.reads)
            if missing:
                self._not_known(statement, missing)
                start += 1
                continue
            kinds = {name: self._kind(name) for name in run.mentioned[start]}
            run.varying |= {name for name in run.loop_names if kinds.get(name) == v.NUMBER}
            piece = run._plan(start, kinds)
            if piece.outlined is None:
                self.report.ran_eagerly(piece.lines, piece.why)
                if piece.lowers and not piece.why:
                    self.report.compiled.update(piece.lines)
                    told = "the function it calls is looked at when it is called"
                    self.unknown.update(dict.fromkeys(piece.lines[:1], told))
                self._pass_over([statement])
                start = piece.end
                continue
            start = self._trace(run, start, piece.end)

    def _trace(self, run: Run, start: int, end: int) -> int:
        """What would be one program, or more where it breaks: how far it is known."""
        for index in range(start + 1, end):
            if self._missing(run.names[index].reads - _bound(run, start, index)):
                end = index
                break
        statements = run.statements[start:end]
        traced = [s for s in statements if stepped_name(s) is None]
        if traced:
            trouble, seen = traced_once(traced, self.names, self.cell)
            if trouble is not None:
                self._trouble.append(trouble)
                at = self._line(trouble)
                broken = next((s for s in traced if s.lineno <= at <= (s.end_lineno or at)), traced[-1])
                traced = traced[: traced.index(broken) + 1]
                end = start + statements.index(broken) + 1
                # Past a print or a value read on the host: what comes then has its shapes all the same.
                with _past_breaks():
                    seen = {**seen, **traced_once(traced, self.names, self.cell)[1]}
            self._bind(traced, seen)
        for statement in run.statements[start:end]:
            self.report.compiled.update(
                range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            )
        return end

    def _line(self, trouble: Trouble) -> int:
        own = (spot for spot in trouble.stack if spot.file == self.cell.filename)
        return next((spot.line for spot in own if books.plain(spot.function) == "<module>"), 0)

    def _module_code(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef(decorator_list=[]) if not _defaults(statement):
                exec(compile(ast.Module([statement], []), self.cell.filename, "exec"), self.names)  # noqa: S102
            case ast.Import(names=names) if all(alias.name in sys.modules for alias in names):
                exec(compile(ast.Module([statement], []), self.cell.filename, "exec"), self.names)  # noqa: S102
            case ast.ImportFrom(module=str(module), level=0) if module in sys.modules:
                exec(compile(ast.Module([statement], []), self.cell.filename, "exec"), self.names)  # noqa: S102
            case ast.For(target=target, iter=iterator) | ast.AsyncFor(target=target, iter=iterator):
                self._turn(target, iterator)
                self._block(statement.body)
                self._block(statement.orelse)
            case ast.If() | ast.While() | ast.With() | ast.Try():
                test = getattr(statement, "test", None)
                if test is not None and self.cell.waits_for(decides_on(test)):
                    self.report.ran_eagerly((statement.lineno,), BRANCH)
                for item in getattr(statement, "items", ()):
                    if item.optional_vars is not None:
                        self._forget([item.optional_vars])
                for name in _BLOCKS:
                    self._block(getattr(statement, name, []))
            case ast.Match(cases=cases):
                for case in cases:
                    self._block(case.body)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Name):
                        self.names.pop(target.id, None)
            case _:
                self._pass_over([statement])

    def _turn(self, target: ast.expr, iterator: ast.expr) -> None:
        """The names of a loop: a counter is a number, other values are those of the last run."""
        counts = isinstance(iterator, ast.Call) and getattr(iterator.func, "id", "") == "range"
        if counts and isinstance(target, ast.Name):
            self.names[target.id] = 0
            return
        for name in _names(target):
            if name in self.names and not isinstance(self.names[name], Unknown):
                self.assumed.add(name)
            else:
                self.names[name] = UNKNOWN

    def _pass_over(self, statements: list[ast.stmt]) -> None:
        """A statement that stays Python: of what it binds, what tracing can tell."""
        missing = self._missing(set().union(*(names_of(s).reads for s in statements)))
        literal = _literal(statements[0])
        if literal is not None:
            self.names.update(literal)
            return
        if missing or self.cell.values.torch is None:
            self._forget(statements)
            return
        traceable = isinstance(statements[0], (ast.Assign, ast.AugAssign))
        if traceable:
            with _past_breaks():
                self._bind(statements, traced_once(statements, self.names, self.cell)[1])
        else:
            self._forget(statements)

    def _bind(self, statements: list[ast.stmt], seen: dict[str, Any]) -> None:
        for name in {name for s in statements for name in _names(s)}:
            self.names[name] = seen.get(name, UNKNOWN)

    def _forget(self, nodes: list[Any]) -> None:
        for node in nodes:
            for name in _names(node):
                self.names[name] = UNKNOWN

    def _not_known(self, statement: ast.stmt, missing: set[str]) -> None:
        why = f"`{min(missing)}` has no value before the cell runs"
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1):
            self.unknown[line] = why
        self._forget([statement])

    def _missing(self, names: set[str]) -> set[str]:
        return {name for name in names if isinstance(self.names.get(name), Unknown)}

    def _kind(self, name: str) -> str:
        return self.cell.values.kind(self.names[name]) if name in self.names else v.ABSENT

    def open_questions(self) -> list[Finding]:
        """Lines of which only a run can tell, those with the same reason together."""
        found: list[Finding] = []
        for line, why in sorted(self.unknown.items()):
            if found and found[-1].why == why and found[-1].last == line - 1:
                found[-1] = Finding(found[-1].line, why, last=line)
            else:
                found.append(Finding(line, why))
        return found


def traced_once(
    statements: list[ast.stmt], names: dict[str, Any], cell: LoweredCell
) -> tuple[Trouble | None, dict[str, Any]]:
    """Let Dynamo trace statements up to the first break, executing nothing: the break, and what is
    then known of the names they bind."""
    import torch
    from torch._dynamo.comptime import comptime
    from torch._dynamo.exc import TorchDynamoException

    seen: dict[str, Any] = {}
    left: list[Trouble] = []
    bound = sorted({name for s in statements for name in _names(s)})

    def look(context: Any) -> None:
        for name in bound:
            with contextlib.suppress(Exception):
                seen[name] = _value(context.get_local(name))

    def refuse(graph: Any, *_: Any, **__: Any) -> Any:
        trouble = books.on_cpu(graph)
        if trouble is not None:
            left.append(trouble)
        raise NotTraced

    function, arguments = _probe(statements, names, bound, cell)
    function.__globals__.update({_GUARD: _only_traced, _COMPTIME: comptime, _LOOK: look})
    config: Any = torch._dynamo.config
    before = config.suppress_errors
    config.suppress_errors = False
    try:
        # Unlike `fullgraph`, this does not let sizes and numbers that depend on values pass.
        with torch._dynamo.error_on_graph_break(True):
            torch.compile(function, backend=refuse, dynamic=False)(*arguments)
    except NotTraced:
        return None, {}
    except TorchDynamoException as error:
        if isinstance(getattr(error, "inner_exception", None), NotTraced):
            return (left[0] if left else None), seen
        return books.trouble_of(error, cell.filename), seen
    except Exception as error:  # noqa: BLE001 - whatever Dynamo ran into, the cell is not run
        return books.trouble_of(error, cell.filename), seen
    finally:
        config.suppress_errors = before
        for name in (_GUARD, _COMPTIME, _LOOK):
            function.__globals__.pop(name, None)
    return None, seen


def _probe(
    statements: list[ast.stmt], names: dict[str, Any], bound: list[str], cell: LoweredCell
) -> tuple[FunctionType, list[Any]]:
    """The statements as a function: it looks at what it has bound after each, and always computes."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    given = [name for name in bound if name in names]
    body: list[ast.stmt] = [_call(_GUARD, statements[0])]
    for statement in statements:
        body += [copy.deepcopy(statement), _call(_COMPTIME, statement, _LOOK)]
    last = statements[-1]
    result = ast.BinOp(ast.Name(_PROBE, ast.Load()), ast.Add(), ast.Constant(1))
    body.append(ast.fix_missing_locations(ast.copy_location(ast.Return(result), last)))
    arguments = ast.arguments([], [ast.arg(n) for n in (*given, _PROBE)], None, [], [], None, [])
    extra = {"type_params": []} if hasattr(ast, "TypeAlias") else {}
    definition = ast.FunctionDef("_tpu_run", arguments, body, [], None, None, **extra)
    ast.copy_location(definition, statements[0])
    module = ast.fix_missing_locations(ast.Module([definition], []))
    scope: dict[str, Any] = {}
    exec(cell.quiet(module, cell.filename, "exec"), scope)  # noqa: S102 - defines it, no more
    code = scope["_tpu_run"].__code__.replace(co_name="<module>", co_qualname="<module>")
    with FakeTensorMode():
        one = torch.empty((), device=cell.values.home)
    return FunctionType(code, names), [*(names[name] for name in given), one]


def _only_traced() -> None:
    import torch

    if not torch.compiler.is_dynamo_compiling():
        raise NotTraced


@contextlib.contextmanager
def _past_breaks() -> Iterator[None]:
    """Dynamo traces past prints, and past values and sizes that depend on values."""
    import torch._dynamo.config as settings

    config: Any = settings
    printing = config.reorderable_logging_functions
    with config.patch(
        capture_scalar_outputs=True,
        capture_dynamic_output_shape_ops=True,
        reorderable_logging_functions={*printing, print},
    ):
        yield


def _value(variable: Any) -> Any:
    """What Dynamo knows of a variable: a tensor without data, a constant; else it is unknown."""
    import torch

    if issubclass(variable.python_type(), torch.Tensor):
        value = variable.as_fake()
        fixed = all(isinstance(size, int) for size in value.shape)
        return value if fixed else UNKNOWN
    return variable.as_python_constant() if variable.is_python_constant() else UNKNOWN


def _names(node: ast.AST) -> set[str]:
    return (
        {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        | {n.name for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        | {(n.asname or n.name).partition(".")[0] for n in ast.walk(node) if isinstance(n, ast.alias)}
    )


def _bound(run: Run, start: int, end: int) -> set[str]:
    return {name for i in range(start, end) for name in run.names[i].writes | run.names[i].maybe}


def _defaults(function: ast.FunctionDef) -> list[Any]:
    return [*function.args.defaults, *filter(None, function.args.kw_defaults)]


def _literal(statement: ast.stmt) -> dict[str, Any] | None:
    """`n = 3`."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            with contextlib.suppress(ValueError, TypeError):
                return {name: ast.literal_eval(value)}
    return None


def _call(function: str, where: ast.stmt, *arguments: str) -> ast.stmt:
    call = ast.Call(ast.Name(function, ast.Load()), [ast.Name(a, ast.Load()) for a in arguments], [])
    return ast.fix_missing_locations(ast.copy_location(ast.Expr(call), where))
