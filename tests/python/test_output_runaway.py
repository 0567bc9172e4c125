"""Cells that print or display without end: bounded memory, a quick interrupt, an honest count."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from conftest import running_kernel
from notebook import PATIENCE, Notebook, Result

pytestmark = pytest.mark.alone

MIB = 1 << 20
STOPS = "\n[This cell has written 1048576 bytes. What it writes from here on is counted but not shown; "
STOPS += "TPU_KERNEL_OUTPUT_CAP sets the limit.]\n"


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str) -> Iterator[Notebook]:
    """A kernel that stops each cell's output at 1 MiB."""
    with running_kernel(kernelspec, env={"TPU_KERNEL_OUTPUT_CAP": "1MiB"}) as notebook:
        yield notebook


def process(kernel: Notebook) -> psutil.Process:
    """The kernel's process."""
    return psutil.Process(int(kernel.run("import os; os.getpid()").text or 0))


def dropped(text: str) -> list[int]:
    """The counts the person was told of."""
    return [int(n) for n in re.findall(r"\[(\d+) bytes that this cell wrote are not shown.\]\n", text)]


def interrupt_after(kernel: Notebook, code: str, seconds: float) -> tuple[Result, float]:
    """Run a cell, read its output, interrupt it; and how long it took to become idle."""
    cell = kernel.send(code)
    messages = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        messages += kernel._take(kernel.client.iopub_channel, 0.05)
    start = time.monotonic()
    kernel.interrupt()
    result = kernel.wait(cell)
    took = time.monotonic() - start
    result.messages[:0] = messages
    return result, took


def test_an_endless_print_stops_at_the_cap_and_says_how_much_was_dropped(kernel: Notebook) -> None:
    before = process(kernel).memory_info().rss
    result, took = interrupt_after(kernel, "count = 0\nwhile True:\n    print('x' * 199)\n    count += 1", 2)
    assert took < 25
    assert result.content["ename"] == "KeyboardInterrupt"
    assert result.stdout == ("x" * 199 + "\n") * (MIB // 200) + "x" * (MIB % 200)
    stops, told = result.stderr[: len(STOPS)], result.stderr[len(STOPS) :]
    assert stops == STOPS
    (count,) = dropped(told)
    assert process(kernel).memory_info().rss < before + 64 * MIB
    printed = int(kernel.run("count").text or 0) * 200
    # The interrupt may come between the text of a line and the count of lines.
    assert 0 <= count - (printed - MIB) <= 200
    assert count > 10 * MIB


@pytest.mark.parametrize(
    ("end", "status"), [("", "ok"), ("\nraise SystemError('stop')", "error")], ids=["ok", "error"]
)
def test_the_count_stands_at_the_end_of_the_cell(kernel: Notebook, end: str, status: str) -> None:
    result = kernel.run("import sys\nsys.stdout.write('é' * 1_000_000)\ndisplay('still shown')" + end)
    assert result.status == status
    assert result.stdout == "é" * (MIB // 2)
    assert dropped(result.stderr) == [2_000_000 - MIB]
    assert result.displays == [{"text/plain": "'still shown'"}]
    assert result.types[-1] == "stream"
    assert kernel.run("print('next')").stdout == "next\n"


def test_what_children_and_commands_write_is_capped_and_counted(kernel: Notebook) -> None:
    result = kernel.run("import subprocess\nsubprocess.run('yes | head -c 3000000', shell=True);")
    assert len(result.stdout) == MIB
    assert dropped(result.stderr) == [3_000_000 - MIB]
    result = kernel.run("!yes | head -c 3000000")
    assert len(result.stdout) == MIB
    assert dropped(result.stderr) == [3_000_000 - MIB]
    result, took = interrupt_after(kernel, "!yes", 1)
    assert took < 25
    assert (len(result.stdout), result.content["ename"]) == (MIB, "KeyboardInterrupt")
    assert dropped(result.stderr)[0] > MIB


def test_a_thread_that_floods_after_its_cell_is_counted_too(kernel: Notebook) -> None:
    cell = kernel.send(
        "import threading\ngo = threading.Event()\n"
        "def flood():\n    go.wait(100)\n    for _ in range(20): print('x' * 99_999)\n"
        "thread = threading.Thread(target=flood); thread.start()"
    )
    kernel.wait(cell)
    assert kernel.run("go.set(); thread.join(); print('mine')").stdout == "mine\n"
    deadline = time.monotonic() + PATIENCE
    told: list[int] = []
    while not told and time.monotonic() < deadline:
        kernel.strays += kernel._take(kernel.client.iopub_channel, 0.05)
        own = [m["content"] for m in kernel.strays if m["parent_header"].get("msg_id") == cell]
        told = dropped("".join(c["text"] for c in own if c.get("name") == "stderr"))
    assert told == [2_000_000 - MIB]


def test_cleared_output_and_redrawn_lines_do_not_count(kernel: Notebook) -> None:
    result = kernel.run(
        "from IPython.display import clear_output\nfor n in range(30):\n    clear_output()\n    print('x' * 100_000)"
    )
    assert (len(result.stdout), result.stderr) == (30 * 100_001, "")
    result = kernel.run("for n in range(30_000): print(f'\\rstep {n:100}', end='')\nprint()")
    assert (len(result.stdout), result.stderr) == (30_000 * 106 + 1, "")
    result = kernel.run("print('x' * 2_000_000)\nclear_output()\nprint('seen')")
    assert result.stdout.endswith("xseen\n")
    assert dropped(result.stderr) == [2_000_001 - MIB]


def test_an_endless_display_loses_nothing_and_can_be_interrupted(kernel: Notebook) -> None:
    before = process(kernel).memory_info().rss
    result, took = interrupt_after(
        kernel, "count = 0\nwhile True:\n    display('y' * 5000)\n    count += 1", 2
    )
    assert took < 25
    assert result.content["ename"] == "KeyboardInterrupt"
    count = int(kernel.run("count").text or 0)
    # an interrupt that has to wait for a slow reader says so in the cell
    shown = [d for d in result.displays if not str(d["text/plain"]).startswith("interrupt pending")]
    assert count <= len(shown) <= count + 1
    assert process(kernel).memory_info().rss < before + 64 * MIB


@pytest.mark.parametrize("setting", ["off", "lots"])
def test_no_cap_or_a_wrong_one_loses_nothing(new_kernel: Callable[..., Notebook], setting: str) -> None:
    kernel = new_kernel(env={"TPU_KERNEL_OUTPUT_CAP": setting})
    result = kernel.run("print('x' * 3_000_000)")
    assert (len(result.stdout), result.stderr) == (3_000_001, "")
