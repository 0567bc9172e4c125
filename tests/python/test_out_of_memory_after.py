"""What a full device leaves behind: values that are lost, what was made from them, and how to go on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result, run

SETUP = """
import torch
from torch import nn
torch.ones(1, device="tpu").item()
"""


@pytest.fixture(scope="module")
def shared(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "100MiB"}) as kernel:
        yield kernel


@pytest.fixture
def notebook(shared: Notebook) -> Iterator[Notebook]:
    run(shared, SETUP)
    yield shared
    run(shared, "%tpu_mode strict")
    run(shared, "%tpu_limit 100MiB")
    run(shared, "%reset -f")
    run(shared, "%tpu_free --all")


def number(notebook: Notebook) -> int:
    """Of the next cell."""
    return run(notebook, "1").content["execution_count"] + 1


def full(notebook: Notebook, code: str) -> tuple[list[str], list[str]]:
    """The lines of the card and of the error of a cell that needs too much."""
    result = notebook.run(code)
    assert result.content["ename"] == "OutOfMemoryError", result.content
    (shown,) = result.displays
    lines = shown["text/plain"].splitlines()
    assert max(map(len, lines)) <= 80, lines
    assert len(shown["text/html"].encode()) <= 6144
    return lines, result.content["evalue"].splitlines()


def hint(result: Result) -> list[str]:
    """The lines of the hint under a traceback."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    return [line.strip() for line in text.partition("Hint: ")[2].splitlines()]


def test_a_lost_value_that_is_read_later_says_where_it_was_lost(notebook: Notebook) -> None:
    here = number(notebook)
    _, error = full(
        notebook,
        "x = torch.ones(4 << 20, device='tpu')\ny = (x[:, None].expand(-1, 8) * 2).sum(0)\nz = y + 1",
    )
    assert error[1] == f"Wanted by In[{here}], line 2: `y = (x[:, None].expand(-1, 8) * 2).sum(0)`."
    assert error[-1] == "Lost, because what computes them failed: `y`, `z`. Compute them again."
    said = run(notebook, "%tpu_explain").displays[0]["text/plain"]
    assert "(In[" in said and "needed 128 MiB more of the device's memory" in " ".join(said.split())

    read = notebook.run("z")
    assert (read.content["ename"], read.displays) == ("OutOfMemoryError", [])
    assert read.content["evalue"].splitlines()[:2] == [
        f"this has no value: the device was out of memory in In[{here}], line 2, where it was to be computed.",
        "Without a value since then: `y`, `z`. Compute them again.",
    ]
    # what is made from it fails without a word of PyTorch's
    made = run(notebook, "w = z * 2")
    assert made.stderr == (
        f"Hint: `w` has no value: made from `z`, which was lost in In[{here}], line 2. Compute that again first.\n"
    )
    failed = notebook.run("w.sum().item()")
    assert failed.content["ename"] == "RuntimeError"
    assert hint(failed) == [
        f"Something this line needs has no value: what was to compute it failed, in In[{here}], line 2.",
        "Without a value since then: `w`, `y`, `z`. Compute them again first.",
    ]
    # another failure is not told of what was lost before, nor by the line that would have made it anew
    here = number(notebook)
    _, error = full(notebook, "a = torch.ones(30 << 20).to('tpu')\nz = y * 0")
    assert error[1] == f"Wanted by In[{here}], line 1: `a = torch.ones(30 << 20).to('tpu')`."
    assert not [line for line in error if line.startswith("Lost")]
    assert run(notebook, "w = y = z = torch.ones(2, device='tpu')").stderr == ""


TRAIN = """
net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to("tpu")
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def train(n):
    x = torch.ones(n, 512, device="tpu")
    for _ in range(2):
        opt.zero_grad()
        loss = (net(x) - x).pow(2).mean()
        loss.backward()
        opt.step()
    return loss.item()
"""


def test_a_model_that_is_lost_has_to_be_made_again_and_debug_mode_keeps_it(notebook: Notebook) -> None:
    made = run(notebook, TRAIN).content["execution_count"]
    run(notebook, "%tpu_mode debug")
    _, error = full(notebook, "train(8000)")
    assert error[1] == f"Wanted by In[{made}], line 8: `loss = (net(x) - x).pow(2).mean()`."
    assert (
        "78.12 MiB are held by the functions that this error ended: they are free in the next cell." in error
    )
    assert not [line for line in error if line.startswith("Lost")]
    assert 0 < float(run(notebook, "train(1000)").text or "") < 10
    run(notebook, "%tpu_mode strict")
    _, error = full(notebook, "loss = train(8000)")
    assert error[-2] == "Lost, because what computes them failed: `net` (8 tensors). Compute them again."
    assert error[-1] == (
        f"Make `net` and `opt` again (In[{made}]). In `%tpu_mode debug` a cell ends where it does not fit, before it "
        "comes to the weights."
    )
    assert "Run the cell again" not in "".join(error)
    failed = notebook.run("train(1000)")
    assert failed.content["ename"] == "RuntimeError"
    assert hint(failed)[1] == "Without a value since then: `net` (4 tensors). Compute them again first."
    run(notebook, TRAIN)
    # few rows: how far TorchTPU runs ahead of the device, and holds memory for it, depends on the machine
    assert 0 < float(run(notebook, "train(100)").text or "") < 10


def test_a_list_that_keeps_the_graphs_of_a_loop_is_one_row(notebook: Notebook) -> None:
    run(notebook, "w = torch.ones(1 << 20, device='tpu').requires_grad_(); losses = []")
    here = number(notebook)
    lines, error = full(
        notebook, "for step in range(40):\n    loss = (w * 2).exp().sum()\n    losses.append(loss)"
    )
    # which turn it was nobody knows: an earlier line of a later turn fails by what a later line lost
    assert error[1] == f"Wanted by In[{here}], line 2 or after: `loss = (w * 2).exp().sum()`."
    rows = [line.split()[:3] for line in lines if line.startswith("  graph of")]
    assert rows == [["graph", "of", "losses"]]
    assert (
        "What is in `losses` keeps its graphs and their inputs: put `….detach()` or `….item()` into it instead."
        in error
    )
    assert re.search(
        r"Lost, because what computes them failed: `loss`, `losses` \(\d+ tensors\)\.", error[-1]
    )


def test_what_the_error_before_kept_is_free_when_the_cell_runs_again(notebook: Notebook) -> None:
    failed = notebook.run(
        "def work():\n    big = torch.ones(16 << 20, device='tpu')\n    raise ValueError('a slip')\nwork()"
    )
    assert failed.content["ename"] == "ValueError"
    again = "more = torch.ones(20 << 20, device='tpu'); more.sum().item()"
    _, error = full(notebook, again)
    assert "64.00 MiB were kept by the error before and are free now: run the cell again." in error
    assert "Compute on smaller tensors, such as a smaller batch." not in error
    assert run(notebook, again).text == "20971520.0"


def test_what_functions_of_the_cell_need_is_not_advised_to_be_deleted(notebook: Notebook) -> None:
    run(
        notebook,
        "table = torch.ones(15 << 20, device='tpu'); other = torch.ones(2 << 20, device='tpu')\n"
        "globals()['have space'] = torch.ones(1 << 20, device='tpu')\n"
        "class Model:\n    def __call__(self, n):\n        return table[None, :64].expand(n, 64) * 3\n"
        "model = Model()\n"
        "def go():\n    return model(200_000)",
    )
    _, error = full(notebook, "r = go()")
    assert "Would free 8.00 MiB: `del other`. Even then 12.83 MiB are missing." in error


def test_a_name_that_a_cell_reads_before_it_gives_it_a_new_value_is_not_to_be_deleted(
    notebook: Notebook,
) -> None:
    made = run(
        notebook, "x = torch.ones(8 << 20, device='tpu'); y = torch.ones(8 << 20, device='tpu')"
    ).content["execution_count"]
    here = number(notebook)
    lines, error = full(notebook, "x = x * 1\nx = torch.cat([x, x, x])")
    # the name was given three values: the last is what did not fit
    assert error[1] == f"Wanted by In[{here}], line 2: `x = torch.cat([x, x, x])`."
    assert not [line for line in error if "The old" in line]
    assert lines[3].split() == ["x", "f32", "25165824", "96.00", "MiB", "wanted", f"In[{here}],", "line", "2"]
    _, error = full(notebook, "y = torch.ones(20 << 20).to('tpu')")
    assert (
        f"The old `y` (In[{made}], 32.00 MiB) is kept until the new one is made: `del y` before this cell."
        in error
    )


def test_a_few_bytes_too_few_are_shown_in_full(notebook: Notebook) -> None:
    run(notebook, "%tpu_limit 96MiB")
    run(notebook, "x = torch.ones(8 << 20, device='tpu'); one = torch.ones(1, device='tpu')")
    lines, error = full(notebook, "z = torch.ones(16 << 20, device='tpu')")
    # four bytes too few, and the scalars TorchTPU keeps
    found = re.fullmatch(
        r"out of HBM on TPU v5e · wanted 67,108,864 B · free (67,10\d,\d{3}) B of 96\.00 MiB", lines[0]
    )
    assert found is not None, lines[0]
    free = found[1].replace(",", "")
    assert 67_108_864 - 4096 < int(free) <= 67_108_860
    assert error[0] == (
        f"out of device memory: program `tt_jit_ones` needs 67108864 bytes more, {free} bytes of 96.00 MiB are free "
        "(32.00 MiB in use)."
    )
    assert not [line for line in error if line.startswith("Would free 0")]


def test_an_output_that_cannot_be_shown_is_told_once(notebook: Notebook) -> None:
    run(notebook, "x = torch.ones(6000, 256, device='tpu')")
    for mode in ("strict", "fused"):
        run(notebook, f"%tpu_mode {mode}")
        result = notebook.run("(x @ x.T).relu().sum()")
        assert (len(result.displays), len(result.contents("error"))) == (1, 1), mode
        assert result.content["ename"] == "OutOfMemoryError"


def test_the_most_that_can_fit_is_not_less_than_what_does(notebook: Notebook) -> None:
    build = "net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).to('tpu')"
    run(notebook, build)
    _, error = full(notebook, "x = torch.ones(8192, 512, device='tpu')\nout = net(x)")
    (said,) = [line for line in error if line.startswith("A batch of")]
    most = re.fullmatch(
        r"A batch of 8,192 does not fit\. At most about ([\d,]+) can, fewer where more follows in the same step\.",
        said,
    )
    assert most is not None
    run(notebook, build)
    assert run(notebook, "x = torch.ones(4500, 512, device='tpu')\nout = net(x); out.shape").text == (
        "torch.Size([4500, 512])"
    )
    assert 4500 <= int(most[1].replace(",", "")) < 8192
