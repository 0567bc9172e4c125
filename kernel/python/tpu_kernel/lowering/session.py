"""Lowered cells kept by their text, and the one way to run a cell's text on a shell."""

from __future__ import annotations

import ast
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from .backend import EagerBackend, TorchBackend
from .callees import Functions
from .cell import LoweredCell
from .dynamo import plain
from .errors import CellError
from .functions import functions_of
from .report import Report

if TYPE_CHECKING:
    from .preview import Explanation

_KEPT_CELLS = 256
_OWN = "tpu_kernel.lowering"
#: Dynamo's books and settings, and the eager mode, are the process's: one thread at a time has cells compiled,
#: or run under other settings.
_compiling = threading.RLock()
#: How the cell runs that has it.
_how = "compiled"
_BESIDE = "It ran as it is: another cell was running {}, and one at a time can."
_WAIT = "another cell is running {}, and one at a time can: run this when that one has ended"


@contextmanager
def alone(how: str) -> Iterator[None]:
    """Nothing else has a cell compiled or under other settings meanwhile; CellError when one is now."""
    global _how
    if not _compiling.acquire(blocking=False):
        raise CellError(_WAIT.format(_how))
    before, _how = _how, how
    try:
        yield
    finally:
        _how = before
        _compiling.release()


class Lowering:
    """The lowered cells of one shell."""

    def __init__(self, shell: Any, backend: Any = None) -> None:
        self.shell = shell
        self.backend = backend or TorchBackend()
        # What compiles nothing keeps nobody waiting.
        self._lock = threading.RLock() if isinstance(self.backend, EagerBackend) else _compiling
        self.cells: OrderedDict[tuple[Any, ...], LoweredCell] = OrderedDict()
        self.last: Report | None = None
        #: Functions that train, lowered for the cells that call them.
        self.lowered = Functions()

    def run(self, source: str, first_line: int = 1, text: str | None = None) -> tuple[Any, Report]:
        """Run transformed Python `source`; its first line is line `first_line` of the cell.

        `text` is the whole cell as the front end has it; the value is the last expression's.
        Exceptions are the cell's own, with the cell's own frames.
        """
        if not self._lock.acquire(blocking=False):
            beside = _BESIDE.format(_how)
            if self.backend.fullgraph:
                raise CellError(_WAIT.format(_how))
            value, report = Lowering(self.shell, EagerBackend()).run(source, first_line, text)
            report.note(beside)
            return value, report
        try:
            shell = self.shell
            shown = "\n" * (first_line - 1) + source
            number = running_number(shell)
            name = shell.compile.cache(shown, number, raw_code=text or source)
            interactivity = shell.ast_node_interactivity
            cell = self._known(shown, interactivity, number)
            if cell is None:
                tree = shell.transform_ast(shell.compile.ast_parse(shown, name))
                cell = self._lower(tree, name, shown, interactivity)
            return self._execute(cell)
        finally:
            self._lock.release()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other thread has a cell compiled meanwhile; CellError when one does now."""
        if not self._lock.acquire(blocking=False):
            raise CellError(_WAIT.format(_how))
        try:
            yield
        finally:
            self._lock.release()

    def explain(self, source: str, first_line: int, text: str) -> Explanation:
        """What `run` would make of it, without running it."""
        from .preview import ExplainBackend, Explanation

        with self.alone():
            shell = self.shell
            shown = "\n" * (first_line - 1) + source
            name = shell.compile.cache(shown, running_number(shell), raw_code=text)
            tree = shell.transform_ast(shell.compile.ast_parse(shown, name))
            refuse_await(tree)
            names = dict(shell.user_ns)
            functions = functions_of(shell)
            explanation = Explanation(
                LoweredCell(tree, name, names, shell.compile, ExplainBackend(), "last_expr", functions)
            )
            explanation.look()
            return explanation

    def run_tree(self, tree: ast.Module, name: str, text: str, interactivity: str) -> tuple[Any, Report]:
        """Run a cell that IPython has parsed already; `text` is what it was made from."""
        with self.alone():
            cell = self._known(text, interactivity, running_number(self.shell))
            cell = cell or self._lower(tree, name, text, interactivity)
            return self._execute(cell)

    def _execute(self, cell: LoweredCell) -> tuple[Any, Report]:
        self.last = None
        try:
            return cell.execute()
        except BaseException as error:
            error.__traceback__ = own_frames(error.__traceback__, cell.filename)
            if isinstance(error, KeyboardInterrupt):
                error.__traceback__ = users_frames(error.__traceback__)
            raise
        finally:
            self.last = cell.report

    def _key(self, text: str, interactivity: str) -> tuple[Any, ...]:
        shell = self.shell
        return (text, interactivity, shell.compile.flags, id(shell.user_ns))

    def _known(self, text: str, interactivity: str, number: int) -> LoweredCell | None:
        key = self._key(text, interactivity)
        cell = self.cells.get(key)
        if cell is None or cell.running:
            return None
        self.cells.move_to_end(key)
        # The traceback calls the cell by the number it has now.
        names = getattr(self.shell.compile, "_filename_map", None)
        if names is not None:
            names[cell.filename] = number
        return cell

    def _lower(self, tree: ast.Module, name: str, text: str, interactivity: str) -> LoweredCell:
        refuse_await(tree)
        shell = self.shell
        key = self._key(text, interactivity)
        functions = functions_of(shell)
        namespace, compiler = shell.user_ns, shell.compile
        cell = LoweredCell(
            tree, name, namespace, compiler, self.backend, interactivity, functions, self.lowered
        )
        self.cells[key] = cell
        while len(self.cells) > _KEPT_CELLS:
            self.cells.popitem(last=False)
        return cell


def running_number(shell: Any) -> int:
    """The number of the cell that runs: IPython counts on before it runs a cell that it stores."""
    return min(shell.execution_count, len(shell.history_manager.input_hist_raw) - 1)


def refuse_await(tree: ast.Module) -> None:
    """A compiled cell runs to its end at once: it cannot wait for the event loop."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        is_async = isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith))
        if is_async or (isinstance(node, ast.comprehension) and node.is_async):
            line = getattr(node, "lineno", None)
            where = f" (line {line})" if line else ""
            raise CellError(
                f"`await` cannot be compiled{where}: put it into a cell of its own without the magic."
            )
        pending.extend(ast.iter_child_nodes(node))


def own_frames(traceback: TracebackType | None, filename: str) -> TracebackType | None:
    """The traceback a plain cell would have: without this package's and Dynamo's wrappers."""
    entries: list[TracebackType] = []
    in_cell = False
    #: How many of them led to this package.
    callers = 0
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_globals.get("__name__", "").startswith(_OWN):
            callers = len(entries)
        else:
            in_cell = in_cell or frame.f_code.co_filename == filename
            for at in range(callers - 1, -1, -1):
                if _same(entries[at].tb_frame.f_code, frame.f_code):
                    del entries[at:]  # the line that called the run, and what lies between
                    callers = 0
                    break
            entries.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for entry in reversed(_from_cell(entries, filename) if in_cell else entries):
        result = before(result, entry)
    return result


def _same(caller: CodeType, code: CodeType) -> bool:
    """Is `code` a run of `caller`, outlined, or the rest of one after a graph break?"""
    return caller.co_filename == code.co_filename and caller.co_name == plain(code.co_name)


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Without what PyTorch was doing: an interrupt says where the user's code was."""
    entries: list[TracebackType] = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    while len(entries) > 1 and _is_pytorch(entries[-1].tb_frame):
        del entries[-1]
    result: TracebackType | None = None
    for entry in reversed(entries):
        result = before(result, entry)
    return result


def _is_pytorch(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__") or ""
    # What torch.fx and AOTAutograd write has a file name of their own making.
    file = frame.f_code.co_filename
    made = file.startswith("<eval_with_key>") or "codegen(" in file
    return module.partition(".")[0] in ("torch", "torch_tpu") or made


def before(rest: TracebackType | None, entry: TracebackType) -> TracebackType:
    """`entry` in front of another rest. Code that Dynamo made may know no line: its first then."""
    lineno: int | None = entry.tb_lineno
    frame = entry.tb_frame
    return TracebackType(rest, frame, entry.tb_lasti, lineno or frame.f_code.co_firstlineno)


def _from_cell(entries: list[TracebackType], filename: str) -> list[TracebackType]:
    """Without the frames that led to the cell."""
    first = next(i for i, entry in enumerate(entries) if entry.tb_frame.f_code.co_filename == filename)
    return entries[first:]
