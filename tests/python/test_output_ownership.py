"""Whose output it is: threads, tasks, pools and children of earlier cells."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from notebook import PATIENCE, Message, Notebook


def streams(messages: list[Message]) -> dict[str, str]:
    """What was printed, by the request it belongs to."""
    texts: dict[str, str] = {}
    for message in messages:
        if message["msg_type"] == "stream":
            parent = message["parent_header"].get("msg_id", "")
            texts[parent] = texts.get(parent, "") + message["content"]["text"]
    return texts


def late(kernel: Notebook, cell: str, text: str) -> str:
    """What comes for a cell that is over, until `text` is among it."""
    deadline = time.monotonic() + PATIENCE
    while text not in streams(kernel.strays).get(cell, ""):
        assert time.monotonic() < deadline, f"{text!r} did not come, but {streams(kernel.strays)}"
        kernel.strays += kernel._take(kernel.client.iopub_channel, 0.05)
    return streams(kernel.strays)[cell]


def first_cell(kernel: Notebook, code: str) -> str:
    """Run a cell; its message id."""
    cell = kernel.send(code)
    assert kernel.wait(cell).status == "ok"
    return cell


@pytest.fixture(autouse=True)
def no_children_left(kernel: Notebook) -> Iterator[None]:
    """A test's children end with it."""
    yield
    kernel.run("for child in globals().pop('children', []):\n    child.kill(); child.wait()")


def test_a_thread_and_a_child_of_a_cell_stay_out_of_the_next(kernel: Notebook) -> None:
    first = first_cell(
        kernel,
        "import subprocess, threading, time\nstop = threading.Event()\n"
        "def tell():\n    while not stop.wait(0.1): print('thread')\n"
        "threading.Thread(target=tell).start()\n"
        "children = [subprocess.Popen('while sleep 0.1; do echo child; echo child >&2; done', shell=True)]",
    )
    second = kernel.run("for _ in range(5):\n    time.sleep(0.1); print('mine')")
    third = kernel.run("subprocess.run(['echo', 'also mine']); stop.set(); time.sleep(0.3)")
    assert (second.stdout, second.stderr) == ("mine\n" * 5, "")
    assert (third.stdout, third.stderr) == ("also mine\n", "")
    theirs = streams(kernel.strays)[first].splitlines()
    assert set(theirs) == {"thread", "child"}
    assert theirs.count("thread") >= 3
    assert theirs.count("child") >= 6


def test_a_command_left_in_the_background_writes_into_its_cell(kernel: Notebook) -> None:
    first = first_cell(kernel, "import subprocess\nsubprocess.run('(sleep 0.5; echo orphan) &', shell=True);")
    second = first_cell(kernel, "!(sleep 0.7; echo bang) &")
    third = kernel.run("import time; time.sleep(1); print('mine')")
    assert third.stdout == "mine\n"
    assert late(kernel, first, "orphan") == "orphan\n"
    assert late(kernel, second, "bang") == "bang\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_process_goes_on_printing_into_its_cell(
    kernel: Notebook, method: str, tmp_path: object
) -> None:
    first = first_cell(
        kernel,
        f"import multiprocessing as mp, sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        f"open({str(tmp_path)!r} + '/worker_{method}.py', 'w').write("
        "'import time\\ndef work(go):\\n    go.wait(); print(\"worker\", flush=True)\\n')\n"
        f"from worker_{method} import work\n"
        f"context = mp.get_context({method!r}); go = context.Event()\n"
        "process = context.Process(target=work, args=(go,)); process.start()",
    )
    second = kernel.run("print('mine'); go.set(); process.join(); process.exitcode")
    assert (second.stdout, second.text) == ("mine\n", "0")
    assert late(kernel, first, "worker") == "worker\n"


def test_workers_of_a_fork_server_print_into_the_cell_that_starts_them(
    kernel: Notebook, tmp_path: object
) -> None:
    module = "import sys\ndef tell(word): print(word, flush=True); print(word, file=sys.stderr, flush=True)\n"
    with open(f"{tmp_path}/teller.py", "w") as file:
        file.write(module)
    first = first_cell(
        kernel,
        f"import multiprocessing, sys, threading\nsys.path.insert(0, {str(tmp_path)!r})\nfrom teller import tell\n"
        "def start(method, word):\n"
        "    process = multiprocessing.get_context(method).Process(target=tell, args=(word,))\n"
        "    process.start(); process.join()\n"
        "start('forkserver', 'one'); go = threading.Event()\n"
        "def later(): go.wait(100); start('forkserver', 'late'); start('spawn', 'spawned')\n"
        "thread = threading.Thread(target=later); thread.start()",
    )
    second = kernel.run("start('forkserver', 'two')\ngo.set(); thread.join()")
    assert (second.stdout, second.stderr) == ("two\n", "two\n")
    theirs = late(kernel, first, "spawned\nspawned\n")
    assert sorted(theirs.splitlines()) == ["late", "late", "spawned", "spawned"]


def test_a_thread_starts_its_commands_for_its_own_cell(kernel: Notebook) -> None:
    first = first_cell(
        kernel,
        "import os, subprocess, threading\ngo = threading.Event()\n"
        "def work():\n    go.wait(100)\n    subprocess.run('echo out; echo err >&2', shell=True)\n"
        "    subprocess.run('echo joined >&2', shell=True, stderr=subprocess.STDOUT)\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n        os.write(1, b'forked\\n'); os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "thread = threading.Thread(target=work); thread.start()",
    )
    second = kernel.run("go.set(); thread.join()\nsubprocess.run(['echo', 'mine']);")
    assert (second.stdout, second.stderr) == ("mine\n", "")
    assert sorted(late(kernel, first, "forked").splitlines()) == ["err", "forked", "joined", "out"]


def test_pooled_work_prints_into_the_cell_that_submitted_it(kernel: Notebook) -> None:
    first = first_cell(
        kernel,
        "from concurrent.futures import ThreadPoolExecutor\nimport threading\n"
        "pool = ThreadPoolExecutor(1); go = threading.Event()\n"
        "early = pool.submit(lambda: (go.wait(100), print('early')))",
    )
    second = kernel.run(
        "now = pool.submit(print, 'now'); go.set(); now.result(); list(pool.map(print, 'ab'));"
    )
    assert second.stdout == "now\na\nb\n"
    assert late(kernel, first, "early") == "early\n"
    failed = kernel.run("pool.submit(lambda: 1 / 0).result()")
    assert failed.content["ename"] == "ZeroDivisionError"


def test_timers_callbacks_and_worker_threads_of_asyncio_print_into_their_cell(kernel: Notebook) -> None:
    first = first_cell(
        kernel,
        "import asyncio, threading, time\n"
        "threading.Timer(0.3, print, ['timer']).start()\n"
        "asyncio.get_running_loop().call_later(0.4, print, 'callback')\n"
        "def slow(): time.sleep(0.5); print('to_thread')\n"
        "task = asyncio.create_task(asyncio.to_thread(slow))\n"
        "inner = asyncio.get_running_loop().run_in_executor(None, lambda: (time.sleep(0.6), print('executor')))",
    )
    second = kernel.run(
        "print('mine'); await asyncio.sleep(0.8); await asyncio.to_thread(print, 'to_thread 2')"
    )
    assert second.stdout == "mine\nto_thread 2\n"
    assert late(kernel, first, "executor") == "timer\ncallback\nto_thread\nexecutor\n"


def test_output_can_be_given_to_any_request_by_its_header(kernel: Notebook) -> None:
    result = kernel.run(
        "shell = get_ipython(); now = shell.get_parent()\n"
        "shell.set_parent({'header': {'msg_id': 'made up', 'msg_type': 'execute_request', 'date': 'then'}})\n"
        "print('given'); display('shown'); where = shell.get_parent()['header']\n"
        "shell.set_parent(now); print('mine')\nwhere"
    )
    assert result.stdout == "mine\n"
    assert result.text == "{'msg_id': 'made up', 'msg_type': 'execute_request', 'date': 'then'}"
    given = [m for m in kernel.strays if m["parent_header"].get("msg_id") == "made up"]
    assert [m["msg_type"] for m in given] == ["stream", "display_data"]
    assert (
        kernel.run("shell.set_parent({}); shell.set_parent(None); print('still mine')").stdout
        == "still mine\n"
    )


def test_input_is_asked_after_set_parent_too(kernel: Notebook) -> None:
    result = kernel.run(
        "shell = get_ipython(); shell.set_parent({'msg_id': 'x', 'msg_type': 'execute_request'})\ninput('Who? ')",
        answers=["Ada"],
    )
    assert result.status == "ok"


def test_an_output_widget_takes_what_a_thread_prints(kernel: Notebook) -> None:
    cell = kernel.send(
        "import ipywidgets, threading\nout = ipywidgets.Output(); go = threading.Event()\n"
        "def work():\n    go.wait(100)\n    with out: print('in the widget')\n"
        "thread = threading.Thread(target=work); thread.start()"
    )
    kernel.wait(cell)
    kernel.strays.clear()
    kernel.run("go.set(); thread.join()")
    states = [m["content"]["data"]["state"] for m in kernel.strays if m["msg_type"] == "comm_msg"]
    assert [s["msg_id"] for s in states if "msg_id" in s] == [cell, ""]
    assert late(kernel, cell, "widget") == "in the widget\n"
    assert [s["msg_id"] for s in states if "msg_id" in s] == [cell, ""]


def test_a_notebook_that_puts_a_file_in_the_place_of_stdout_keeps_it(
    kernel: Notebook, tmp_path: object
) -> None:
    path = f"{tmp_path}/log"
    kernel.run(
        "import os, subprocess\nchildren = [subprocess.Popen(['sleep', '60'])]\n"
        f"saved = os.dup(1); log = os.open({path!r}, os.O_CREAT | os.O_WRONLY); os.dup2(log, 1);"
    )
    away = kernel.run("os.write(1, b'to the file\\n'); os.write(2, b'to the cell\\n');")
    assert (away.stdout, away.stderr) == ("", "to the cell\n")
    assert kernel.run("os.dup2(saved, 1); os.close(saved); os.close(log)").status == "ok"
    assert kernel.run(f"os.write(1, b'back\\n'); open({path!r}).read()").stdout == "back\n"
    assert kernel.run(f"open({path!r}).read()").text == "'to the file\\n'"


def test_cells_with_children_do_not_use_up_file_descriptors(kernel: Notebook) -> None:
    count = "import os, subprocess; len(os.listdir('/proc/self/fd'))"
    before = int(kernel.run(count).text or 0)
    for _ in range(100):
        kernel.run("subprocess.run(['true'])")
    assert int(kernel.run(count).text or 0) <= before + 4
    kernel.run("children = []")
    for _ in range(100):
        kernel.run("children.append(subprocess.Popen(['sleep', '60']))")
    assert int(kernel.run(count).text or 0) <= before + 2 * 2 * 65
    kernel.run("for child in children:\n    child.kill(); child.wait()\nchildren.clear()")
    assert int(kernel.run(count).text or 0) <= before + 4


def test_commands_of_a_subshell_are_shown_whole_and_in_order_before_it_is_idle(kernel: Notebook) -> None:
    subshell = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    main = kernel.send(
        "import threading\nrelease = threading.Event(); print('begun', flush=True); release.wait(100); print('main')"
    )
    kernel.wait_for_text(main, "begun\n")
    session = kernel.client.session
    code = (
        "import subprocess\nfor n in range(5):\n    print('print', n); subprocess.run(['echo', 'command', str(n)])\n"
        "    display(n); subprocess.run('echo error >&2', shell=True)\nrelease.set()"
    )
    message = session.msg("execute_request", {"code": code, "silent": False, "allow_stdin": False})
    message["header"]["subshell_id"] = subshell
    session.send(kernel.client.shell_channel.socket, message)
    result = kernel.wait(message["header"]["msg_id"])
    shown = "".join(
        m["content"].get("text") or f"[{m['content']['data']['text/plain']}]"
        for m in result.messages
        if m["msg_type"] in ("stream", "display_data")
    )
    assert shown == "".join(f"print {n}\ncommand {n}\n[{n}]error\n" for n in range(5))
    assert kernel.wait(main).stdout == "main\n"
    kernel.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
