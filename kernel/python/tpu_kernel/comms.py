"""Comms: the channels between widgets and their Python objects.

The package `comm` does the bookkeeping. It is imported when the notebook imports it, or when
the first comm message comes; then its two factories are ours.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from . import _kernel, jsontext
from .parent import PARENT

_manager: Any = None


def use_ours(comm: ModuleType) -> None:
    """Let `comm.create_comm` and `comm.get_comm_manager` give objects of this kernel."""
    base = sys.modules["comm.base_comm"]

    class Comm(base.BaseComm):  # type: ignore[misc, name-defined]
        """A comm that publishes through this kernel."""

        def publish_msg(
            self,
            msg_type: str,
            data: dict[str, Any] | None = None,
            metadata: dict[str, Any] | None = None,
            buffers: Any = None,
            **keys: Any,
        ) -> None:
            """Send `comm_open`, `comm_msg` or `comm_close`."""
            content = {"data": data or {}, "comm_id": self.comm_id, **keys}
            _kernel.publish(
                msg_type,
                jsontext.dumps(content),
                jsontext.dumps(metadata or {}),
                parent=PARENT.get(),
                buffers=buffers or None,
            )

    def create(*args: Any, **kwargs: Any) -> Comm:
        return Comm(*args, **kwargs)

    def manager(*args: Any, **kwargs: Any) -> Any:
        global _manager
        if _manager is None:
            _manager = base.CommManager()
        return _manager

    Comm.__module__ = "ipykernel.comm.comm"
    Comm.__qualname__ = Comm.__name__ = "BaseComm"
    comm.Comm = Comm  # type: ignore[attr-defined]
    comm.create_comm = create  # type: ignore[attr-defined]
    comm.get_comm_manager = manager  # type: ignore[attr-defined]


def dispatch(kernel: Any, request: _kernel.Request) -> None:
    """Hand a comm message to its comm; an unknown target is closed at once."""
    message = kernel.parents.message(request.parent)
    handler = getattr(kernel.comm_manager, request.msg_type, None)
    if handler is not None:
        handler(kernel.shell_stream, "", message)
