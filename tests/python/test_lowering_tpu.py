"""`%%tpu_compile` on the device: literal numbers of programs, and results equal to eager's.

Counts come from tpu-core. The kernel of this file keeps no programs on disk, so that the first
run of a cell compiles what it needs. A plain run of the cell comes first: what eager execution
needs is compiled by then, so what is counted is the compiled cell's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from conftest import running_kernel
from notebook import Notebook
from training_cells import PREPARE, WEIGHTS

# A wrong update is off by at least the learning rate, 0.01.
TOLERANCE = "rtol=1e-3, atol=1e-4"


@dataclass
class Case:
    """A cell; the names to compare with eager; programs made and run in the first run, and run
    in the second (which makes none)."""

    cell: str
    names: str
    first: tuple[int, int]
    second: int
    setup: str = ""


def training(optimizer: str) -> str:
    return f"model = network()\nopt = torch.optim.{optimizer}"


LOOP = """
losses = []
for _ in range(4):
    opt.zero_grad()
    loss = F.cross_entropy(model(X), Y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
"""
TUTORIAL_ORDER = """
for _ in range(4):
    predicted = model(X)
    loss = F.cross_entropy(predicted, Y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
ADAM = "(model.parameters(), lr=0.01)"

CASES = {
    "straight line": Case("a = X @ X.T\nb = torch.tanh(a) + 1\nc = b.sum()", "a, b, c", (1, 1), 1),
    "a print splits": Case("a = X + 1\nprint(a.sum().item())\nb = a * 2", "a, b", (2, 3), 3),
    "loop body": Case("h = X\nfor _ in range(5):\n    h = torch.tanh(h) * 2", "h", (1, 5), 5),
    "loop with a counter": Case("h = X\nfor i in range(5):\n    h = h * i + 1", "h", (0, 10), 10),
    "in place": Case("h = X.clone()\nh += 1\nh[0] = 7\nv = h[1]\nv.mul_(3)\nw = 1", "h, v", (2, 2), 2),
    "no_grad": Case(
        "with torch.no_grad():\n    p = model(X)\n    q = p.argmax(1)",
        "p, q",
        (1, 1),
        1,
        training("SGD(model.parameters())"),
    ),
    "module": Case(
        "p = model(X)\ns = p.softmax(1)", "p, s", (1, 1), 1, "model = network().requires_grad_(False)"
    ),
    "notebook function": Case("def f(t):\n    return (t * t).mean()\nr = f(X) + f(X + 1)", "r", (1, 1), 1),
    "random numbers": Case(
        "r = torch.rand(8, device='tpu') + 1\nd = F.dropout(X, 0.5)",
        "r, d",
        (1, 1),
        1,
        "torch.manual_seed(3)",
    ),
    "SGD": Case(LOOP, WEIGHTS, (1, 4), 4, training("SGD(model.parameters(), lr=0.1)")),
    "SGD with momentum": Case(
        LOOP, WEIGHTS, (2, 4), 4, training("SGD(model.parameters(), lr=0.1, momentum=0.9)")
    ),
    # Besides the four steps, one launch for each tensor of the optimizer's state: three for each
    # of four parameters with Adam, two with RMSprop. Making Adam's is the second program.
    "Adam": Case(LOOP, WEIGHTS, (2, 16), 16, training(f"Adam{ADAM}")),
    "AdamW": Case(LOOP, WEIGHTS, (1, 16), 16, training(f"AdamW{ADAM}")),
    "RMSprop": Case(LOOP, WEIGHTS, (1, 12), 12, training(f"RMSprop{ADAM}")),
    # Five launches for each eager step.
    "Adagrad steps eagerly": Case(LOOP, WEIGHTS, (1, 24), 24, training(f"Adagrad{ADAM}")),
    "zero_grad after the forward pass": Case(
        TUTORIAL_ORDER, "predicted, " + WEIGHTS, (1, 16), 16, training(f"AdamW{ADAM}")
    ),
    "gradients add up": Case(
        LOOP.replace("    opt.zero_grad()\n", ""),
        WEIGHTS,
        (1, 4),
        4,
        training("SGD(model.parameters(), lr=0.1)"),
    ),
    "clipping": Case(
        LOOP.replace(
            "    opt.step()", "    nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n    opt.step()"
        ),
        WEIGHTS,
        (1, 4),
        4,
        training("SGD(model.parameters(), lr=0.1)"),
    ),
    # The rate of the first step is part of its program; from the second on it is an argument,
    # filled anew twice.
    "scheduler": Case(
        LOOP + "    scheduler.step()\n",
        WEIGHTS,
        (2, 6),
        6,
        training("SGD(model.parameters(), lr=0.1)")
        + "\nscheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)",
    ),
    # The programs are those of the case before.
    "scheduler of a group without parameters too": Case(
        LOOP + "    scheduler.step()\n",
        WEIGHTS,
        (0, 6),
        6,
        "model = network()\nopt = torch.optim.SGD([{'params': model.parameters()}, {'params': []}], lr=0.1)"
        "\nscheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)",
    ),
    "Adamax": Case(LOOP, WEIGHTS, (1, 16), 16, training(f"Adamax{ADAM}")),
    "tutorial order in a function": Case(
        "def train_step(x, y):\n    out = model(x)\n    loss = F.cross_entropy(out, y)\n    opt.zero_grad()\n"
        "    loss.backward()\n    opt.step()\n    return loss\nfor _ in range(4):\n    loss = train_step(X, Y)",
        WEIGHTS,
        (1, 4),
        4,
        training("SGD(model.parameters(), lr=0.1)"),
    ),
    "batch norm and dropout": Case(
        LOOP,
        WEIGHTS + ", *model.buffers()",
        (1, 4),
        4,
        "torch.manual_seed(2)\nmodel = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), "
        "nn.Linear(16, 10)).to('tpu')\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\ntorch.manual_seed(5)",
    ),
    "gradient accumulation": Case(
        "opt.zero_grad()\nfor i in range(4):\n    loss = F.cross_entropy(model(X), Y) / 2\n    loss.backward()\n"
        "    if (i + 1) % 2 == 0:\n        opt.step()\n        opt.zero_grad()",
        WEIGHTS,
        (3, 6),
        6,
        training("SGD(model.parameters(), lr=0.1)"),
    ),
    "lists, dicts and other names for the same tensor": Case(
        "other = h\nouts = []\nfor _ in range(3):\n    h += 1\n    g = batch['x'] * h\n    outs.append(g)\n"
        "s = torch.stack(outs)",
        "h, other, s",
        (2, 4),
        4,
        "h = X + 0\nbatch = {'x': X}",
    ),
    "running sum under no_grad": Case(
        "right = 0\ntotal = torch.zeros((), device='tpu')\nwith torch.no_grad():\n    for _ in range(3):\n"
        "        p = model(X)\n        right += (p.argmax(1) == Y).sum().item()\n        total = total + p.mean()",
        "total, torch.tensor(right)",
        (2, 16),
        16,
        training("SGD(model.parameters())"),
    ),
    "autocast": Case(
        "with torch.autocast('tpu', dtype=torch.bfloat16):\n    p = model(X)\nq = p.float()",
        "p, q",
        (1, 1),
        1,
        training("SGD(model.parameters())"),
    ),
    "two optimizers": Case(
        "for _ in range(3):\n    opt.zero_grad()\n    opt2.zero_grad()\n    loss = F.cross_entropy(m2(model[0](X)), Y)\n"
        "    loss.backward()\n    opt.step()\n    opt2.step()",
        WEIGHTS + ", *m2.parameters()",
        (1, 3),
        3,
        "model = network()\ntorch.manual_seed(4)\nm2 = nn.Linear(64, 10).to('tpu')\n"
        "opt = torch.optim.SGD(model[0].parameters(), lr=0.1)\nopt2 = torch.optim.SGD(m2.parameters(), lr=0.2)",
    ),
    "two losses": Case(
        "for _ in range(3):\n    opt.zero_grad()\n    out = model(X)\n    l1 = F.cross_entropy(out, Y)\n    l1.backward()\n"
        "    l2 = model(X).pow(2).mean()\n    l2.backward()\n    opt.step()\nloss = l1 + l2",
        WEIGHTS,
        (2, 4),
        4,
        training("SGD(model.parameters(), lr=0.1)"),
    ),
    "weights by hand": Case(
        "for _ in range(3):\n    loss = F.cross_entropy(X @ w, Y)\n    loss.backward()\n    with torch.no_grad():\n"
        "        w -= 0.1 * w.grad\n        w.grad = None",
        "loss, w",
        (2, 6),
        6,
        "w = torch.zeros(32, 10, device='tpu', requires_grad=True)",
    ),
    "network and optimizer made in the cell": Case(
        training(f"AdamW{ADAM}") + LOOP,
        WEIGHTS,
        (0, 16),
        16,
    ),
}


# One kernel runs the cases in their order: a program that an earlier one made is not made again.
@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        assert notebook.run(PREPARE).status == "ok"
        yield notebook


def counts(notebook: Notebook) -> tuple[int, int]:
    return ast.literal_eval(notebook.run("counted()").text or "")


def run_counted(notebook: Notebook, cell: str) -> tuple[int, int]:
    before = counts(notebook)
    result = notebook.run(cell)
    assert result.status == "ok", result.content
    after = counts(notebook)
    return after[0] - before[0], after[1] - before[1]


def check(notebook: Notebook, code: str) -> None:
    result = notebook.run(code)
    assert result.status == "ok", result.content


@pytest.mark.parametrize("name", CASES)
def test_programs_and_results_of_a_compiled_cell(notebook: Notebook, name: str) -> None:
    case = CASES[name]
    values = f"[{case.names}]"
    keep = f"[None if t is None else t.detach().cpu().clone() for t in {values}]"
    check(notebook, f"{case.setup}\n{case.cell}\n_eager = {keep}")
    check(notebook, f"{case.setup}")
    first = run_counted(notebook, f"%%tpu_compile --quiet\n{case.cell}")
    check(notebook, f"_compiled = {keep}")
    check(
        notebook,
        "assert len(_eager) == len(_compiled)\n"
        "for e, c in zip(_eager, _compiled):\n"
        f"    torch.testing.assert_close(c, e, {TOLERANCE})",
    )
    check(notebook, f"{case.setup}")
    second = run_counted(notebook, f"%%tpu_compile --quiet\n{case.cell}")
    assert (first, second) == (case.first, (0, case.second))
