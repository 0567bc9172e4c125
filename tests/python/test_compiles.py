"""What a notebook is told about compiles: recompiles while a cell runs, their cause and line, and restarts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import running_kernel
from notebook import PATIENCE, Notebook, Result, run

SETUP = """
import json, torch
import torch.nn.functional as F
from tpu_kernel.tpu import compiles, device
w = torch.ones(128, 128, device="tpu")
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as kernel:
        run(kernel, SETUP)
        yield kernel


def storms(result: Result) -> list[tuple[str, str]]:
    """Type and text of the messages that show a storm's card."""
    shown = [
        (message["msg_type"], message["content"]["data"]["text/plain"], message["content"]["transient"])
        for message in result.messages
        if message["msg_type"] in ("display_data", "update_display_data")
    ]
    cards = [entry for entry in shown if entry[1].startswith("compiles at every step")]
    assert len({transient["display_id"] for _, _, transient in cards}) <= 1
    return [(kind, text) for kind, text, _ in cards]


def counted(text: str) -> int:
    found = re.search(r"(\d+) programs compiled in this cell", text)
    assert found is not None, text
    return int(found[1])


def test_a_compiled_loop_over_growing_batches_is_told_once_and_then_counted(notebook: Notebook) -> None:
    result = run(
        notebook,
        '%%tpu_compile\nfor n in range(60, 70):\n    x = torch.randn(n, 128).to("tpu")\n'
        "    y = ((x @ w).relu() * 2).sum()\n    print(n)",
    )
    cards = storms(result)
    assert [kind for kind, _ in cards].count("display_data") == 1 and cards[0][0] == "display_data"
    number = result.content["execution_count"]
    lines = cards[0][1].splitlines()
    assert lines[1] == f"  In[{number}], line 4: dimension 0 of float32[62, 128] was 60, 61, 62."
    assert lines[2:] == [
        "  Pad to one size, and leave out a short last batch (DataLoader(…,",
        "  drop_last=True)).",
    ]
    # it came while the loop went on
    first = next(i for i, m in enumerate(result.messages) if m["msg_type"] == "display_data")
    printed = "".join(m["content"]["text"] for m in result.messages[first:] if m["msg_type"] == "stream")
    assert "69" in printed.split()
    (card,) = [text for text in (d["text/plain"] for d in result.displays) if text.startswith("compiled ·")]
    compiled = re.search(r"programs compiled +(\d+)", card)
    assert compiled is not None and counted(cards[-1][1]) == int(compiled[1]) >= 10
    assert re.search(r"line 4 +dimension 0 of x was 66, is 67 \(7 times\)", card)
    assert "PyTorch compiles for 8 shapes at most" in card


def test_a_plain_loop_is_told_too_and_what_it_made_is_let_go_of(notebook: Notebook) -> None:
    run(notebook, "most, compiles._MOST_PROGRAMS = compiles._MOST_PROGRAMS, 25")
    result = run(
        notebook,
        'seen = []\nfor n in range(70, 90):\n    seen.append((torch.ones(n, 128).to("tpu") @ w).relu().sum().item())',
    )
    cards = storms(result)
    assert re.search(
        r"In\[\d+\], loop in line 2: dimension 0 of float32\[\d+, 128\] was 70, 71, 72", cards[0][1]
    )
    assert counted(cards[-1][1]) == 60
    left, values = json.loads(
        run(notebook, "print(json.dumps([device.snapshot()['loaded_programs'], seen]))").stdout
    )
    assert left < 40
    assert values == [n * 128 * 128.0 for n in range(70, 90)]
    # what was let go of comes back
    again = '(torch.ones(70, 128).to("tpu") @ w).relu().sum().item()'
    assert run(notebook, again).text == str(70 * 128 * 128.0)
    run(notebook, "compiles._MOST_PROGRAMS = most")


def test_programs_that_run_again_and_again_are_not_looked_through_at_each_compile(notebook: Notebook) -> None:
    run(
        notebook,
        "from tpu_kernel import _kernel\nmost, compiles._MOST_PROGRAMS = compiles._MOST_PROGRAMS, 20\n"
        "looks, programs = [], _kernel.tpu_programs\n"
        "def tpu_programs(cursor):\n    if cursor == 0: looks.append(1)\n    return programs(cursor)\n"
        "torch.accelerator.synchronize(); compiles._State.enough = 0\n"
        "for again in range(3):\n    for n in range(300, 340): w[:, :1].expand(128, n).sum(1)\n"
        "torch.accelerator.synchronize(); _kernel.tpu_programs = tpu_programs",
    )
    for n in range(340, 350):
        run(notebook, f"for again in range(3): w[:, :1].expand(128, {n}).sum(1)")
    looked = run(notebook, "_kernel.tpu_programs, compiles._MOST_PROGRAMS = programs, most; len(looks)").text
    assert int(looked or "99") <= 2


def test_a_number_built_into_a_compiled_function_is_named(notebook: Notebook) -> None:
    result = run(
        notebook,
        "scaled = torch.compile(lambda x, factor: (x * factor).sum())\n"
        "total = 0\nfor i in range(4):\n    total += scaled(w, i / 4).item()\ntotal",
    )
    assert result.text == str(128 * 128 * 1.5)
    cards = storms(result)
    assert "line 4: a number in the program was 0, 0.25, 0.5" in cards[0][1]
    assert "Keep the number in a tensor on the device." in cards[0][1]


def test_the_first_steps_of_a_model_are_no_storm_and_its_short_batch_is_named(notebook: Notebook) -> None:
    model = (
        "torch.manual_seed(0)\nsizes = [64, 256, 128, 48, 32, 10]\n"
        "model = torch.nn.Sequential(*[layer for a, b in zip(sizes, sizes[1:]) for layer in (torch.nn.Linear(a, b), torch.nn.ReLU())]).to('tpu')\n"
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "X = torch.randn(208, 64); Y = torch.zeros(208, dtype=torch.long)\n"
    )
    steps = (
        "for xb, yb in zip(X.split(64), Y.split(64)):\n    xb, yb = xb.to('tpu'), yb.to('tpu')\n"
        "    opt.zero_grad(); loss = F.cross_entropy(model(xb), yb); loss.backward(); opt.step()\n"
        "    print(loss.item() > 0)"
    )
    assert storms(run(notebook, model + steps)) == []
    result = run(notebook, f"%%tpu_compile\n{steps}")
    assert storms(result) == []
    # a slow machine also shows what takes long to compile
    (card,) = [
        text for text in (d["text/plain"] for d in result.displays) if not text.startswith("compiling ")
    ]
    assert re.search(
        r"In\[\d+\], line 4 +a last short batch: 16 in float32\[16, 64\] instead of 64\. "
        r"Drop it \(DataLoader\(…, drop_last=True\)\) or pad it",
        card,
    ), card


def test_stats_tell_what_took_longest_and_what_was_compiled_again(notebook: Notebook) -> None:
    run(notebook, "(torch.ones(3, 5).to('tpu') * 3).cpu()\n(torch.ones(4, 5).to('tpu') * 3).cpu()")
    before = run(notebook, "%tpu_stats").displays[0]["text/plain"]
    run(notebook, "(torch.ones(4, 5).to('tpu') * 3).cpu()")
    (card,) = run(notebook, "%tpu_stats").displays
    text = card["text/plain"]
    in_memory = [int(re.search(r"\((\d+) in memory\)", each)[1]) for each in (before, text)]  # type: ignore[index]
    assert in_memory[1] == in_memory[0] + 1
    assert "compiled, the longest first:" in text
    wanted = r"In\[\d+\], line \d( or before)? mul dimension 0 of float32\[4, 5\] was 3"
    assert re.search(wanted, " ".join(text.split())), text
    assert max(map(len, text.splitlines())) <= 80
    assert "compiled again because" in card["text/html"]


def test_a_compile_in_a_thread_is_of_the_line_the_thread_is_in(notebook: Notebook) -> None:
    result = run(
        notebook,
        "import threading\nfrom tpu_kernel import _kernel\n"
        "cursor = _kernel.tpu_programs(0)[0]\n"
        "def work():\n    doubled = torch.compile(lambda x: (x * 2).cos().sum())\n    doubled(w).item()\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\n"
        "[p.get('place') for p in _kernel.tpu_programs(cursor)[1] if p['stage'] == 'compiled']",
    )
    count = result.content["execution_count"]
    assert result.text == f"['In[{count}], line 6']"


TRAIN = """
import json, torch
import torch.nn.functional as F
from torch._dynamo.utils import counters
from tpu_kernel.tpu import device
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
model = torch.nn.Sequential(layer, torch.nn.Linear(32, 10)).to("tpu")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(4, 16, 32).to("tpu"), torch.zeros(4, dtype=torch.long).to("tpu")
loss_of = torch.compile(lambda x, y: F.cross_entropy(model(x).mean(1), y))
losses = []
for _ in range(3):
    opt.zero_grad(); loss = loss_of(x, y); loss.backward(); opt.step()
    losses.append(loss.item())
seen = device.snapshot()
print(json.dumps({"losses": losses, "functions": dict(counters["aot_autograd"]),
                  **{name: seen[name] for name in ("compiles", "compile_ns", "cache_hits", "cache_hit_ns")}}))
"""


def test_after_a_restart_a_training_cell_compiles_nothing(kernelspec: str, tmp_path: Path) -> None:
    """Neither its programs nor, though gradients flow through it, the compiled function around them."""
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": str(tmp_path / "cache")}) as kernel:
        first: dict[str, Any] = json.loads(run(kernel, TRAIN).stdout)
        kernel.client.shutdown(restart=True)
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=PATIENCE)
        kernel.strays.clear()
        second: dict[str, Any] = json.loads(run(kernel, TRAIN).stdout)
    assert first["compiles"] >= 3 and first["cache_hits"] == 0
    assert second["compiles"] == 0 and second["cache_hits"] >= 3
    assert second["functions"]["autograd_cache_hit"] == 1
    assert second["losses"] == first["losses"]
    assert second["cache_hit_ns"] < first["compile_ns"]
