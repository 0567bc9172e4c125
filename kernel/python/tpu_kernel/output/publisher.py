"""`display`, `update_display` and `clear_output` become messages."""

from __future__ import annotations

from typing import Any, ClassVar

from IPython.core.displaypub import DisplayPublisher
from traitlets import Bool

from .displayhook import HookRegistry


class NotebookDisplayPublisher(HookRegistry, DisplayPublisher):
    """The shell's `display_pub`."""

    topic = b"display_data"
    parent_header: ClassVar[dict[str, Any]] = {}
    store_display_history = Bool(
        False,
        help="Whether displays are also kept in the history manager's outputs, as `%notebook` exports them.",
    ).tag(config=True)

    def publish(  # type: ignore[override]
        self,
        data: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        transient: dict[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Publish `display_data`, or `update_display_data` when `update`."""
        self._validate_data(data, metadata)
        if self.store_display_history and self.shell is not None:
            from IPython.core.history import HistoryOutput

            count = self.shell.execution_count - 1
            output = HistoryOutput(output_type="display_data", bundle=data)
            self.shell.history_manager.outputs[count].append(output)
        content = {"data": data, "metadata": metadata or {}, "transient": transient or {}}
        self._hooks.send("update_display_data" if update else "display_data", content)

    def clear_output(self, wait: bool = False) -> None:
        """Clear the cell's output, now or (`wait`) when the next output comes."""
        self._hooks.send("clear_output", {"wait": bool(wait)})

    def set_parent(self, parent: object) -> None:
        """ipykernel's publisher has one; ours looks at the context variable."""


NotebookDisplayPublisher.__module__ = "ipykernel.zmqshell"
NotebookDisplayPublisher.__name__ = NotebookDisplayPublisher.__qualname__ = "ZMQDisplayPublisher"
