"""A front end that looks at the live feed: it opens the comm `tpu.stats` and collects samples."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from notebook import PATIENCE, Message, Notebook

Sample = dict[str, Any]


def anything(_: Sample) -> bool:
    """Any sample will do."""
    return True


class Panel:
    """One page with the panel open."""

    def __init__(self, kernel: Notebook, session: str = "page") -> None:
        self.kernel = kernel
        self.session = session
        self.comm_id = uuid.uuid4().hex
        self.opened = ""
        self.samples: list[Sample] = []
        """All samples so far."""
        self.unread: list[Sample] = []
        """Those that came together with one that was waited for, after it."""
        self.times: list[float] = []
        self.closed: list[Message] = []

    def open(self, subshell: str | None = None, **data: Any) -> Panel:
        """Open the comm."""
        content = {"comm_id": self.comm_id, "target_name": "tpu.stats", "data": {"v": 1, **data}}
        self.opened = self._send("comm_open", content, subshell)
        return self

    def say(self, subshell: str | None = None, **data: Any) -> str:
        """Send a message over it."""
        return self._send("comm_msg", {"comm_id": self.comm_id, "data": data}, subshell)

    def close(self) -> str:
        """The page goes away."""
        return self._send("comm_close", {"comm_id": self.comm_id, "data": {}}, None)

    def _send(self, msg_type: str, content: dict[str, Any], subshell: str | None) -> str:
        client = self.kernel.client
        message = client.session.msg(msg_type, content)
        message["header"]["session"] = self.session
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        return client.session.send(client.shell_channel.socket, message)["header"]["msg_id"]

    def look(self, patience: float = 0.05) -> list[Sample]:
        """Samples that have come, waiting so long for more."""
        early, self.kernel.strays = self.kernel.strays, []
        new = []
        for message in early + self.kernel._take(self.kernel.client.iopub_channel, patience):
            content = message["content"]
            if content.get("comm_id") != self.comm_id:
                self.kernel.strays.append(message)
            elif message["msg_type"] == "comm_close":
                self.closed.append(message)
            else:
                assert message["parent_header"]["msg_id"] == self.opened
                new.append(content["data"])
        self.samples += new
        self.times += [time.monotonic()] * len(new)
        return new

    def wait(self, wanted: Callable[[Sample], Any] = anything, patience: float = PATIENCE) -> Sample:
        """The next sample that is wanted."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            samples, self.unread = self.unread or self.look(), []
            for position, sample in enumerate(samples, 1):
                if wanted(sample):
                    self.unread = samples[position:]
                    return sample
        raise TimeoutError(f"no such sample in {patience} s; the last ones: {self.samples[-3:]}")

    def quiet(self, seconds: float) -> list[Sample]:
        """All samples that come in a while."""
        self.unread = []
        deadline = time.monotonic() + seconds
        found = []
        while time.monotonic() < deadline:
            found += self.look()
        return found

    def settle(self) -> Panel:
        """Wait until nothing comes any more."""
        self.kernel.run("pass")
        self.wait(lambda sample: sample["state"] == "idle")
        while self.quiet(0.6):
            pass
        return self
