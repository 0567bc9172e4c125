"""The comm and the manager of comms of this kernel. Imported once the package `comm` is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from comm.base_comm import BaseComm, logger
from comm.base_comm import CommManager as BaseCommManager
from IPython.core.getipython import get_ipython

from .. import _kernel
from ..parent import PARENT
from . import jsontext

if TYPE_CHECKING:
    from ..kernel import Kernel

Message = dict[str, Any]


class Comm(BaseComm):
    """A comm that publishes through this kernel."""

    def __init__(
        self,
        target_name: str = "comm",
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: Any = None,
        *,
        kernel: object = None,
        show_warning: bool = False,
        **more: Any,
    ) -> None:
        """As `BaseComm`; `kernel` and `show_warning` are what ipykernel's takes besides."""
        super().__init__(target_name, data, metadata, buffers, **more)

    @property
    def kernel(self) -> Kernel:
        """The kernel, where older widget libraries look whether there is one."""
        from ..kernel import Kernel

        return Kernel.instance()

    def publish_msg(
        self,
        msg_type: str,
        data: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        buffers: Any = None,
        **keys: Any,
    ) -> None:
        """Send `comm_open`, `comm_msg` or `comm_close`."""
        content = {"data": {} if data is None else data, "comm_id": self.comm_id, **keys}
        _kernel.publish(
            msg_type,
            jsontext.dumps(content),
            jsontext.dumps(metadata or {}),
            parent=PARENT.get(),
            buffers=buffers or None,
        )

    def handle_msg(self, msg: Message) -> None:
        """Run the callback. What it raises is shown, and the figures it made before that too."""
        if self._msg_callback is None:
            return
        events = get_ipython().events
        events.trigger("pre_execute")
        try:
            show_errors(self._msg_callback, msg)
        finally:
            events.trigger("post_execute")

    def handle_close(self, msg: Message) -> None:
        """Run the callback for the end."""
        if self._close_callback is not None:
            show_errors(self._close_callback, msg)


class CommManager(BaseCommManager):
    """All comms of this kernel."""

    def comm_open(self, stream: object, ident: object, msg: Message) -> None:
        """Open a comm that the front end asks for, or close it when nobody wants it."""
        content = msg["content"]
        opened = Comm(content["target_name"], comm_id=content["comm_id"], primary=False)
        self.register_comm(opened)
        target = self.targets.get(opened.target_name)
        if target is None:
            logger.error("No such comm target registered: %s", opened.target_name)
        elif show_errors(target, opened, msg):
            return
        opened.close()


def show_errors(function: Callable[..., object], *arguments: Any) -> bool:
    """Call; an exception becomes an error message of the request that caused it. True if there was none."""
    try:
        function(*arguments)
    except Exception as failure:  # noqa: BLE001
        frames = failure.__traceback__
        get_ipython().showtraceback((type(failure), failure, frames and frames.tb_next))
        return False
    return True


_manager = CommManager()


def get_comm_manager() -> CommManager:
    """The manager of all comms of this kernel."""
    return _manager


Comm.__module__ = "ipykernel.comm.comm"
CommManager.__module__ = "ipykernel.comm.manager"
