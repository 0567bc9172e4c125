"""What people reported of notebooks that use a chip: failed cells, cells run again, kernels that were killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import running_kernel
from notebook import PATIENCE, Notebook

MIB = 1 << 20


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "64MiB"}) as kernel:
        ready = kernel.run(
            "import time, torch\nfrom torch import nn\nfrom tpu_kernel import _kernel\n"
            "torch.zeros(1, device='tpu').item()",
        )
        assert ready.text == "0.0"
        yield kernel


def live(notebook: Notebook, most: int) -> int:
    """Bytes on the device, once they are down to `most`: TorchTPU frees on a thread of its own."""
    deadline = time.monotonic() + PATIENCE
    while True:
        now = int(notebook.run("_kernel.tpu_snapshot()['live_bytes']").text or -1)
        if now <= most or time.monotonic() > deadline:
            return now
        time.sleep(0.05)


def test_failed_cells_do_not_fill_the_device(notebook: Notebook) -> None:
    notebook.run(
        "def f():\n    big = torch.zeros(2 * 2**20, device='tpu'); big.sum().item()\n    raise ValueError"
    )
    start = live(notebook, 4096)
    assert start <= 4096
    for _ in range(20):  # 160 MiB, were they kept
        failed = notebook.run("f()")
        assert failed.content["ename"] == "ValueError"
    # the last traceback may hold one of them, and goes with the next error
    assert live(notebook, start + 8 * MIB) <= start + 8 * MIB
    assert notebook.run("1 / 0").content["ename"] == "ZeroDivisionError"
    assert live(notebook, start) <= start


def test_a_cell_that_builds_a_model_twice_says_that_the_old_one_is_alive(notebook: Notebook) -> None:
    build = (  # the device has refused it before the old one goes
        "new = nn.Linear(3 * 1024, 3 * 1024, bias=False, device='tpu'); time.sleep(1)\n"
        "model, new = new, None; model.weight[0, 0].item(); None"
    )
    assert notebook.run(build).status == "ok"
    again = notebook.run(build)
    assert again.content["ename"] == "OutOfMemoryError"
    # the device refused the new one while there was the old one; since then `model` is the new one
    assert (
        "\n36.00 MiB of it are free by now: what variables held that the cell has assigned again"
        in (again.content["evalue"])
    )
    assert notebook.run(build).status == "ok"
    assert notebook.run(f"del model\n{build}").status == "ok"
    # said with its name where the cell fails before the old one is gone
    held = notebook.run("new = nn.Linear(3 * 1024, 3 * 1024, bias=False).to('tpu')")
    assert held.content["ename"] == "OutOfMemoryError"
    assert "\nHeld by `model` 36.00 MiB" in held.content["evalue"]
    assert "\nWould free 36.00 MiB: `del model`. Then there is room for this" in held.content["evalue"]
    notebook.run("del model")


def test_the_chip_of_a_killed_kernel_is_free(new_kernel: Callable[..., Notebook]) -> None:
    use = "import os, torch; kept = torch.ones(1, device='tpu'); kept.item(), os.getpid()"
    first = new_kernel()
    value, pid = (first.run(use).text or "").strip("()").split(", ")
    assert value == "1.0"
    os.kill(int(pid), signal.SIGKILL)
    second = new_kernel()
    assert (second.run(use).text or "").startswith("(1.0, ")
