"""Comms: what a widget and its Python object say to each other arrives, in order, and errors are seen."""

from __future__ import annotations

import hashlib

from notebook import Message, Notebook, Result

MIB = 1 << 20


def tell(
    kernel: Notebook,
    msg_type: str,
    content: Message,
    *,
    metadata: Message | None = None,
    buffers: list[bytes] | None = None,
) -> Result:
    """Send a comm message and wait for its `idle`; comm messages have no reply."""
    msg_id = kernel.request(msg_type, content, metadata=metadata, buffers=buffers)
    return kernel.wait(msg_id, reply=False)


def open_control(kernel: Notebook, comm_id: str) -> Result:
    """What JupyterLab's widget manager sends when a page connects to a kernel."""
    content = {"comm_id": comm_id, "target_name": "jupyter.widget.control", "data": {}}
    return tell(kernel, "comm_open", content, metadata={"version": "1.0.0"})


def ask_states(kernel: Notebook, comm_id: str) -> Message:
    """The state of all widgets, as the page asks for it."""
    result = tell(kernel, "comm_msg", {"comm_id": comm_id, "data": {"method": "request_states"}})
    (answer,) = result.contents("comm_msg")
    assert answer["comm_id"] == comm_id
    assert answer["data"]["method"] == "update_states"
    return answer["data"]["states"]


def test_a_page_that_asks_before_there_are_widgets_is_told_so_without_a_word_in_the_log(
    new_kernel: object,
) -> None:
    kernel = new_kernel()  # type: ignore[operator]
    result = open_control(kernel, "early")
    assert result.types == ["comm_close"]
    assert result.contents("comm_close") == [{"comm_id": "early", "data": {}}]
    assert kernel.run("import sys; [m for m in ('comm', 'ipywidgets') if m in sys.modules]").text == "[]"


def test_comm_messages_that_are_wrong_do_not_stop_the_cells_after_them(kernel: Notebook) -> None:
    kernel.run("import asyncio")  # from here on asyncio waits for requests, and keeps what a request raises
    for msg_type, content in [
        ("comm_open", {"comm_id": "wrong", "target_name": ["a list"], "data": {}}),
        ("comm_msg", {"data": {}}),
        ("comm_close", {"comm_id": {}}),
    ]:
        tell(kernel, msg_type, content)
        assert kernel.run("1 + 1").text == "2", content


def test_32_mib_arrive_unchanged_in_both_directions(kernel: Notebook) -> None:
    kernel.run(
        "import comm, hashlib\ndef opened(c, message):\n    @c.on_msg\n    def echo(m):\n"
        "        c.send([hashlib.sha256(b).hexdigest() for b in m['buffers']], buffers=m['buffers'])\n"
        "comm.get_comm_manager().register_target('binary', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "big", "target_name": "binary", "data": {}})
    sent = [bytes(range(256)) * (32 * MIB // 256), b"", b"\x00\xff" * (5 * MIB)]
    result = tell(kernel, "comm_msg", {"comm_id": "big", "data": {}}, buffers=sent)
    (answer,) = [m for m in result.messages if m["msg_type"] == "comm_msg"]
    assert [len(b) for b in answer["buffers"]] == [32 * MIB, 0, 10 * MIB]
    assert answer["content"]["data"] == [hashlib.sha256(b).hexdigest() for b in sent]
    assert [bytes(b) == s for b, s in zip(answer["buffers"], sent, strict=True)] == [True, True, True]


def test_buffers_of_any_kind_are_sent(kernel: Notebook) -> None:
    result = kernel.run(
        "import array, numpy as np, comm\nc = comm.create_comm('front')\n"
        "c.send({}, buffers=[b'ab', bytearray(b'cd'), memoryview(b'ef'), array.array('H', [1, 2]), "
        "np.arange(3, dtype='<u2'), np.arange(8, dtype='u1').reshape(2, 4).T])"
    )
    assert result.status == "ok", result.content
    (message,) = [m for m in result.messages if m["msg_type"] == "comm_msg"]
    assert [bytes(b) for b in message["buffers"]] == [
        b"ab",
        b"cd",
        b"ef",
        b"\x01\x00\x02\x00",
        b"\x00\x00\x01\x00\x02\x00",
        b"\x00\x04\x01\x05\x02\x06\x03\x07",
    ]


def test_messages_sent_while_a_cell_runs_wait_for_it_and_keep_their_order(kernel: Notebook) -> None:
    kernel.run(
        "import comm, time\nlog = []\ndef opened(c, message):\n"
        "    c.on_msg(lambda m: log.append(m['content']['data']))\n"
        "comm.get_comm_manager().register_target('log', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "log", "target_name": "log", "data": {}})
    busy = kernel.send("print('go')\ntime.sleep(0.3)\nlog.append('first cell')")
    kernel.wait_for_text(busy, "go")
    before = [kernel.request("comm_msg", {"comm_id": "log", "data": n}) for n in range(40)]
    between = kernel.send("log.append('second cell')")
    after = [kernel.request("comm_msg", {"comm_id": "log", "data": n}) for n in range(40, 80)]
    kernel.wait(busy)
    for msg_id in before:
        kernel.wait(msg_id, reply=False)
    kernel.wait(between)
    for msg_id in after:
        kernel.wait(msg_id, reply=False)
    expected = ["first cell", *range(40), "second cell", *range(40, 80)]
    assert kernel.run("print(log)").stdout == f"{expected}\n"


def test_an_error_aborts_waiting_cells_but_no_comm_message(kernel: Notebook) -> None:
    kernel.run(
        "import comm, time\nheard = []\ndef opened(c, m):\n"
        "    c.on_msg(lambda m: heard.append(m['content']['data']))\n"
        "comm.get_comm_manager().register_target('heard', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "heard", "target_name": "heard", "data": {}})
    failing = kernel.send("print('go')\ntime.sleep(0.3)\n1 / 0")
    kernel.wait_for_text(failing, "go")
    said = kernel.request("comm_msg", {"comm_id": "heard", "data": "still here"})
    waiting = kernel.send("heard.append('not run')")
    assert kernel.wait(failing).status == "error"
    assert kernel.wait(waiting).status == "aborted"
    kernel.wait(said, reply=False)
    assert kernel.run("heard").text == "['still here']"


def test_an_error_in_a_callback_is_shown_as_an_error_of_that_message(kernel: Notebook) -> None:
    kernel.run(
        "import comm\ndef opened(c, m):\n    c.on_msg(lambda m: [][1])\n    c.on_close(lambda m: {}['k'])\n"
        "comm.get_comm_manager().register_target('faulty', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "faulty", "target_name": "faulty", "data": {}})
    result = tell(kernel, "comm_msg", {"comm_id": "faulty", "data": {}})
    assert result.types == ["error"]
    (error,) = result.contents("error")
    assert (error["ename"], error["evalue"]) == ("IndexError", "list index out of range")
    traceback = "\n".join(error["traceback"])
    assert "opened.<locals>.<lambda>" in traceback
    assert "tpu_kernel" not in traceback
    (error,) = tell(kernel, "comm_close", {"comm_id": "faulty", "data": {}}).contents("error")
    assert (error["ename"], error["evalue"]) == ("KeyError", "'k'")
    assert kernel.run("'faulty' in comm.get_comm_manager().comms").text == "False"


def test_an_error_while_a_comm_is_opened_is_shown_and_the_comm_closed(kernel: Notebook) -> None:
    kernel.run("import comm\ncomm.get_comm_manager().register_target('bad', lambda c, m: 1 / 0)")
    result = tell(kernel, "comm_open", {"comm_id": "bad", "target_name": "bad", "data": {}})
    assert result.types == ["error", "comm_close"]
    assert result.contents("error")[0]["evalue"] == "division by zero"
    assert result.contents("comm_close")[0]["comm_id"] == "bad"


def test_an_unknown_target_is_named_and_closed(kernel: Notebook) -> None:
    result = tell(kernel, "comm_open", {"comm_id": "u", "target_name": "nobody", "data": {}})
    assert result.stderr == "No such comm target registered: nobody\n"
    assert [c["comm_id"] for c in result.contents("comm_close")] == ["u"]


def test_an_interrupted_callback_says_so(kernel: Notebook) -> None:
    kernel.run(
        "import comm, time\ndef opened(c, m):\n    @c.on_msg\n    def slow(m):\n        print('slow')\n"
        "        time.sleep(600)\ncomm.get_comm_manager().register_target('slow', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "slow", "target_name": "slow", "data": {}})
    msg_id = kernel.request("comm_msg", {"comm_id": "slow", "data": {}})
    seen = kernel.wait_for_text(msg_id, "slow")
    kernel.interrupt()
    result = kernel.wait(msg_id, reply=False)
    errors = [m["content"]["ename"] for m in seen + result.messages if m["msg_type"] == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert kernel.run("1 + 1").text == "2"


def test_a_callback_may_start_a_task_that_goes_on_between_cells(kernel: Notebook) -> None:
    kernel.run(
        "import asyncio, comm\nasync def later():\n    await asyncio.sleep(0.05)\n    done.set()\n"
        "done = asyncio.Event()\ndef opened(c, m):\n"
        "    c.on_msg(lambda m: asyncio.get_running_loop().create_task(later()))\n"
        "comm.get_comm_manager().register_target('task', opened)"
    )
    tell(kernel, "comm_open", {"comm_id": "task", "target_name": "task", "data": {}})
    assert tell(kernel, "comm_msg", {"comm_id": "task", "data": {}}).types == []
    assert kernel.run("await asyncio.wait_for(done.wait(), 10)").text == "True"


def test_a_comm_the_front_end_has_no_target_for_is_harmless(kernel: Notebook) -> None:
    kernel.run("import comm\nlonely = comm.create_comm('nobody.in.the.page', data={'v': 1})")
    comm_id = kernel.run("print(lonely.comm_id)").stdout.strip()
    # what JupyterLab answers
    assert tell(kernel, "comm_close", {"comm_id": comm_id, "data": {}}).types == []
    result = kernel.run("lonely.send({'v': 2})\nlonely.close()\nlonely._closed")
    assert (result.status, result.text) == ("ok", "True")


def test_a_forked_child_that_draws_a_bar_does_not_fail(kernel: Notebook) -> None:
    result = kernel.run(
        "import os\nfrom tqdm.notebook import tqdm\npid = os.fork()\nif pid == 0:\n    code = 1\n    try:\n"
        "        code = sum(tqdm(range(4))) + 1\n    finally:\n        os._exit(code)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
    )
    assert result.text == "7"
    assert result.contents("comm_open") == []


def test_a_reloaded_page_gets_the_state_of_all_widgets_at_once_while_a_cell_runs(kernel: Notebook) -> None:
    kernel.run("import ipywidgets, time\nslider = ipywidgets.IntSlider(value=5, description='depth')")
    slider_id = kernel.run("print(slider.model_id)").stdout.strip()
    open_control(kernel, "page")
    idle = ask_states(kernel, "page")
    assert idle[slider_id]["model_name"] == "IntSliderModel"
    assert (idle[slider_id]["state"]["value"], idle[slider_id]["state"]["description"]) == (5, "depth")
    tell(kernel, "comm_close", {"comm_id": "page", "data": {}})

    busy = kernel.send(
        "bar = ipywidgets.IntProgress()\nbar.value = 40\nprint(bar.model_id, flush=True)\ntime.sleep(600)"
    )
    printed = kernel.wait_for_text(busy, "\n")
    bar_id = "".join(m["content"]["text"] for m in printed if m["msg_type"] == "stream").strip()
    assert open_control(kernel, "page 2").types == []
    states = ask_states(kernel, "page 2")
    assert (states[bar_id]["model_name"], states[bar_id]["state"]["value"]) == ("IntProgressModel", 40)
    assert states[slider_id]["state"]["value"] == 5
    tell(kernel, "comm_close", {"comm_id": "page 2", "data": {}})
    info = kernel.ask("comm_info_request", {"target_name": "jupyter.widget"}).content["comms"]
    assert info[bar_id] == {"target_name": "jupyter.widget"}
    kernel.interrupt()
    assert kernel.wait(busy).content["ename"] == "KeyboardInterrupt"


def test_widgets_made_while_their_states_are_asked_for_do_no_harm(kernel: Notebook) -> None:
    kernel.run("import ipywidgets, time")
    open_control(kernel, "many")
    busy = kernel.send("print('go')\nkept = [ipywidgets.Label(str(n)) for n in range(300)]")
    kernel.wait_for_text(busy, "go")
    counts = [len(ask_states(kernel, "many")) for _ in range(5)]
    assert kernel.wait(busy).status == "ok"
    assert counts == sorted(counts)
    labels = [s for s in ask_states(kernel, "many").values() if s["model_name"] == "LabelModel"]
    assert len(labels) == 300
    tell(kernel, "comm_close", {"comm_id": "many", "data": {}})
