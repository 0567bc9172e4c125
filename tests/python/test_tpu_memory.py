"""Who holds device memory, and what a notebook is told when there is none left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, run

MIB = 1 << 20

SETUP = """
import json, time, torch
import torch.nn.functional as F
from torch import nn
from tpu_kernel.memory import holders
from tpu_kernel.tpu import device

def held():
    torch.accelerator.synchronize()
    for _ in range(100):  # TorchTPU frees on a thread of its own
        table = holders.table(globals(), device.snapshot()["live_bytes"], failures=device.snapshot()["errors"] > 0)
        if table.rest <= 4096:
            break
        time.sleep(0.02)
    print(json.dumps({
        "live": table.live, "named": table.named, "unnamed": table.unnamed, "rest": table.rest, "lost": table.lost,
        "names": {name: [h.kind, h.bytes] for h in table.holdings for name in h.names},
        "roots": table.by_root(),
    }))
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "64MiB"}) as kernel:
        assert kernel.run(SETUP).status == "ok"
        yield kernel
        kernel.run("%reset -f")


def held(notebook: Notebook) -> dict[str, Any]:
    return json.loads(run(notebook, "held()").stdout)


def test_every_byte_is_traced_to_the_name_a_person_knows_it_by(notebook: Notebook) -> None:
    run(
        notebook,
        "model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to('tpu')\n"
        "opt = torch.optim.AdamW(model.parameters())\n"
        "x = torch.randn(32, 64).to('tpu'); y = torch.zeros(32, dtype=torch.int64).to('tpu')\n"
        "loss = F.cross_entropy(model(x), y)",
    )
    seen = held(notebook)
    assert 0 <= seen["rest"] <= 64 and seen["unnamed"] == 0
    names = seen["names"]
    assert names["model.0.weight"] == ["parameter", 16384]
    assert names["x"] == ["variable", 8192]
    assert names["loss"] == ["variable", 4]
    # the activation and the logits, which only the graph keeps
    graph = [row for row in seen["roots"] if row[0] == "graph of loss"]
    assert graph == [["graph of loss", "graph", 2, 8192 + 1024]]
    run(notebook, "loss.backward(); opt.step()")
    names = held(notebook)["names"]
    assert names["model.2.weight.grad"] == ["gradient", 2048]
    assert names["opt.state[model.0.weight].exp_avg"] == ["optimizer", 16384]
    assert "graph of loss" not in names
    run(notebook, "opt.zero_grad(); del loss")
    seen = held(notebook)
    assert 0 <= seen["rest"] <= 4096 and seen["unnamed"] == 0
    run(notebook, "del model, opt, x, y")
    seen = held(notebook)
    assert seen["named"] == seen["unnamed"] == 0 and seen["rest"] <= 4096


def test_containers_objects_closures_outputs_and_tracebacks_are_followed(notebook: Notebook) -> None:
    run(
        notebook,
        "class Box:\n    __slots__ = ('inside',)\n"
        "box = Box(); box.inside = {'key': [torch.ones(256).to('tpu')]}\n"
        "def outer():\n    kept = torch.ones(512).to('tpu')\n    return lambda: kept\n"
        "inner = outer()\n"
        "views = [torch.ones(1024).to('tpu')[:3]]",
    )
    run(notebook, "torch.ones(128).to('tpu')")
    failed = notebook.run("def f():\n    big = torch.ones(2048).to('tpu')\n    raise ValueError\nf()")
    number = notebook.run("1").content["execution_count"] - 2
    assert failed.content["ename"] == "ValueError"
    names = held(notebook)["names"]
    assert names["box.inside['key'][0]"] == ["variable", 1024]
    assert names["inner().kept"] == ["variable", 2048]
    assert names["views[0]"] == ["variable", 4096]
    assert names[f"Out[{number}]"] == ["output", 512]
    assert names["last traceback: f() big"] == ["traceback", 8192]
    run(notebook, "del box, inner, views, outer; _ = Out.clear()")


@pytest.mark.parametrize("mode", ["strict", "fused", "debug"])
def test_the_cell_that_fills_the_device_says_who_holds_it(notebook: Notebook, mode: str) -> None:
    run(notebook, f"%tpu_mode {mode}")
    run(
        notebook,
        "weights = torch.ones(10 << 20).to('tpu'); cache = [torch.ones(2 << 20).to('tpu') for _ in range(2)]",
    )
    for code in (
        "more = torch.ones(20 << 20).to('tpu')",
        "more = weights * 2",
        "more = torch.full((20 << 20,), 3.0, device='tpu'); more.sum().item()",
    ):
        failed = notebook.run(code)
        assert failed.content["ename"] == "OutOfMemoryError", (code, failed.content)
        first, *rest = failed.content["evalue"].splitlines()
        assert re.fullmatch(
            r"out of device memory: .+ needs [\d.]+ MiB more, [\d.]+ [KM]iB of 64.00 MiB are free \([\d.]+ MiB in use\)\.",
            first,
        )
        assert re.match(r"Wanted by In\[\d+\], line 1(?: or before)?: `more = ", rest[0]), rest
        assert rest[1].startswith("Held by `weights` 40.00 MiB, `cache` 16.00 MiB in 2 tensors")
        # what the cell itself uses is not offered
        spare = "16.00 MiB: `del cache`" if "weights" in code else "56.00 MiB: `del weights, cache`"
        assert re.fullmatch(rf"Would free {spare}\. Even then 16\.0\d MiB are missing\.", rest[2]), rest
        assert "OutOfMemoryError" in "".join(failed.content["traceback"])
    # freed memory is there at once, and the notebook goes on
    assert (
        run(notebook, "del weights, cache\nmore = torch.ones(12 << 20).to('tpu'); more.sum().item()").text
        == "12582912.0"
    )
    run(notebook, "del more\n_ = Out.clear()")
    run(notebook, "%tpu_mode strict")


def test_tensors_whose_computation_failed_are_named(notebook: Notebook) -> None:
    run(notebook, "a = torch.ones(6 << 20).to('tpu')")
    failed = notebook.run("b = a * 2\nc = b + 1\nd = c - 1")
    assert failed.content["ename"] == "OutOfMemoryError"
    assert failed.content["evalue"].splitlines()[-1] == (
        "Lost, because what computes them failed: `c`, `d`. Compute them again."
    )
    assert held(notebook)["lost"] == ["c", "d"]
    assert run(notebook, "b.sum().item()").text == "12582912.0"
    run(notebook, "del a, b, c, d\n_ = Out.clear()")


def test_graphs_that_share_their_nodes_are_gone_through_once(notebook: Notebook) -> None:
    run(
        notebook,
        "weight = torch.randn(8, 8, device='tpu', requires_grad=True)\n"
        "state, states = torch.randn(2, 8, device='tpu'), []\n"
        "for _ in range(40):\n"
        "    state = torch.tanh(state @ weight)\n"
        "    states.append(state)\n"
        "from tpu_kernel.memory import storages, walk\n"
        "looked_at, plain = [], storages.saved_by\n"
        "def noted(node):\n"
        "    looked_at.append(1)\n"
        "    return plain(node)\n"
        "nodes = [state.grad_fn]\n"
        "for node in nodes:\n"
        "    nodes += {each for each, _ in node.next_functions if each is not None} - {*nodes}\n"
        "there_are = len(nodes)\n"
        "del nodes, node",
    )
    counted = run(
        notebook,
        "storages.saved_by = walk.saved_by = noted\n"
        "try:\n"
        "    table = holders.table(globals(), device.snapshot()['live_bytes'], shares=True)\n"
        "finally:\n"
        "    storages.saved_by = walk.saved_by = plain\n"
        "print(there_are >= 80, len(looked_at) - 2 * there_are)\n"
        "print({group.name: sorted(group.others) for group in table.groups()}['states'])\n"
        "del table",
    )
    assert counted.stdout == "True 0\n['state']\n"
    run(notebook, "del weight, state, states, _")


def test_objects_that_answer_for_others_are_not_asked(notebook: Notebook) -> None:
    run(
        notebook,
        "asked = []\n"
        "class Proxy:\n"
        "    @property\n"
        "    def __class__(self):\n"
        "        asked.append('class')\n"
        "        raise RuntimeError('there is nothing behind it')\n"
        "class Lazy(dict):\n"
        "    def items(self):\n"
        "        asked.append('items')\n"
        "        return []\n"
        "class Row(list):\n"
        "    def __iter__(self):\n"
        "        asked.append('iter')\n"
        "        return iter(())\n"
        "proxy = Proxy()\n"
        "proxy.inner = torch.ones(512, device='tpu')\n"
        "lazy, row = Lazy(key=torch.ones(256, device='tpu')), Row([torch.ones(128, device='tpu')])",
    )
    names = held(notebook)["names"]
    assert names["proxy.inner"] == ["variable", 2048]
    assert names["lazy['key']"] == ["variable", 1024]
    assert names["row[0]"] == ["variable", 512]
    assert run(notebook, "%tpu_mem").displays[0]["text/plain"].startswith("HBM of TPU v5e")
    assert run(notebook, "asked").text == "[]"
    run(notebook, "%tpu_free proxy lazy row")
