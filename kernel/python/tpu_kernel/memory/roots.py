"""Where a person's objects hang: the notebook's names, outputs, tracebacks, and code that runs or waits.

From these `holders` walks to the tensors on the device. Nothing of the user's is called.
"""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

#: A name, what kind of thing has it, and what it stands for.
Root = tuple[str, str, Any]

#: Names IPython keeps for itself in the notebook's variables.
SHELLS_OWN = {
    *("In", "Out", "_", "__", "___", "_i", "_ii", "_iii", "_ih", "_oh", "_dh"),
    *("exit", "quit", "get_ipython"),
}
_NUMBERED = re.compile(r"_i?\d+")
_OUTPUT = re.compile(r"_\d+")
#: Its names for the last outputs.
LATEST = ("_", "__", "___")
#: Packages whose frames only run others' code.
_MACHINERY = ("tpu_kernel", "IPython", "threading", "asyncio", "concurrent")


def is_numbered(name: str) -> bool:
    """A name IPython has for an input or output."""
    return _NUMBERED.fullmatch(name) is not None


def is_output(name: str) -> bool:
    """A name IPython has for an output."""
    return name in LATEST or _OUTPUT.fullmatch(name) is not None


def roots(namespace: dict[str, Any], error: BaseException | None) -> Iterator[Root]:
    """Name, kind and value of what a person can let go of; `error` is being reported."""
    for name, value in list(namespace.items()):
        if name not in SHELLS_OWN and not is_numbered(name):
            yield name, "variable", value
    outputs = namespace.get("_oh")
    if isinstance(outputs, dict):
        for number, value in list(outputs.items()):
            yield f"Out[{number}]", "output", value
    for failure in (error, getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)):
        yield from traceback("last traceback", "traceback", failure)
    yield from _running()
    # IPython's own names of outputs outlive `Out`.
    for name, value in list(namespace.items()):
        if is_output(name):
            yield name, "output", value


def traceback(path: str, kind: str, error: BaseException | None) -> Iterator[Root]:
    """What an error keeps: the variables of its functions, and what it was made with.

    Variables of the notebook itself have names already.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting and len(seen) < 100:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        step = one.__traceback__
        while step is not None:
            yield from frame(path, kind, step.tb_frame)
            step = step.tb_next
        for number, value in enumerate(one.args):
            yield f"{path}: {type(one).__name__} args[{number}]", kind, value
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def frame(path: str, kind: str, of: types.FrameType | None) -> Iterator[Root]:
    """The variables of a function that runs, waits, or failed."""
    if of is None or of.f_code.co_name == "<module>" or "IPython" in of.f_code.co_filename:
        return
    for name, value in list(of.f_locals.items()):
        yield f"{path}: {of.f_code.co_name}() {name}", kind, value


def _running() -> Iterator[Root]:
    """The variables of functions other threads are in, and of tasks that wait."""
    here = threading.get_ident()
    names = {thread.ident: thread for thread in threading.enumerate()}
    for number, top in sys._current_frames().items():
        thread = names.get(number)
        if number == here or getattr(thread, "pydev_do_not_trace", False):
            continue
        of: types.FrameType | None = top
        while of is not None and of.f_code.co_name != "<module>":
            if str(of.f_globals.get("__name__")).partition(".")[0] not in _MACHINERY:
                yield from frame(f"thread {thread.name if thread else number}", "running", of)
            of = of.f_back
    for task in _tasks():
        coroutine = task.get_coro()
        while coroutine is not None:
            yield from frame(f"task {task.get_name()}", "running", getattr(coroutine, "cr_frame", None))
            coroutine = getattr(coroutine, "cr_await", None)


def _tasks() -> Iterator[Any]:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        with suppress(RuntimeError):  # no loop runs in this thread
            yield from asyncio.all_tasks()
