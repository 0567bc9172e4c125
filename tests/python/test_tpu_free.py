"""`%tpu_mem` and `%tpu_free`: who holds HBM, what deleting a name would free, and letting go of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, run

SETUP = """
import gc, json, torch
import torch.nn.functional as F
from torch import nn
from tpu_kernel.memory import freeing, holders
from tpu_kernel.tpu import device

def model_and_step():
    global model, opt, X, Y, loss
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 16)).to("tpu")
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    X = torch.randn(128, 64).to("tpu"); Y = torch.zeros(128, dtype=torch.int64).to("tpu")
    loss = F.cross_entropy(model(X), Y); loss.backward(); opt.step()
    loss = F.cross_entropy(model(X), Y)

def foretold(*names):
    live = freeing.live()
    return holders.table(globals(), live, shares=True).freed_by(names)

def freed(*names):
    before = freeing.live()
    for name in names:
        del globals()[name]
    gc.collect()
    return before - freeing.live()
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "1GiB"}) as kernel:
        assert kernel.run("%tpu_mem").stdout == (
            'No device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu").\n'
        )
        run(kernel, SETUP)
        yield kernel


@pytest.fixture(autouse=True)
def nothing_held(notebook: Notebook) -> Iterator[None]:
    yield
    left = card(notebook, "%tpu_free --all")
    assert live(notebook) <= 4096, left


def value(notebook: Notebook, expression: str) -> Any:
    return json.loads(run(notebook, f"print(json.dumps({expression}))").stdout)


def live(notebook: Notebook) -> int:
    return value(notebook, "device.snapshot()['live_bytes']")


def card(notebook: Notebook, code: str) -> list[str]:
    """The lines of a card, which fits a terminal, a notebook file and every front end."""
    (shown,) = run(notebook, code).displays
    html, lines = shown["text/html"], shown["text/plain"].splitlines()
    assert len(html.encode()) <= 6144 and "<script" not in html
    assert max(map(len, lines)) <= 80, lines
    return lines


def rows(lines: list[str]) -> dict[str, list[str]]:
    """Columns by the first of them."""
    split = [re.split(r"\s{2,}", line.strip()) for line in lines]
    return {first: rest for first, *rest in split if rest}


def test_all_rows_together_are_what_the_session_counts(notebook: Notebook) -> None:
    run(notebook, "model_and_step(); big = torch.ones(1 << 20).to('tpu')")
    lines = card(notebook, "%tpu_mem")
    assert re.fullmatch(r"HBM of TPU v5e · [\d.]+ MiB of 1.00 GiB in use · [\d.]+ MiB free", lines[0])
    found = rows(lines)
    weights = 4 * (64 * 256 + 256 + 256 * 16 + 16)
    assert weights == 83008
    assert found["parameters"] == found["gradients"] == found["optimizer state"] == ["81.06 KiB"]
    # relu's result and the logarithms of the softmax
    assert found["for backward()"] == ["136 KiB"]
    assert found["held by"] == ["what", "bytes", "deleting it frees"]
    assert found["big"] == ["f32 1048576", "4.00 MiB", "all of it"]
    assert found["model"] == ["8 tensors", "162 KiB", "nothing: also in loss, opt"]
    assert found["opt"] == ["4 tensors", "81.06 KiB", "all of it"]
    assert found["X"] == ["f32 128×64", "32.00 KiB", "nothing: also in loss"]
    text = " ".join(" ".join(lines).split())
    assert "del model, loss, opt together free" in text
    said = re.search(
        r"([\d,]+) bytes are in use: ([\d,]+) by name, ([\d,]+) in tensors without one, ([\d,]+) in no tensor",
        text,
    )
    assert said is not None, text
    counted, named, unnamed, rest = (int(each.replace(",", "")) for each in said.groups())
    assert counted == named + unnamed + rest == live(notebook)
    assert unnamed == 0
    # what stays of the step until its last result goes: the gradient of relu's argument and of its result
    assert rest <= 2 * 128 * 256 * 4 + 4096


def test_deleting_a_name_frees_what_was_foretold(notebook: Notebook) -> None:
    run(
        notebook,
        "model_and_step(); opt.zero_grad(); view = X[3:]\n"
        "pair = [torch.ones(5000).to('tpu')]; same = pair[0]; alias = pair\n"
        "inner = (lambda kept: lambda: kept)(torch.ones(6000).to('tpu'))",
    )
    run(notebook, "same * 2")
    assert value(
        notebook, "[foretold('pair'), foretold('pair', 'alias'), foretold('pair', 'alias', 'same')]"
    ) == [
        *(0, 0),
        20000,
    ]
    for names, count in (
        (("pair",), 0),
        (("alias",), 0),
        (("same",), 20000),
        (("inner",), 24000),
        (("X",), 0),
        (("view",), 0),
        (("model",), 0),
        # the graph: relu's result, softmax, what it came from, the loss
        (("loss",), 128 * 256 * 4 + 128 * 16 * 4 + 128 * 64 * 4 + 4),
        (("Y",), 1024),
    ):
        said = value(notebook, f"[foretold(*{names}), freed(*{names})]")
        assert said == [count, count], names
    # weights and momentum; with them goes an activation's gradient: it lives as long as the last result
    # of the program that made it
    assert value(notebook, "[foretold('opt'), freed('opt')]") == [2 * 83008, 2 * 83008 + 128 * 256 * 4]


def test_what_other_code_holds_too_is_not_foretold(notebook: Notebook) -> None:
    run(notebook, "import json.decoder\nx = torch.ones(7000).to('tpu'); json.decoder._held = x.detach()")
    assert value(notebook, "[foretold('x')]") == [0]
    assert rows(card(notebook, "%tpu_mem"))["x"] == ["f32 7000", "27.34 KiB", "nothing: also in other code"]
    run(notebook, "del json.decoder._held")
    assert value(notebook, "[foretold('x'), freed('x')]") == [28000, 28000]


def test_modules_are_shown_with_their_layers(notebook: Notebook) -> None:
    run(notebook, "model_and_step()")
    found = rows(card(notebook, "%tpu_mem --by module"))
    assert found["module"] == ["class", "weights", "gradients", "optimizer", "sum"]
    assert found["model"] == ["Sequential", "81.06 KiB", "81.06 KiB", "81.06 KiB", "243 KiB"]
    assert found[".0"] == ["Linear", "65.00 KiB", "65.00 KiB", "65.00 KiB", "195 KiB"]
    assert found[".2"] == ["Linear", "16.06 KiB", "16.06 KiB", "16.06 KiB", "48.19 KiB"]


def test_cells_are_shown_with_what_they_made(notebook: Notebook) -> None:
    number = run(notebook, "mine = torch.ones(1 << 18).to('tpu')").content["execution_count"]
    assert rows(card(notebook, "%tpu_mem --by cell"))[f"In[{number}]"] == [
        *("1.00 MiB", "1.00 MiB", "mine = torch.ones(1 << 18).to('tpu')"),
    ]


def test_nothing_is_computed_or_unpacked_to_show_who_holds_memory(notebook: Notebook) -> None:
    run(
        notebook,
        "unpacked = []\nw = torch.ones(64, 64).to('tpu').requires_grad_()\n"
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):\n"
        "    z = (w * w).sum()",
    )
    run(notebook, "%tpu_mode fused")
    run(
        notebook,
        "x = torch.ones(1000).to('tpu'); torch.accelerator.synchronize()\ny = x * 2\n"
        "before = device.snapshot(); get_ipython().run_line_magic('tpu_mem', ''); after = device.snapshot()",
    )
    assert (
        value(notebook, "[after[each] - before[each] for each in ('executions', 'compiles', 'downloads')]")
        == [0] * 3
    )
    assert value(notebook, "len(unpacked)") == 0
    assert run(notebook, "y.sum().item()").text == "2000.0"
    run(notebook, "%tpu_mode strict\ndel unpacked")


def test_what_nobody_names_is_freed(notebook: Notebook) -> None:
    run(
        notebook,
        "gc.disable()\nkept = torch.ones(1000).to('tpu')\nloop = [torch.ones(1 << 18).to('tpu')]; loop.append(loop); del loop",
    )
    failed = notebook.run("def f():\n    big = torch.ones(1 << 19).to('tpu')\n    raise ValueError\nf()")
    assert failed.content["ename"] == "ValueError"
    assert rows(card(notebook, "%tpu_mem"))["last traceback"] == [
        "f32 524288",
        "2.00 MiB",
        "2.00 MiB by %tpu_free",
    ]
    lines = card(notebook, "%tpu_free")
    assert lines[0].startswith("freed 3.00 MiB · 3.9")
    assert rows(lines) == {"reference cycles": ["1.00 MiB"], "last traceback": ["2.00 MiB"]}
    assert run(notebook, "gc.enable()\nkept.sum().item()").text == "1000.0"


def test_names_and_outputs_are_deleted_when_asked(notebook: Notebook) -> None:
    number = run(notebook, "torch.ones(1 << 18).to('tpu')").content["execution_count"]
    run(notebook, "x = torch.ones(1 << 18).to('tpu'); y = x.view(512, 512); z = x + 1")
    lines = card(notebook, f"%tpu_free z, x Out[{number}]")
    found = rows(lines)
    assert (found["z"], found["x"], found[f"Out[{number}]"]) == (["1.00 MiB"], ["nothing"], ["1.00 MiB"])
    assert "  1.00 MiB of x stay: y holds them too." in lines
    assert value(notebook, "['x' in globals(), 'y' in globals(), 'z' in globals()]") == [False, True, False]
    refused = notebook.run("%tpu_free nobody")
    assert refused.content["evalue"] == "%tpu_free: the notebook has no variable or output `nobody`"
    run(notebook, "y * 3")
    assert rows(card(notebook, "%tpu_free --out"))["Out[]"] == ["1.00 MiB"]
    assert run(notebook, "len(Out), _").text == "(0, '')"


def test_the_device_is_emptied_and_what_is_on_the_host_stays(notebook: Notebook) -> None:
    run(
        notebook,
        "model_and_step()\n"
        "class Logger:\n    pass\n"
        "log = Logger(); log.losses = [1.5, 0.5]; log.best = torch.ones(1 << 18).to('tpu')\n"
        "mixed = nn.ModuleList([nn.Linear(4, 4), nn.Linear(256, 256).to('tpu')])\n"
        "cpu = torch.arange(4); epochs = 3; inner = (lambda kept: lambda: kept)(X * 2)\n"
        "halves = (X[:64], X[64:], 'name')",
    )
    lines = card(notebook, "%tpu_free --all")
    text = " ".join(" ".join(lines).split())
    assert "Deleted: model, opt, X, Y, loss." in text
    assert re.search(
        r"shapes stay \(device meta\): halves\[0\], inner\(\)\.kept, log\.best, mixed\.1\.bias, mixed", text
    )
    left = live(notebook)
    assert left <= 4096
    assert f"{left:,} bytes are left: {left:,} that TorchTPU keeps" in text
    assert value(notebook, "[name for name in ('model', 'opt', 'X', 'Y', 'loss') if name in globals()]") == []
    assert (
        run(
            notebook, "log.losses, cpu, epochs, halves[2], tuple(log.best.shape), tuple(halves[1].shape)"
        ).text
        == "([1.5, 0.5], tensor([0, 1, 2, 3]), 3, 'name', (262144,), (64, 64))"
    )
    assert run(
        notebook, "mixed[0](torch.zeros(1, 4)).shape, log.best.device.type, inner().device.type"
    ).text == ("(torch.Size([1, 4]), 'meta', 'meta')")
    used = notebook.run("inner() + torch.ones(1).to('tpu')")
    assert used.content["ename"] == "RuntimeError"
    run(notebook, "model_and_step()")
    assert run(notebook, "model(X).shape").text == "torch.Size([128, 16])"


def test_the_device_is_emptied_after_a_compiled_step(notebook: Notebook) -> None:
    run(notebook, "model_and_step()")
    step = "%%tpu_compile --quiet\nfor _ in range(2):\n    opt.zero_grad(); loss = F.cross_entropy(model(X), Y); loss.backward(); opt.step()"
    run(notebook, step)
    card(notebook, "%tpu_free --all")
    assert live(notebook) <= 4096
    run(notebook, "model_and_step()")
    run(notebook, step)
    assert run(notebook, "loss.item() > 0").text == "True"


def test_what_hangs_on_a_tensor_has_its_name_and_many_of_a_list_are_told_in_one(notebook: Notebook) -> None:
    run(
        notebook,
        "w = torch.ones(1 << 18, device='tpu').requires_grad_()\n"
        "w.register_hook(lambda grad, big=torch.ones(1 << 18, device='tpu'): grad)\n"
        "w.note = torch.ones(1 << 18, device='tpu')\n"
        "class Twice(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x):\n"
        "        ctx.extra = torch.ones(1 << 19, device='tpu')\n"
        "        return x * 2\n"
        "    @staticmethod\n"
        "    def backward(ctx, grad):\n"
        "        return grad * 2\n"
        "o = Twice.apply(w)\n"
        "many = [torch.ones(256, device='tpu') for _ in range(40)]\n"
        "long = {'k' * 300: torch.ones(256, device='tpu')}",
    )
    found = rows(card(notebook, "%tpu_mem"))
    assert found["w"] == ["3 tensors", "3.00 MiB", "nothing: also in o"]
    assert found["o"] == ["f32 262144", "1.00 MiB", "all of it"]
    assert found["graph of o"][:2] == ["f32 524288", "2.00 MiB"]
    assert "without a name" not in found
    text = " ".join(" ".join(card(notebook, "%tpu_free --all")).split())
    assert "their shapes stay (device meta): long['kkkk" in text and "kkk…, many (40 tensors)." in text
    assert card(notebook, "%tpu_mem")[-1] in (
        "  Nothing is on the device. What is queued is not waited for.",
        "  Python's (scalars and results TorchTPU keeps).",
    )
