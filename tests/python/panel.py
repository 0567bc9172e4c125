"""The debugger panel's side of a kernel: what JupyterLab sends on the control channel, in its order."""

from __future__ import annotations

import itertools
import time
from typing import Any

from notebook import PATIENCE, Message, Notebook, Result


class Panel:
    """A debugger panel for a notebook."""

    def __init__(self, notebook: Notebook) -> None:
        self.notebook = notebook
        self._numbers = itertools.count(1)

    def send(self, command: str, **arguments: Any) -> str:
        """Send a request; its message id."""
        content = {
            "type": "request",
            "seq": next(self._numbers),
            "command": command,
            "arguments": arguments,
        }
        return self.notebook.request("debug_request", content, channel="control")

    def reply(self, msg_id: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The response to a request that was sent."""
        result = self.notebook.wait(msg_id, channel="control", patience=patience)
        # Events belong to the last request; `event` looks for them among the others.
        self.notebook.strays += [m for m in result.messages if m["msg_type"] == "debug_event"]
        return result.content

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The response to a request."""
        return self.reply(self.send(command, **arguments))

    def get(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The body of the response, which must be a success."""
        response = self.ask(command, **arguments)
        assert response["success"], response
        return response["body"]

    def start(self) -> None:
        """The bug in the toolbar is switched on."""
        self.get("debugInfo")
        self.get(
            "initialize",
            clientID="jupyterlab",
            clientName="JupyterLab",
            adapterID="pytorch-tpu",
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
            supportsVariableType=True,
            supportsVariablePaging=True,
            supportsRunInTerminalRequest=True,
            locale="en",
        )
        self.get("attach")

    def stop(self) -> None:
        """It is switched off."""
        self.get("disconnect", restart=False, terminateDebuggee=False)

    def break_at(self, code: str, *breakpoints: int | dict[str, Any]) -> str:
        """Breakpoints in a cell's gutter; the path the debugger knows the cell by."""
        path = self.get("dumpCell", code=code)["sourcePath"]
        self.break_in(path, *breakpoints)
        return path

    def break_in(self, path: str, *breakpoints: int | dict[str, Any]) -> list[dict[str, Any]]:
        """Breakpoints in a file."""
        wanted = [{"line": each} if isinstance(each, int) else each for each in breakpoints]
        body = self.get("setBreakpoints", source={"path": path}, breakpoints=wanted, sourceModified=False)
        self.get("configurationDone")
        return body["breakpoints"]

    def event(self, name: str, patience: float = PATIENCE) -> dict[str, Any]:
        """The next event of this name; its body."""
        deadline = time.monotonic() + patience
        while True:
            strays = self.notebook.strays
            for number, message in enumerate(strays):
                if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
                    del strays[number]
                    return message["content"].get("body", {})
            if time.monotonic() > deadline:
                seen = [m["content"] for m in strays if m["msg_type"] == "debug_event"]
                raise TimeoutError(f"no event `{name}` in {patience} s; others: {seen}")
            strays += self.notebook._take(self.notebook.client.iopub_channel, 0.02)

    def stopped(self) -> list[dict[str, Any]]:
        """Wait until the cell stands; its frames, the innermost first."""
        thread = self.event("stopped")["threadId"]
        return self.frames(thread)

    def frames(self, thread: int = 1) -> list[dict[str, Any]]:
        """The frames of a thread that stands."""
        return self.get("stackTrace", threadId=thread)["stackFrames"]

    def variables(self, frame: dict[str, Any], scope: str = "Locals") -> dict[str, str]:
        """Names and texts of the variables of a frame."""
        found = {each["name"]: each for each in self.get("scopes", frameId=frame["id"])["scopes"]}
        return self.inside(found[scope]["variablesReference"])

    def inside(self, reference: int) -> dict[str, str]:
        """Names and texts of what is inside a variable."""
        found = self.get("variables", variablesReference=reference)["variables"]
        return {each["name"]: each["value"] for each in found}

    def go_on(self, command: str = "continue", thread: int = 1) -> None:
        """One of the buttons: continue, next, stepIn, stepOut."""
        self.get(command, threadId=thread)
        self.event("continued")


def place(frames: list[dict[str, Any]]) -> tuple[str, int]:
    """Where a thread stands: function and line."""
    return frames[0]["name"], frames[0]["line"]


def finish(notebook: Notebook, msg_id: str, patience: float = PATIENCE) -> Result:
    """The end of a cell that was started before."""
    return notebook.wait(msg_id, patience=patience)


def events(messages: list[Message]) -> list[str]:
    """Names of the events among messages."""
    return [m["content"]["event"] for m in messages if m["msg_type"] == "debug_event"]
