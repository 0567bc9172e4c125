"""What is answered while a cell runs, what waits, and in which order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from jupyter_client.session import Session
from notebook import PATIENCE, Message, Notebook

LOOKUPS: list[tuple[str, dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
    ("complete_request", {"code": "text.upp", "cursor_pos": 8}, lambda c: c["matches"][0].endswith("upper")),
    (
        "inspect_request",
        {"code": "text", "cursor_pos": 4},
        lambda c: c["found"] and "str" in c["data"]["text/plain"],
    ),
    ("is_complete_request", {"code": "if x:"}, lambda c: c == {"status": "incomplete", "indent": "    "}),
    (
        "history_request",
        {"hist_access_type": "tail", "n": 1, "output": False, "raw": True},
        lambda c: c["history"][0][2].startswith("print('begun'"),
    ),
    ("comm_info_request", {}, lambda c: c == {"status": "ok", "comms": {}}),
]


def still_busy(kernel: Notebook, cell: str) -> bool:
    """The cell has not ended, and the last thing said of it is that it is busy."""
    states = [
        m["content"]["execution_state"]
        for m in kernel.strays
        if m["parent_header"].get("msg_id") == cell and m["msg_type"] == "status"
    ]
    return states[-1] == "busy" and "idle" not in states


@pytest.mark.parametrize(
    "work",
    [
        "import time; time.sleep(600)",
        "while True: pass",
        "import hashlib\nwhile True: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1_000_000)",
    ],
    ids=["sleeping", "a Python loop", "C code without the GIL"],
)
def test_lookups_are_answered_while_a_cell_is(kernel: Notebook, work: str) -> None:
    kernel.run("text = 'abc'")
    cell = kernel.send(f"print('begun', flush=True)\n{work}")
    kernel.wait_for_text(cell, "begun")
    for msg_type, content, is_right in LOOKUPS:
        result = kernel.ask(msg_type, content)
        assert is_right(result.content), (msg_type, result.content)
        assert [c["execution_state"] for c in result.contents("status")] == ["busy", "idle"]
        # the cell's `busy` follows the `idle` of the answer
        kernel.strays += kernel._take(kernel.client.iopub_channel, 0.2)
        assert still_busy(kernel, cell), f"after {msg_type}"
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"


def test_what_needs_no_python_is_answered_while_c_code_holds_the_gil(kernel: Notebook) -> None:
    cell = kernel.send("import ctypes; print('begun', flush=True); ctypes.PyDLL(None).usleep(60_000_000)")
    kernel.wait_for_text(cell, "begun")
    assert kernel.ask("kernel_info_request", {}).content["language_info"]["name"] == "python"
    assert kernel.ask("kernel_info_request", {}, channel="control").status == "ok"
    connected = kernel.ask("connect_request", {}).content
    assert connected["shell_port"] == kernel.manager.get_connection_info()["shell_port"]
    made = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert kernel.ask("list_subshell_request", {}, channel="control").content["subshell_id"] == [made]
    assert kernel.ask("delete_subshell_request", {"subshell_id": made}, channel="control").status == "ok"
    assert kernel.ask("usage_request", {}, channel="control").content["kernel_memory"] > 1 << 20
    kernel.strays += kernel._take(kernel.client.iopub_channel, 0.2)
    assert still_busy(kernel, cell)
    assert kernel.ask("interrupt_request", {}, channel="control").status == "ok"
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"


def test_a_slow_completion_holds_nothing_else_up(kernel: Notebook) -> None:
    kernel.run(
        "import time\nclass Slow:\n    def _ipython_key_completions_(self): time.sleep(1.5); return ['key']\n"
        "slow = Slow()"
    )
    slow = kernel.request("complete_request", {"code": "slow['", "cursor_pos": 6})
    quick = [
        kernel.request("is_complete_request", {"code": "1"}),
        kernel.request("history_request", {"hist_access_type": "tail", "n": 1}),
        kernel.request("comm_info_request", {}),
    ]
    order: list[str] = []
    while len(order) < 4:
        order.append(kernel.client.shell_channel.get_msg(timeout=PATIENCE)["parent_header"]["msg_id"])
    assert order == [*quick, slow]


def replies_in_order(kernel: Notebook, count: int) -> list[Message]:
    """The next replies on the shell channel."""
    return [kernel.client.shell_channel.get_msg(timeout=PATIENCE) for _ in range(count)]


@pytest.mark.parametrize("end", ["error", "interrupt"])
def test_cells_that_wait_are_aborted_in_order_and_the_next_one_runs(kernel: Notebook, end: str) -> None:
    failing = "raise ValueError(1)" if end == "error" else "time.sleep(600)"
    cells = [kernel.send(f"import time; print('begun', flush=True); time.sleep(0.3); {failing}")]
    cells += [kernel.send(f"ran = {n}") for n in range(20)]
    kernel.wait_for_text(cells[0], "begun")
    if end == "interrupt":
        kernel.interrupt()
    replies = replies_in_order(kernel, len(cells))
    assert [m["parent_header"]["msg_id"] for m in replies] == cells
    failed, *aborted = replies
    assert failed["content"]["ename"] == ("ValueError" if end == "error" else "KeyboardInterrupt")
    assert [m["content"] for m in aborted] == [{"status": "aborted"}] * 20
    assert [m["metadata"]["status"] for m in replies] == ["error"] + ["aborted"] * 20
    assert all(m["metadata"]["started"] and m["metadata"]["engine"] for m in replies)
    assert kernel.run("'ran' in dir()").text == "False"


def test_without_stop_on_error_the_cells_that_wait_run(kernel: Notebook) -> None:
    cells = [kernel.send("import time; time.sleep(0.2); 1/0", stop_on_error=False)]
    cells += [kernel.send("1"), kernel.send("1/0", silent=True), kernel.send("2")]
    replies = replies_in_order(kernel, 4)
    assert [m["parent_header"]["msg_id"] for m in replies] == cells
    assert [m["content"]["status"] for m in replies] == ["error", "ok", "error", "ok"]


def test_a_silent_cell_leaves_no_number_and_no_history_whatever_store_history_says(kernel: Notebook) -> None:
    before = kernel.run("'seen'").content["execution_count"]
    silent = kernel.run("quiet = 5", silent=True, store_history=True, user_expressions={"q": "quiet + 1"})
    assert silent.content["user_expressions"]["q"]["data"]["text/plain"] == "6"
    assert silent.types == []
    empty = kernel.run("")
    assert (empty.status, empty.content["execution_count"]) == ("ok", before)
    blank = kernel.run(" \n", cell_id="blank")
    assert (blank.status, blank.content["execution_count"]) == ("ok", before)
    assert kernel.run("In[-2:]").text == repr(["'seen'", "In[-2:]"])


def test_bursts_of_500_cells_from_two_clients_are_all_answered(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    second = kernel.manager.client(session=Session(key=kernel.manager.session.key))
    second.start_channels()
    second.wait_for_ready(timeout=PATIENCE)
    clients = [kernel, Notebook(kernel.manager, second)]
    count = 0
    for burst in range(4):
        sent = {0: [], 1: []}
        for number in range(500):
            who = (number + burst) % 2 if burst % 2 else number // 250
            sent[who].append(clients[who].send("pass"))
        deadline = time.monotonic() + PATIENCE
        got: dict[int, list[str]] = {0: [], 1: []}
        while sum(map(len, got.values())) < 500:
            assert time.monotonic() < deadline, f"burst {burst}: {[len(g) for g in got.values()]}"
            for who, client in enumerate(clients):
                for message in client._take(client.client.shell_channel, 0.01):
                    assert message["content"]["status"] == "ok"
                    got[who].append(message["parent_header"]["msg_id"])
        assert got == sent
        count += 500
        for client in clients:
            client._take(client.client.iopub_channel, 0)
    second.stop_channels()
    assert kernel.run("1").content["execution_count"] == count + 1
