"""Comms: the channels between widgets and their Python objects.

The package `comm` does the bookkeeping. It is imported when the notebook imports it, or when
the first comm message comes; then its two factories give the objects of `comm_objects`.

Messages have their turn on the main thread, in order, between cells. Only the question for the
state of all widgets, which a reloaded page asks, is answered at once by the service thread.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .. import _kernel
from ..parent import PARENT
from . import jsontext

MSG_TYPES = ("comm_open", "comm_msg", "comm_close")

# A cell may make widgets while their states are collected, which ends the collecting with an error.
# So it is not interrupted for this long, and begun anew if it was all the same.
STATE_SECONDS = 0.5
STATE_ATTEMPTS = 5


def use_ours(comm: ModuleType) -> None:
    """Let `comm.create_comm` and `comm.get_comm_manager` give objects of this kernel."""
    from . import comm_objects

    comm.Comm = comm_objects.Comm  # type: ignore[attr-defined]
    comm.create_comm = comm_objects.Comm  # type: ignore[attr-defined]
    comm.get_comm_manager = comm_objects.get_comm_manager  # type: ignore[attr-defined]


def message_of(kernel: Any, request: _kernel.Request) -> dict[str, Any]:
    """The request as comm handlers expect it."""
    return kernel.parents.message(request.parent) | {
        "content": jsontext.loads(request.content),
        "metadata": jsontext.loads(request.metadata),
        "buffers": request.buffers,
    }


def dispatch(kernel: Any, request: _kernel.Request) -> None:
    """Hand a comm message to its comm; an unknown target is closed at once."""
    handler = getattr(kernel.comm_manager, request.msg_type, None)
    if handler is not None:
        handler(kernel.shell_stream, "", message_of(kernel, request))


def run(kernel: Any, request: _kernel.Request) -> None:
    """Let a comm message have its turn. An interrupt is shown as an error of it, and goes on."""
    before = PARENT.set(request.parent)
    kernel.parents.begin(request)
    try:
        dispatch(kernel, request)
    except KeyboardInterrupt as interrupt:
        kernel.shell.showtraceback()
        interrupt._tpu_shown = True  # type: ignore[attr-defined]
        raise
    finally:
        kernel.parents.end(request)
        PARENT.reset(before)
        _kernel.finish(request)


def answer_control(kernel: Any, request: _kernel.Request) -> None:
    """Tell a page the state of all widgets; on the service thread, also while a cell runs."""
    try:
        message = message_of(kernel, request)
        if "comm" not in sys.modules or "ipywidgets" not in sys.modules:
            if request.msg_type == "comm_open":  # every page asks: nothing worth a word in the log
                content = {"comm_id": message["content"]["comm_id"], "data": {}}
                _kernel.publish("comm_close", jsontext.dumps(content), parent=PARENT.get())
        elif request.msg_type == "comm_msg":
            _send_states(kernel, message)
        else:
            getattr(kernel.comm_manager, request.msg_type)(kernel.shell_stream, "", message)
    except Exception:  # noqa: BLE001
        kernel.shell.showtraceback()
    finally:
        _kernel.finish(request)


def _send_states(kernel: Any, message: dict[str, Any]) -> None:
    """Past `handle_msg`, whose events would show the figures that a running cell has not finished."""
    control = kernel.comm_manager.comms.get(message["content"]["comm_id"])
    if control is None or control._msg_callback is None:
        return
    interval = sys.getswitchinterval()
    sys.setswitchinterval(STATE_SECONDS)
    try:
        for attempt in range(1, STATE_ATTEMPTS + 1):
            try:
                control._msg_callback(message)
            except Exception:
                if attempt == STATE_ATTEMPTS:
                    raise
            else:
                return
    finally:
        sys.setswitchinterval(interval)
