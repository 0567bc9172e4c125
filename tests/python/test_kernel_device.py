"""The device in a notebook: tensors stay, bytes are true, failures belong to their cell."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import PATIENCE, Notebook


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as kernel:
        result = kernel.run("import torch; torch.ones(3, device='tpu')")
        assert result.text == "tensor([1., 1., 1.], device='tpu:0')"
        assert (result.stdout, result.stderr) == ("", "")
        assert (
            kernel.run(
                "from tpu_kernel import _kernel; from tpu_kernel.memory import storages; from tpu_kernel.tpu import device"
            ).status
            == "ok"
        )
        yield kernel


def value(notebook: Notebook, expression: str) -> int:
    text = notebook.run(expression).text
    assert text is not None
    return int(text)


def test_a_tensor_of_one_cell_is_used_in_the_next_without_a_transfer(notebook: Notebook) -> None:
    notebook.run("kept = torch.full((256, 256), 2.0, device='tpu')")
    cursor = value(notebook, "_kernel.tpu_snapshot()['next_sequence']")
    assert notebook.run("double = kept @ kept", cell_id="second").status == "ok"
    kinds = notebook.run(f"sorted({{(e['kind'], e['cell']) for e in _kernel.tpu_events({cursor})[1]}})").text
    assert kinds in (
        "[('cache_hit', 'second'), ('execute', 'second')]",
        "[('compile', 'second'), ('execute', 'second')]",
    )
    assert notebook.run("double[0, 0].item()").text == "1024.0"
    notebook.run("del kept, double")


def test_a_cell_that_failed_gives_its_memory_back_when_its_error_is_replaced(notebook: Notebook) -> None:
    held = "sum(holding.bytes for holding in storages.find(torch, failures=False)[0].values())"
    before = value(notebook, held)
    failed = notebook.run("big = torch.ones(1 << 20, device='tpu')\nbig.sum().item()\n1 / 0")
    assert failed.content["ename"] == "ZeroDivisionError"
    assert value(notebook, held) == before + (4 << 20)
    notebook.run("del big")
    deadline = time.monotonic() + PATIENCE
    while value(notebook, held) != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert value(notebook, held) == before
    over = value(notebook, f"_kernel.tpu_snapshot()['live_bytes'] - {held}")
    assert 0 <= over <= 4096


def test_a_failure_on_the_device_is_an_error_of_the_cell_that_caused_it(notebook: Notebook) -> None:
    notebook.run("_kernel.tpu_set_limit(64 << 20)")
    failed = notebook.run("lost = torch.full((30 << 20,), 3.0, device='tpu')", cell_id="guilty")
    assert failed.status == "error"
    assert failed.content["ename"] == "OutOfMemoryError"
    assert notebook.run("_kernel.tpu_set_limit(0)").status == "ok"
    fits = notebook.run("torch.full((30 << 20,), 3.0, device='tpu')[-1].item()")
    assert fits.text == "3.0"
    notebook.run("del lost")


def test_waiting_for_the_device_is_interrupted_at_once_and_the_notebook_goes_on(notebook: Notebook) -> None:
    notebook.run("slow = torch.ones(2000, 2000, device='tpu')")
    cell = notebook.send("for _ in range(40): slow = (slow @ slow) * 5e-4\nprint('queued')")
    time.sleep(2)
    notebook.manager.interrupt_kernel()
    result = notebook.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert notebook.run("torch.ones(2, device='tpu').sum().item()").text == "2.0"
    notebook.run("del slow")


def test_a_python_child_of_a_cell_finds_the_device_quietly(notebook: Notebook) -> None:
    child = "import torch; print(torch.ones(2, device='tpu').sum().item())"
    code = f'import sys\n!"{{sys.executable}}" -c "{child}"'
    result = notebook.run(code)
    assert result.stdout.split() == ["2.0"]
    assert result.stderr == ""


def test_a_forked_child_that_comes_to_the_end_of_its_cell_has_not_failed(notebook: Notebook) -> None:
    assert notebook.run("import os; child = os.fork()").status == "ok"
    assert notebook.run("os.waitpid(child, 0)[1]").text == "0"


def test_a_fault_beside_the_cells_does_not_silence_the_kernel(notebook: Notebook) -> None:
    broken = (
        "import random, sys, threading\n"
        "frames, asked = sys._current_frames, threading.Event()\n"
        "def broken():\n"
        "    if threading.current_thread().name != 'service':\n"
        "        return frames()\n"
        "    asked.set()\n"
        "    raise RuntimeError('not here')\n"
        "sys._current_frames = broken"
    )
    assert notebook.run(broken).status == "ok"
    # the kernel looks where the main thread is when something is compiled
    compiling = "z = torch.ones(random.randrange(1000, 1 << 20), device='tpu') * 3; asked.wait(60)"
    assert notebook.run(compiling).text == "True"
    asked = notebook.ask("is_complete_request", {"code": "for each in many:"})
    assert asked.content["status"] == "incomplete"
    assert notebook.run("sys._current_frames = frames; del z").status == "ok"
