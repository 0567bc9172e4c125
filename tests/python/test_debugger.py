"""The debugger as JupyterLab's panel uses it: breakpoints in cells and files, steps, variables."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking import BlockingKernelClient
from notebook import PATIENCE, Notebook
from panel import Panel, finish, place

CELL = """\
def double(number):
    result = number * 2
    return result
total = 0
for each in range(3):
    total += double(each)
print("total", total)
total"""


@pytest.fixture
def panel(kernel: Notebook) -> Iterator[Panel]:
    """The panel of the shared kernel, switched on; off again afterwards, without breakpoints."""
    panel = Panel(kernel)
    panel.start()
    yield panel
    for kept in panel.get("debugInfo")["breakpoints"]:
        panel.break_in(kept["source"])
    panel.stop()
    kernel.strays.clear()


def test_the_debugger_is_offered_and_not_loaded_before_it_is_used(kernel: Notebook) -> None:
    assert kernel.ask("kernel_info_request", {}).content["debugger"] is True
    body = Panel(kernel).get("debugInfo")
    prefix = body.pop("tmpFilePrefix")
    assert os.path.basename(prefix.rstrip("/")) == f"ipykernel_{kernel.run('import os; os.getpid()').text}"
    assert body == {
        "isStarted": False,
        "hashMethod": "Murmur2",
        "hashSeed": 0xC70F6907,
        "tmpFileSuffix": ".py",
        "breakpoints": [],
        "stoppedThreads": [],
        "richRendering": True,
        "exceptionPaths": ["Python Exceptions"],
        "copyToGlobals": True,
    }
    loaded = kernel.run(
        "import sys; [m for m in ('debugpy', 'pydevd', 'tpu_kernel.debugging.debugger') if m in sys.modules]"
    )
    assert loaded.text == "[]"


def test_what_needs_a_debugger_is_refused_before_it_is_switched_on(kernel: Notebook) -> None:
    panel = Panel(kernel)
    for command in ("attach", "setBreakpoints", "stackTrace", "continue", "noSuchCommand"):
        response = panel.ask(command)
        assert response["success"] is False
        assert response["command"] == command
        assert response["message"] == (
            "no debugging goes on: switch the debugger on first (`initialize`, then `attach`)"
        )
    assert panel.ask("disconnect")["success"] is True


def test_a_cell_stops_at_its_breakpoint_and_goes_on(kernel: Notebook, panel: Panel) -> None:
    path = panel.break_at(CELL, 2)
    msg_id = kernel.send(CELL)
    frames = panel.stopped()
    assert [(f["name"], f["line"], f["source"]["path"]) for f in frames] == [
        ("double", 2, path),
        ("<module>", 6, path),
    ]
    assert panel.variables(frames[0]) == {"number": "0"}
    assert panel.get("debugInfo")["stoppedThreads"] == [1]
    panel.go_on()
    assert panel.variables(panel.stopped()[0]) == {"number": "1"}
    panel.break_in(path)
    panel.go_on()
    result = finish(kernel, msg_id)
    assert (result.status, result.stdout, result.text) == ("ok", "total 6\n", "6")
    assert panel.get("debugInfo")["stoppedThreads"] == []


def test_steps_go_over_into_and_out_and_end_with_the_cell(kernel: Notebook, panel: Panel) -> None:
    path = panel.break_at(CELL, 6)
    msg_id = kernel.send(CELL)
    seen = [place(panel.stopped())]
    panel.break_in(path)
    for command in ("stepIn", "next", "stepOut", "next", "next", "next", "next", "next", "next", "next"):
        panel.go_on(command)
        seen.append(place(panel.stopped()))
    assert seen == [
        ("<module>", 6),
        ("double", 2),
        ("double", 3),
        ("<module>", 6),
        ("<module>", 5),
        ("<module>", 6),
        ("<module>", 5),
        ("<module>", 6),
        ("<module>", 5),
        ("<module>", 7),
        ("<module>", 8),
    ]
    # A step from the last line leads out of the cell, and not into the kernel.
    panel.go_on("stepIn")
    assert finish(kernel, msg_id).text == "6"
    assert panel.get("debugInfo")["stoppedThreads"] == []


def test_output_is_shown_and_questions_are_answered_while_the_cell_stands(
    kernel: Notebook, panel: Panel
) -> None:
    code = "print('before')\nstood = 1\nprint('after')"
    panel.break_at(code, 3)
    msg_id = kernel.send(code)
    kernel.strays += kernel.wait_for_text(msg_id, "before\n")
    frames = panel.stopped()
    assert place(frames) == ("<module>", 3)
    assert "stood" in kernel.ask("complete_request", {"code": "sto", "cursor_pos": 3}).content["matches"]
    assert kernel.ask("inspect_request", {"code": "stood", "cursor_pos": 5}).content["found"] is True
    assert kernel.ask("is_complete_request", {"code": "for x in y:"}).content["status"] == "incomplete"
    assert kernel.ask("kernel_info_request", {}, channel="control").content["debugger"] is True
    panel.go_on()
    assert finish(kernel, msg_id).stdout == "before\nafter\n"


def test_a_condition_decides_whether_the_cell_stops(kernel: Notebook, panel: Panel) -> None:
    code = "for number in range(100):\n    square = number * number\nnumber"
    panel.break_at(code, {"line": 2, "condition": "number == 41"})
    msg_id = kernel.send(code)
    frames = panel.stopped()
    assert panel.variables(frames[0])["number"] == "41"
    panel.go_on()
    assert finish(kernel, msg_id).text == "99"


def test_an_imported_file_stops_too(kernel: Notebook, panel: Panel, tmp_path: Path) -> None:
    file = tmp_path / "tools_for_debugging.py"
    file.write_text("def triple(number):\n    tripled = number * 3\n    return tripled\n")
    assert panel.break_in(str(file), 3)[0]["verified"] is True
    msg_id = kernel.send(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport tools_for_debugging\n"
        "tools_for_debugging.triple(5)"
    )
    frames = panel.stopped()
    assert (frames[0]["name"], frames[0]["line"], frames[0]["source"]["path"]) == ("triple", 3, str(file))
    assert panel.variables(frames[0]) == {"number": "5", "tripled": "15"}
    assert panel.get("source", source={"path": str(file)})["content"] == file.read_text()
    panel.go_on()
    assert finish(kernel, msg_id).text == "15"


def test_expressions_and_rich_values_of_the_frame_that_stands(kernel: Notebook, panel: Panel) -> None:
    code = (
        "class Shown:\n    def _repr_html_(self):\n        return '<b>größe</b>'\n"
        "def work():\n    inner = Shown()\n    number = 7\n    return number\nwork()"
    )
    panel.break_at(code, 7)
    msg_id = kernel.send(code)
    frame = panel.stopped()[0]["id"]
    evaluated = panel.get("evaluate", expression="number + 1", frameId=frame, context="repl")
    assert evaluated["result"] == "8"
    failed = panel.ask("evaluate", expression="1 / 0", frameId=frame, context="repl")
    assert failed["success"] is False
    assert "ZeroDivisionError: division by zero" in failed["message"]
    panel.get("evaluate", expression="number = 100", frameId=frame, context="repl")
    rich = panel.get("richInspectVariables", variableName="inner", frameId=frame)
    assert rich["data"]["text/html"] == "<b>größe</b>"
    assert panel.get("richInspectVariables", variableName="number", frameId=frame)["data"] == {
        "text/plain": "100"
    }
    assert panel.ask("richInspectVariables", variableName="nothing", frameId=frame)["success"] is False
    panel.get("copyToGlobals", srcVariableName="number", dstVariableName="copied", srcFrameId=frame)
    refused = panel.ask("copyToGlobals", srcVariableName="1", dstVariableName="x", srcFrameId=frame)
    assert refused["message"] == "`srcVariableName` and `dstVariableName` must be names of variables"
    panel.go_on()
    assert finish(kernel, msg_id).text == "100"
    assert kernel.run("copied").text == "100"


def test_the_notebooks_variables_are_shown_while_nothing_stands(kernel: Notebook, panel: Panel) -> None:
    kernel.run("class Box:\n    def __init__(self):\n        self.held = [1, 2]\nbox = Box()\nword = 'größe'")
    found = {each["name"]: each for each in panel.get("inspectVariables")["variables"]}
    assert (found["word"]["value"], found["word"]["type"]) == ("'größe'", "str")
    assert not {"In", "Out", "_", "get_ipython", "__name__"} & set(found)
    inner = panel.get("variables", variablesReference=found["box"]["variablesReference"])["variables"]
    assert [(each["name"], each["value"]) for each in inner] == [("held", "[1, 2]")]
    assert panel.inside(inner[0]["variablesReference"]) == {"0": "1", "1": "2"}
    assert panel.get("richInspectVariables", variableName="word")["data"] == {"text/plain": "'größe'"}
    names = {each["name"] for each in panel.get("modules")["modules"]}
    assert "IPython.core.interactiveshell" in names


def test_one_odd_variable_does_not_hide_the_others(kernel: Notebook, panel: Panel) -> None:
    kernel.run(
        "class Proxy:\n    @property\n    def __class__(self):\n        raise RuntimeError('nothing behind it')\n"
        "class Empty(list):\n    def __len__(self):\n        raise RuntimeError('no length')\n"
        "proxy, empty, number = Proxy(), Empty(), 7"
    )
    found = {each["name"]: each for each in panel.get("inspectVariables")["variables"]}
    assert (found["number"]["value"], found["number"]["type"]) == ("7", "int")
    assert (found["proxy"]["type"], found["empty"]["type"]) == ("Proxy", "Empty")
    kernel.run("del proxy, empty, number")


def test_a_raised_exception_stops_when_that_is_asked_for(kernel: Notebook, panel: Panel) -> None:
    panel.get("setExceptionBreakpoints", filters=["raised"])
    msg_id = kernel.send("def fail():\n    raise ValueError('no')\nfail()")
    frames = panel.stopped()
    assert place(frames) == ("fail", 2)
    assert panel.get("exceptionInfo", threadId=1)["exceptionId"] == "ValueError"
    panel.get("setExceptionBreakpoints", filters=[])
    panel.go_on()
    result = finish(kernel, msg_id)
    assert (result.content["ename"], result.content["evalue"]) == ("ValueError", "no")


def test_a_breakpoint_set_in_the_code_stops_in_the_panel(kernel: Notebook, panel: Panel) -> None:
    msg_id = kernel.send("here = 5\nbreakpoint()\nhere += 1\nhere")
    frames = panel.stopped()
    assert place(frames)[0] == "<module>"
    assert panel.variables(frames[0])["here"] == "5"
    panel.go_on()
    assert finish(kernel, msg_id).text == "6"


def test_interrupting_a_cell_that_stands_ends_it_and_breakpoints_still_hit(
    kernel: Notebook, panel: Panel
) -> None:
    panel.break_at(CELL, 2)
    for _ in range(2):
        msg_id = kernel.send(CELL)
        panel.stopped()
        kernel.interrupt()
        result = finish(kernel, msg_id)
        assert result.content["ename"] == "KeyboardInterrupt"
        shown = plain("\n".join(result.content["traceback"]))
        assert "pydevd" not in shown
        assert "result = number * 2" in shown
        assert result.stdout == ""
        assert panel.get("debugInfo")["stoppedThreads"] == []
        panel.event("continued")


def test_interrupting_ends_an_endless_expression_then_the_cell(kernel: Notebook, panel: Panel) -> None:
    panel.break_at(CELL, 2)
    msg_id = kernel.send(CELL)
    frame = panel.stopped()[0]["id"]
    endless = panel.send("evaluate", expression="[0 for _ in iter(int, 1)]", frameId=frame, context="repl")
    time.sleep(0.2)
    kernel.interrupt()
    response = panel.reply(endless)
    assert response["success"] is False
    assert "KeyboardInterrupt" in response["message"]
    assert place(panel.frames()) == ("double", 2)
    kernel.interrupt()
    assert finish(kernel, msg_id).content["ename"] == "KeyboardInterrupt"


def test_breakpoints_hit_after_a_running_cell_was_interrupted(kernel: Notebook, panel: Panel) -> None:
    busy = "def spin(on):\n    while on:\n        pass\n    return on\nprint('spinning')\nspin(True)"
    panel.break_at(busy, 4)
    for _ in range(5):
        msg_id = kernel.send(busy)
        kernel.strays += kernel.wait_for_text(msg_id, "spinning\n")
        time.sleep(0.1)
        kernel.interrupt()
        result = finish(kernel, msg_id)
        assert result.content["ename"] == "KeyboardInterrupt"
        assert "pydevd" not in "\n".join(result.content["traceback"])
    panel.break_at(CELL, 2)
    msg_id = kernel.send(CELL)
    assert place(panel.stopped()) == ("double", 2)
    kernel.interrupt()
    finish(kernel, msg_id)


def test_breakpoints_outlive_the_session_and_hit_in_the_next(kernel: Notebook, panel: Panel) -> None:
    path = panel.break_at(CELL, {"line": 2, "condition": "number == 1"})
    panel.stop()
    info = panel.get("debugInfo")
    assert info["isStarted"] is False
    kept = {"source": path, "breakpoints": [{"line": 2, "condition": "number == 1"}]}
    assert info["breakpoints"] == [kept]
    assert kernel.run(CELL).text == "6"
    panel.start()
    msg_id = kernel.send(CELL)
    assert panel.variables(panel.stopped()[0]) == {"number": "1"}
    panel.go_on()
    assert finish(kernel, msg_id).text == "6"


def test_switching_off_while_a_cell_stands_lets_it_go_on(kernel: Notebook, panel: Panel) -> None:
    path = panel.break_at(CELL, 2)
    msg_id = kernel.send(CELL)
    panel.stopped()
    panel.stop()
    assert finish(kernel, msg_id).text == "6"
    assert panel.get("debugInfo")["stoppedThreads"] == []
    panel.start()
    panel.break_in(path)


def test_requests_that_make_no_sense_get_an_error_each(kernel: Notebook, panel: Panel) -> None:
    assert panel.ask("continue", threadId=1)["message"] == (
        "nothing stands at a breakpoint: run a cell that reaches one first"
    )
    assert panel.ask("setBreakpoints")["success"] is False
    assert panel.ask("noSuchCommand")["success"] is False
    assert panel.ask("terminate")["success"] is False
    assert panel.ask("dumpCell")["message"] == "`dumpCell` needs the cell's source in `code`"
    assert panel.ask("source", source={"path": "/nothing/here.py"})["message"] == (
        "there is no source `/nothing/here.py`"
    )
    for content in ({}, {"command": 3}, {"type": "request", "seq": 1}):
        msg_id = kernel.request("debug_request", content, channel="control")
        assert panel.reply(msg_id)["message"] == "a debug request needs a `command`"
    msg_id = kernel.request("debug_request", {"command": "threads", "arguments": 7}, channel="control")
    assert panel.reply(msg_id)["success"] is True


def test_what_waits_for_a_frame_is_answered_when_the_cell_goes_on(kernel: Notebook, panel: Panel) -> None:
    path = panel.break_at(CELL, 2)
    msg_id = kernel.send(CELL)
    frames = panel.stopped()
    panel.break_in(path)
    sent = [
        panel.send("continue", threadId=1),
        panel.send("evaluate", expression="number", frameId=frames[0]["id"], context="repl"),
        panel.send("next", threadId=1),
        panel.send("stackTrace", threadId=1),
    ]
    replies = [panel.reply(each) for each in sent]
    assert [(each["command"], each["success"]) for each in replies] == [
        ("continue", True),
        ("evaluate", False),
        ("next", False),
        ("stackTrace", False),
    ]
    assert finish(kernel, msg_id).text == "6"


def test_two_front_ends_debug_one_kernel(kernel: Notebook, panel: Panel) -> None:
    other = BlockingKernelClient(connection_file=kernel.manager.connection_file)
    other.load_connection_file()
    other.start_channels()
    try:
        other.wait_for_ready(timeout=PATIENCE)
        second = Panel(Notebook(kernel.manager, other))
        second.start()
        panel.break_at(CELL, 2)
        msg_id = kernel.send(CELL)
        assert place(panel.stopped()) == ("double", 2)
        frames = second.stopped()
        assert second.variables(frames[0]) == {"number": "0"}
        mine = [panel.send("stackTrace", threadId=1) for _ in range(20)]
        theirs = [second.send("threads") for _ in range(20)]
        assert {panel.reply(each)["command"] for each in mine} == {"stackTrace"}
        assert {second.reply(each)["command"] for each in theirs} == {"threads"}
        kernel.interrupt()
        assert finish(kernel, msg_id).content["ename"] == "KeyboardInterrupt"
    finally:
        other.stop_channels()


def test_only_the_notebooks_threads_are_shown(kernel: Notebook, panel: Panel) -> None:
    kernel.run(
        "import threading; gate = threading.Event(); t = threading.Thread(target=gate.wait, name='mine')"
    )
    kernel.run("t.start()")
    names = [each["name"] for each in panel.get("threads")["threads"]]
    kernel.run("gate.set(); t.join()")
    assert sorted(names) == ["MainThread", "mine"]


def test_cells_keep_their_source_and_number_in_tracebacks(kernel: Notebook) -> None:
    code = "\n\ndef sourced():\n    return 1 / 0\nimport inspect\ninspect.getsource(sourced)"
    assert kernel.run(code).text == repr("def sourced():\n    return 1 / 0\n")
    result = kernel.run("\n\n\nsourced()")
    number = result.content["execution_count"]
    shown = "\n".join(result.content["traceback"])
    assert f"Cell In[{number}], line 4" in plain(shown)
    assert f"Cell In[{number - 1}], line 4" in plain(shown)


def test_the_debuggers_port_is_open_to_nobody_else(kernel: Notebook, panel: Panel) -> None:
    pid = int(kernel.run("import os; os.getpid()").text or 0)
    command = ["python3", "-c", LISTENING.format(pid=pid)]
    ports = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    info = kernel.client.get_connection_info()
    known = {
        str(info[name]) for name in ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    }
    assert set(ports) == known


LISTENING = """
import os
own = {{os.readlink(f"/proc/{pid}/fd/{{fd}}") for fd in os.listdir("/proc/{pid}/fd")}}
for line in open("/proc/{pid}/net/tcp").readlines()[1:]:
    words = line.split()
    if words[3] == "0A" and f"socket:[{{words[9]}}]" in own:
        print(int(words[1].split(":")[1], 16))
"""


def plain(text: str) -> str:
    """Without colours."""
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("restart", [False, True])
def test_the_kernel_ends_in_time_while_a_cell_stands(
    new_kernel: Callable[..., Notebook], restart: bool
) -> None:
    notebook = new_kernel()
    panel = Panel(notebook)
    panel.start()
    path = panel.break_at(CELL, 2)
    notebook.send(CELL)
    panel.stopped()
    begun = time.monotonic()
    notebook.request("shutdown_request", {"restart": restart}, channel="control")
    while notebook.manager.is_alive():
        assert time.monotonic() - begun < 4
        time.sleep(0.02)
    assert not os.path.exists(os.path.dirname(path))


def ask_for_widgets(kernel: Notebook) -> None:
    content = {"comm_id": "page", "target_name": "jupyter.widget.control", "data": {}}
    kernel.wait(kernel.request("comm_open", content), reply=False)


def run_beside(kernel: Notebook) -> None:
    name = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert kernel.run("beside = 1", subshell=name).status == "ok"


def give_up_a_completion(kernel: Notebook) -> None:
    kernel.run("import time\nclass Slow:\n    def __dir__(self):\n        time.sleep(600)\nslow = Slow()")
    assert kernel.ask("complete_request", {"code": "slow.", "cursor_pos": 5}).content["status"] == "ok"


@pytest.mark.parametrize("before", [ask_for_widgets, run_beside, give_up_a_completion])
def test_debugging_begins_whatever_other_threads_did_before(
    new_kernel: Callable[..., Notebook], before: Callable[[Notebook], None]
) -> None:
    # Python 3.11 never begins a traced call while an exception raised in another thread is not felt there
    kernel = new_kernel()
    before(kernel)
    panel = Panel(kernel)
    panel.start()
    panel.break_at(CELL, 7)
    msg_id = kernel.send(CELL)
    assert place(panel.stopped()) == ("<module>", 7)
    panel.go_on()
    assert finish(kernel, msg_id).text == "6"
