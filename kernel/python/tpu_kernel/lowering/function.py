"""A function that trains, lowered: its own code with its straight-line runs called instead.

What stays Python is compiled with the function's own statements, so that scopes, closures, early
returns and errors are Python's. A run is given the function's names as they are when it is reached,
and what it bound is assigned in the function, whether it ended well or not.
"""

from __future__ import annotations

import ast
import copy
import threading
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from .body import Body
from .calls import CALLEE, DECIDES, LOCALS, RUN, asking, mark, patched
from .causes import cure_of, is_of_loops
from .errors import NotWhole
from .files import is_library, text_of
from .findings import Finding, Kept
from .functions import codes_of
from .hazards import Hazards, code_names
from .outline import UNBOUND
from .returning import hoisted, read_apart
from .run import Run
from .sources import Definition, Unknown, definition_of

if TYPE_CHECKING:
    from .cell import LoweredCell

_AT, _TO, _BOX = "_tpu_at", "_tpu_to", "_tpu_box"
_READS_SCOPE = frozenset({"locals", "vars", "dir", "eval", "exec"})
_READS_FRAME = frozenset({"_getframe", "currentframe"})
_GENERATOR = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


def refusal(function: FunctionType) -> str:
    """Why a function is not lowered, from its code alone."""
    code = function.__code__
    if is_library(code.co_filename):
        module = str(function.__globals__.get("__name__", "?")).partition(".")[0]
        return f"the library `{module}` calls it"
    if code.co_flags & _GENERATOR:
        return "it is a generator" if code.co_flags & 0x20 else "it is asynchronous"
    if code.co_name == "<lambda>":
        return "it is a lambda"
    if used := (_READS_SCOPE & code_names(code)[0]) | (_READS_FRAME & set(code.co_names)):
        return f"`{min(used)}` looks at its frame"
    if function.__globals__.get(code.co_name) is function and code.co_name in code_names(code)[0]:
        return "it calls itself"
    return ""


class Scope:
    """Names as a function sees them: its own, then those of its module."""

    def __init__(
        self, local: frozenset[str], values: dict[str, Any], outside: dict[str, Any], bound: dict[str, Any]
    ) -> None:
        self.local, self.values, self.outside, self.bound = local, values, outside, bound

    def _of(self, name: str) -> dict[str, Any]:
        return self.values if name in self.local else self.outside

    def __contains__(self, name: str) -> bool:
        return name in self._of(name)

    def __getitem__(self, name: str) -> Any:
        return self._of(name)[name]

    def get(self, name: str, default: Any = None) -> Any:
        # A name of the function's own that has no value is no builtin's.
        return self.values.get(name, UNBOUND) if name in self.local else self.outside.get(name, default)

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self.local:
            self.values[name] = value
        self.bound[name] = value


class _Hazards:
    """Names of a function that other functions see."""

    def __init__(self, local: frozenset[str], shared: frozenset[str], written: frozenset[str]) -> None:
        self._local, self._shared, self._written = local, shared, written
        self.look(Hazards())

    def look(self, outer: Hazards) -> None:
        self._outer = outer
        self.written = self._written | (outer.written - self._local)

    def reads(self, name: str) -> bool:
        return name in self._shared if name in self._local else self._outer.reads(name)


class LoweredFunction(Body):
    """What lowered code calls in the place of one function."""

    is_module = False

    def __init__(self, function: FunctionType, cell: LoweredCell) -> None:
        found = definition_of(function)
        original = function.__code__
        if found.owner and _has_private_names(found.node):
            raise Unknown("it uses private names (`__name`)")
        self.name = original.co_name
        self.filename = original.co_filename
        self.backend = cell.backend
        self.root = cell
        self.runs: list[Run] = []
        self._flags = found.flags
        self._function = original
        self._globals = function.__globals__
        self._local = frozenset((*original.co_varnames, *original.co_cellvars, *original.co_freevars))
        # Names that only the function itself can change.
        self._private = self._local - {*original.co_cellvars, *original.co_freevars}
        nonlocal_ = found.nonlocals & self._local
        self.hazards: Any = _Hazards(
            self._local,
            frozenset(original.co_cellvars),
            frozenset(nonlocal_ | (found.globals - self._local)),
        )
        #: What Dynamo said of its programs.
        self.kept = Kept()
        self._seen: Any = None
        self._looked: object = None
        self._is_method = bool(found.owner)
        #: Names of its module that it reads or changes.
        self._mentioned = frozenset().union(*code_names(original))
        self._thread: int | None = None
        #: The line of the cell that it is called for, and where it is looped.
        self.line, self.looped = 0, False
        self.namespace: Any = Scope(self._local, {}, self._globals, {})
        self._make_classifier()
        self.lines = range(found.node.lineno, (found.node.end_lineno or 0) + 1)
        loops = [n for n in ast.walk(found.node) if isinstance(n, (ast.For, ast.While))]
        self._loops = frozenset(line for n in loops for line in range(n.lineno, (n.end_lineno or 0) + 1))
        self.code = self._lower(found)

    def _compiler(self, node: Any, filename: str, mode: str) -> CodeType:  # type: ignore[override]
        return compile(node, filename, mode, flags=self._flags, dont_inherit=True)

    def _lower(self, found: Definition) -> CodeType:
        """The function's code with its runs called."""
        node = copy.deepcopy(found.node)
        if getattr(node, "type_params", None):
            raise Unknown("it has type parameters")
        node.decorator_list = []
        node.returns = None
        arguments = node.args
        arguments.defaults = []
        arguments.kw_defaults = [None] * len(arguments.kwonlyargs)
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for each in (*every, arguments.vararg, arguments.kwarg):
            if each is not None:
                each.annotation = None
        node.body = self.lowered_block(node.body, set())
        outer: ast.stmt = node
        free = self._function.co_freevars
        extra = {"type_params": []} if hasattr(ast, "TypeAlias") else {}
        if found.owner:
            outer = ast.ClassDef(found.owner, [], [], [node], [], **extra)
        if free:
            names = [name for name in free if name != "__class__" or not found.owner]
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
            empty: list[ast.stmt] = [ast.Assign(targets, ast.Constant(None))] if targets else []
            nothing = ast.arguments([], [], None, [], [], None, [])
            outer = ast.FunctionDef("_tpu_outer", nothing, [*empty, outer], [], None, None, **extra)
        ast.copy_location(outer, node)
        module = ast.fix_missing_locations(ast.Module([outer], []))
        code = _inside(self.quiet(module, self.filename, "exec"), self.name)
        if not set(code.co_freevars) <= set(free) or code.co_argcount != self._function.co_argcount:
            raise Unknown("its source is not known")
        functions = self.root.functions
        marks = {RUN: self._advance, CALLEE: functions.callee, DECIDES: functions.decides, LOCALS: locals}
        return patched(code, marks).replace(co_qualname=self._function.co_qualname)

    def prepared(self, block: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in block:
            match statement:
                case ast.Return(value=ast.expr()):
                    result += hoisted(statement)
                case ast.AnnAssign(target=ast.Name(), value=ast.expr() as value, simple=1):
                    # In a function an annotation is not evaluated.
                    plain = ast.copy_location(ast.Assign([statement.target], value), statement)
                    result += read_apart(plain, self._private)
                case ast.Assign() | ast.AugAssign() | ast.Expr():
                    result += read_apart(statement, self._private)
                case _:
                    result.append(statement)
        return result

    def run_code_of(self, run: Run) -> list[ast.stmt]:
        """A loop over the run's statements: what it outlines is called, all else stands in it."""
        where = run.statements[0]
        names = sorted(set().union(*(n.writes | n.maybe for n in run.names)))
        number = len(self.runs) - 1

        def load(name: str) -> ast.expr:
            return ast.Name(name, ast.Load())

        def store(name: str, value: ast.expr) -> ast.stmt:
            return ast.Assign([ast.Name(name, ast.Store())], value)

        call = mark(RUN, [ast.Constant(number), load(_AT), mark(LOCALS, [], where), load(_BOX)], where)
        taken: list[ast.stmt] = [
            ast.If(
                ast.Compare(ast.Constant(name), [ast.In()], [load(_BOX)]),
                [store(name, ast.Subscript(load(_BOX), ast.Constant(name), ast.Load()))],
                [],
            )
            for name in names
        ]
        taken.append(store(_BOX, ast.Constant(None)))
        eager: list[ast.stmt] = []
        for at, statement in reversed(list(enumerate(run.statements))):
            test = ast.Compare(load(_AT), [ast.Eq()], [ast.Constant(at)])
            eager = [asking(statement)] if not eager else [ast.If(test, [asking(statement)], eager)]
        following = ast.BinOp(load(_AT), ast.Add(), ast.Constant(1))
        body: list[ast.stmt] = [
            store(_BOX, ast.Dict([], [])),
            ast.Try([store(_TO, call)], [], [], taken),
            ast.If(ast.Compare(load(_TO), [ast.Eq()], [load(_AT)]), [store(_TO, following), *eager], []),
            store(_AT, load(_TO)),
        ]
        more = ast.Compare(load(_AT), [ast.Lt()], [ast.Constant(len(run.statements))])
        made: list[ast.stmt] = [store(_AT, ast.Constant(0)), ast.While(more, body, [])]
        return [_placed(each, where) for each in made]

    def bound(self, function: FunctionType) -> FunctionType:
        """The lowered code as `function`: its defaults, and the names it closes over."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in self.code.co_freevars)
        made = FunctionType(self.code, self._globals, function.__name__, function.__defaults__, closure)
        made.__kwdefaults__ = function.__kwdefaults__
        return made

    def enter(self, cell: LoweredCell, caller: Body, line: int) -> None:
        """It is about to be called from this line of `caller`, for `cell`."""
        self.root = cell
        self.line = line if caller is cell else caller.shown_lines((line,))[0]
        outside = caller.looped if isinstance(caller, LoweredFunction) else False
        self.looped = outside or line in (
            caller._loops if isinstance(caller, LoweredFunction) else cell.looped
        )
        cell.findings.called(self)

    def _advance(self, number: int, at: int, values: dict[str, Any], bound: dict[str, Any]) -> int:
        """Called by the function's code: the statement up to which a program went, or `at` when this
        one is Python."""
        here = threading.get_ident()
        if self.root.functions.cell is not self.root or self._thread not in (None, here):
            return at  # another thread is in it
        scope = Scope(self._local, dict(values), self._globals, bound)
        values.clear()  # until Python 3.12 it is the frame's own, and would keep tensors
        before = self._thread, self.namespace
        self._thread, self.namespace = here, scope
        self.classifier.namespace = scope  # type: ignore[assignment]
        try:
            self._look_around()
            piece = self.runs[number].advance(at)
            return at if piece.outlined is None else piece.end
        finally:
            self._thread, self.namespace = before
            self.classifier.namespace = self.namespace

    def _look_around(self) -> None:
        cell = self.root
        if cell.values is not self.values:
            self._make_classifier()
            self.classifier.namespace = self.namespace
        if cell.looked is self._looked:
            return
        self._looked = cell.looked
        found = cell.hazards_of(self._mentioned) if cell.namespace is self._globals else Hazards()
        functions = codes_of(sorted(self._mentioned), self._globals)
        # What a method calls on its own object may be another function by now.
        if self._is_method or (found, functions) != self._seen:
            self._seen = found, functions
            self.hazards.look(found)
            for run in self.runs:
                run.forget_plans()

    def _make_classifier(self) -> None:
        self.values = self.root.values
        self.classifier = self.backend.classifier(self.values, self.namespace)
        self.classifier.functions = self.root.functions

    def run_code(self, code: CodeType, mode: str) -> Any:
        """Statements that clear gradients, ahead of the program they stood in."""
        scope = self.namespace
        values = dict(scope.values)
        exec(code, self._globals, values)  # noqa: S102 - it is the function's own
        for name in code.co_names:
            if name in values and values[name] is not scope.values.get(name, UNBOUND):
                scope[name] = values[name]

    @property
    def report(self) -> Any:  # type: ignore[override]
        return self.root.report

    @property
    def findings(self) -> Any:  # type: ignore[override]
        return self.root.findings

    @property
    def _in_cell(self) -> bool:
        return self.filename == self.root.filename

    def shown_lines(self, lines: tuple[int, ...]) -> tuple[int, ...]:
        return lines if self._in_cell else (self.line,)

    def ran(self, lines: tuple[int, ...]) -> None:
        self.report.compiled.update((*self.shown_lines(lines), self.line))

    def stayed(self, lines: tuple[int, ...], why: str) -> None:
        if self._in_cell:
            self.report.ran_eagerly(lines, why)
        elif why:
            finding = self._finding(lines[0], why)
            self.report.inside[self.filename, lines[0]] = finding

    def leave(self, lines: tuple[int, ...], why: str) -> None:
        self.stayed(lines, why)
        if why and self.backend.fullgraph:
            place = "" if self._in_cell else self._finding(lines[0], why).place
            line = self.shown_lines(lines)[0]
            raise NotWhole(line, why, place, line)

    def _finding(self, line: int, why: str) -> Finding:
        cure = cure_of(why)
        looped = self.looped or line in self._loops
        cure = "" if is_of_loops(cure) and not looped else cure
        place = self.findings.place(self.filename, line, self.name)
        return Finding(self.line, why, cure, text_of(self.filename, line), place)


def _has_private_names(node: ast.AST) -> bool:
    names = [getattr(n, "attr", None) or getattr(n, "id", None) or "" for n in ast.walk(node)]
    return any(name.startswith("__") and not name.endswith("__") for name in names)


def _inside(code: CodeType, name: str) -> CodeType:
    """The function's code in that of what was compiled around it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name and constant.co_flags & 0x2:  # CO_NEWLOCALS: no class
                return constant
            found = _inside(constant, name)
            if found is not None:
                return found
    return None  # type: ignore[return-value]


def _placed(node: ast.stmt, where: ast.stmt) -> ast.stmt:
    """What was made around a run stands at the run's first line."""
    for each in ast.walk(node):
        if "lineno" in each._attributes and not hasattr(each, "lineno"):
            ast.copy_location(each, where)
    return node
