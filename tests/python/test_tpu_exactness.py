"""What is on the device, counted three ways that must agree: tpu-core, PyTorch, and a walk over all tensors.

The only bytes no tensor has are the Python numbers TorchTPU keeps on the device, 4 or 8 bytes each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, run

MIB = 1 << 20

SETUP = """
import gc, json, time, torch
import torch.nn.functional as F
from torch import nn
from tpu_kernel.tpu import device

def _walk():
    # Every tensor there is, found without the product's own walk.
    storages = {}
    # Those of the compiler are only descriptions, of another class.
    tensors = [value for value in gc.get_objects() if type(value) in (torch.Tensor, nn.Parameter)]
    tensors += [value.grad for value in tensors if value.is_leaf and value.grad is not None]
    for value in tensors:
        # The state of the random numbers is the generator's; Python has seen it only.
        random = value.dtype is torch.uint64 and value.shape == (2,)
        if value.device.type == "tpu" and not random:
            storages[value.untyped_storage()._cdata] = value.untyped_storage().nbytes()
    return sum(storages.values()), len(storages)

def counts():
    torch.accelerator.synchronize()
    deadline = time.monotonic() + 100  # TorchTPU frees on a thread of its own
    while True:
        bytes, storages = _walk()
        core = device.snapshot()
        over, hidden = core["live_bytes"] - bytes, core["live_buffers"] - storages
        if 0 <= over <= 8 * hidden or time.monotonic() > deadline:
            break
        time.sleep(0.005)
    held = device.holdings()
    print(json.dumps({
        "walked": bytes, "core": core["live_bytes"], "torch": torch.accelerator.memory_allocated(), "hidden": hidden,
        "places": [place["live_bytes"] for place in held["places"]],
        "cells": {cell["cell"]: cell["live_bytes"] for cell in held["cells"]},
        "peak": [core["peak_bytes"], torch.accelerator.max_memory_allocated()],
    }))
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as kernel:
        assert kernel.run(SETUP).status == "ok"
        yield kernel


def counted(notebook: Notebook) -> dict[str, Any]:
    """The three counts, which agree but for the numbers TorchTPU keeps."""
    seen = json.loads(run(notebook, "counts()").stdout)
    assert seen["core"] == seen["torch"] == seen["places"][0] == sum(seen["cells"].values())
    assert seen["peak"][0] == seen["peak"][1] >= seen["core"]
    assert set(seen["places"][1:]) == {0}
    assert 0 <= seen["core"] - seen["walked"] <= 8 * seen["hidden"], seen
    return seen


def test_tensors_made_and_deleted(notebook: Notebook) -> None:
    before = counted(notebook)
    run(notebook, "a = torch.ones(MIB := 1 << 20).to('tpu'); b = torch.zeros(256, 256, device='tpu')")
    seen = counted(notebook)
    assert seen["walked"] - before["walked"] == 4 * MIB + 4 * 65536
    run(notebook, "c = a + 1; d = a[:8]; e = b.t(); a.add_(1);")
    assert counted(notebook)["walked"] == seen["walked"] + 4 * MIB
    run(notebook, "del a")
    assert counted(notebook)["walked"] == seen["walked"] + 4 * MIB
    run(notebook, "del b, c, d, e")
    assert counted(notebook)["walked"] == before["walked"]


MODELS = {
    "mlp": (
        "nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))",
        "torch.randn(16, 64)",
        "torch.optim.AdamW(model.parameters())",
        # Weights and biases, twice more for AdamW; a batch and its labels.
        3 * 4 * (64 * 32 + 32 + 32 * 10 + 10) + 4 * 16 * 64 + 8 * 16,
    ),
    "cnn": (
        "nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))",
        "torch.randn(16, 1, 8, 8)",
        "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
        # Once more for the momentum; mean, variance and number of batches of the normalization.
        2 * 4 * (4 * 9 + 4 + 4 + 4 + 1440 + 10) + 4 * 8 + 8 + 4 * 16 * 64 + 8 * 16,
    ),
    "transformer": (
        "nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), nn.Flatten(), nn.Linear(64, 10))",
        "torch.randn(16, 4, 16)",
        "torch.optim.SGD(model.parameters(), lr=0.1)",
        4 * (3 * 16 * 16 + 48 + 16 * 16 + 16 + 2 * 16 * 32 + 32 + 16 + 4 * 16 + 640 + 10)
        + 4 * 16 * 64
        + 8 * 16,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_trained_deleted_and_trained_again(notebook: Notebook, name: str) -> None:
    model, batch, optimizer, expected = MODELS[name]
    before = counted(notebook)
    cell = f"""
model = {model}.to("tpu")
opt = {optimizer}
x, y = {batch}.to("tpu"), torch.zeros(16, dtype=torch.int64).to("tpu")
for _ in range(3):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
opt.zero_grad(); del loss
"""
    run(notebook, cell)
    first = counted(notebook)
    assert first["walked"] - before["walked"] == expected
    # The same cell again lets go of what it made before, once the garbage collector has been there.
    run(notebook, cell + "gc.collect()\n")
    again = counted(notebook)
    assert again["walked"] == first["walked"]
    run(notebook, "del model, opt, x, y; gc.collect()")
    assert counted(notebook)["walked"] == before["walked"]


def test_a_compiled_step(notebook: Notebook) -> None:
    before = counted(notebook)
    run(
        notebook,
        """
model = nn.Linear(16, 4).to("tpu"); opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(32, 16).to("tpu"), torch.zeros(32, dtype=torch.int64).to("tpu")
@torch.compile
def step(x, y):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
losses = [step(x, y) for _ in range(3)]
opt.zero_grad()
""",
    )
    seen = counted(notebook)
    assert seen["walked"] - before["walked"] == 4 * (68 + 32 * 16 + 3) + 8 * 32
    run(notebook, "del model, opt, x, y, step, losses; torch._dynamo.reset(); gc.collect()")
    assert counted(notebook)["walked"] == before["walked"]


def test_an_error_keeps_its_tensors_only_until_the_next_one(notebook: Notebook) -> None:
    run(notebook, "def fails():\n    big = torch.ones(1 << 20).to('tpu')\n    raise ValueError(big.shape)")
    before = counted(notebook)
    for _ in range(20):
        assert notebook.run("fails()").content["ename"] == "ValueError"
    assert counted(notebook)["walked"] - before["walked"] == 4 * MIB
    assert notebook.run("1 / 0").content["ename"] == "ZeroDivisionError"
    assert counted(notebook)["walked"] == before["walked"]


def test_memory_belongs_to_the_cell_that_made_it(notebook: Notebook) -> None:
    made = run(notebook, "kept = torch.ones(1000).to('tpu')")
    cell = next(name for name, live in counted(notebook)["cells"].items() if live == 4000)
    run(notebook, "more = torch.ones(500).to('tpu')")
    assert counted(notebook)["cells"][cell] == 4000, made.content
    run(notebook, "del kept")
    assert counted(notebook)["cells"][cell] == 0
    run(notebook, "del more")
