"""Cells that train through functions, for `test_training_functions`, and the network and data they train."""

from __future__ import annotations

from dataclasses import dataclass

PREPARE = """
import torch, torch.nn as nn, torch.nn.functional as F
from tpu_kernel.magics import measure

torch.manual_seed(0)
X = torch.randn(64, 32).to("tpu")
Y = torch.randint(0, 10, (64,)).to("tpu")
batches = [(X, Y), (X.flip(0), Y.flip(0))]

def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to("tpu")

def counted():
    now = measure.counters(settle=True)
    return now.compiles + now.cache_hits, now.executions
"""
STEP = """
def train_step(x, y):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss
"""
FOUR = "for x, y in batches * 2:\n    loss = train_step(x, y)"
WEIGHTS = "loss, *model.parameters(), *[p.grad for p in model.parameters()]"
SGD = "\nmodel = network()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"


@dataclass
class Case:
    """Functions of an earlier cell, and a cell; the names to compare with eager; programs made and
    run in the first run, and run in the second (which makes none)."""

    functions: str
    cell: str
    first: tuple[int, int]
    second: int
    names: str = WEIGHTS
    setup: str = SGD
    #: What the card of the first run says was in no program, line by line.
    outside: tuple[str, ...] = ()


def step(*changes: tuple[str, str]) -> str:
    text = STEP
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


CASES = {
    "a step": Case(STEP, FOUR, (1, 4), 4),
    # Besides the four steps, one launch for each tensor of the optimizer's state.
    "a step of the same cell, with AdamW": Case(
        "",
        STEP + FOUR,
        (2, 16),
        16,
        setup="model = network()\nopt = torch.optim.AdamW(model.parameters(), lr=0.01)",
    ),
    "the whole loop in a function": Case(
        "def train(model, opt, loader, epochs=2):\n    losses = []\n    for epoch in range(epochs):\n        for x, y in loader:\n"
        "            opt.zero_grad()\n            out = model(x)\n            loss = F.cross_entropy(out, y)\n            loss.backward()\n"
        "            opt.step()\n            losses.append(loss.item())\n    return losses, sum(losses) / len(loader)",
        "losses, mean = train(model, opt, batches)",
        (1, 4),
        4,
        names="torch.tensor(losses), torch.tensor(mean), *model.parameters()",
        outside=(
            "line 2 losses.append(loss.item())",
            "in train, line 10: .item() needs a host value",
            "Instead: keep it a tensor, and read it after the loop",
        ),
    ),
    "gradients cleared by hand, after the forward pass": Case(
        step(
            ("    opt.zero_grad()\n", ""),
            (
                "    loss.backward()",
                "    for p in model.parameters():\n        p.grad = None\n    loss.backward()",
            ),
        ),
        FOUR,
        (0, 4),
        4,
    ),
    "clipping, and values that are returned": Case(
        step(
            ("loss = F.cross_entropy(model(x), y)", "out = model(x)\n    loss = F.cross_entropy(out, y)"),
            (
                "    opt.step()",
                "    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n    opt.step()",
            ),
            (
                "return loss",
                "return {'loss': loss.item(), 'right': (out.argmax(1) == y).sum().item(), 'norm': norm}",
            ),
        ),
        "for x, y in batches * 2:\n    told = train_step(x, y)",
        (1, 4),
        4,
        names="torch.tensor([told['loss'], told['right']]), told['norm'], *model.parameters()",
    ),
    "two optimizers and a scheduler": Case(
        "def train_step(x, y):\n    opt.zero_grad()\n    opt2.zero_grad()\n    loss = F.cross_entropy(m2(model[0](x)), y)\n"
        "    loss.backward()\n    opt.step()\n    opt2.step()\n    scheduler.step()\n    return loss",
        FOUR,
        (3, 6),
        6,
        names=WEIGHTS + ", *m2.parameters()",
        setup="model = network()\ntorch.manual_seed(4)\nm2 = nn.Linear(64, 10).to('tpu')\n"
        "opt = torch.optim.SGD(model[0].parameters(), lr=0.1)\nopt2 = torch.optim.SGD(m2.parameters(), lr=0.2)\n"
        "scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)",
    ),
    "accumulation": Case(
        "def accumulate(i, x, y):\n    loss = F.cross_entropy(model(x), y) / 2\n    loss.backward()\n"
        "    if (i + 1) % 2 == 0:\n        opt.step()\n        opt.zero_grad()\n    return loss",
        "opt.zero_grad()\nfor i, (x, y) in enumerate(batches * 2):\n    loss = accumulate(i, x, y)",
        (3, 6),
        6,
        names="loss, *model.parameters()",
    ),
    "a trainer": Case(
        "class Trainer:\n    def __init__(self, model):\n        self.model, self.steps, self.last = model, 0, None\n"
        "        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n    def step(self, batch):\n        x, y = batch\n"
        "        self.optimizer.zero_grad()\n        loss = self.compute(x, y)\n        loss.backward()\n        self.optimizer.step()\n"
        "        self.steps += 1\n        self.last = loss\n        return loss\n    def compute(self, x, y):\n"
        "        return F.cross_entropy(self.model(x), y)\n    def fit(self, loader):\n        for batch in loader:\n"
        "            loss = self.step(batch)\n        return loss",
        "loss = trainer.fit(batches * 2)",
        (0, 4),
        4,
        names=WEIGHTS + ", trainer.last, torch.tensor(trainer.steps)",
        setup="model = network()\ntrainer = Trainer(model)",
    ),
    "autocast": Case(
        step(
            (
                "    loss = F.cross_entropy(model(x), y)",
                "    with torch.autocast('tpu', dtype=torch.bfloat16):\n        loss = F.cross_entropy(model(x), y)",
            )
        ),
        FOUR,
        (1, 4),
        4,
    ),
    "GradScaler": Case(
        step(
            ("loss.backward()", "scaler.scale(loss).backward()"),
            ("opt.step()", "scaler.step(opt)\n    scaler.update()"),
        ),
        FOUR,
        (2, 16),
        16,
        setup=SGD + "scaler = torch.amp.GradScaler('tpu', enabled=False)",
        outside=(
            "line 3 scaler.scale(loss).backward()",
            "in train_step, line 5: scaler.scale runs on the host",
            "Instead: bfloat16 needs no GradScaler: loss.backward(), opt.step() in torch.autocast",
            "line 3 scaler.step(opt)",
            "in train_step, line 6: scaler.step runs on the host",
            "Instead: bfloat16 needs no GradScaler: loss.backward(), opt.step() in torch.autocast",
        ),
    ),
    "autograd.grad and weights by hand": Case(
        "def train_step(x, y):\n    loss = F.cross_entropy(model(x), y)\n    grads = torch.autograd.grad(loss, list(model.parameters()))\n"
        "    with torch.no_grad():\n        for p, g in zip(model.parameters(), grads):\n            p -= 0.1 * g\n    return loss",
        FOUR,
        (1, 4),
        4,
        names="loss, *model.parameters()",
    ),
    "forward and backward apart, and evaluation": Case(
        "def forward(x, y):\n    return F.cross_entropy(model(x), y)\ndef update(loss):\n    opt.zero_grad()\n    loss.backward()\n"
        "    opt.step()\ndef evaluate(loader):\n    model.eval()\n    right = 0\n    with torch.no_grad():\n        for x, y in loader:\n"
        "            right += (model(x).argmax(1) == y).sum().item()\n    model.train()\n    return right",
        "for x, y in batches * 2:\n    loss = forward(x, y)\n    update(loss)\nright = evaluate(batches)",
        (1, 18),
        18,
        names=WEIGHTS + ", torch.tensor(right)",
        outside=(
            "line 4 loss.backward()",
            "in update, line 5: backward() goes through a graph made before this run",
            "Instead: keep forward and backward() together, with nothing eager in between",
            "line 5 model.eval()",
            "in evaluate, line 8: model.eval sets up the module",
            "line 5 model.train()",
            "in evaluate, line 13: model.train sets up the module",
        ),
    ),
    "backward of an expression": Case(
        "",
        "for x, y in batches * 2:\n    opt.zero_grad()\n    F.cross_entropy(model(x), y).backward()\n    opt.step()",
        (1, 4),
        4,
        names=WEIGHTS.partition(", ")[2],
    ),
    "backward through a loss of an earlier cell too": Case(
        "",
        "loss = F.cross_entropy(model(X), Y) + earlier\nloss.backward()",
        (2, 11),
        11,
        setup=SGD + "earlier = model(X).mean()",
        outside=(
            "line 3 loss.backward()",
            "backward() goes through a graph made before this run",
            "Instead: keep forward and backward() together, with nothing eager in between",
        ),
    ),
    "backward of an expression over losses of an earlier cell": Case(
        "",
        "torch.stack([F.cross_entropy(model(X), Y), *earlier]).sum().backward()",
        (0, 27),
        27,
        names=WEIGHTS.partition(", ")[2],
        setup=SGD + "earlier = [model(x).mean() for x, _ in batches]",
        outside=(
            "line 2 torch.stack([F.cross_entropy(model(X), Y), *earlier]).sum()…",
            "backward() goes through a graph made before this run",
            "Instead: keep forward and backward() together, with nothing eager in between",
        ),
    ),
    "decorated by torch, and handed over": Case(
        "@torch.enable_grad()"
        + STEP
        + "def other_step(x, y):"
        + STEP.partition(":")[2]
        + "def fit(step, loader):\n    for x, y in loader:\n        loss = step(x, y)\n    return loss",
        "loss = train_step(X, Y)\nloss = fit(other_step, batches * 2)",
        (0, 14),
        14,
        outside=(
            "line 2 loss = train_step(X, Y)",
            "train_step runs backward() inside: the library torch calls it",
            "Instead: write the training step as a function with def in a cell, or into the loop",
        ),
    ),
}
