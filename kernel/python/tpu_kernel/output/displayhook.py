"""The last expression of a cell becomes `execute_result`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from IPython.core.displayhook import DisplayHook

from .. import _kernel
from ..cells.turn import OfThread
from ..parent import PARENT
from . import jsontext

Message = dict[str, Any]
Hook = Callable[[Message], Message | None]


class Hooks(threading.local):
    """Functions that see each outgoing message of their thread, may change it or take it away."""

    def __init__(self) -> None:
        self.hooks: list[Hook] = []

    def send(self, msg_type: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Publish, after the hooks have seen the message."""
        metadata = metadata or {}
        if self.hooks:
            message: Message | None = {
                "header": {"msg_type": msg_type},
                "msg_type": msg_type,
                "parent_header": {},
                "metadata": metadata,
                "content": content,
            }
            for hook in self.hooks:
                message = hook(message)
                if message is None:
                    return
            content, metadata = message["content"], message["metadata"]
        about = jsontext.dumps(metadata) if metadata else b"{}"
        _kernel.publish(msg_type, jsontext.dumps(content), about, parent=PARENT.get())


class HookRegistry:
    """`register_hook` and `unregister_hook`, as notebook libraries call them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hooks = Hooks()

    def register_hook(self, hook: Hook) -> None:
        """Let `hook(message)` see, change or (returning None) swallow this thread's messages."""
        self._hooks.hooks.append(hook)

    def unregister_hook(self, hook: Hook) -> bool:
        """True if the hook was registered in this thread."""
        try:
            self._hooks.hooks.remove(hook)
        except ValueError:
            return False
        return True


class NotebookDisplayHook(HookRegistry, DisplayHook):
    """`sys.displayhook` while a cell runs."""

    # libraries written for ipykernel read these two
    topic = b"execute_result"
    parent_header: ClassVar[dict[str, Any]] = {}

    _content = OfThread()
    _is_active = OfThread(False)
    exec_result = OfThread()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.turn = threading.local()
        super().__init__(*args, **kwargs)

    @property
    def publishing(self) -> bool:
        """A value is being formatted now."""
        return self._content is not None

    def quiet(self) -> bool:
        """True when the cell ends with `;`."""
        cells, number = self.shell.history_manager.input_hist_parsed, self.prompt_count
        cell = cells[number] if number < len(cells) else ""
        return ";" in cell and self.semicolon_at_end_of_expression(cell)

    def update_user_ns(self, result: Any) -> None:
        """Name the result; IPython's second note of it would keep its memory when both names are gone."""
        super().update_user_ns(result)
        self.shell.user_ns_hidden.pop(f"_{self.prompt_count}", None)

    def start_displayhook(self) -> None:
        if (debugger := sys.modules.get("tpu_kernel.debugging.debugger")) is not None:
            debugger.end_stepping()
        self._is_active = True
        self._content = {"data": {}, "metadata": {}}

    def write_output_prompt(self) -> None:
        if self._content is not None:
            self._content["execution_count"] = self.prompt_count

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        if self._content is not None:
            self._content["data"] = format_dict
            self._content["metadata"] = md_dict or {}

    def finish_displayhook(self) -> None:
        content, self._content = self._content, None
        self._is_active = False
        if content is not None and content["data"]:
            self._hooks.send("execute_result", content)

    def set_parent(self, parent: object) -> None:
        """ipykernel's hook has one; ours looks at the context variable."""


NotebookDisplayHook.__module__ = "ipykernel.displayhook"
NotebookDisplayHook.__name__ = NotebookDisplayHook.__qualname__ = "ZMQShellDisplayHook"
