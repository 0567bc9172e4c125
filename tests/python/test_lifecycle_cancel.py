"""A second interrupt cancels what waits for the device; the first only what Python does."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

pytestmark = pytest.mark.alone

SETUP = """
import time, torch
start = torch.ones(2000, 2000, device="tpu")
def work():
    x = start
    for _ in range(200):
        x = (x @ x) * 5e-4
    return x
work_of_one = (start @ start) * 5e-4
begun = time.monotonic()
for _ in range(3):
    work_of_one = (work_of_one @ work_of_one) * 5e-4
work_of_one.sum().item()
(time.monotonic() - begun) / 3
"""
CANCELLED = "The interrupt cancelled what waited for the device. Lost: "


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def one(notebook: Notebook) -> float:
    """Seconds of one program here and now."""
    return float(notebook.run(SETUP).text or "nan")


def interrupted_twice(notebook: Notebook, code: str, one: float) -> Result:
    """Interrupt `code` twice while it computes. It ends within what was launched, not after all of it."""
    cell = notebook.send(f"print('begun', flush=True)\n{code}")
    notebook.wait_for_text(cell, "begun")
    time.sleep(2)
    notebook.interrupt()
    time.sleep(1)
    begun = time.monotonic()
    notebook.interrupt()
    result = notebook.wait(cell)
    assert time.monotonic() - begun < 10 + 10 * one < 200 * one
    return result


def plain(result: Result) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))


@pytest.mark.parametrize("mode", ["strict", "fused", "debug"])
def test_a_second_interrupt_cancels_what_a_read_waits_for(notebook: Notebook, one: float, mode: str) -> None:
    notebook.run(f"%tpu_mode {mode}")
    result = interrupted_twice(notebook, "lost = None\nlost = work()\nlost.sum().item()", one)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert [error["ename"] for error in result.contents("error")] == ["KeyboardInterrupt"]
    if mode == "strict":
        assert re.match(
            r"interrupt pending: device execution \d s \(tt_jit_m", result.displays[0]["text/plain"]
        )
    text = plain(result)
    assert "----> " in text and "RuntimeError" not in text
    # in debug mode the first is enough: nothing waits behind the operation that runs
    assert result.stderr.startswith(CANCELLED) or (mode == "debug" and result.stderr == "")
    # the notebook goes on with what it has
    assert notebook.run("(start[0, 0] + 1).item()").text == "2.0"
    notebook.run("%tpu_mode strict")
    notebook.run("del lost")


def test_tensors_that_are_lost_by_a_second_interrupt_are_named(notebook: Notebook, one: float) -> None:
    code = "weights = start * 1\nweights.sum().item()\nstep = work()\nweights -= step\nlosses = [weights.sum()]; losses[0].item()"
    result = interrupted_twice(notebook, code, one)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert result.stderr == f"{CANCELLED}`losses[0]`, `step`, `weights`: compute them again.\n"
    assert notebook.run("weights.sum().item()").content["ename"] == "RuntimeError"
    assert notebook.run("weights = start * 1; weights[0, 0].item()").text == "1.0"
    notebook.run("del weights, step, losses")


def test_a_second_interrupt_after_the_cell_ended_cancels_what_it_left(notebook: Notebook, one: float) -> None:
    cell = notebook.send("left = work()")
    time.sleep(2)
    notebook.interrupt()
    result = notebook.wait(cell)
    assert result.content["evalue"] == "while waiting for the device; what was queued goes on there"
    notebook.interrupt()
    begun = time.monotonic()
    assert notebook.run("(start[0, 0] + 2).item()").text == "3.0"
    assert time.monotonic() - begun < 10 + 10 * one < 200 * one
    notebook.run("None")
    late = [m for m in notebook.strays if m["msg_type"] == "stream"]
    assert [m["content"]["text"] for m in late] == [f"{CANCELLED}`left`: compute them again.\n"]
    assert late[0]["parent_header"]["msg_id"] == cell


def test_two_interrupts_far_apart_cancel_nothing(notebook: Notebook, one: float) -> None:
    code = "kept = (start @ start) * 5e-4\ntime.sleep(600)"
    for _ in range(2):
        cell = notebook.send(code)
        time.sleep(1)
        notebook.interrupt()
        result = notebook.wait(cell)
        assert result.content["ename"] == "KeyboardInterrupt"
        assert result.stderr == ""
        time.sleep(5.5)
    assert notebook.run("kept[0, 0].item()").text == "1.0"
