"""Slices of a tensor under %%tpu_compile: one program wherever they begin, and still the same slices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook

SETUP = """
import torch, torch.nn as nn, torch.nn.functional as F
from tpu_kernel import device
def fresh():
    torch.manual_seed(0)
    X, Y = torch.randn(512, 12).to("tpu"), torch.randint(0, 10, (512,)).to("tpu")
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10)).to("tpu")
    return X, Y, net, torch.optim.SGD(net.parameters(), lr=0.1)
"""
STEP = """
    opt.zero_grad()
    loss = F.cross_entropy(net(xb), yb)
    loss.backward()
    opt.step()
"""
LOOPS = {
    "numbers": "for i in range(0, 512, 64):\n    xb, yb = X[i:i+64], Y[i:i+64]",
    "split": "for xb, yb in zip(X.split(64), Y.split(64)):",
    "rows of columns": "for xb, yb in zip(X.view(8, 64, 12), Y.view(8, 64)):",
}


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as kernel:
        assert kernel.run(SETUP, patience=120).status == "ok"
        yield kernel


def run(notebook: Notebook, code: str) -> str:
    result = notebook.run(code, patience=120)
    assert result.status == "ok", result.content
    return result.displays[-1]["text/plain"] if result.displays else result.text or ""


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_a_training_step_over_slices_is_one_program(notebook: Notebook, loop: str) -> None:
    run(notebook, "X, Y, net, opt = fresh()")
    run(notebook, f"{loop}{STEP}")
    plain = run(notebook, "[round(v, 5) for v in (loss.item(), net[0].weight.sum().item())]")
    run(notebook, "X, Y, net, opt = fresh()")
    card = run(notebook, f"%%tpu_compile\n{loop}{STEP}")
    assert re.search(r"graphs traced +1 \(0 breaks\)", card), card
    assert "at most" not in card
    assert run(notebook, "[round(v, 5) for v in (loss.item(), net[0].weight.sum().item())]") == plain


def test_what_is_done_to_a_slice_is_done_to_the_whole(notebook: Notebook) -> None:
    cell = (
        "whole = torch.arange(12.0).to('tpu')\nfirst, second = whole[:6], whole[6:]\n"
        "second.mul_(2)\nsecond += 1\npart = second[2:4]\nsame = second\n"
    )
    run(notebook, f"%%tpu_compile\n{cell}")
    expected = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 13.0, 15.0, 17.0, 19.0, 21.0, 23.0]
    assert run(notebook, "whole.tolist()") == str(expected)
    run(notebook, "part.zero_(); same[0] = 5")
    assert run(notebook, "whole.tolist()[6:], second[0].item()") == "([5.0, 15.0, 0.0, 0.0, 21.0, 23.0], 5.0)"
    # a slice that was there before the program is a slice after it
    run(notebook, "%%tpu_compile\nlater = second[1:3]\ndoubled = second * 2")
    run(notebook, "later.fill_(7)")
    assert (
        run(notebook, "whole.tolist()[6:], doubled[0].item()") == "([5.0, 7.0, 7.0, 0.0, 21.0, 23.0], 10.0)"
    )
    run(notebook, "%%tpu_compile\nsecond.mul_(2)\nsecond[0] = 1\nsum_of = second.sum()")
    assert run(notebook, "whole.tolist()[6:], sum_of.item()") == "([1.0, 14.0, 14.0, 0.0, 42.0, 46.0], 117.0)"
