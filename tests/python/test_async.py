"""Cells that await, tasks that go on between cells, and interrupting both."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from notebook import PATIENCE, Notebook

SETUP = """
import asyncio, contextvars, time
marks = []
async def three():
    await asyncio.sleep(0)
    return 3
async def bad():
    await asyncio.sleep(0)
    raise ValueError('from a task')
async def count():
    for number in range(3):
        await asyncio.sleep(0)
        yield number
class Room:
    async def __aenter__(self): marks.append('in'); return self
    async def __aexit__(self, *failure): await asyncio.sleep(0); marks.append('out')
"""


@pytest.fixture(scope="module")
def asked(shared_kernel: Notebook) -> Notebook:
    assert shared_kernel.run(SETUP).status == "ok"
    return shared_kernel


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("await three()", "3"),
        ("x = await three()\nx + 1", "4"),
        ("await asyncio.gather(three(), three())", "[3, 3]"),
        ("[number async for number in count()]", "[0, 1, 2]"),
        ("{number: 1 async for number in count() if number}", "{1: 1, 2: 1}"),
        ("total = 0\nasync for number in count():\n    total += number\ntotal", "3"),
        (
            "marks.clear()\nasync with Room() as room:\n    marks.append('inside')\nmarks",
            "['in', 'inside', 'out']",
        ),
        ("await asyncio.to_thread(time.sleep, 0) or 'slept'", "'slept'"),
        ("asyncio.get_event_loop() is asyncio.get_running_loop()", "True"),
        (
            "async with asyncio.TaskGroup() as group:\n    task = group.create_task(three())\ntask.result()",
            "3",
        ),
        ("%%capture out\nprint(await three())", None),
        ("out.stdout", "'3\\n'"),
    ],
)
def test_a_cell_awaits(asked: Notebook, code: str, text: str | None) -> None:
    assert asked.run(code).text == text


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("await bad()", "ValueError", "from a task"),
        ("await asyncio.gather(bad(), three())", "ValueError", "from a task"),
        ("async with asyncio.timeout(0.01):\n    await asyncio.sleep(600)", "TimeoutError", ""),
        ("raise asyncio.CancelledError", "CancelledError", ""),
        ("await asyncio.sleep(0)\nraise asyncio.CancelledError", "CancelledError", ""),
        ("asyncio.current_task().cancel()\nawait asyncio.sleep(600)", "CancelledError", ""),
        ("await three", "TypeError", None),
        ("def f():\n    await three()", "SyntaxError", None),
        ("await asyncio.sleep(0)\nraise SystemExit(3)", "SystemExit", "3"),
    ],
)
def test_an_error_in_a_cell_that_awaits_is_its_own(
    asked: Notebook, code: str, name: str, value: str | None
) -> None:
    result = asked.run(code)
    assert result.content["ename"] == name
    assert value is None or result.content["evalue"] == value
    assert [error["ename"] for error in result.contents("error")] == [name]
    assert asked.run("await three()").text == "3"


def test_magics_that_run_a_cell_run_one_that_awaits(asked: Notebook, tmp_path: Path) -> None:
    (tmp_path / "awaits.ipy").write_text("found = await three()\nprint(found)\n")
    result = asked.run(f"ran = asyncio.create_task(three())\n%run -i {tmp_path}/awaits.ipy\nprint('after')")
    assert result.stdout == "3\nafter\n"
    assert asked.run("ran.done(), found").text == "(True, 3)"
    started = tmp_path / "started"
    cell = asked.send(f"%%capture\nopen({str(started)!r}, 'w').close()\nawait asyncio.sleep(600)")
    deadline = time.monotonic() + PATIENCE
    while not started.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    asked.interrupt()
    result = asked.wait(cell)
    assert [error["ename"] for error in result.contents("error")] == ["KeyboardInterrupt"]
    asked.run("%%capture\nvariable = contextvars.ContextVar('inside')\nawait three()\nvariable.set(5)")
    assert asked.run("variable.get()").text == "5"
    # IPython's `%%time` compiles its body itself
    assert asked.run("%%time\nawait three()").content["ename"] == "SyntaxError"


def test_a_group_of_exceptions_is_an_error_message(asked: Notebook) -> None:
    code = "async with asyncio.TaskGroup() as group:\n    group.create_task(bad())"
    result = asked.run(code)
    assert result.content["ename"] == "ExceptionGroup"
    assert result.content["evalue"] == "unhandled errors in a TaskGroup (1 sub-exception)"
    (error,) = result.contents("error")
    assert error["traceback"] == result.content["traceback"]
    assert "    | ValueError: from a task" in error["traceback"]
    assert not any("IPython" in line for line in error["traceback"])


def test_asyncio_run_says_what_to_do(asked: Notebook) -> None:
    for code in ("asyncio.run(three())", "asyncio.get_event_loop().run_until_complete(three())"):
        result = asked.run(code)
        assert result.content["ename"] == "RuntimeError"
        assert result.content["traceback"][-1].endswith(
            "The notebook's event loop already runs: use `await ...` in the cell instead, "
            "or run `import nest_asyncio2; nest_asyncio2.apply()` once before."
        )
    assert asked.run("await three()").text == "3"


def test_asyncio_run_works_under_nest_asyncio(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    kernel.run(SETUP)
    assert kernel.run("import nest_asyncio2; nest_asyncio2.apply()\nasyncio.run(three())").text == "3"
    assert kernel.run("asyncio.get_event_loop().run_until_complete(three())").text == "3"
    assert kernel.run("await three()").text == "3"
    assert kernel.run("def plain(): return asyncio.run(three())\nplain(), await three()").text == "(3, 3)"


def test_context_variables_last_from_cell_to_cell(asked: Notebook) -> None:
    asked.run("variable = contextvars.ContextVar('variable', default=0)\nvariable.set(1)")
    assert asked.run("await asyncio.sleep(0)\nvariable.get()").text == "1"
    asked.run("await asyncio.sleep(0)\ntoken = variable.set(2)")
    assert asked.run("variable.get()").text == "2"
    asked.run("variable.reset(token)")
    assert asked.run("await three()\nvariable.get()").text == "1"


def test_a_task_goes_on_between_cells_and_prints_into_its_own(asked: Notebook) -> None:
    first = asked.run(
        "async def later():\n    await asyncio.sleep(0.2)\n    print('later')\n    return 7\n"
        "task = asyncio.create_task(later())"
    )
    time.sleep(0.6)
    assert asked.run("task.done(), task.result()").text == "(True, 7)"
    late = [m for m in asked.strays if m["msg_type"] == "stream"]
    assert [m["content"]["text"] for m in late] == ["later\n"]
    assert late[0]["parent_header"]["msg_id"] == first.messages[0]["parent_header"]["msg_id"]


def test_an_exception_nobody_awaits_is_told(asked: Notebook) -> None:
    results = [
        asked.run("task = asyncio.create_task(bad()); None"),
        asked.run("await asyncio.sleep(0.05)"),
        asked.run("del task\nimport gc; gc.collect(); None"),
    ]
    text = asked.run("await asyncio.sleep(0)").stderr + "".join(result.stderr for result in results)
    text += "".join(m["content"]["text"] for m in asked.strays if m["msg_type"] == "stream")
    assert "Task exception was never retrieved" in text
    assert "ValueError: from a task" in text


@pytest.mark.parametrize(
    "code",
    [
        "await asyncio.sleep(600)",
        "await asyncio.gather(asyncio.gather(asyncio.sleep(600)), asyncio.sleep(601))",
        "async for number in forever():\n    pass",
        "[number async for number in forever()]",
        "async with Room():\n    await asyncio.sleep(600)",
        "async with asyncio.TaskGroup() as group:\n    group.create_task(asyncio.sleep(600))",
        "await asyncio.wait_for(asyncio.sleep(600), 500)",
        "await asyncio.shield(asyncio.sleep(600))",
        "await asyncio.to_thread(event.wait, 20)",
        "while True:\n    await asyncio.sleep(0)",
        "await asyncio.sleep(0)\nwhile True: pass",
        "await asyncio.sleep(0)\ntime.sleep(600)",
        "await asyncio.get_running_loop().create_future()",
        "try:\n    await asyncio.sleep(600)\nfinally:\n    await asyncio.sleep(0); marks.append('cleaned')",
        "await (await asyncio.create_subprocess_exec('sleep', '60')).wait()",
    ],
)
def test_interrupting_what_is_awaited_raises_at_once(asked: Notebook, code: str) -> None:
    asked.run(
        "import threading; event = threading.Event(); marks.clear()\n"
        "async def forever():\n    while True:\n        await asyncio.sleep(0.001)\n        yield 1"
    )
    cell = asked.send(f"print('started', flush=True)\n{code}")
    asked.wait_for_text(cell, "started")
    time.sleep(0.1)
    asked.interrupt()
    result = asked.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert [error["ename"] for error in result.contents("error")] == ["KeyboardInterrupt"]
    marks = asked.run("event.set(); marks").text
    expected = {"Room": "['in', 'out']", "finally": "['cleaned']"}
    assert marks == next((text for word, text in expected.items() if word in code), "[]")
    assert asked.run("await three()").text == "3"


def test_an_interrupt_is_never_lost_between_two_steps_of_a_cell(asked: Notebook) -> None:
    for _ in range(20):
        cell = asked.send("print('started', flush=True)\nwhile True: await asyncio.sleep(0)")
        asked.wait_for_text(cell, "started")
        asked.interrupt()
        assert asked.wait(cell).content["ename"] == "KeyboardInterrupt"


def test_a_cell_may_catch_the_interrupt_and_go_on(asked: Notebook) -> None:
    cell = asked.send(
        "try:\n    print('started', flush=True)\n    await asyncio.sleep(600)\n"
        "except KeyboardInterrupt:\n    await asyncio.sleep(0.01)\n    print('caught')\nawait three()"
    )
    asked.wait_for_text(cell, "started")
    asked.interrupt()
    result = asked.wait(cell)
    assert result.stdout.endswith("caught\n")
    assert result.text == "3"


def test_a_background_task_outlives_an_interrupted_cell(asked: Notebook) -> None:
    asked.run(
        "ticks = []\nasync def tick():\n    while True:\n        ticks.append(1)\n        await asyncio.sleep(0.01)\n"
        "ticker = asyncio.create_task(tick())"
    )
    cell = asked.send("print('started', flush=True)\nawait asyncio.sleep(600)")
    asked.wait_for_text(cell, "started")
    asked.interrupt()
    assert asked.wait(cell).content["ename"] == "KeyboardInterrupt"
    assert asked.run(
        "before = len(ticks)\nawait asyncio.sleep(0.2)\nlen(ticks) > before, ticker.done()"
    ).text == ("(True, False)")
    asked.run("ticker.cancel()")


@pytest.mark.parametrize("runner", ["trio", "curio"])
def test_a_runner_that_is_not_installed_is_refused(asked: Notebook, runner: str) -> None:
    result = asked.run(f"%autoawait {runner}")
    assert result.stderr == (
        f"UsageError: %autoawait {runner}: `{runner}` is not installed; `%pip install {runner}` first\n"
    )
    assert asked.run("await three()").text == "3"


def test_awaiting_can_be_turned_off_and_on(asked: Notebook) -> None:
    assert "asyncio" in asked.run("%autoawait").stdout
    asked.run("%autoawait off")
    result = asked.run("await three()")
    assert result.content["ename"] == "SyntaxError"
    asked.run("%autoawait on")
    assert asked.run("await three()").text == "3"
    asked.run("%autoawait asyncio")
    assert asked.run("await three()").text == "3"


def test_tasks_are_cancelled_when_the_kernel_ends(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    kernel.run(
        "import asyncio\nasync def work():\n    try:\n        await asyncio.sleep(600)\n    finally:\n"
        f"        open({str(tmp_path / 'cleaned')!r}, 'w').close()\n"
        "task = asyncio.create_task(work()); await asyncio.sleep(0)"
    )
    kernel.ask("shutdown_request", {"restart": False}, channel="control")
    deadline = time.monotonic() + PATIENCE
    while kernel.manager.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not kernel.manager.is_alive()
    assert (tmp_path / "cleaned").exists()


def test_an_interrupted_await_shows_the_line(asked: Notebook) -> None:
    cell = asked.send(
        "async def waits():\n    asyncio.get_running_loop().call_soon(print, 'started')\n"
        "    await asyncio.sleep(600)\nawait waits()"
    )
    asked.wait_for_text(cell, "started")  # it waits by then
    asked.interrupt()
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(asked.wait(cell).content["traceback"]))
    assert "----> 4 await waits()" in text
    assert "----> 3     await asyncio.sleep(600)" in text
    assert "interrupts.py" not in text
    assert "tpu_kernel" not in text


def test_an_interrupt_of_code_that_does_not_await_shows_its_line(asked: Notebook) -> None:
    cell = asked.send("await asyncio.sleep(0)\nprint('started', flush=True)\nwhile True: pass")
    asked.wait_for_text(cell, "started")
    asked.interrupt()
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(asked.wait(cell).content["traceback"]))
    assert "----> 3 while True: pass" in text or "----> 2 print(" in text
    assert "tpu_kernel" not in text


def test_a_deep_recursion_is_shown_soon(asked: Notebook) -> None:
    asked.run("def deeper(n):\n    return deeper(n + 1)")
    result = asked.run("deeper(0)")
    assert result.content["ename"] == "RecursionError"
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert re.search(r"\[\.\.\. \d{3,} frames in the middle are not shown \.\.\.\]\nRecursionError: ", text)
    assert "----> 2     return deeper(n + 1)" in text
    assert len(text.splitlines()) < 60
