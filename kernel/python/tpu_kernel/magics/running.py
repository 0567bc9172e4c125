"""Lowered cells on a shell: where a magic's body stands in its cell, whose traceback is shown,
and cells run compiled without a magic (`%tpu_mode compiled`).
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ..lowering import CellError, Lowering, Report
from ..lowering.backend import EagerBackend, TorchBackend
from ..lowering.session import before

if TYPE_CHECKING:
    from ..lowering.preview import Explanation

_LOWERINGS: weakref.WeakKeyDictionary[Any, dict[str, Lowering]] = weakref.WeakKeyDictionary()
_BLANK = re.compile(r"(?:[^\S\n]*\n)*")


def lowering_of(shell: Any, kind: str = "", make: Callable[[], Any] = TorchBackend) -> Lowering:
    """The lowered cells of this shell; those of each kind of backend are kept apart."""
    kept = _LOWERINGS.setdefault(shell, {})
    if kind not in kept:
        kept[kind] = Lowering(shell, make())
    return kept[kind]


def run_body(shell: Any, lowering: Lowering, magic: str, body: str) -> tuple[Any, Report]:
    """Run a cell magic's body with the line numbers of the cell it stands in."""
    return _with_body(shell, lowering, lowering.run, magic, body)


def explain_body(shell: Any, lowering: Lowering, magic: str, body: str) -> Explanation:
    """What would become of a cell magic's body."""
    return _with_body(shell, lowering, lowering.explain, magic, body)


def _with_body(
    shell: Any, lowering: Lowering, do: Callable[[str, int, str], Any], magic: str, body: str
) -> Any:
    trim_tracebacks(shell)
    text, first_line = _place(shell, body)
    try:
        source = _transformed(shell, body)
        if not _eager or isinstance(lowering.backend, EagerBackend):
            return do(source, first_line, text)
        with _compiled():
            return do(source, first_line, text)
    except CellError as error:
        raise UsageError(f"{magic}: {error}") from None


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """For a block: functions made with `torch.compile` run uncompiled, but for a compiled cell in it."""
    global _eager
    import torch

    before, _eager = _eager, True
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        _eager = before


_eager = False


@contextlib.contextmanager
def _compiled() -> Iterator[None]:
    """For a block below `eagerly`: of `%%tpu_eager` and `%%tpu_compile`, the lower one counts."""
    global _eager
    import torch

    _eager = False
    try:
        with torch.compiler.set_stance("default"):
            yield
    finally:
        _eager = True


# Magics that run a body: it is compiled whichever of the two stands above.
_RUNS_A_BODY = re.compile(r"\s*%%(time|timeit|capture|prun)\b([^\n]*)\n")


def run_below(shell: Any, magic: str, line: str, body: str) -> tuple[Any] | None:
    """Where `body` begins with such a magic: run that one, with `magic` below it; its value."""
    other = _RUNS_A_BODY.match(body)
    if other is None:
        return None
    name, options = other.groups()
    return (shell.run_cell_magic(name, options.strip(), f"{magic} {line}\n{body[other.end() :]}"),)


#: Where IPython runs a cell's code.
_RUNS_CODE = InteractiveShell.run_code.__code__


def is_timed() -> bool:
    """Is `%%timeit` running this, over and over?"""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not _RUNS_CODE:
        if frame.f_code.co_filename == "<magic-timeit>":
            return True
        frame = frame.f_back
    return False


_SOURCES: OrderedDict[tuple[Any, ...], str] = OrderedDict()
_KEPT_SOURCES = 64


def _transformed(shell: Any, body: str) -> str:
    """The body as Python, without blank lines before it. To make that takes half a millisecond."""
    manager = shell.input_transformer_manager
    ways = (*manager.cleanup_transforms, *manager.line_transforms, *shell.input_transformers_post)
    key = (body, ways, tuple(manager.token_transformers))
    if key not in _SOURCES:
        _SOURCES[key] = shell.transform_cell(body).lstrip("\n")
        if len(_SOURCES) > _KEPT_SOURCES:
            _SOURCES.popitem(last=False)
    return _SOURCES[key]


def cell_lines(shell: Any, body: str) -> list[str]:
    """The lines of the cell a magic's body stands in."""
    return _place(shell, body)[0].splitlines()


def _place(shell: Any, body: str) -> tuple[str, int]:
    """The whole cell, and the line of it on which `body` begins (blank lines left out)."""
    history = getattr(shell.history_manager, "input_hist_raw", None) or [""]
    raw, wanted = history[-1].rstrip(), body.rstrip()
    if not raw.endswith(wanted):
        raw = "\n" + wanted  # nested or not in the history: the magic's own line comes first
    start = len(raw) - len(wanted)
    blank = _BLANK.match(wanted)
    start += blank.end() if blank else 0
    return raw, raw.count("\n", 0, start) + 1


def is_all(shell: Any, body: str) -> bool:
    """Is a magic with this body all of the cell, with no other above?"""
    history = getattr(shell.history_manager, "input_hist_raw", None) or [""]
    raw, wanted = history[-1].strip(), body.rstrip()
    return raw.endswith(wanted) and "\n" not in raw[: len(raw) - len(wanted)].rstrip()


def trim_tracebacks(shell: Any) -> None:
    """Show a lowered cell's error as a plain cell's: without the frames that run the magic."""
    original = shell._get_exc_info
    if getattr(original, "trims", False):
        return

    def exc_info(exc_tuple: Any = None) -> Any:
        kind, value, traceback = original(exc_tuple)
        trimmed = _trimmed(traceback, isinstance(value, SyntaxError))
        if trimmed is not traceback:
            sys.last_traceback = trimmed
        return kind, value, trimmed

    exc_info.trims = True  # type: ignore[attr-defined]
    shell._get_exc_info = exc_info


def _trimmed(traceback: TracebackType | None, syntax: bool) -> TracebackType | None:
    """The frame that ran the cell, then what comes after the last frame of `Lowering.run`."""
    entries: list[TracebackType] = []
    after = None
    while traceback is not None:
        entries.append(traceback)
        frame = traceback.tb_frame
        if frame.f_code in (Lowering.run.__code__, Lowering.run_tree.__code__):
            after = len(entries)
        traceback = traceback.tb_next
    if after is None:
        return entries[0] if entries else None
    if syntax and after < len(entries) and _is_compiling(entries[after]):
        return None  # the cell itself does not compile: there is nothing to trace
    result: TracebackType | None = None
    for entry in reversed([entries[0], *entries[after:]]):
        result = before(result, entry)
    return result


def _is_compiling(entry: TracebackType) -> bool:
    """Is this a frame that compiles the cell (and not one of the cell)?"""
    return entry.tb_frame.f_globals.get("__name__", "").startswith(("tpu_kernel.", "IPython.", "codeop"))


def compiles_cells(shell: Any) -> bool:
    """Are cells without a magic compiled?"""
    return hasattr(shell.run_ast_nodes, "plain")


def compile_cells(shell: Any, on: bool) -> None:
    """`%tpu_mode compiled`: run the nodes of each cell lowered. Cells that await run plainly."""
    plain: Callable[..., Any] | None = getattr(shell.run_ast_nodes, "plain", None)
    if not on:
        if plain is not None:
            del shell.run_ast_nodes
            if shell.run_ast_nodes != plain:
                shell.run_ast_nodes = plain
        return
    if plain is None:
        trim_tracebacks(shell)
        plain = shell.run_ast_nodes
        shell.run_ast_nodes = _lowered_nodes(shell, plain)


def _lowered_nodes(shell: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    async def run_ast_nodes(
        nodelist: list[ast.stmt], cell_name: str, interactivity: str = "last_expr", *rest: Any, **options: Any
    ) -> bool:
        __tracebackhide__ = "__ipython_bottom__"  # tracebacks begin below this frame
        if not nodelist or interactivity == "async":
            return await plain(nodelist, cell_name, interactivity, *rest, **options)
        result = options.get("result")
        tree = ast.Module(list(nodelist), [])
        try:
            value, _ = lowering_of(shell).run_tree(
                tree, cell_name, "".join(linecache.getlines(cell_name)), interactivity
            )
        except CellError:
            return await plain(nodelist, cell_name, interactivity, *rest, **options)
        except BaseException as error:
            if result is not None:
                result.error_in_exec = error
            if isinstance(error, SystemExit):
                raise
            shell.showtraceback(running_compiled_code=True)
            return True
        if value is not None:
            sys.displayhook(value)
        return False

    run_ast_nodes.plain = plain  # type: ignore[attr-defined]
    return run_ast_nodes
