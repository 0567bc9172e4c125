"""The interrupt button, `input()`, and the end of the kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from notebook import PATIENCE, Notebook

pytestmark = pytest.mark.alone

RUNNING = "print('running', flush=True)\n"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(600)",
        "import asyncio; await asyncio.sleep(600)",
        "import asyncio\nasync def deep():\n    await asyncio.gather(asyncio.sleep(600), asyncio.sleep(600))\nawait deep()",
        "import asyncio; await asyncio.sleep(0)\nwhile True: pass",
        "import threading; threading.Event().wait()",
    ],
    ids=["loop", "sleep", "await", "gather", "loop after await", "event"],
)
def test_an_interrupt_stops_the_cell_and_the_next_one_runs(kernel: Notebook, code: str) -> None:
    cell = kernel.send(RUNNING + code)
    kernel.wait_for_text(cell, "running")
    time.sleep(0.1)
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert [c["ename"] for c in result.contents("error")] == ["KeyboardInterrupt"]
    assert kernel.run("1 + 1").text == "2"


def test_an_interrupted_await_raises_at_the_line_that_waits(kernel: Notebook) -> None:
    cell = kernel.send(
        RUNNING
        + "import asyncio\ntry:\n    await asyncio.sleep(600)\nexcept KeyboardInterrupt:\n    print('caught')\n"
        "await asyncio.sleep(0.01)\nprint('went on')"
    )
    kernel.wait_for_text(cell, "running")
    time.sleep(0.1)
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.status == "ok"
    assert result.stdout == "caught\nwent on\n"


def test_an_interrupt_between_cells_does_nothing(kernel: Notebook) -> None:
    kernel.run("pass")
    for _ in range(3):
        kernel.interrupt()
    time.sleep(0.2)
    assert kernel.run("'fine'").text == "'fine'"


def test_an_interrupt_reaches_the_command_a_cell_runs(kernel: Notebook) -> None:
    cell = kernel.send("!echo running; sleep 60")
    kernel.wait_for_text(cell, "running")
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    left = kernel.run(
        "import subprocess; print(subprocess.run(['pgrep', '-P', str(__import__('os').getpid()), '-x', 'sleep'], capture_output=True, text=True).stdout)"
    )
    assert left.stdout.strip() == ""


def test_input_asks_and_gets_the_answer(kernel: Notebook) -> None:
    result = kernel.run("name = input('Who? ')\nname", answers=["Ada"])
    asked = result.contents("input_request")
    assert [(a["prompt"], a["password"]) for a in asked] == [("Who? ", False)]
    assert result.text == "'Ada'"


def test_getpass_asks_for_a_secret(kernel: Notebook) -> None:
    result = kernel.run("from getpass import getpass\ngetpass('Key: ')", answers=["s3cret"])
    assert [(a["prompt"], a["password"]) for a in result.contents("input_request")] == [("Key: ", True)]
    assert result.text == "'s3cret'"


def test_input_is_refused_where_nobody_can_answer(kernel: Notebook) -> None:
    result = kernel.run("input('Who? ')", allow_stdin=False)
    assert result.content["ename"] == "StdinNotImplementedError"
    assert "input()" in result.content["evalue"]


def test_an_interrupted_input_can_be_asked_again(kernel: Notebook) -> None:
    cell = kernel.send("input('first? ')", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"] == "first? "
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"
    kernel.client.input("too late")
    assert kernel.run("input('second? ')", answers=["right"]).text == "'right'"


def test_tasks_of_a_cell_go_on_between_cells(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    result = kernel.run(
        "import asyncio\nticks = []\nasync def tick():\n    while True:\n        ticks.append(1)\n"
        "        await asyncio.sleep(0.01)\ntask = asyncio.create_task(tick())\nlen(ticks)"
    )
    assert result.text == "0"
    time.sleep(0.5)
    assert int(kernel.run("len(ticks)").text or 0) > 10
    assert kernel.run("task.cancel(); await asyncio.sleep(0.05); task.cancelled()").text == "True"


def test_context_variables_persist_over_cells_that_await(kernel: Notebook) -> None:
    kernel.run("import contextvars, asyncio\nv = contextvars.ContextVar('v', default='unset')\nv.set('one')")
    assert kernel.run("v.get()").text == "'one'"
    assert (
        kernel.run("await asyncio.sleep(0.01)\nv.set('two')\nawait asyncio.sleep(0)\nv.get()").text == "'two'"
    )
    assert kernel.run("v.get()").text == "'two'"


def test_asyncio_run_in_a_cell_says_that_a_loop_runs(kernel: Notebook) -> None:
    result = kernel.run("import asyncio; asyncio.run(asyncio.sleep(0))")
    assert result.content["ename"] == "RuntimeError"
    assert "running event loop" in result.content["evalue"]


def shut_down(kernel: Notebook, *, restart: bool = False) -> float:
    """Ask the kernel to end; the seconds until its process is gone."""
    begin = time.monotonic()
    kernel.client.shutdown(restart=restart)
    while kernel.manager.is_alive():
        assert time.monotonic() - begin < PATIENCE, "the kernel did not end"
        time.sleep(0.01)
    return time.monotonic() - begin


def test_shutdown_is_answered_and_runs_exit_functions(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    kernel.run(
        f"import atexit, pathlib\natexit.register(lambda: pathlib.Path({str(tmp_path / 'ran')!r}).write_text('x'))"
    )
    kernel.client.shutdown(restart=False)
    reply = kernel.client.get_control_msg(timeout=PATIENCE)
    assert reply["msg_type"] == "shutdown_reply"
    assert (reply["content"]["status"], reply["content"]["restart"]) == ("ok", False)
    deadline = time.monotonic() + PATIENCE
    while kernel.manager.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not kernel.manager.is_alive()
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(600)",
        "import asyncio; await asyncio.sleep(600)",
        "!sleep 60",
    ],
    ids=["loop", "sleep", "await", "command"],
)
def test_a_busy_kernel_ends_in_time(new_kernel: Callable[..., Notebook], tmp_path: Path, code: str) -> None:
    kernel = new_kernel()
    kernel.run(
        f"import atexit, pathlib\natexit.register(lambda: pathlib.Path({str(tmp_path / 'ran')!r}).write_text('x'))"
    )
    kernel.send(code)
    time.sleep(0.5)
    assert shut_down(kernel) < 4
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("word", ["exit", "quit", "exit()"])
def test_exit_in_a_cell_ends_the_kernel_after_its_reply(
    new_kernel: Callable[..., Notebook], word: str
) -> None:
    kernel = new_kernel()
    result = kernel.run(word)
    assert result.status == "ok"
    assert result.content["payload"] == [{"source": "ask_exit", "keepkernel": False}]
    deadline = time.monotonic() + PATIENCE
    while kernel.manager.is_alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not kernel.manager.is_alive()


def test_exit_can_keep_the_kernel(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    assert kernel.run("exit(True)").content["payload"] == [{"source": "ask_exit", "keepkernel": True}]
    time.sleep(0.3)
    assert kernel.run("'still here'").text == "'still here'"


def test_a_child_that_comes_back_from_its_cell_is_not_a_second_kernel(kernel: Notebook) -> None:
    result = kernel.run(
        "import os\npid = os.fork()\nif pid == 0: print('from the child', flush=True)\n"
        "else: print('status', os.waitpid(pid, 0)[1])"
    )
    assert sorted(result.stdout.splitlines()) == ["from the child", "status 0"]
    assert kernel.run("1 + 1").text == "2"


def test_the_kernel_ends_when_its_parent_does(kernelspec: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import os, sys, time\nfrom jupyter_client.manager import start_new_kernel\n"
        f"m, c = start_new_kernel(kernel_name={kernelspec!r})\n"
        "c.execute_interactive('import os; print(os.getpid())', output_hook=lambda m: print(m['content'].get('text', ''), end='') if m['msg_type'] == 'stream' else None)\n"
        "sys.stdout.flush(); os._exit(0)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    pid = int(output.stdout.split()[0])
    deadline = time.monotonic() + PATIENCE
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_task_that_exits_does_not_end_the_kernel(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    kernel.run("import asyncio, sys\nasync def leave(): sys.exit(3)\ntask = asyncio.ensure_future(leave())")
    time.sleep(0.3)
    assert kernel.run("1 + 1").text == "2"
    assert kernel.run("await asyncio.sleep(0.01)\n'loop goes on'").text == "'loop goes on'"
