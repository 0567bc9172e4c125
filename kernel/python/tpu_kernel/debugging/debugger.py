"""Python's half of the debugger: starts pydevd, and answers what needs Python's objects.

The Rust half (`kernel/src/debugger.rs`) talks to pydevd without us. Here are the start, on the
service thread; what front ends may ask while no cell stands at a breakpoint; and what the main thread
does around a cell so that breakpoints hit in each, stepping ends with the cell, and an interrupt
leaves a breakpoint. Imported when debugging begins, not before.
"""

from __future__ import annotations

import importlib.util
import linecache
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from .. import _kernel
from ..cells import interrupts
from ..cells.shell import NotebookShell
from ..output import jsontext
from ..threads import own
from . import variables

Content = dict[str, Any]

#: What runs between a cell's statements and where it displays something; stepping passes over it.
PASSED_OVER = (
    *("tpu_kernel", "IPython", "traitlets"),
    *("ast", "codeop", "contextlib", "enum", "functools", "inspect", "json", "re", "warnings", "weakref"),
)
#: pydevd's names for a thread that runs, and for no stepping.
RUNNING, NO_STEP = 1, -1
#: An interrupt is tried again so often, at this distance, before it is insisted on.
MOST_LOOKS, LOOK_SECONDS = 100, 0.01


def start(request: _kernel.Request) -> None:
    """Start pydevd and let it connect to the Rust half; say how it went."""
    where = jsontext.loads(request.content)
    try:
        connect(int(where["port"]), str(where["token"]))
    except BaseException as failure:  # noqa: BLE001  any reason is told to who asked
        _kernel.debugger_failed(f"the debugger cannot start: {type(failure).__name__}: {failure}")
    else:
        _kernel.debugger_started(jsontext.dumps(stepping_rules()))


def connect(port: int, token: str) -> None:
    """Make pydevd debug this process, as the Rust half on `port` says."""
    # What it warns of, frozen modules of the standard library, costs each start of a kernel more than
    # it gives: only breakpoints in those few files are missed.
    hook = sys.breakpointhook
    quiet = "PYDEVD_DISABLE_FILE_VALIDATION"
    before = os.environ.get(quiet)
    os.environ[quiet] = "1"
    try:
        import debugpy.server.api  # makes its pydevd the one that is imported
        import pydevd
    finally:
        if before is None:
            del os.environ[quiet]
        else:
            os.environ[quiet] = before
    if pydevd.get_global_debugger() is not None:
        raise RuntimeError("something else in this kernel uses debugpy already: restart the kernel")
    debugpy.server.api.ensure_logging()
    pydevd.settrace(
        host="127.0.0.1",
        port=port,
        client_access_token=token,
        suspend=False,
        patch_multiprocessing=False,
        wait_for_ready_to_run=False,
        block_until_connected=True,
        notify_stdin=False,
        dont_trace_start_patterns=(os.path.dirname(debugpy.__file__),),
    )
    sys.breakpointhook = breakpoint_hook if hook is sys.__breakpointhook__ else hook
    interrupts.raise_with(interrupt)
    variables.teach_debugger()


def stepping_rules() -> list[Content]:
    """What stepping passes over, as `attach` takes it."""
    rules: list[Content] = []
    for name in PASSED_OVER:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            path = os.path.join(os.path.dirname(spec.origin), "**") if spec.parent else spec.origin
            rules.append({"path": path, "include": False})
    return rules


def trace(on: bool) -> None:
    """Trace the main thread, or do not: the user's code is, as long as somebody debugs.

    What the kernel does around a cell is not. An exception out of the tracer (an interrupt) has
    ended the tracing, so it is begun anew for each cell.
    """
    import debugpy  # noqa: T100

    debugpy.trace_this_thread(on and _kernel.debugging())


def end_stepping() -> None:
    """The user's own code is over: stepping would go on into the kernel."""
    information = getattr(threading.current_thread(), "additional_info", None)
    if information is not None:
        information.pydev_state = RUNNING
        information.pydev_step_cmd = NO_STEP
        information.pydev_step_stop = None
        information.update_stepping_info()


def interrupt(signum: int, frame: FrameType | None) -> None:
    """SIGINT in a cell. A thread that stands at a breakpoint counts as running from here on.

    While it works for the front end there (a stack, an expression) an exception would end only that
    work: a short one is waited for, an endless expression is ended.
    """
    global _looks
    if _works_for_front_end(frame):
        _looks += 1
        if _looks < MOST_LOOKS:
            again = threading.Timer(LOOK_SECONDS, signal.pthread_kill, (threading.get_ident(), signum))
            own(again).start()
            return
    else:
        end_stepping()
    _looks = 0
    raise KeyboardInterrupt


_looks = 0


def _works_for_front_end(frame: FrameType | None) -> bool:
    """A thread that stands does something it was asked for."""
    works = False
    while frame is not None:
        name = frame.f_code.co_name
        if name == "_do_wait_suspend":
            return works
        works = works or name == "do_it"
        frame = frame.f_back
    return False


def breakpoint_hook(*args: Any, **kwargs: Any) -> Any:
    """`breakpoint()`: in the front end's debugger while there is one, else Python's own."""
    if not _kernel.debugging():
        return sys.__breakpointhook__(*args, **kwargs)  # noqa: T100
    import pydevd

    pydevd.settrace(
        suspend=True,
        trace_only_current_thread=True,
        patch_multiprocessing=False,
        stop_at_frame=sys._getframe().f_back,
    )
    return None


def answer(shell: NotebookShell, message: Content) -> Content:
    """The response to a request of the Debug Adapter Protocol."""
    response: Content = {
        "type": "response",
        "request_seq": message.get("seq", 0),
        "success": True,
        "command": message["command"],
        "body": {},
    }
    try:
        response["body"] = ANSWERS[message["command"]](shell, message.get("arguments") or {})
    except Exception as failure:  # noqa: BLE001  what was asked for makes no sense
        response["success"] = False
        response["message"] = str(failure) or type(failure).__name__
    return response


def source(shell: NotebookShell, arguments: Content) -> Content:
    """The text of a file, or of a cell that ran."""
    path = (arguments.get("source") or {}).get("path") or ""
    linecache.checkcache(path)
    lines = linecache.getlines(path)
    if not lines and not os.path.isfile(path):
        raise FileNotFoundError(f"there is no source `{path}`")
    return {"content": "".join(lines)}


def modules(shell: NotebookShell, arguments: Content) -> Content:
    """Modules that come from a Python file."""
    found = []
    for number, module in enumerate(list(sys.modules.values())):
        path = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(path, str) and path.endswith(".py"):
            found.append({"id": number, "name": module.__name__, "path": path})
    first = int(arguments.get("startModule") or 0)
    count = int(arguments.get("moduleCount") or len(found))
    return {"modules": found[first : first + count], "totalModules": len(found)}


_explorer = variables.Explorer()


def inspect_variables(shell: NotebookShell, arguments: Content) -> Content:
    """The notebook's variables."""
    unchanged = shell.user_ns_hidden
    names = {
        name: value
        for name, value in list(shell.user_ns.items())
        if not _kernel.hidden_variable(name) and not (name in unchanged and unchanged[name] is value)
    }
    return {"variables": _explorer.begin(names)}


def children(shell: NotebookShell, arguments: Content) -> Content:
    """What is inside one of them."""
    return {"variables": _explorer.children(int(arguments.get("variablesReference") or 0))}


def rich_inspect(shell: NotebookShell, arguments: Content) -> Content:
    """One variable as a cell would show it."""
    name = arguments.get("variableName")
    if name not in shell.user_ns:
        if isinstance(name, str) and name.isidentifier():
            raise NameError(f"the notebook has no variable `{name}`")
        return {"data": {}, "metadata": {}}
    return variables.representations(shell.user_ns[name])


ANSWERS = {
    "source": source,
    "modules": modules,
    "inspectVariables": inspect_variables,
    "variables": children,
    "richInspectVariables": rich_inspect,
}


def rich(value: Any) -> str:
    """The representations of `value` as text without quotes or escapes: the Rust half reads it."""
    return jsontext.dumps(variables.representations(value)).hex()
