"""What the kernel does when programs are compiled: notes the line, notices storms, lets go of programs.

tpu-core tells that a compile begins; the service thread then looks where the main thread is, or one
that waits for the compiler. Where nothing is compiled this costs nothing. Python hands operations to
the device and goes on, so in strict and fused mode the line is the one it had come to: the operation
stands there or before.
"""

from __future__ import annotations

import ast
import linecache
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from .. import _kernel
from ..output.standing import Standing
from ..parent import PARENT
from .storms import Spot, Storm

if TYPE_CHECKING:
    from types import FrameType

    from ..cells.shell import NotebookShell

#: Seconds between two updates of a storm's card.
_PERIOD = 0.5
#: Programs on the device from which on those that ran once and never again are let go of.
_MOST_PROGRAMS = 1000
#: While these read a function they also run some of it eagerly, such as what makes an optimizer's state.
_BACKEND = "torch_tpu._internal.compile"
_COMPILERS = ("torch._dynamo", "torch._functorch", _BACKEND)

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class _Run:
    """One run of a cell."""

    def __init__(self, mode: str | None, counters: dict[str, int]) -> None:
        self.line = Standing("storm", PARENT.get())
        self.storm = Storm(mode)
        self.counters = counters
        self.shown = (0.0, 0)
        #: The main thread ends the run while the service thread may be looking at it.
        self.lock = threading.Lock()
        self.ended = False
        #: Something was compiled.
        self.compiled = False


class _State:
    run: _Run | None = None
    cursor = 0
    #: Programs on the device from which on it is worth while to look again for those to let go of.
    enough = 0


def begin(counters: dict[str, int]) -> None:
    """A cell of the main shell begins, or its first use of the device."""
    from ..magics import eagermode

    _State.run = _Run(eagermode.in_force(), counters)


def end() -> None:
    """What the cell queued has ended."""
    run, _State.run = _State.run, None
    if run is None:
        return
    with run.lock:
        run.ended = True
        if run.line.shown:
            _show(run, final=True)
    if run.compiled:
        _let_go()


def overlook() -> None:
    """The running cell compiles on purpose: nothing is said about it."""
    _State.run = None


def compiling(shell: NotebookShell) -> None:
    """A compile has begun. On the service thread."""
    run = _State.run
    # First: while programs are asked for, Python goes on.
    spot = _spot(shell) if run is not None else Spot()
    _State.cursor, programs = _kernel.tpu_programs(_State.cursor)
    counters = _kernel.tpu_snapshot()
    if run is None or counters is None:
        return
    with run.lock:
        run.compiled = True
        for program in programs:
            if program["stage"] == "cached":
                continue
            if spot.place:
                words = spot.place if spot.exact or run_is_blocking(run) else f"{spot.place} or before"
                _kernel.tpu_set_place(program["number"], words)
            run.storm.see(program, counters["downloads"], spot)
        if run.storm.cause is not None and not run.ended:
            _show(run)
    _let_go()


def run_is_blocking(run: _Run) -> bool:
    """Each operation ends before the next line."""
    return run.storm.mode == "debug"


def _spot(shell: NotebookShell) -> Spot:
    """Where the main thread is; or another, if that one waits for PyTorch's compiler and the main one does not.

    TorchTPU compiles on a thread of its own, which says nothing of whom it compiles for.
    """
    frames = sys._current_frames()
    here = _look(shell, frames.pop(threading.main_thread().ident or 0, None))
    if here.exact:
        return here
    waiting = [spot for frame in frames.values() if (spot := _look(shell, frame)).exact and spot.place]
    return waiting[0] if len(waiting) == 1 else here


def _look(shell: NotebookShell, frame: FrameType | None) -> Spot:
    """Where a thread is, in a cell."""
    place, loop, exact, compiled, magic = "", "", False, False, False
    while frame is not None:
        code = frame.f_code
        # A cell magic's line says nothing of what the magic runs.
        if not magic and (name := shell.compile.format_code_name(code.co_filename)) is not None:
            line = frame.f_lineno
            place = place or f"{name[1]}, {_lines(line, exact)}"
            around = [first for first, last in _loops(code.co_filename) if first <= line <= last]
            loop = loop or (f"{name[1]}, loop in line {max(around)}" if around else "")
        elif not place and str(frame.f_globals.get("__name__", "")).startswith(_COMPILERS):
            exact = True
            compiled = compiled or str(frame.f_globals["__name__"]).startswith(_BACKEND)
        magic = code.co_name == "run_cell_magic"
        frame = frame.f_back
    return Spot(place, loop, exact, compiled)


def _lines(line: int, compiled: bool) -> str:
    """The line; or the lines of a lowered cell that are compiled as one function now."""
    backend = sys.modules.get("tpu_kernel.lowering.backend")
    outlined = getattr(backend, "running", None)
    if not compiled or outlined is None or not outlined.lines:
        return f"line {line}"
    from ..cards.blocks import spans

    lines = sorted(set(outlined.lines))
    return f"line{'s' if len(lines) > 1 else ''} {spans(lines)}"


_known_loops: dict[str, list[tuple[int, int]]] = {}


def _loops(file: str) -> list[tuple[int, int]]:
    """First and last line of each loop in a cell."""
    if file not in _known_loops:
        if len(_known_loops) > 256:
            _known_loops.clear()
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except (SyntaxError, ValueError, RecursionError):
            tree = ast.Module([], [])
        loops = (node for node in ast.walk(tree) if isinstance(node, _LOOPS))
        _known_loops[file] = [(node.lineno, node.end_lineno or node.lineno) for node in loops]
    return _known_loops[file]


def _show(run: _Run, final: bool = False) -> None:
    """Show the storm's card, or bring it up to date: not more often than is of use."""
    counters = _kernel.tpu_snapshot() or run.counters
    count = counters["compiles"] - run.counters["compiles"]
    then, shown = run.shown
    if run.line.shown and (count == shown or (not final and time.monotonic() < then + _PERIOD)):
        return
    from ..cards.storm import StormCard

    assert run.storm.cause is not None
    seconds = (counters["compile_ns"] - run.counters["compile_ns"]) / 1e9
    card = StormCard(run.storm.cause, count, seconds)
    run.shown = (time.monotonic(), count)
    if not run.line.shown:
        _kernel.feed_storm(f"a loop compiles at every step: {run.storm.cause.words}")
    run.line.show({"text/html": card.html(), "text/plain": card.text()})


def _let_go() -> None:
    """Let go of programs when many of them ran once: TorchTPU keeps each it has made, for ever.

    One that is wanted again comes back from disk. TorchTPU waits for what is being compiled.
    """
    counters = _kernel.tpu_snapshot()
    if counters is None:
        return
    if counters["loaded_programs"] < _MOST_PROGRAMS:
        _State.enough = 0
    if counters["loaded_programs"] < max(_MOST_PROGRAMS, _State.enough):
        return
    _, programs = _kernel.tpu_programs(0)
    loaded = [program for program in programs if program["loaded"]]
    once = sum(program["runs"] <= 1 for program in loaded)
    module: Any = sys.modules.get("torch_tpu._internal.device._device_module")
    if module is not None and 2 * once > len(loaded):
        module.TpuDeviceModule._clear_cache()
    else:
        # of fewer more than these, most cannot have run once: each look goes through all there are
        _State.enough = len(loaded) + max(len(loaded) - 2 * once, len(loaded) // 20) + 1
