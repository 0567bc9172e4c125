"""Slices of a tensor under %%tpu_compile: one program wherever they begin, and still the same slices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook

SETUP = """
import torch, torch.nn as nn, torch.nn.functional as F
from tpu_kernel.tpu import device
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
        assert kernel.run(SETUP).status == "ok"
        yield kernel


def run(notebook: Notebook, code: str) -> str:
    result = notebook.run(code)
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


#: A loop over twenty places of `X` (64 × 80), and the same of `cube` (8 × 20 × 40).
PLACES = {
    "columns": "for i in range(20):\n    part = X[:, 4 * i : 4 * i + 4]",
    "one column": "for i in range(20):\n    part = X[..., i]",
    "one row": "for i in range(20):\n    part = X[i]",
    "narrow": "for i in range(20):\n    part = X.narrow(1, 4 * i, 4)",
    "chunk": "for part in X.chunk(20, dim=1):",
    "the middle": "for i in range(20):\n    part = cube[:, i]",
    "two dimensions": "for i in range(20):\n    part = cube[:, i : i + 1, 2 * i : 2 * i + 2]",
    "steps": "for i in range(20):\n    part = X[i : i + 40 : 3]",
    "rows of a transpose": "for i in range(20):\n    part = X.T[4 * i : 4 * i + 4]",
    "every other block": "for i in range(20):\n    part = X.view(2, 32, 80)[:, i]",
}


@pytest.mark.parametrize("loop", PLACES.values(), ids=PLACES.keys())
def test_a_loop_over_twenty_places_of_a_tensor_is_one_program(notebook: Notebook, loop: str) -> None:
    make = (
        "X, cube = torch.arange(5120.).view(64, 80).to({0!r}), torch.arange(6400.).view(8, 20, 40).to({0!r})"
    )
    body = "\n    total = part.sum() * 2\n    part.add_(1)"
    seen = "(total.item(), X.sum().item(), cube.sum().item(), X[3, :5].tolist())"
    run(notebook, make.format("cpu") + f"\n{loop}{body}")
    expected = run(notebook, seen)
    run(notebook, make.format("tpu"))
    card = run(notebook, f"%%tpu_compile\n{loop}{body}")
    assert re.search(r"graphs traced +1 \(0 breaks\)", card), card
    assert "compiles for 8 shapes at most" not in card and "begins at another place" not in card
    assert run(notebook, seen) == expected


def test_gradients_go_through_a_slice_in_one_program(notebook: Notebook) -> None:
    loop = "for i in range(20):\n    part = W[:, 4 * i : 4 * i + 4]\n    loss = loss + (part * part).sum()"
    run(
        notebook,
        "W = torch.arange(320.).view(4, 80).to('tpu').requires_grad_(); loss = W.sum() * 0",
    )
    card = run(notebook, f"%%tpu_compile\n{loop}")
    assert re.search(r"graphs traced +1 \(0 breaks\)", card), card
    run(notebook, "loss.backward()")
    assert run(notebook, "torch.equal(W.grad.cpu(), 2 * torch.arange(320.).view(4, 80))") == "True"
    # what is changed without gradients leaves none behind, and what may not be changed is refused
    run(notebook, "Y = W * 1; part = Y[:, 2:4]; kept = W[:, 6:8]; kept.retain_grad(); W.grad = None")
    run(notebook, "%%tpu_compile\nwith torch.no_grad():\n    part.mul_(3)\nloss = (kept * kept).sum()")
    run(notebook, "(Y.sum() + loss).backward()")
    assert run(notebook, "W.grad[0, :9].tolist()") == str([1.0] * 6 + [13.0, 15.0, 1.0])
    assert (
        run(notebook, "kept.grad[0].tolist(), Y[0, 1:5].tolist()") == "([12.0, 14.0], [1.0, 6.0, 9.0, 4.0])"
    )
    refused = notebook.run("part = W[:, 2:4]\npart.mul_(3)").content["evalue"]
    same = notebook.run("%%tpu_compile\npart.mul_(3)").content["evalue"]
    assert same == refused and "a leaf Variable that requires grad" in refused


def test_slices_that_share_values_still_do(notebook: Notebook) -> None:
    make = "X = torch.arange(48.).view(6, 8).to({!r}); a, b, alone = X[:, 1:5], X[:, 3:7], X[:, 7]; same = a; pieces = [X[:, 2:4], X[:, 5:7]]"
    for cell in (
        "a.mul_(2)\nc = a + b\nb.add_(1)",
        "a.mul_(2)\nc = same * 1\nalone.zero_()",
        "a.mul_(2)\nc = X.sum()",
        "a.mul_(2)\nc = pieces[0] + pieces[1]",
        "c = a.clone()\na.copy_(b)\nalone.copy_(b[:, 0])",
    ):
        run(notebook, f"{make.format('cpu')}\n{cell}")
        expected = run(notebook, "X.tolist(), c.tolist()")
        run(notebook, make.format("tpu"))
        run(notebook, f"%%tpu_compile\n{cell}")
        assert run(notebook, "X.tolist(), c.tolist()") == expected, cell


def test_parts_of_a_slice_of_columns_are_parts_of_the_whole(notebook: Notebook) -> None:
    run(notebook, "whole = torch.zeros(3, 4).to('tpu'); middle = whole[:, 1:3]; across = whole.T[2:]")
    run(
        notebook,
        "%%tpu_compile\nmiddle += 1\ncolumn = middle[:, 0]\npair = (middle, [column])\ncorner = across[1, :2]",
    )
    run(notebook, "column.add_(1); pair[0][0] = 7; pair[1][0][1] = 5; corner.fill_(9)")
    assert run(notebook, "[int(value) for value in whole.flatten().tolist()]") == str(
        [0, 7, 7, 9, 0, 5, 1, 9, 0, 2, 1, 0]
    )


def test_slices_in_inference_mode_are_one_program(notebook: Notebook) -> None:
    run(notebook, "with torch.inference_mode(): X = torch.arange(48.).view(6, 8).to('tpu')")
    card = run(
        notebook,
        "%%tpu_compile\nwith torch.inference_mode():\n    for i in range(6):\n"
        "        row = X[:, i]\n        top = row.max()\n        row.sub_(top)",
    )
    assert re.search(r"graphs traced +1 \(0 breaks\)", card), card
    assert (
        run(notebook, "top.item(), X[0].tolist()")
        == "(45.0, [-40.0, -40.0, -40.0, -40.0, -40.0, -40.0, 6.0, 7.0])"
    )


def test_the_card_names_a_slice_only_where_it_stands_in_the_way(notebook: Notebook) -> None:
    run(notebook, "X = torch.arange(48.).view(6, 8).to('tpu')")
    card = run(
        notebook, "%%tpu_compile\nfor i in range(6):\n    part, row = X[:, i], X[i]\n    s = part.sum() + row"
    )
    assert "not in a program" not in card
    for line in ("s = (X[:, i] * 2).sum()", "X[:, i] = X[:, i] * 2"):
        card = run(notebook, f"%%tpu_compile\nfor i in range(6):\n    {line}")
        assert card.startswith("ran eagerly")
        told = " ".join(card.split())
        assert (
            f"line 3 {line} the place i changes from run to run Instead: slice on a line of its own" in told
        )
    whole = run(
        notebook, "%%tpu_compile --fullgraph\nfor i in range(6):\n    part = X[:, i]\n    s = part.sum()"
    )
    assert re.search(r"graphs traced +1 \(0 breaks\)", whole)
    assert run(notebook, "s.item()") == "300.0"
