"""A server with the panel open on an idle kernel culls it: the feed of a kernel at rest is silent."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from notebook import PATIENCE
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

TOKEN = "of-this-test"
IDLE_SECONDS = 6


@pytest.fixture
def server(tmp_path: Path, kernelspec: str) -> Iterator[str]:
    """The address of a server that culls idle kernels, connected ones too."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.open_browser": False,
        "ServerApp.root_dir": tmp_path,
        "IdentityProvider.token": TOKEN,
        "MappingKernelManager.cull_idle_timeout": IDLE_SECONDS,
        "MappingKernelManager.cull_interval": 1,
        "MappingKernelManager.cull_connected": True,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    with open(tmp_path / "log", "w") as log:
        command = [sys.executable, "-m", "jupyter_server", "--allow-root", *arguments]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(PATIENCE)


async def ask(address: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """One question to the server's API."""
    request = HTTPRequest(
        f"http://{address}/api/{path}",
        method="GET" if body is None else "POST",
        headers={"Authorization": f"token {TOKEN}"},
        body=None if body is None else json.dumps(body),
        request_timeout=60,
    )
    return json.loads((await AsyncHTTPClient().fetch(request)).body)


async def wait_for(address: str) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            await ask(address, "status")
        except OSError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
        else:
            return


async def send(page: WebSocketClientConnection, msg_type: str, content: dict[str, Any]) -> str:
    """A message of a page; its id."""
    msg_id = uuid.uuid4().hex
    header = {"msg_id": msg_id, "msg_type": msg_type, "session": "page", "username": "", "version": "5.3"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    await page.write_message(json.dumps(message))
    return msg_id


async def receive(page: WebSocketClientConnection, msg_type: str, msg_id: str) -> dict[str, Any]:
    """The next message of a type that answers a message."""
    while True:
        text = await asyncio.wait_for(page.read_message(), 60)
        assert isinstance(text, str)
        message = json.loads(text)
        if message["header"]["msg_type"] == msg_type and message["parent_header"].get("msg_id") == msg_id:
            return message["content"]


async def culled(address: str, name: str) -> list[str]:
    """What `last_activity` was, once a second, of a kernel that rests with the panel open, until it was
    culled."""
    await wait_for(address)
    kernel = (await ask(address, "kernels", {"name": name}))["id"]
    page = await websocket_connect(f"ws://{address}/api/kernels/{kernel}/channels?token={TOKEN}")
    opened = await send(page, "comm_open", {"comm_id": "panel", "target_name": "tpu.stats", "data": {"v": 1}})
    sample = await receive(page, "comm_msg", opened)
    assert (sample["comm_id"], sample["data"]["v"]) == ("panel", 1)
    cell = await send(page, "execute_request", {"code": "6 * 7", "silent": False})
    result = await receive(page, "execute_result", cell)
    assert result["data"]["text/plain"] == "42"
    await asyncio.sleep(1.5)
    seen = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            seen.append((await ask(address, f"kernels/{kernel}"))["last_activity"])
        except HTTPClientError as gone:
            assert gone.code == 404
            return seen
        await asyncio.sleep(1)
    raise TimeoutError(f"not culled; last_activity was {seen}")


def test_a_kernel_at_rest_with_the_panel_open_is_culled(server: str, kernelspec: str) -> None:
    seen = asyncio.run(culled(server, kernelspec))
    # the start of the kernel may be told late; then nothing is any more
    assert len(set(seen[-3:])) == 1
