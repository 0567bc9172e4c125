"""The card above an error of the device's memory, and the same diagnosis in the error's text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, run

SETUP = """
import torch
from torch import nn
import torch.nn.functional as F
"""


@pytest.fixture(scope="module")
def shared(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_HBM": "148MiB"}) as kernel:
        yield kernel


@pytest.fixture
def notebook(shared: Notebook) -> Iterator[Notebook]:
    run(shared, SETUP)
    yield shared
    run(shared, "%tpu_mode strict")
    run(shared, "%reset -f")
    run(shared, "%tpu_free --all")


def full(notebook: Notebook, code: str) -> tuple[list[str], list[str], str]:
    """The lines of the card and of the error, and the card's HTML, of a cell that needs too much."""
    result = notebook.run(code)
    assert result.content["ename"] == "OutOfMemoryError", result.content
    assert result.types == ["execute_input", "display_data", "error"]
    (shown,) = result.displays
    html, lines = shown["text/html"], shown["text/plain"].splitlines()
    assert len(html.encode()) <= 6144 and "<script" not in html
    assert max(map(len, lines)) <= 80, lines
    return lines, result.content["evalue"].splitlines(), html


def number(notebook: Notebook) -> int:
    """Of the next cell."""
    return run(notebook, "1").content["execution_count"] + 1


def test_the_card_comes_first_and_the_error_says_the_same(notebook: Notebook) -> None:
    made = run(
        notebook,
        "x = torch.randn(512, 1024).to('tpu'); W = torch.randn(20000, 1024).to('tpu')\n"
        "weights = torch.ones(10 << 20).to('tpu'); cache = [torch.ones(2 << 20).to('tpu') for _ in range(2)]",
    ).content["execution_count"]
    here = number(notebook)
    lines, error, html = full(notebook, "batch = 512\nlogits = x @ W.T")
    assert lines == [
        "out of HBM on TPU v5e · wanted 39.06 MiB · free 11.88 MiB of 148 MiB",
        f"  logits = x @ W.T (In[{here}], line 2) did not fit.",
        "  holder   what            bytes             kept alive by",
        f"  logits   f32 512×20000   39.06 MiB wanted  In[{here}], line 2",
        f"  W        f32 20000×1024  78.12 MiB         variable, In[{made}]",
        f"  weights  f32 10485760    40.00 MiB         variable, In[{made}]",
        f"  cache    2 tensors       16.00 MiB         variable, In[{made}]",
        f"  x        f32 512×1024    2.00 MiB          variable, In[{made}]",
        "  Would free 40.00 MiB: del weights. Then it fits.",
        "  A batch of 512 does not fit in this line; about 150 would.",
        "  Lost, because what computes them failed: logits. Compute them again.",
    ]
    assert error == [
        "out of device memory: program `tt_jit_mm` needs 39.06 MiB more, "
        + "11.88 MiB of 148.00 MiB are free (136.12 MiB in use).",
        f"Wanted by In[{here}], line 2: `logits = x @ W.T`.",
        "Held by `W` 78.12 MiB, `weights` 40.00 MiB, `cache` 16.00 MiB in 2 tensors, `x` 2.00 MiB.",
        "Would free 40.00 MiB: `del weights`. Then it fits.",
        "A batch of 512 does not fit in this line; about 150 would.",
        "Lost, because what computes them failed: `logits`. Compute them again.",
    ]
    for words in (
        "out of HBM",
        "wanted 39.06 MiB",
        "<code>logits = x @ W.T</code>",
        "<code>del weights</code>",
    ):
        assert words in html
    # what is advised is so
    run(notebook, "x = torch.randn(150, 1024).to('tpu')\nlogits = x @ W.T; logits.sum().item()")
    run(notebook, "del logits, weights; x = torch.randn(512, 1024).to('tpu')")
    run(notebook, "logits = x @ W.T; logits.sum().item()")


def test_a_model_that_is_made_anew_is_told_of_the_old_one(notebook: Notebook) -> None:
    build = "model = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 1024)).to('tpu')"
    made = run(notebook, build).content["execution_count"]
    lines, error, _ = full(notebook, build)
    cure = f"The old `model` (In[{made}], 80.02 MiB) is kept until the new one is made: `del model` before this cell."
    assert cure in error
    assert f"  model           4 tensors  80.02 MiB         variable, In[{made}]" in lines
    run(notebook, f"del model\n{build}")


def test_the_line_in_a_function_is_exact_where_each_operation_ends_before_the_next(
    notebook: Notebook,
) -> None:
    run(notebook, "%tpu_mode debug")
    run(notebook, "W = torch.randn(20000, 1024).to('tpu'); old = torch.ones(12 << 20).to('tpu')")
    here = number(notebook)
    lines, error, _ = full(
        notebook,
        "def head(t):\n    scale = 2\n    return torch.relu(t @ W.T)\n"
        "for _ in range(2):\n    y = head(torch.randn(512, 1024).to('tpu'))",
    )
    assert error[1] == f"Wanted by In[{here}], line 3: `return torch.relu(t @ W.T)`."
    assert lines[1] == f"  return torch.relu(t @ W.T) (In[{here}], line 3) did not fit."
    # more than one operation: a bound, not a promise
    assert (
        "A batch of 512 does not fit. At most about 270 can, fewer where more follows in the same step."
        in error
    )


def test_what_the_old_output_and_a_graph_keep_is_said(notebook: Notebook) -> None:
    run(notebook, "w = torch.ones(4 << 20).to('tpu').requires_grad_()")
    shown: Any = run(notebook, "torch.ones(12 << 20).to('tpu')").content["execution_count"]
    run(notebook, "loss = (w * 2).exp().sum()")
    lines, error, _ = full(notebook, "more = torch.ones(20 << 20, device='tpu')")
    assert f"Would free 48.00 MiB: `%tpu_free Out[{shown}]`. Then it fits." in error
    assert "The graph of `loss` keeps its inputs: call `backward()`, or keep `loss.detach()`." in error
    assert any(line.split()[0] == f"Out[{shown}]" and line.endswith("output history") for line in lines)


def test_an_error_that_is_caught_shows_no_card(notebook: Notebook) -> None:
    run(notebook, "%tpu_mode debug")
    result = run(
        notebook,
        "try:\n    torch.ones(50 << 20, device='tpu')\nexcept RuntimeError as error:\n    print('caught')",
    )
    assert (result.stdout, result.displays) == ("caught\n", [])


def test_a_loop_that_fails_at_every_step_is_told_in_few_lines(notebook: Notebook) -> None:
    run(notebook, "w = torch.ones(20 << 20).to('tpu')")
    result = notebook.run("for i in range(300):\n    z = w * float(i)")
    text = "\n".join(result.content["traceback"])
    assert len(result.displays) == 1
    assert text.count("needs 80.00 MiB more") == 6
    assert text.rstrip().endswith("and then 294 more")


def test_a_batch_is_named_only_where_it_is_plain_what_the_batch_is(notebook: Notebook) -> None:
    run(
        notebook,
        "W, keys = torch.ones(20000, 256).to('tpu'), torch.ones(20000, 256).to('tpu')\n"
        "x, wide, near = (torch.ones(*size).to('tpu') for size in ((500, 256), (500, 4000), (4000, 8)))\n"
        "rest = torch.ones(20 << 20).to('tpu'); both = torch.ones(500, 500).to('tpu')",
    )
    for line, said in {
        "y = x @ W.T": "A batch of 500 does not fit in this line; about 250 would.",
        # the rows of the result are W's
        "y = W @ x.T": "A batch of 500 does not fit in this line; about 250 would.",
        "y = torch.relu(W @ x.T)": "A batch of 500 does not fit. At most about 260 can, fewer where more follows in the same step.",
        # either may be the batch: the one is named that it is the rows of
        "y = keys @ x.T": "20,000 rows of `keys` do not fit in this line; about 10,000 would.",
        # what is made grows with the square of its rows, or not with them at all
        "y = torch.cdist(near, near)": None,
        "y = wide.T @ wide": None,
        "y = (both[:, None] + both[None])[:80]": None,
    }.items():
        error = full(notebook, line)[1]
        assert [found for found in error if re.search(r"batch of|rows of", found)] == (
            [said] if said else []
        ), line
        run(notebook, "y = None")


def test_it_is_told_in_short_where_the_notebook_cannot_be_looked_at(notebook: Notebook) -> None:
    run(
        notebook,
        "class Kind(type):\n    @property\n    def __module__(cls):\n        raise RuntimeError('not here')\n"
        "class Odd(metaclass=Kind):\n    pass\n"
        "odd, w = Odd(), torch.ones(4 << 20).to('tpu')",
    )
    _, error, _ = full(notebook, "z = torch.ones(50 << 20, device='tpu')")
    assert error[1].startswith("Wanted by") and "`w` 16.00 MiB" in error[2]
    run(
        notebook,
        "import gc\nobjects = gc.get_objects\ndef broken():\n    raise RuntimeError('not here')\n"
        "gc.get_objects = broken",
    )
    result = notebook.run("z = torch.ones(50 << 20, device='tpu')")
    run(notebook, "gc.get_objects = objects")
    assert result.content["ename"] == "OutOfMemoryError"
    assert "needs 200.00 MiB more" in result.content["evalue"]
    assert (result.displays, "\n" in result.content["evalue"]) == ([], False)
