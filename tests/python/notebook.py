"""A notebook's side of a kernel: run a cell, get back everything that was shown."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

PATIENCE = 120.0
"""Seconds that anything may take on a busy machine. What never comes fails then; nothing waits so long."""

Message = dict[str, Any]


@dataclass
class Result:
    """The reply to a request, and the iopub messages that belong to it."""

    reply: Message
    messages: list[Message] = field(default_factory=list)

    @property
    def content(self) -> dict[str, Any]:
        """The content of the reply."""
        return self.reply["content"]

    @property
    def status(self) -> str:
        """`ok`, `error` or `aborted`."""
        return self.content["status"]

    def contents(self, msg_type: str) -> list[dict[str, Any]]:
        """The contents of all messages of a type, in order."""
        return [m["content"] for m in self.messages if m["msg_type"] == msg_type]

    def stream(self, name: str = "stdout") -> str:
        """Everything printed to a stream."""
        return "".join(c["text"] for c in self.contents("stream") if c["name"] == name)

    @property
    def stdout(self) -> str:
        """Everything printed."""
        return self.stream("stdout")

    @property
    def stderr(self) -> str:
        """Everything written to stderr."""
        return self.stream("stderr")

    @property
    def text(self) -> str | None:
        """The plain text of `Out`."""
        results = self.contents("execute_result")
        return results[0]["data"]["text/plain"] if results else None

    @property
    def displays(self) -> list[dict[str, Any]]:
        """The bundles that were displayed."""
        return [c["data"] for c in self.contents("display_data")]

    @property
    def types(self) -> list[str]:
        """The types of the messages, without `status`."""
        return [m["msg_type"] for m in self.messages if m["msg_type"] != "status"]

    @property
    def kinds(self) -> list[str]:
        """The types, with one `stream` for output in a row: a print may come in several pieces."""
        types = self.types
        return [
            kind
            for kind, before in zip(types, ["", *types], strict=False)
            if (kind, before) != ("stream", "stream")
        ]


class Notebook:
    """A client of a running kernel."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client
        self.strays: list[Message] = []
        """iopub messages that nobody has waited for yet."""
        self.replies: dict[str, Message] = {}
        """Replies that came while we waited for another."""

    def send(
        self, code: str, *, cell_id: str | None = None, subshell: str | None = None, **options: Any
    ) -> str:
        """Send a cell; its message id."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
            **options,
        }
        metadata = {"cellId": cell_id} if cell_id else None
        return self.request("execute_request", content, metadata=metadata, subshell=subshell)

    def request(
        self,
        msg_type: str,
        content: dict[str, Any],
        *,
        channel: str = "shell",
        metadata: dict[str, Any] | None = None,
        buffers: list[bytes] | None = None,
        subshell: str | None = None,
    ) -> str:
        """Send any request; its message id."""
        session = self.client.session
        socket = getattr(self.client, f"{channel}_channel").socket
        message = session.msg(msg_type, content, metadata=metadata)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        return session.send(socket, message, buffers=buffers)["header"]["msg_id"]

    def wait(
        self,
        msg_id: str,
        *,
        reply: bool = True,
        idle: bool = True,
        channel: str = "shell",
        patience: float = PATIENCE,
        on_message: Callable[[Message], None] | None = None,
        answers: list[str] | None = None,
    ) -> Result:
        """Wait for the reply to a request and for `idle`; answer `input()` from `answers`."""
        deadline = time.monotonic() + patience
        found: Message | None = None
        messages: list[Message] = []
        done = not idle
        dead = False
        look = time.monotonic() + 5
        answers = list(answers or [])
        while not done or (reply and found is None):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"no end of {msg_id} in {patience} s; so far {[m['msg_type'] for m in messages]}"
                )
            if time.monotonic() > look:
                if dead:
                    raise RuntimeError(f"the kernel died; so far {[m['msg_type'] for m in messages]}")
                dead = not self.manager.is_alive()  # what it said last may still be on its way
                look = time.monotonic() + 1
            early = self.strays.copy()
            self.strays.clear()
            for message in early + self._take(self.client.iopub_channel, 0 if early else 0.02):
                if message["parent_header"].get("msg_id") != msg_id:
                    self.strays.append(message)
                    continue
                messages.append(message)
                if on_message is not None:
                    on_message(message)
                if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                    done = True
            for message in self._take(getattr(self.client, f"{channel}_channel"), 0):
                self.replies[message["parent_header"].get("msg_id", "")] = message
            if reply and found is None:
                found = self.replies.pop(msg_id, None)
            for message in self._take(self.client.stdin_channel, 0):
                if message["msg_type"] == "input_request" and answers:
                    messages.append(message)
                    self.client.input(answers.pop(0))
        return Result(found or {"content": {"status": "none"}}, messages)

    @staticmethod
    def _take(channel: Any, patience: float) -> list[Message]:
        """What has come. Some of it, where messages come faster than they are read."""
        taken = []
        enough = time.monotonic() + patience + 0.2
        try:
            while time.monotonic() < enough:
                taken.append(channel.get_msg(timeout=patience))
                patience = 0
        except queue.Empty:
            pass
        return taken

    def run(
        self, code: str, *, patience: float = PATIENCE, answers: list[str] | None = None, **options: Any
    ) -> Result:
        """Run a cell."""
        if answers is not None:
            options["allow_stdin"] = True
        return self.wait(self.send(code, **options), patience=patience, answers=answers)

    def ask(
        self, msg_type: str, content: dict[str, Any], *, channel: str = "shell", patience: float = PATIENCE
    ) -> Result:
        """Send any request and wait for its reply."""
        return self.wait(self.request(msg_type, content, channel=channel), channel=channel, patience=patience)

    def interrupt(self) -> None:
        """The interrupt button."""
        self.manager.interrupt_kernel()

    def wait_for_text(self, msg_id: str, text: str, *, patience: float = PATIENCE) -> list[Message]:
        """Wait until a running cell has printed `text`; its messages up to there."""
        deadline = time.monotonic() + patience
        messages: list[Message] = []
        printed = ""
        while text not in printed:
            if time.monotonic() > deadline:
                raise TimeoutError(f"`{text}` was not printed in {patience} s, but {printed!r}")
            early = self.strays.copy()
            self.strays.clear()
            for message in early + self._take(self.client.iopub_channel, 0.05):
                # what comes after the text is for who waits next
                if text in printed or message["parent_header"].get("msg_id") != msg_id:
                    self.strays.append(message)
                    continue
                messages.append(message)
                if message["msg_type"] == "stream":
                    printed += message["content"]["text"]
        return messages


def run(notebook: Notebook, code: str) -> Result:
    """Run a cell that must not fail."""
    result = notebook.run(code)
    assert result.status == "ok", result.content
    return result
