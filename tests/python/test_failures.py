"""What fails on the device is told once, in the cell that caused it, whoever asked for it and however."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SETUP = """
import threading, time, torch
from contextlib import suppress
kept = torch.ones(10 << 20, device="tpu")
def big():
    return torch.full((20 << 20,), 3.0, device="tpu")
def start(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread
go, gone, end = threading.Event(), threading.Event(), threading.Event()
"""
FULL = re.compile(r"out of device memory: program `tt_jit_\w+` needs 80.00 MiB more, ")
MODES = ["strict", "fused", "debug"]


@pytest.fixture(scope="module")
def shared(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "64MiB"}) as kernel:
        assert kernel.run(SETUP).status == "ok"
        yield kernel


@pytest.fixture
def notebook(shared: Notebook) -> Iterator[Notebook]:
    shared.strays.clear()
    yield shared
    assert (
        shared.run("go.set(); end.set(); thread = globals().get('thread')\nthread and thread.join()").status
        == "ok"
    )
    shared.run("%tpu_mode strict")
    shared.run(
        "go.clear(); gone.clear(); end.clear()\nfor name in ('lost', 'other', 'thread'): globals().pop(name, None)"
    )


def told(result: Result) -> int:
    """How often a result says that the device was full."""
    errors = sum(bool(FULL.match(error["evalue"])) for error in result.contents("error"))
    notes = sum("and then: " in line for error in result.contents("error") for line in error["traceback"])
    return errors + notes + len(FULL.findall(result.stderr))


def late(notebook: Notebook, cell: str) -> str:
    """What came on stderr of a cell that had ended."""
    streams = [m for m in notebook.strays if m["msg_type"] == "stream"]
    assert {m["parent_header"]["msg_id"] for m in streams} <= {cell}
    return "".join(m["content"]["text"] for m in streams)


CAUSES = {
    "kept": "lost = big()",
    "dropped": "big(); None",
    "overwritten": "lost = big(); other = lost + 1; time.sleep(0.2); lost = other = None",
    "thread": "thread = start(lambda: globals().update(lost=big()) or time.sleep(0.2)); thread.join()",
    "awaiting": "lost = big()\nawait __import__('asyncio').sleep(0)",
}


@pytest.mark.parametrize(
    ("mode", "cause"),
    # in fused mode nothing is computed that nobody keeps
    [
        (mode, cause)
        for mode in MODES
        for cause in CAUSES
        if mode != "fused" or cause not in ("dropped", "overwritten")
    ],
)
def test_a_failure_is_told_once_in_the_cell_that_caused_it(notebook: Notebook, mode: str, cause: str) -> None:
    notebook.run(f"%tpu_mode {mode}")
    failed = notebook.run(CAUSES[cause])
    assert failed.content["ename"] == "OutOfMemoryError"
    assert FULL.match(failed.content["evalue"])
    # in debug mode an operation raises in its thread too, and Python says on stderr what ends a thread
    assert told(failed) == (2 if (mode, cause) == ("debug", "thread") else 1)
    after = notebook.run("kept[0].item()")
    assert (after.text, after.stderr) == ("1.0", "")
    assert late(notebook, "") == ""


def test_a_failure_that_a_read_told_is_not_told_again(notebook: Notebook) -> None:
    for code in ("lost = big()\nlost.sum().item()", "lost = big(); time.sleep(0.3)\n(lost + 1).sum().item()"):
        failed = notebook.run(code)
        # also where TorchTPU only says that an argument is in a failed state
        assert failed.content["ename"] == "OutOfMemoryError"
        assert told(failed) == 1
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(failed.content["traceback"]))
        assert "----> 2" in text and "item()" in text
    assert told(notebook.run("1")) == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "code",
    [
        "try:\n    {}\nexcept RuntimeError as error:\n    print('caught')",
        "def careful():\n    try:\n        {}\n    except Exception:\n        print('caught')\ncareful()",
        "for _ in range(2):\n    try:\n        {}\n    except (ValueError, RuntimeError):\n        print('caught')",
        "try:\n    try:\n        {}\n    finally:\n        print('caught')\nexcept RuntimeError:\n    pass",
    ],
    ids=["cell", "function", "loop", "finally"],
)
def test_a_failure_the_cell_caught_is_not_told_again(notebook: Notebook, mode: str, code: str) -> None:
    notebook.run(f"%tpu_mode {mode}")
    for read in ("lost = big(); lost.sum().item()", "lost = big() * kept[0]; time.sleep(0.1); lost.cpu()"):
        result = notebook.run(code.format(read))
        assert result.status == "ok", result.content
        assert result.stdout in ("caught\n", "caught\ncaught\n")
        assert result.stderr == ""
        assert notebook.run("kept[0].item()").text == "1.0"


def test_a_failure_nobody_read_is_told_although_the_cell_catches_another(notebook: Notebook) -> None:
    result = notebook.run(
        "lost = big()\ntry:\n    torch.ones(20 << 20).to('tpu')\nexcept RuntimeError:\n    print('caught')",
    )
    assert result.stdout == "caught\n"
    assert result.content["ename"] == "OutOfMemoryError"
    assert told(result) == 1


WORK = "def work():\n    go.wait()\n    {}\n    gone.set()\n    end.wait()\nthread = start(work)"


def test_a_thread_that_fails_while_a_later_cell_runs_is_told_in_its_own(notebook: Notebook) -> None:
    started = notebook.send(WORK.format("mine = big()"))
    notebook.wait(started)
    later = notebook.run("go.set(); gone.wait(); time.sleep(0.3); 'innocent'")
    assert (later.status, later.text, later.stderr) == ("ok", "'innocent'", "")
    assert notebook.run("end.set(); thread.join()").status == "ok"
    said = late(notebook, started)
    assert said.startswith("A thread this cell started failed on the device: out of device memory: ")
    assert len(FULL.findall(said)) == 1


def test_a_thread_that_fails_between_cells_is_told_in_its_own(notebook: Notebook) -> None:
    started = notebook.send("def work():\n    time.sleep(1)\n    mine = big()\nthread = start(work)")
    assert notebook.wait(started).status == "ok"
    notebook.wait_for_text(started, "What went on after this cell failed on the device: out of device memory")
    after = notebook.run("thread.join(); kept[0].item()")
    assert (after.text, after.stderr) == ("1.0", "")


def test_a_thread_of_an_earlier_cell_that_reads_what_failed_says_so_itself(notebook: Notebook) -> None:
    started = notebook.send(WORK.format("big().sum().item()"))
    notebook.wait(started)
    later = notebook.run("go.set(); thread.join(); 'innocent'")
    assert (later.status, later.text, later.stderr) == ("ok", "'innocent'", "")
    assert notebook.run("1").stderr == ""
    said = late(notebook, started)
    assert said.startswith("Exception in thread Thread-") and "RuntimeError: " in said


def test_a_failure_of_nobody_knows_whom_fails_no_cell(notebook: Notebook) -> None:
    notebook.run(WORK.format("globals().update(lost=big())"))
    later = notebook.run("go.set(); gone.wait(); time.sleep(0.3); 'innocent?'")
    assert (later.status, later.text) == ("ok", "'innocent?'")
    assert later.stderr.startswith(
        "On the device, of an unknown cell (this one, or something an earlier one started): out of device memory"
    )
    assert told(later) == 1
    assert told(notebook.run("1")) == 0


def test_a_cell_fails_by_its_own_tensors_while_a_thread_uses_the_device(notebook: Notebook) -> None:
    notebook.run(
        "def work():\n    while not go.is_set():\n        kept[:1] + 1\n        time.sleep(0.01)\nthread = start(work)"
    )
    failed = notebook.run("lost = big()")
    assert failed.content["ename"] == "OutOfMemoryError"
    assert told(failed) == 1


def test_a_thread_without_the_device_takes_no_blame(notebook: Notebook) -> None:
    notebook.run("thread = start(go.wait)")
    failed = notebook.run("big(); None")
    assert failed.content["ename"] == "OutOfMemoryError"


def test_without_the_wait_failures_are_told_once_of_an_unknown_cell(kernelspec: str) -> None:
    unknown = (
        "On the device, of an unknown cell (this one, or something an earlier one started): out of device"
    )
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "64MiB", "TPU_KERNEL_DRAIN": "0"}) as notebook:
        assert notebook.run(SETUP).status == "ok"
        first = notebook.run("lost = big()\ntime.sleep(1)")
        assert first.status == "ok"
        assert first.stderr.startswith(unknown)
        results = [first, notebook.run("lost = big()"), notebook.run("time.sleep(1)"), notebook.run("1")]
        assert {result.status for result in results} == {"ok"}
        said = [m["content"]["text"] for m in notebook.strays if m["msg_type"] == "stream"]
        assert sum(map(told, results)) + sum(len(FULL.findall(text)) for text in said) == 2
        read = notebook.run("lost.sum().item()")
        assert read.content["ename"] == "RuntimeError"
        assert told(notebook.run("1")) == 0


def test_a_compiled_cell_that_fails_when_the_device_comes_to_it_shows_its_error_and_no_card(
    notebook: Notebook,
) -> None:
    cell = "%%tpu_compile\nbig()\nprint('went on')"
    result = notebook.run(cell)
    cards = [
        shown for shown in result.displays if shown["text/plain"].startswith(("compiled", "ran eagerly"))
    ]
    assert (result.status, result.stdout, told(result), cards) == ("error", "went on\n", 1, [])
    fine = notebook.run("%%tpu_compile\nkept * 2; None")
    assert fine.status == "ok", fine.content
    assert fine.displays[-1]["text/plain"].startswith("compiled")
