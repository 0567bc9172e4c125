"""Subshells (JEP 91): requests that run beside the main shell, each subshell in a thread of its own."""

from __future__ import annotations

import ast
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.session import Session
from notebook import PATIENCE, Message, Notebook, Result

WAIT = (
    "import time\nprint('begun', flush=True)\nwhile not globals().get('go'): time.sleep(0.01)\nprint('over')"
)


def control(kernel: Notebook, verb: str, **content: Any) -> dict[str, Any]:
    """The reply to `create`, `delete` or `list`."""
    return kernel.ask(f"{verb}_subshell_request", content, channel="control").content


@pytest.fixture
def subshell(kernel: Notebook) -> Iterator[str]:
    """A subshell of the shared kernel; gone after the test."""
    name = control(kernel, "create")["subshell_id"]
    yield name
    control(kernel, "delete", subshell_id=name)


@contextmanager
def busy(kernel: Notebook, subshell: str | None = None) -> Iterator[str]:
    """While a cell runs; it ends, and ends well, at the end of the block."""
    kernel.run("go = False")
    cell = kernel.send(WAIT, subshell=subshell)
    kernel.wait_for_text(cell, "begun")
    try:
        yield cell
    finally:
        helper = control(kernel, "create")["subshell_id"]
        kernel.run("go = True", subshell=helper)
        control(kernel, "delete", subshell_id=helper)
    assert kernel.wait(cell).stdout.endswith("over\n")


def test_they_are_created_listed_and_deleted(kernel: Notebook) -> None:
    first, second = control(kernel, "create"), control(kernel, "create")
    assert first["status"] == second["status"] == "ok"
    ids = [first["subshell_id"], second["subshell_id"]]
    assert control(kernel, "list") == {"status": "ok", "subshell_id": ids}
    assert control(kernel, "delete", subshell_id=ids[0]) == {"status": "ok"}
    assert control(kernel, "list")["subshell_id"] == ids[1:]
    again = control(kernel, "delete", subshell_id=ids[0])
    assert (again["status"], again["ename"]) == ("error", "UnknownSubshell")
    assert ids[0] in again["evalue"]
    assert control(kernel, "delete")["status"] == "error"
    assert control(kernel, "delete", subshell_id=ids[1]) == {"status": "ok"}
    assert control(kernel, "list")["subshell_id"] == []


def test_a_request_to_one_that_is_not_there_gets_an_error(kernel: Notebook) -> None:
    for msg_type in ("execute_request", "kernel_info_request", "complete_request"):
        result = kernel.wait(kernel.request(msg_type, {"code": "1"}, subshell="gone"))
        assert (result.status, result.content["ename"]) == ("error", "UnknownSubshell")
        assert [c["execution_state"] for c in result.contents("status")] == ["busy", "idle"]
        shown = [c["evalue"] for c in result.contents("error")]
        assert shown == ([result.content["evalue"]] if msg_type == "execute_request" else [])


def test_a_cell_runs_while_the_main_shell_is_busy_and_its_output_is_its_own(
    kernel: Notebook, subshell: str
) -> None:
    with busy(kernel):
        code = (
            "import sys, subprocess, threading\n"
            "print('printed')\nprint('told', file=sys.stderr)\ndisplay('shown')\n"
            "thread = threading.Thread(target=print, args=('threaded',)); thread.start(); thread.join()\n"
            "subprocess.run(['echo', 'child'])\n!echo command\n"
            "threading.current_thread() is threading.main_thread()"
        )
        result = kernel.run(code, subshell=subshell)
        assert result.status == "ok"
        assert result.types[0] == "execute_input"
        assert result.text == "False"
        assert sorted(result.stdout.split()) == ["child", "command", "printed", "threaded"]
        assert result.stderr == "told\n"
        assert result.displays == [{"text/plain": "'shown'"}]
        states = [c["execution_state"] for c in result.contents("status")]
        assert (states[0], states[-1]) == ("busy", "idle")


def test_every_kind_of_request_is_answered_there_in_order(kernel: Notebook, subshell: str) -> None:
    kernel.run("word = 'kept'")
    requests: list[tuple[str, dict[str, Any]]] = [
        ("complete_request", {"code": "word.upp", "cursor_pos": 8}),
        ("execute_request", {"code": "import time; time.sleep(0.2)"}),
        ("inspect_request", {"code": "word", "cursor_pos": 4}),
        ("is_complete_request", {"code": "if x:"}),
        ("history_request", {"hist_access_type": "tail", "n": 1}),
        ("comm_info_request", {}),
    ]
    with busy(kernel):
        ids = [kernel.request(kind, content, subshell=subshell) for kind, content in requests]
        replies: list[Message] = []
        while len(replies) < len(ids):
            replies.append(kernel.client.shell_channel.get_msg(timeout=PATIENCE))
        assert [m["parent_header"]["msg_id"] for m in replies] == ids
        contents = [m["content"] for m in replies]
        assert contents[0]["matches"] == ["upper"] or contents[0]["matches"] == [".upper"]
        assert contents[1]["status"] == "ok"
        assert contents[2]["found"] is True
        assert contents[3] == {"status": "incomplete", "indent": "    "}
        assert contents[4]["history"][0][2] == "import time; time.sleep(0.2)"
        assert contents[5] == {"status": "ok", "comms": {}}


def test_names_are_shared_and_cells_are_numbered_as_they_begin(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    subshell = control(kernel, "create")["subshell_id"]
    cell = kernel.send("import time\nprint('begun')\nwhile 'go' not in dir(): time.sleep(0.01)\ngo * 2")
    kernel.wait_for_text(cell, "begun")
    beside = [kernel.run(code, subshell=subshell) for code in ("'second'", " ", "go = 21\n'third'")]
    main = kernel.wait(cell)
    assert [r.content["execution_count"] for r in (main, *beside)] == [1, 2, 2, 3]
    assert [r.contents("execute_result")[0]["execution_count"] for r in (main, beside[0], beside[2])] == [
        1,
        2,
        3,
    ]
    assert [c["execution_count"] for r in beside for c in r.contents("execute_input")] == [2, 3, 3]
    assert kernel.run("Out[1], Out[2], Out[3]").text == "(42, 'second', 'third')"
    shown = kernel.run("In[2], In[3], get_ipython().execution_count").text
    assert shown == repr(("'second'", "go = 21\n'third'", 6))


def test_an_error_aborts_what_waits_in_its_own_shell_only(kernel: Notebook, subshell: str) -> None:
    other = control(kernel, "create")["subshell_id"]
    with busy(kernel):
        waiting = kernel.send("'main goes on'")
        first = kernel.send("import time; time.sleep(0.3)", subshell=other)
        cells = [kernel.send(code, subshell=subshell) for code in ("time.sleep(0.2); 1/0", "1", "2")]
        beside = kernel.send("'other goes on'", subshell=other)
        failed, *aborted = [kernel.wait(cell) for cell in cells]
        assert (failed.status, failed.content["ename"]) == ("error", "ZeroDivisionError")
        assert [r.content for r in aborted] == [{"status": "aborted"}] * 2
        assert [r.reply["metadata"]["status"] for r in aborted] == ["aborted"] * 2
        assert all(r.reply["metadata"]["started"] for r in (failed, *aborted))
        assert kernel.wait(first).status == "ok"
        assert kernel.wait(beside).text == "'other goes on'"
        assert kernel.run("'after the error'", subshell=subshell).text == "'after the error'"
    control(kernel, "delete", subshell_id=other)
    assert kernel.wait(waiting).text == "'main goes on'"


def test_an_error_on_the_main_shell_leaves_subshells_alone(kernel: Notebook, subshell: str) -> None:
    running = kernel.send("import time; time.sleep(0.5); 'first'", subshell=subshell)
    waiting = kernel.send("'second'", subshell=subshell)
    assert kernel.run("1/0").status == "error"
    assert kernel.wait(running).text == "'first'"
    assert kernel.wait(waiting).text == "'second'"


def test_deleting_one_answers_what_waits_in_order_after_the_running_cell(kernel: Notebook) -> None:
    name = control(kernel, "create")["subshell_id"]
    with busy(kernel, name):
        ids = [
            kernel.send("1", subshell=name),
            kernel.request("is_complete_request", {"code": "1"}, subshell=name),
        ]
        ids.append(kernel.send("2", subshell=name))
        # the io thread has read them once it answers on the same socket
        kernel.ask("kernel_info_request", {})
        assert control(kernel, "delete", subshell_id=name) == {"status": "ok"}
        late = kernel.run("3", subshell=name)
        assert late.content["ename"] == "UnknownSubshell"
        assert kernel.replies == {}, "nothing is answered before the cell that runs"
    order = []
    while len(order) < 3:
        for msg_id in list(kernel.replies):
            message = kernel.replies.pop(msg_id)
            order.append((msg_id, message["content"]))
        for message in kernel._take(kernel.client.shell_channel, 0.05):
            kernel.replies[message["parent_header"]["msg_id"]] = message
    assert order == [(msg_id, {"status": "aborted"}) for msg_id in ids]
    alive = f"import threading; 'subshell-{name}' in [t.name for t in threading.enumerate()]"
    deadline = time.monotonic() + PATIENCE
    while kernel.run(alive).text != "False":
        assert time.monotonic() < deadline


def test_both_shells_ask_for_input_at_once_and_get_their_own_answers(kernel: Notebook, subshell: str) -> None:
    cells = [
        kernel.send("'main ' + input('main? ')", allow_stdin=True),
        kernel.send("'beside ' + input('beside? ')", allow_stdin=True, subshell=subshell),
    ]
    asked: dict[str, Message] = {}
    while len(asked) < 2:
        message = kernel.client.stdin_channel.get_msg(timeout=PATIENCE)
        asked[message["content"]["prompt"]] = message
    session, socket = kernel.client.session, kernel.client.stdin_channel.socket
    for prompt in ("beside? ", "main? "):
        session.send(socket, "input_reply", {"value": prompt[:1]}, parent=asked[prompt])
    assert [kernel.wait(cell).text for cell in cells] == ["'main m'", "'beside b'"]
    assert [asked[p]["parent_header"]["msg_id"] for p in ("main? ", "beside? ")] == cells


def test_each_has_an_event_loop_and_context_of_its_own(kernel: Notebook, subshell: str) -> None:
    kernel.run("import asyncio, contextvars\nvariable = contextvars.ContextVar('v', default='unset')")
    kernel.run("main_loop = asyncio.get_running_loop(); _ = variable.set('main')")
    kernel.run(
        "own_loop = asyncio.get_running_loop(); _ = variable.set('own')\n"
        "async def tick():\n"
        "    for n in range(3):\n        await asyncio.sleep(0.05); print('tick', n)\n"
        "task = asyncio.create_task(tick())",
        subshell=subshell,
    )
    assert kernel.run("own_loop is main_loop", subshell=subshell).text == "False"
    with busy(kernel):
        result = kernel.run(
            "await task\n(asyncio.get_running_loop() is own_loop, variable.get())", subshell=subshell
        )
        assert result.text == "(True, 'own')"
    assert kernel.run("await asyncio.sleep(0)\nvariable.get()").text == "'main'"


def test_libraries_find_the_request_of_their_own_cell(kernel: Notebook, subshell: str) -> None:
    code = "k = get_ipython().kernel\nk.get_parent()['header']['msg_id'], get_ipython().parent_header['content']['code']"
    with busy(kernel):
        cell = kernel.send(code, subshell=subshell)
        assert ast.literal_eval(kernel.wait(cell).text or "") == (cell, code)
        shown = kernel.run("%subshell", subshell=subshell).stdout
        assert f"subshell id: {subshell}\n" in shown


def test_pages_and_next_inputs_go_with_the_reply_of_their_own_cell(kernel: Notebook, subshell: str) -> None:
    main = kernel.send("import time; get_ipython().set_next_input('from main'); time.sleep(0.6)")
    beside = kernel.run("get_ipython().set_next_input('from beside')", subshell=subshell)
    assert [p["text"] for p in beside.content["payload"]] == ["from beside"]
    assert [p["text"] for p in kernel.wait(main).content["payload"]] == ["from main"]


def test_an_interrupt_is_for_the_main_shell_as_long_as_a_cell_runs_there(
    kernel: Notebook, subshell: str
) -> None:
    kernel.run("go = False")
    beside = kernel.send(WAIT, subshell=subshell)
    kernel.wait_for_text(beside, "begun")
    main = kernel.send("print('main begun', flush=True)\nwhile True: pass")
    kernel.wait_for_text(main, "main begun")
    kernel.interrupt()
    assert kernel.wait(main).content["ename"] == "KeyboardInterrupt"
    kernel.run("go = True")
    assert kernel.wait(beside).status == "ok"


@pytest.mark.parametrize(
    "code",
    [
        "print('begun')\nwhile True: pass",
        "import asyncio; print('begun')\nawait asyncio.sleep(600)",
        "import asyncio; await asyncio.sleep(0)\nprint('begun')\nwhile True: pass",
        "print('begun')\n!sleep 600",
    ],
    ids=["loop", "await", "loop after await", "command"],
)
def test_an_interrupt_with_an_idle_main_shell_stops_what_a_subshell_runs(
    kernel: Notebook, subshell: str, code: str
) -> None:
    cell = kernel.send(code, subshell=subshell)
    kernel.wait_for_text(cell, "begun")
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert kernel.run("'alive'", subshell=subshell).text == "'alive'"
    assert kernel.run("'alive'").text == "'alive'"


def test_what_a_front_end_answers_over_a_comm_reaches_the_subshell_that_asked(
    kernel: Notebook, subshell: str
) -> None:
    kernel.run(
        "import comm, threading\nheard = []\n"
        "def hear(message): heard.append((message['content']['data'], threading.current_thread().name)); print('heard')"
    )
    opened = kernel.run(
        "mine = comm.create_comm(target_name='t', data={'hello': 1}); mine.on_msg(hear)", subshell=subshell
    )
    comm_id = opened.contents("comm_open")[0]["comm_id"]
    with busy(kernel):
        content = {"comm_id": comm_id, "data": {"answer": 42}}
        result = kernel.wait(kernel.request("comm_msg", content), reply=False)
        assert result.stdout == "heard\n"
        assert kernel.run("heard", subshell=subshell).text == repr([({"answer": 42}, f"subshell-{subshell}")])
    kernel.run("mine.send('now from main'); heard.clear()")
    kernel.wait(kernel.request("comm_msg", content, subshell=subshell), reply=False)
    assert kernel.run("heard").text == repr([({"answer": 42}, "MainThread")])


def test_a_comm_message_to_a_subshell_that_is_gone_is_not_lost(kernel: Notebook) -> None:
    kernel.run("import comm\nheard = []\nmine = comm.create_comm(target_name='t'); mine.on_msg(heard.append)")
    comm_id = kernel.run("mine.comm_id").text
    content = {"comm_id": (comm_id or "").strip("'"), "data": {}}
    kernel.wait(kernel.request("comm_msg", content, subshell="gone"), reply=False)
    assert kernel.run("len(heard)").text == "1"


def test_many_failures_at_once_each_show_their_own_traceback(kernel: Notebook) -> None:
    names = [control(kernel, "create")["subshell_id"] for _ in range(4)]
    cells = []
    for turn in range(5):
        for number, name in enumerate(names):
            code = f"def fail_{turn}_{number}(): raise ValueError('{turn}-{number}')\nfail_{turn}_{number}()"
            cells.append((f"{turn}-{number}", kernel.send(code, subshell=name, stop_on_error=False)))
    for label, cell in cells:
        result = kernel.wait(cell)
        assert (result.content["ename"], result.content["evalue"]) == ("ValueError", label)
        shown = result.contents("error")
        assert [c["evalue"] for c in shown] == [label]
        assert f"fail_{label.replace('-', '_')}" in "".join(shown[0]["traceback"])
        assert shown[0]["traceback"] == result.content["traceback"]
    for name in names:
        control(kernel, "delete", subshell_id=name)


def test_one_made_while_python_starts_works_and_a_stuck_one_does_not_hold_up_the_end(
    new_kernel: Callable[..., Notebook],
) -> None:
    kernel = new_kernel()
    names = [control(kernel, "create")["subshell_id"] for _ in range(3)]
    assert control(kernel, "delete", subshell_id=names[1]) == {"status": "ok"}
    assert kernel.run("'ready'", subshell=names[0]).text == "'ready'"
    stuck = kernel.send("print('begun')\nwhile True: pass", subshell=names[2])
    kernel.wait_for_text(stuck, "begun")
    process = kernel.manager.provisioner.process
    start = time.monotonic()
    kernel.request("shutdown_request", {"restart": False}, channel="control")
    assert process.wait(PATIENCE) == 0
    assert time.monotonic() - start < 5


def test_a_crash_in_a_subshell_is_told_in_its_cell(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    name = control(kernel, "create")["subshell_id"]
    now = tmp_path / "now"
    code = f"import ctypes, os, time\nwhile not os.path.exists({str(now)!r}): time.sleep(0.01)\nctypes.string_at(0)"
    cell = kernel.send(code, subshell=name)
    behind = kernel.request("is_complete_request", {"code": "1"}, subshell=name)
    # What was sent before this has come too.
    kernel.ask("kernel_info_request", {})
    now.touch()
    result = kernel.wait(cell)
    assert (result.status, result.content["ename"]) == ("error", "SIGSEGV")
    assert [c["traceback"] for c in result.contents("error")] == [result.content["traceback"]]
    assert kernel.wait(behind).content == {"status": "aborted"}
    assert kernel.manager.provisioner.process.wait(PATIENCE) == -signal.SIGSEGV


def collect(kernel: Notebook, clients: list[Notebook], expected: int) -> tuple[list[Message], list[Message]]:
    """All replies of all clients, each client's in order, and all iopub messages up to the last idle."""
    replies: list[Message] = []
    messages: list[Message] = []
    deadline = time.monotonic() + PATIENCE
    idle: set[str] = set()
    while len(replies) < expected or len(idle) < expected:
        assert time.monotonic() < deadline, f"{len(replies)} replies and {len(idle)} idles of {expected}"
        for client in clients:
            replies += client._take(client.client.shell_channel, 0)
        for message in kernel._take(kernel.client.iopub_channel, 0.01):
            messages.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                idle.add(message["parent_header"]["msg_id"])
    return replies, messages


def test_1500_interleaved_requests_of_two_clients_are_each_answered_once_and_in_order(
    new_kernel: Callable[..., Notebook],
) -> None:
    kernel = new_kernel()
    second = kernel.manager.client(session=Session(key=kernel.manager.session.key))
    second.start_channels()
    second.wait_for_ready(timeout=PATIENCE)
    clients = [kernel, Notebook(kernel.manager, second)]
    shells = [None, *(control(kernel, "create")["subshell_id"] for _ in range(3))]
    kernel._take(kernel.client.iopub_channel, 0.2)
    sent: dict[str, tuple[int, str | None, str, int]] = {}
    for number in range(1500):
        client, shell = clients[number % 2], shells[number % 4 if number % 5 else 0]
        if number % 3 == 2:
            kind, content = "is_complete_request", {"code": "1"}
            msg_id = client.request(kind, content, subshell=shell)
        else:
            kind = "execute_request"
            msg_id = client.send(f"print({number})\n{number}", subshell=shell)
        sent[msg_id] = (number % 2, shell, kind, number)
    replies, messages = collect(kernel, clients, len(sent))
    second.stop_channels()

    answered = [m["parent_header"]["msg_id"] for m in replies]
    assert sorted(answered) == sorted(sent), "each request has exactly one reply"
    assert {m["content"]["status"] for m in replies} == {"ok", "complete"}
    for client in (0, 1):
        for shell in shells:
            # the main shell answers what runs no cell at once
            kinds = ("execute_request",) if shell is None else ("execute_request", "is_complete_request")
            mine = [sent[i] for i in answered if sent[i][:2] == (client, shell) and sent[i][2] in kinds]
            assert mine == sorted(mine, key=lambda entry: entry[3])
    counts = [m["content"]["execution_count"] for m in replies if m["msg_type"] == "execute_reply"]
    assert sorted(counts) == list(range(1, 1001))

    by_request: dict[str, list[Message]] = {msg_id: [] for msg_id in sent}
    for message in messages:
        by_request.get(message["parent_header"].get("msg_id", ""), []).append(message)
    for msg_id, (_, _, kind, number) in sent.items():
        own = Result({}, by_request[msg_id])
        states = [c["execution_state"] for c in own.contents("status")]
        assert states[0] == "busy"
        assert states[-1] == "idle"
        assert states.count("idle") == 1
        if kind == "execute_request":
            # text and newline are two writes, and another shell may write in between
            assert own.types in (
                ["execute_input", "stream", "execute_result"],
                ["execute_input", "stream", "stream", "execute_result"],
            )
            assert (own.stdout, own.text) == (f"{number}\n", str(number))
            assert own.messages[0]["msg_type"] == own.messages[-1]["msg_type"] == "status"
    expected = "(lambda inputs: [inputs[n] == f'print({v})\\n{v}' for n, v in Out.items()])(In)"
    assert kernel.run(f"all({expected}), len(Out)").text == "(True, 1000)"


def test_a_cell_that_awaits_hears_the_answer_over_a_comm(kernel: Notebook, subshell: str) -> None:
    setup = (
        "import asyncio, comm\n"
        "async def answer_of(channel):\n"
        "    heard = asyncio.get_running_loop().create_future()\n"
        "    def hear(message): print('heard'); heard.set_result(message['content']['data']['value'])\n"
        "    channel.on_msg(hear)\n"
        "    channel.send({'question': 1})\n"
        "    return await heard\n"
    )
    kernel.run(setup)
    for shell in (None, subshell):
        cell = kernel.send(
            "channel = comm.create_comm(target_name='t')\nprint('asks', flush=True)\nvalue = await answer_of(channel)\n"
            "print('goes on'); value",
            subshell=shell,
        )
        waiting = kernel.send("'after'", subshell=shell)
        asked = kernel.wait_for_text(cell, "asks\n")
        comm_id = next(m["content"]["comm_id"] for m in asked if m["msg_type"] == "comm_open")
        content = {"comm_id": comm_id, "data": {"value": 42}}
        message = kernel.wait(kernel.request("comm_msg", content, subshell=shell), reply=False)
        assert message.stdout == "heard\n"
        result = kernel.wait(cell)
        assert (result.stdout, result.text) == ("goes on\n", "42")
        assert kernel.wait(waiting).text == "'after'"


def test_a_cell_that_awaits_can_be_interrupted_after_it_heard_a_comm(kernel: Notebook) -> None:
    kernel.run("import asyncio, comm; channel = comm.create_comm(target_name='t'); channel.on_msg(print)")
    content = {"comm_id": (kernel.run("channel.comm_id").text or "").strip("'"), "data": {}}
    cell = kernel.send("print('begun', flush=True)\nawait asyncio.sleep(600)")
    waiting = kernel.send("'not run'")
    kernel.wait_for_text(cell, "begun")
    assert "comm_msg" in kernel.wait(kernel.request("comm_msg", content), reply=False).stdout
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"
    assert kernel.wait(waiting).content == {"status": "aborted"}


def test_a_comm_is_closed_in_its_subshell_though_that_was_deleted_first(
    kernel: Notebook, tmp_path: Path
) -> None:
    made = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    code = (
        "import comm\nchannel = comm.create_comm(target_name='t')\nchannel.on_msg(lambda _: print('heard'))\n"
        "channel.on_close(lambda _: print('closed'))\nchannel.comm_id"
    )
    opened = kernel.wait(kernel.send(code, subshell=made))
    content = {"comm_id": (opened.text or "").strip("'"), "data": {}}
    path = str(tmp_path / "enough")
    busy = kernel.send(
        f"import os, time\nprint('busy', flush=True)\nwhile not os.path.exists({path!r}): time.sleep(0.01)"
    )
    kernel.strays += kernel.wait_for_text(busy, "busy")
    kernel.ask("delete_subshell_request", {"subshell_id": made}, channel="control")
    late = [kernel.request(kind, content, subshell=made) for kind in ("comm_msg", "comm_close")]
    told = [kernel.wait(one, reply=False).stdout for one in late]
    assert told == ["heard\n", "closed\n"]
    Path(path).touch()
    assert kernel.wait(busy).status == "ok"
