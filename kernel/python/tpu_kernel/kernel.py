"""`get_ipython().kernel`: what notebook libraries expect of a kernel object.

Nothing of ours goes through it. Libraries read the parent message from it, send messages
through its `session`, and look at `comm_manager` and `language_info`.
"""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

from . import _kernel
from .output import jsontext, stdio
from .parent import PARENT

LANGUAGE_INFO: dict[str, Any] = {
    "name": "python",
    "version": sys.version.split()[0],
    "mimetype": "text/x-python",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "pygments_lexer": "ipython3",
    "nbconvert_exporter": "python",
    "file_extension": ".py",
}


class Parents:
    """Requests as messages, and messages turned back into their `Parent`.

    Only requests that run have their content and buffers; of others the header is known.
    """

    def __init__(self) -> None:
        self._running: dict[str, _kernel.Request] = {}

    def begin(self, request: _kernel.Request) -> None:
        """A request begins to run."""
        self._running[request.parent.msg_id] = request

    def end(self, request: _kernel.Request) -> None:
        """A request is over."""
        self._running.pop(request.parent.msg_id, None)

    @staticmethod
    def find(message: Any) -> _kernel.Parent | None:
        """The parent a message as of `get_parent`, or a header, stands for."""
        if not isinstance(message, dict):
            return None
        header = dict(message.get("header") or message)
        if not header.get("msg_id"):
            return None
        header.setdefault("msg_type", "")
        return _kernel.Parent.from_header(jsontext.dumps(header))

    def message(self, parent: _kernel.Parent) -> dict[str, Any]:
        """The request as the message that ipykernel's `get_parent` gives."""
        header = jsontext.loads(parent.header)
        current = self._running.get(parent.msg_id)
        return {
            "header": header,
            "msg_id": header.get("msg_id", ""),
            "msg_type": header.get("msg_type", ""),
            "parent_header": {},
            "metadata": jsontext.loads(current.metadata) if current else {},
            "content": jsontext.loads(current.content) if current else {},
            "buffers": current.buffers if current else [],
        }


class Channel:
    """Stands for a socket where libraries pass one around."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name} channel>"


class Session:
    """Builds and sends messages the way `jupyter_client.session.Session` does."""

    username = os.environ.get("USER", "username")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.bsession = self.session.encode()

    @property
    def session(self) -> str:
        """The id that stands in the header of all our messages."""
        return _kernel.session_id()

    def msg_header(self, msg_type: str) -> dict[str, Any]:
        """A header for a message of ours."""
        now = datetime.now(UTC)
        return {
            "msg_id": os.urandom(16).hex(),
            "msg_type": msg_type,
            "username": self.username,
            "session": self.session,
            "date": now.isoformat().replace("+00:00", "Z"),
            "version": "5.5",
        }

    def msg(
        self,
        msg_type: str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A message, not sent yet."""
        header = header or self.msg_header(msg_type)
        parent_header = (parent.get("header") or parent) if parent else {}
        return {
            "header": header,
            "msg_id": header["msg_id"],
            "msg_type": header["msg_type"],
            "parent_header": parent_header,
            "content": content or {},
            "metadata": metadata or {},
        }

    def send(
        self,
        stream: Any,
        msg_or_type: dict[str, Any] | str,
        content: dict[str, Any] | None = None,
        parent: dict[str, Any] | None = None,
        ident: Any = None,
        buffers: Any = None,
        track: bool = False,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Publish a message on iopub."""
        message = msg_or_type
        if not isinstance(message, dict):
            message = self.msg(message, content, parent, header, metadata)
        _kernel.publish(
            message["msg_type"],
            jsontext.dumps(message["content"]),
            jsontext.dumps(message["metadata"]),
            parent=self._kernel.parents.find(message.get("parent_header")) or PARENT.get(),
            buffers=buffers,
        )
        return message


class Kernel:
    """The kernel as libraries see it."""

    implementation = "pytorch-tpu"
    language_info = LANGUAGE_INFO
    eventloop = None
    use_jedi = True

    def __init__(self, log: logging.Logger) -> None:
        self.log = log
        self.ident = _kernel.session_id()
        self.parents = Parents()
        self.session = Session(self)
        self.iopub_socket = Channel("iopub")
        self.shell_stream = Channel("shell")
        self.control_stream = Channel("control")
        self.stdin_socket = Channel("stdin")
        # Libraries put functions of their own here while a cell waits for widgets.
        self.shell_handlers = {"execute_request": self.execute_request}
        self.shell: Any = None
        Kernel._instance = self

    _instance: Kernel | None = None

    @classmethod
    def instance(cls, *_: Any, **__: Any) -> Kernel:
        """The kernel of this process."""
        if cls._instance is None:
            raise RuntimeError("no kernel runs in this process")
        return cls._instance

    @classmethod
    def initialized(cls) -> bool:
        """True once the kernel is there."""
        return cls._instance is not None

    @property
    def comm_manager(self) -> Any:
        """The manager of all comms of this kernel."""
        import comm

        return comm.get_comm_manager()

    @property
    def banner(self) -> str:
        """What a console shows first."""
        return self.shell.banner

    @property
    def execution_count(self) -> int:
        """The number of the next cell."""
        return self.shell.execution_count

    @property
    def io_loop(self) -> Any:
        """The event loop of the main thread: tornado's face of it where there is one."""
        from . import loop

        own = loop.own_loop()
        event_loop = own.event_loop() if own is not None else None
        try:
            from tornado.ioloop import IOLoop
        except ImportError:
            return event_loop
        return (
            IOLoop.current()
            if event_loop.is_running()
            else IOLoop(asyncio_loop=event_loop, make_current=False)
        )

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        """The request the running code belongs to, as a message; `{}` before the first."""
        parent = PARENT.get() or _kernel.running()
        return self.parents.message(parent) if parent is not None else {}

    @property
    def _parent_header(self) -> dict[str, Any]:
        return self.get_parent()

    def get_parent_header(self) -> dict[str, Any]:
        """The header of `get_parent()`."""
        return self.get_parent().get("header", {})

    def set_parent(self, ident: Any, parent: dict[str, Any], channel: str = "shell") -> None:
        """Let what this context writes from now on belong to the request `parent`."""
        known = self.parents.find(parent)
        if known is not None:
            PARENT.set(known)

    def send_response(
        self,
        stream: Any,
        msg_or_type: dict[str, Any] | str,
        content: dict[str, Any] | None = None,
        ident: Any = None,
        buffers: Any = None,
        track: bool = False,
        header: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
    ) -> dict[str, Any]:
        """Publish a message as part of the running cell."""
        return self.session.send(
            stream, msg_or_type, content, self.get_parent(), ident, buffers, track, header, metadata
        )

    @property
    def _parent_ident(self) -> dict[str, list[bytes]]:
        """Nothing is routed by it here; libraries look whether it is there."""
        return {"shell": [], "control": []}

    @property
    def user_ns(self) -> dict[str, Any]:
        """The names of the notebook."""
        return self.shell.user_ns

    @property
    def user_module(self) -> Any:
        """The module the cells run in."""
        return self.shell.user_module

    async def execute_request(self, stream: object, ident: object, parent: object) -> None:
        """No cell comes this way: cells wait for the running one, whatever `do_one_iteration` does."""
        raise RuntimeError("cells are not run through the kernel object: use `get_ipython().run_cell`")

    async def do_one_iteration(self) -> None:
        """Let one comm message have its turn now, while the cell that asks goes on."""
        from . import loop
        from .output import comms

        own = loop.own_loop()
        request = own.queue.next_comm() if own is not None else None
        if request is not None:
            comms.run(self, request)

    def raw_input(self, prompt: object = "") -> str:
        """Ask the person for a line."""
        return stdio.ask(prompt)

    def getpass(self, prompt: object = "Password: ", stream: object = None) -> str:
        """Ask the person for a secret."""
        return stdio.ask_password(prompt, stream)

    def do_complete(self, code: str, cursor_pos: int | None) -> dict[str, Any]:
        """The content of a `complete_reply`."""
        from .introspection.completion import complete

        return complete(self.shell, code, cursor_pos)

    def do_inspect(
        self, code: str, cursor_pos: int | None, detail_level: int = 0, omit_sections: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The content of an `inspect_reply`."""
        from .introspection.inspection import inspect

        return inspect(self.shell, code, cursor_pos, detail_level)

    def do_is_complete(self, code: str) -> dict[str, Any]:
        """The content of an `is_complete_reply`."""
        from .introspection.inspection import is_complete

        return is_complete(self.shell, code)


Kernel.__module__ = "ipykernel.ipkernel"
Kernel.__name__ = Kernel.__qualname__ = "IPythonKernel"
