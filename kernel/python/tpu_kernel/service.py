"""The service thread: complete, inspect, is_complete, history, comm_info, and the state of all widgets
for a page that was reloaded, while a cell runs.

Completing and inspecting run what objects bring along (`__dir__`, properties, `repr`) and may take
long; they have a thread of their own, started by the first of them, so that the others need not wait.

When the main thread does not come back at shutdown, it is this thread that runs the `atexit`
functions.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from . import _kernel
from .cells import interrupts
from .cells.errors import safe_str
from .cells.shell import NotebookShell
from .output import comms, jsontext
from .parent import PARENT
from .threads import own

WAIT_SECONDS = 3600.0
LOOKS, LOOK_SECONDS = 3, 0.001

Content = dict[str, Any]


def answer_complete(shell: NotebookShell, content: Content) -> Content:
    """`complete_request`."""
    from .introspection.completion import complete

    return complete(shell, jsontext.scrub(str(content.get("code", ""))), content.get("cursor_pos"))


def answer_inspect(shell: NotebookShell, content: Content) -> Content:
    """`inspect_request`."""
    from .introspection.inspection import inspect

    code = jsontext.scrub(str(content.get("code", "")))
    return inspect(shell, code, content.get("cursor_pos"), int(content.get("detail_level") or 0))


def answer_is_complete(shell: NotebookShell, content: Content) -> Content:
    """`is_complete_request`."""
    from .introspection.inspection import is_complete

    return is_complete(shell, jsontext.scrub(str(content.get("code", ""))))


def answer_history(shell: NotebookShell, content: Content) -> Content:
    """`history_request`: the last, a range of a session, or those that match a pattern."""
    history = shell.history_manager
    raw, output = bool(content.get("raw", True)), bool(content.get("output", False))
    kind = content.get("hist_access_type", "tail")
    if kind == "tail":
        found = history.get_tail(content.get("n") or 10, raw=raw, output=output, include_latest=True)
    elif kind == "range":
        session, start = int(content.get("session") or 0), int(content.get("start") or 1)
        found = history.get_range(session, start, content.get("stop"), raw=raw, output=output)
    elif kind == "search":
        pattern, unique = content.get("pattern") or "*", bool(content.get("unique", False))
        found = history.search(pattern, raw=raw, output=output, n=content.get("n"), unique=unique)
    else:
        raise ValueError(f"history has no access type `{kind}`: tail, range or search")
    return {"status": "ok", "history": [list(entry) for entry in found]}


def answer_comm_info(shell: NotebookShell, content: Content) -> Content:
    """`comm_info_request`."""
    target = content.get("target_name")
    names = dict.fromkeys(_kernel.feed_comms(), "tpu.stats")
    if "comm" in sys.modules:
        manager = shell.kernel.comm_manager
        names |= {comm_id: comm.target_name for comm_id, comm in list(manager.comms.items())}
    comms = {
        comm_id: {"target_name": name} for comm_id, name in names.items() if target is None or name == target
    }
    return {"status": "ok", "comms": comms}


def answer_debug(shell: NotebookShell, content: Content) -> Content:
    """`debug_request`, as far as it needs Python's objects."""
    from .debugging import debugger

    return debugger.answer(shell, content)


ANSWERS: dict[str, Callable[[NotebookShell, Content], Content]] = {
    "complete_request": answer_complete,
    "inspect_request": answer_inspect,
    "is_complete_request": answer_is_complete,
    "history_request": answer_history,
    "comm_info_request": answer_comm_info,
    "debug_request": answer_debug,
}


def answer(shell: NotebookShell, request: _kernel.Request) -> None:
    """Answer one request, exactly once."""
    PARENT.set(request.parent)
    try:
        body = jsontext.dumps(ANSWERS[request.msg_type](shell, jsontext.loads(request.content)))
    except BaseException as failure:  # noqa: BLE001
        error = {
            "status": "error",
            "ename": type(failure).__name__,
            "evalue": safe_str(failure),
            "traceback": traceback.format_exception(failure),
        }
        body = jsontext.dumps(error)
    _kernel.reply(request, body)


def locate_main(shell: NotebookShell) -> tuple[str, bool, bool]:
    """Where the main thread is: the place in a cell, whether it moves, whether it handles an interrupt."""
    main = threading.main_thread().ident or 0
    seen = set()
    frame = None
    for _ in range(LOOKS):
        frame = sys._current_frames().get(main)
        seen.add((id(frame), frame.f_lasti if frame is not None else 0))
        time.sleep(LOOK_SECONDS)
    place = ""
    while frame is not None and not place:
        if (name := shell.compile.format_code_name(frame.f_code.co_filename)) is not None:
            place = f"{name[1]}, line {frame.f_lineno}"
        frame = frame.f_back
    failure: Any = sys._current_exceptions().get(main)
    if isinstance(failure, tuple):  # Python 3.11: type, value, traceback
        failure = failure[1]
    handling = False
    while isinstance(failure, BaseException) and not handling:
        handling = isinstance(failure, KeyboardInterrupt)
        failure = failure.__context__
    return place, len(seen) > 1 or not interrupts.is_ours(), handling


class Lookups:
    """The thread that completes and inspects, for a debugger too, in order of arrival."""

    MSG_TYPES = ("complete_request", "inspect_request", "debug_request")

    def __init__(self, shell: NotebookShell) -> None:
        self._shell = shell
        self._waiting: SimpleQueue[_kernel.Request] | None = None

    def put(self, request: _kernel.Request) -> None:
        """Let the thread answer `request`."""
        if self._waiting is None:
            self._waiting = SimpleQueue()
            thread = threading.Thread(target=self._serve, args=(self._waiting,), name="lookups", daemon=True)
            own(thread).start()
        self._waiting.put(request)

    def _serve(self, waiting: SimpleQueue[_kernel.Request]) -> None:
        while True:
            answer(self._shell, waiting.get())


_exit_functions = threading.Lock()


def run_exit_functions() -> None:
    """What `atexit` holds, once, from whichever thread comes first."""
    if _exit_functions.acquire(blocking=False):
        shutdown = _runtime_shutdown()
        atexit._run_exitfuncs()
        if shutdown is not None:
            shutdown()


def _runtime_shutdown() -> Callable[[], None] | None:
    """TorchTPU's exit function, taken out: it waits for the device, and must not use up the time of the
    notebook's own. The end of the process frees the chip in any case."""
    module = sys.modules.get("torch_tpu._internal.device._device_module")
    shutdown = getattr(getattr(module, "TpuDeviceModule", None), "_shutdown_runtime", None)
    if shutdown is not None:
        atexit.unregister(shutdown)
    return shutdown


def serve(shell: NotebookShell) -> None:
    """Until the process ends."""
    lookups = Lookups(shell)
    while True:
        request = _kernel.next_service(WAIT_SECONDS)
        if request is None:
            if _kernel.stopping():
                return
            continue
        try:
            serve_one(shell, lookups, request)
        except BaseException:  # noqa: BLE001  the next request is to be answered all the same
            from . import loop

            loop.report_fault()


def serve_one(shell: NotebookShell, lookups: Lookups, request: _kernel.Request) -> None:
    """Do what one request asks for."""
    if request.msg_type == "locate":
        _kernel.located(*locate_main(shell))
    elif request.msg_type == "start":
        from . import loop

        loop.start_subshell(shell, request.shell)
    elif request.msg_type == "interrupt":
        interrupts.interrupt_subshells()
    elif request.msg_type == "cancelled":
        from .tpu import cancelling

        cancelling.tell()
    elif request.msg_type == "compiling":
        from .tpu import compiles

        compiles.compiling(shell)
    elif request.msg_type == "start_debugger":
        from .debugging import debugger

        debugger.start(request)
    elif request.msg_type == "exit":
        run_exit_functions()
        _kernel.exit(0)
    elif request.msg_type in Lookups.MSG_TYPES:
        lookups.put(request)
    elif request.msg_type in comms.MSG_TYPES:
        PARENT.set(request.parent)
        comms.answer_control(shell.kernel, request)
    else:
        answer(shell, request)


def start(shell: NotebookShell) -> None:
    """Start the thread."""
    own(threading.Thread(target=serve, args=(shell,), name="service", daemon=True)).start()
