"""A kernel whose Jupyter server asks for encrypted connections (`transport_encryption`)."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
import zmq
from conftest import running_kernel
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session
from nbclient import NotebookClient
from notebook import PATIENCE, Notebook
from zmq.utils.monitor import recv_monitor_message

SOON = 1500
"""Milliseconds in which a refused client must have got nothing."""


def running(kernelspec: str, encryption: str, transport: str = "tcp") -> AbstractContextManager[Notebook]:
    """A kernel started by a manager with that setting, and its client."""
    return running_kernel(kernelspec, transport=transport, transport_encryption=encryption)


@pytest.fixture(scope="module", params=["tcp", "ipc"])
def encrypted(kernelspec: str, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """One kernel for each transport."""
    with running(kernelspec, "required", request.param) as notebook:
        yield notebook


def endpoint(kernel: Notebook, channel: str) -> str:
    """Where a channel of a kernel listens."""
    info = kernel.manager.get_connection_info()
    joint = ":" if info["transport"] == "tcp" else "-"
    return f"{info['transport']}://{info['ip']}{joint}{info[f'{channel}_port']}"


@contextmanager
def raw_socket(kind: int, address: str | None, keys: Any) -> Iterator[zmq.Socket[bytes]]:
    """A libzmq socket of our own with these keys (public, secret, server), or none; connected."""
    context = zmq.Context()
    connection = context.socket(kind)
    connection.linger = 0
    if keys is not None:
        connection.curve_publickey, connection.curve_secretkey, connection.curve_serverkey = keys
    try:
        if address is not None:
            connection.connect(address)
        yield connection
    finally:
        connection.close()
        context.term()


@contextmanager
def watched(connection: zmq.Socket[bytes], events: int = zmq.EVENT_ALL) -> Iterator[zmq.Socket[bytes]]:
    """What libzmq tells of a socket's connections; only what comes after."""
    monitor = connection.get_monitor_socket(events)
    monitor.linger = 0
    try:
        yield monitor
    finally:
        connection.disable_monitor()
        monitor.close()


def kernel_info(kernel: Notebook, connection: zmq.Socket[bytes]) -> dict[str, Any] | None:
    """The answer to a `kernel_info_request` on a socket of our own, if there is one soon."""
    session = Session(key=kernel.client.session.key)
    connection.sndtimeo = SOON  # libzmq takes nothing for a connection it has given up
    try:
        session.send(connection, "kernel_info_request", {})
    except zmq.Again:
        return None
    if not connection.poll(SOON):
        return None
    _, frames = session.feed_identities(connection.recv_multipart())
    return session.deserialize(frames)["content"]


def server_key(kernel: Notebook) -> bytes:
    return kernel.manager.curve_publickey


def test_a_whole_session_runs_encrypted(encrypted: Notebook) -> None:
    info = json.loads(Path(encrypted.manager.connection_file).read_text())
    assert len(info["curve_publickey"]) == len(info["curve_secretkey"]) == 40
    result = encrypted.run("print('seen'); 21 * 2")
    assert (result.stdout, result.text) == ("seen\n", "42")
    assert encrypted.run("input('name? ')", answers=["Ada"]).text == "'Ada'"
    matches = encrypted.ask("complete_request", {"code": "abs", "cursor_pos": 2}).content["matches"]
    assert "abs" in matches
    cell = encrypted.send("import time; print('asleep', flush=True); time.sleep(600)")
    encrypted.wait_for_text(cell, "asleep")
    encrypted.interrupt()
    assert encrypted.wait(cell).content["ename"] == "KeyboardInterrupt"
    heart = encrypted.client.hb_channel
    heart.unpause()
    time.sleep(2 * heart.time_to_dead + 0.2)
    assert heart.is_beating()


def test_large_messages_pass_both_ways(encrypted: Notebook) -> None:
    size = 8 * 1024 * 1024
    setup = (
        "from comm import create_comm\n"
        "sizes = []\n"
        "comm = create_comm(target_name='large')\n"
        "comm.on_msg(lambda message: sizes.append([len(b) for b in message['buffers']]))\n"
        "comm.comm_id"
    )
    comm_id = encrypted.run(setup).text.strip("'")
    buffers = [b"a" * size, b"", b"b" * (300 * 1024 + 1)]
    sent = encrypted.request("comm_msg", {"comm_id": comm_id, "data": {}}, buffers=buffers)
    encrypted.wait(sent, reply=False)
    assert encrypted.run("sizes").text == f"[[{size}, 0, {300 * 1024 + 1}]]"
    received = encrypted.run(f"comm.send(buffers=[b'c' * {size}, b'', b'd' * 70_000])")
    [message] = [m for m in received.messages if m["msg_type"] == "comm_msg"]
    assert [bytes(b) for b in message["buffers"]] == [b"c" * size, b"", b"d" * 70_000]
    lines = encrypted.run("for i in range(50_000): print(i)").stdout
    assert lines == "".join(f"{i}\n" for i in range(50_000))


def test_the_same_client_goes_on_after_a_restart(kernelspec: str) -> None:
    with running(kernelspec, "required") as kernel:
        key = server_key(kernel)
        kernel.run("before = 1")
        kernel.manager.restart_kernel(now=True)
        kernel.client.wait_for_ready(timeout=PATIENCE)
        assert kernel.run("'before' in globals()").text == "False"
        assert server_key(kernel) == key


def test_a_notebook_runs_encrypted_under_nbclient(kernelspec: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print('one')\n2 + 2")])
    manager = KernelManager(kernel_name=kernelspec, transport_encryption="required")
    NotebookClient(notebook, km=manager, timeout=PATIENCE).execute()
    assert notebook.cells[0].outputs[0]["text"] == "one\n"
    assert notebook.cells[0].outputs[1]["data"]["text/plain"] == "4"


def test_only_who_has_the_servers_key_is_answered(encrypted: Notebook) -> None:
    own = zmq.curve_keypair()
    stranger, _ = zmq.curve_keypair()
    with raw_socket(zmq.DEALER, endpoint(encrypted, "shell"), (*own, server_key(encrypted))) as right:
        assert kernel_info(encrypted, right)["status"] == "ok"
        for keys in [(*own, stranger), None]:
            with raw_socket(zmq.DEALER, endpoint(encrypted, "shell"), keys) as wrong:
                assert kernel_info(encrypted, wrong) is None
            with raw_socket(zmq.SUB, endpoint(encrypted, "iopub"), keys) as wrong:
                wrong.subscribe("")
                encrypted.run("print('secret')")
                assert not wrong.poll(200)
        assert kernel_info(encrypted, right)["status"] == "ok"


def test_a_client_without_encryption_is_told_why(kernelspec: str, encrypted: Notebook) -> None:
    def failure(kernel: Notebook, keys: Any) -> int:
        with raw_socket(zmq.DEALER, None, keys) as client, watched(client) as monitor:
            client.connect(endpoint(kernel, "control"))
            while monitor.poll(10_000):
                event = recv_monitor_message(monitor)
                if event["event"] == zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
                    return event["value"]
        raise AssertionError("the handshake did not fail")

    mismatch = zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
    assert failure(encrypted, None) == mismatch
    with running(kernelspec, "disabled") as plain:
        assert failure(plain, (*zmq.curve_keypair(), server_key(encrypted))) == mismatch
        assert plain.run("1 + 1").text == "2"


def test_encryption_is_used_where_the_kernel_declares_it(kernelspec: str) -> None:
    with running(kernelspec, "auto") as kernel:
        assert len(server_key(kernel)) == 40
        assert kernel.run("1 + 1").text == "2"


def test_subscriptions_are_welcomed_and_cancelled(encrypted: Notebook) -> None:
    keys = (*zmq.curve_keypair(), server_key(encrypted))
    with raw_socket(zmq.SUB, endpoint(encrypted, "iopub"), keys) as sub:
        sub.subscribe(b"kernel.")
        assert sub.poll(5000)
        welcome = sub.recv_multipart()
        assert welcome[0] == b"kernel."
        assert json.loads(welcome[6]) == {"subscription": "kernel."}
        encrypted.run("pass")
        assert sub.poll(5000)
        assert sub.recv_multipart()[0].endswith(b".status")
        sub.unsubscribe(b"kernel.")
        while sub.poll(300):
            sub.recv_multipart()
        encrypted.run("print('not for you')")
        assert not sub.poll(300)


def test_a_client_that_pings_stays_connected(encrypted: Notebook) -> None:
    keys = (*zmq.curve_keypair(), server_key(encrypted))
    with raw_socket(zmq.DEALER, None, keys) as client, watched(client, zmq.EVENT_DISCONNECTED) as monitor:
        client.heartbeat_ivl, client.heartbeat_timeout, client.heartbeat_ttl = 50, 500, 500
        client.connect(endpoint(encrypted, "shell"))
        assert kernel_info(encrypted, client)["status"] == "ok"
        assert not monitor.poll(1500)
        assert kernel_info(encrypted, client)["status"] == "ok"


def test_many_clients_come_and_go(encrypted: Notebook) -> None:
    keys = (*zmq.curve_keypair(), server_key(encrypted))
    for _ in range(3):
        with ExitStack() as stack:
            clients = [
                stack.enter_context(raw_socket(zmq.DEALER, endpoint(encrypted, "control"), keys))
                for _ in range(30)
            ]
            assert [kernel_info(encrypted, c)["status"] for c in clients] == ["ok"] * 30


class Wire:
    """Passes a connection's bytes on, and keeps them."""

    def __init__(self, port: int) -> None:
        self.seen = bytearray()
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        kernel = socket.create_connection(("127.0.0.1", self.target))
        threading.Thread(target=self._copy, args=(client, kernel), daemon=True).start()
        self._copy(kernel, client)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        while received := source.recv(65536):
            self.seen += received
            target.sendall(received)


@pytest.mark.parametrize(("encryption", "readable"), [("required", False), ("disabled", True)])
def test_who_listens_on_the_wire_reads_no_code_and_no_output(
    kernelspec: str, encryption: str, readable: bool
) -> None:
    with running(kernelspec, encryption) as kernel:
        info = kernel.manager.get_connection_info()
        wires = {channel: Wire(info[f"{channel}_port"]) for channel in ("shell", "iopub")}
        client = BlockingKernelClient()
        client.load_connection_info({**info, **{f"{name}_port": wire.port for name, wire in wires.items()}})
        client.start_channels(stdin=False, hb=False, control=False)
        try:
            client.wait_for_ready(timeout=PATIENCE)
            reply = client.execute_interactive(
                "print('abc' * 2)  # spelled out", timeout=PATIENCE, allow_stdin=False
            )
            assert reply["content"]["status"] == "ok"
            assert (b"spelled out" in wires["shell"].seen) is readable
            assert (b"abcabc" in wires["iopub"].seen) is readable
            assert (b"kernel_info_reply" in wires["shell"].seen) is readable
        finally:
            client.stop_channels()
