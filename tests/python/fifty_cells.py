"""Fifty cells of what people write, for `test_fifty_cells`.

Each is run in a notebook where `torch`, `nn`, `F`, `np`, the device tensors `X` (64 x 32) and `Y` (64 classes) and
`network()` exist. `programs` are literal numbers of tpu-core, "made/run", for the runs of `RUNS` in turn,
the first one with no program known. Where random numbers are drawn, TorchTPU's fused mode now and then waits
with what it has recorded and now and then does not: two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

RUNS = ("plain", "compiled", "again", "strict", "fused", "debug")


@dataclass
class Cell:
    """A cell, and what it needs before. `spent`: names whose graph `backward()` uses up."""

    programs: str
    text: str
    setup: str = ""
    spent: tuple[str, ...] = ()
    error: tuple[str, list[int]] | None = None
    """Its exception and the lines of the notebook it went through."""


def training(optimizer: str) -> str:
    return f"model = network()\nopt = torch.optim.{optimizer}"


SGD = training("SGD(model.parameters(), lr=0.1)")
STEPS = """
losses = []
for _ in range(3):
    opt.zero_grad()
    loss = F.cross_entropy(model(X), Y)
    loss.backward()
    opt.step()
    losses.append(round(loss.item(), 2))
losses
"""
SPENT = ("loss", "out")
CELLS: dict[str, Cell] = {
    # names and scopes
    "assignments": Cell(
        "4/4 1/1 0/1 0/4 1/1 0/4", "a = b = X @ X.T\nc, (d, *e) = a.sum(), (a.max(), a.min(), 3)\nb is a, e"
    ),
    "augmented": Cell(
        "4/4 2/3 0/3 0/4 1/1 0/4", "h = X * 2\nalias = h\nh += 1\nh *= X\nalias is h, torch.equal(alias, h)"
    ),
    "last expression": Cell("3/3 1/1 0/1 0/3 1/1 0/3", "y = X.mean(0)\ny.softmax(0) * 100"),
    "no output after a semicolon": Cell("2/2 1/1 0/1 0/2 0/0 0/2", "(X * X).sum();"),
    "del": Cell("4/4 2/2 0/2 0/4 1/1 0/4", "t = X + 1\nu = t * 2\ndel t\nv = u.sum() / 2\n't' in globals()"),
    "imports": Cell(
        "3/3 1/1 0/1 0/3 1/1 0/3",
        "import math\nfrom math import tau as full\ny = torch.cos(X * full)\nz = y + math.pi",
    ),
    "star import": Cell("2/2 1/2 0/2 0/2 1/1 0/2", "from math import *\ny = X * floor(e)\nz = y + 1"),
    "function": Cell(
        "2/4 1/1 0/1 0/4 1/1 0/4",
        "def scaled(t, by=2.0):\n    # twice, or more\n    return (t * by).tanh()\ny = scaled(X)\nz = scaled(y, by=3.0)",
    ),
    "function that reads the notebook": Cell(
        "5/6 2/2 0/2 0/6 1/1 0/6",
        "rate = 2.0\ndef go(t):\n    return t * rate\na = go(X)\nrate = 3.0\nb = go(X)\n(b - a).abs().sum() > 0",
    ),
    "class": Cell(
        "2/4 1/1 0/1 0/4 1/1 0/4",
        "class Scale:\n    'Scales.'\n    def __init__(self, by):\n        self.by = by\n"
        "    def __call__(self, t):\n        return t * self.by + 1\nscale = Scale(3)\ny = scale(X)\nz = scale(y)",
    ),
    "pickle of its own class": Cell(
        "3/5 1/1 0/1 0/5 1/1 0/5",
        "import pickle\nclass Point:\n    def __init__(self, at):\n        self.at = at\n"
        "p = pickle.loads(pickle.dumps(Point([1, 2])))\ny = X * p.at[1]\ny.sum() - (X * 2).sum()",
    ),
    "own module": Cell(
        "4/4 1/1 0/1 0/4 1/1 0/4",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.one = nn.Linear(32, 8)\n        self.two = nn.Linear(8, 4)\n"
        "    def forward(self, t):\n        return self.two(F.gelu(self.one(t)))\n"
        "net = Net().to('tpu')\nwith torch.no_grad():\n    y = net(X)\n    best = y.argmax(1)\nbest.shape",
    ),
    "dataclass": Cell(
        "2/2 1/1 0/1 0/2 1/1 0/2",
        "from dataclasses import dataclass\n@dataclass\nclass Batch:\n    x: torch.Tensor\n    y: torch.Tensor\n"
        "batch = Batch(X, Y)\nn = batch.x.shape[0]\nmean = batch.x.sum() / n",
    ),
    "global": Cell(
        "4/7 1/3 0/3 0/7 1/1 0/7",
        "total = X.sum()\ndef bump(t):\n    global total\n    total = total + t.sum()\nbump(X)\nbump(X * 2)\ntotal / 4",
    ),
    "comprehensions": Cell(
        "5/6 1/1 0/1 0/6 1/1 0/6",
        "i = 'kept'\nrows = [X[i] * 2 for i in range(2)]\nnamed = {k: v.sum() for k, v in zip('ab', rows)}\n"
        "s = torch.stack(rows).mean(0)\ni",
    ),
    "walrus": Cell(
        "3/3 1/3 0/3 0/3 1/1 0/3", "y = (w := X * 2) + 1\nif (n := w.shape[0]) > 3:\n    z = w @ w.T\nn"
    ),
    "lambda": Cell(
        "2/4 2/2 0/2 0/4 1/1 0/4",
        "twice = lambda t: t * 2\nk = 3\nmany = lambda t: t * k\na = twice(X) + 1\nb = many(a)\nk = 4\nc = many(a)",
    ),
    "generator": Cell(
        "6/7 1/7 0/7 0/7 1/1 0/7",
        "k = 2\nparts = (X[i] * k for i in range(3))\nk = 3\ns = sum(parts)\nmean = s / 3",
    ),
    "unpacking a call": Cell(
        "2/2 1/1 0/1 0/2 1/1 0/2",
        "args = (X, X.T)\nm = torch.matmul(*args)\nvalues, places = m.max(dim=1)\nplaces.shape",
    ),
    "match": Cell(
        "4/5 2/2 0/2 0/5 1/1 0/5",
        "kind = ('scale', 3)\nmatch kind:\n    case ('scale', n):\n        y = X * n\n        z = y + 1\n"
        "    case _:\n        y = None\nz.sum() - y.sum()",
    ),
    "annotations": Cell(
        "3/3 1/2 0/2 0/3 1/1 0/3",
        "y: torch.Tensor = X * 2\nz: int\ns = (y + 1).sum()\nsorted(__annotations__)",
    ),
    "f-strings and prints": Cell(
        "5/5 2/4 0/4 0/5 1/2 0/5",
        "y = X.abs() + 1\nprint(f'{y.shape=} {int(y.min() > 0)}')\nz = y.log()\nprint('done', tuple(z.shape))",
    ),
    # control flow
    "for": Cell(
        "8/19 3/5 0/5 0/19 3/3 0/19",
        "h = X\nfor _ in range(4):\n    h = torch.tanh(h @ X.T @ X / 32)\nh.abs().max() <= 1",
    ),
    "for with its counter": Cell(
        "2/6 0/6 0/6 0/6 1/1 0/6", "h = X\nfor i in range(1, 4):\n    h = h / i + 1\ni"
    ),
    "while": Cell(
        "5/27 2/21 0/21 0/27 2/7 0/27",
        "h = X * 8\nn = 0\nwhile h.abs().max().item() > 1:\n    h = h / 2\n    h = h + 0.01\n    n += 1\nn",
    ),
    "if on a device value": Cell(
        "5/5 2/4 0/4 0/5 2/2 0/5",
        "s = X.sum()\nif s * 0 == 0:\n    y = X + 1\n    z = y * 2\nelse:\n    never = 1\nz.shape",
    ),
    "break, continue, else": Cell(
        "2/6 1/3 0/3 0/6 1/1 0/6",
        "seen = []\nfor i in range(6):\n    if i == 1:\n        continue\n    if i == 4:\n        break\n    y = X.sum() * 2\n"
        "    seen.append(y)\nelse:\n    seen = None\nlen(seen)",
    ),
    "try, except, finally": Cell(
        "4/4 2/3 0/3 0/4 1/1 0/4",
        "try:\n    y = X * 2\n    z = y @ y\nexcept RuntimeError as error:\n    said = type(error).__name__\n"
        "    w = y + 1\nfinally:\n    v = y.sum() - 1\nsaid",
    ),
    "with": Cell(
        "2/2 2/2 0/2 0/2 1/1 0/2",
        "import contextlib\nwith contextlib.suppress(KeyError):\n    y = X + 1\n    z = {}['no']\n    never = 1\nw = y * 2",
    ),
    # tensors
    "in place": Cell(
        "6/6 2/2 0/2 0/6 1/1 0/6",
        "h = X.clone()\nh[0] = 7\nh[:, 1] += 2\nv = h[2]\nv.mul_(3).add_(1)\nh.clamp_(-2, 2)\nh.sum()",
    ),
    "view": Cell(
        "1/1 1/1 0/1 0/1 1/1 0/1",
        "a = X.view(-1)\nb = a.reshape(32, 64).T\nc = b[::2, 3:9]\nd = c.contiguous() + 1\nd.shape, c.stride()",
    ),
    "masks": Cell(
        "7/8 1/6 0/6 0/8 3/3 0/8",
        "mask = X > 0\ny = torch.where(mask, X, 0.0)\npicked = X[mask]\nn = int(mask.sum())\npicked.numel() == n",
    ),
    "transfers": Cell(
        "3/3 1/1 0/1 0/3 1/1 0/3",
        "h = torch.arange(6.0).reshape(2, 3)\nd = h.to('tpu')\ne = (d @ d.T + 1).relu()\nback = e.cpu()\nback.tolist()",
    ),
    "numpy": Cell(
        "2/2 1/1 0/1 0/2 1/1 0/2",
        "a = np.arange(4.0)\nt = torch.from_numpy(a).float().to('tpu')\ny = t * 2 + 1\nb = y.cpu().numpy()\nb.sum()",
    ),
    "einsum and topk": Cell(
        "4/4 1/1 0/1 0/4 1/1 0/4",
        "s = torch.einsum('ij,kj->ik', X, X) / 32\nv, i = s.softmax(-1).topk(3)\nv.shape",
    ),
    "indexing": Cell(
        "5/5 1/1 0/1 0/5 1/1 0/5",
        "i = torch.tensor([3, 1, 2]).to('tpu')\npicked = X[i] * 2\ny = picked.index_select(0, i - 1)\ny.shape",
    ),
    # gradients and modes
    "no_grad": Cell(
        "8/8 1/1 0/1 0/8 1/1 0/8",
        "with torch.no_grad():\n    out = model(X)\n    best = out.argmax(1)\n(best == Y).float().mean() >= 0",
        SGD,
    ),
    "no_grad decorator": Cell(
        "5/5 1/1 0/1 0/5 1/1 0/5",
        "@torch.no_grad()\ndef evaluate(x):\n    return model(x).softmax(1)\np = evaluate(X)\nq = p * 2\nq.requires_grad",
        SGD,
    ),
    "inference_mode": Cell(
        "5/5 1/1 0/1 0/5 1/1 0/5",
        "with torch.inference_mode():\n    out = model(X)\n    s = out.sum() * 2\nout.is_inference()",
        SGD,
    ),
    "autocast": Cell(
        "9/10 1/1 0/1 0/10 1/1 0/10",
        "with torch.autocast('tpu', dtype=torch.bfloat16):\n    out = model(X)\nwide = out.float() * 2\nout.dtype",
        SGD,
    ),
    "autograd.grad": Cell(
        "10/11 1/2 0/2 0/11 2/5 0/11",
        "w = torch.ones(32, device='tpu', requires_grad=True)\ny = (X @ w).square().mean()\n(g,) = torch.autograd.grad(y, w)\nh = g * 2",
        spent=("y",),
    ),
    "random numbers": Cell(
        "4/7 0/7 0/7 0/7 2/2|5/5 0/7",
        "torch.manual_seed(3)\nr = torch.rand(8, device='tpu') * 2\ntorch.manual_seed(3)\ns = torch.rand(8, device='tpu') * 2\n"
        "n = np.random.rand()\ntorch.equal(r, s)",
    ),
    "dropout with a seed": Cell(
        "6/6 1/1 0/1 0/6 1/1|2/2 0/6",
        "torch.manual_seed(5)\nd = F.dropout(X, 0.5)\nkept = (d != 0).sum()\ne = d.sum() / 2",
    ),
    "eval and train": Cell(
        "3/5 2/2 0/2 0/5 1/1 0/5",
        "net = nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)).to('tpu').eval()\n"
        "a = net(X)\nb = net(X)\nnet.train()\ntorch.equal(a, b)",
    ),
    # training
    "SGD": Cell("10/30 1/3 0/3 0/30 6/18 0/30", STEPS, SGD, SPENT),
    "SGD with momentum and clipping": Cell(
        "20/61 2/3 0/3 0/61 6/18 0/61",
        STEPS.replace(
            "    opt.step()", "    nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n    opt.step()"
        ),
        training("SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)"),
        SPENT,
    ),
    "Adam": Cell(
        "20/56 2/15 0/15 0/56 12/32 0/56", STEPS, training("Adam(model.parameters(), lr=0.01)"), SPENT
    ),
    "AdamW": Cell(
        "20/59 2/15 0/15 0/59 13/35 0/59", STEPS, training("AdamW(model.parameters(), lr=0.01)"), SPENT
    ),
    "RMSprop": Cell(
        "18/46 2/11 0/11 0/46 8/21 0/46", STEPS, training("RMSprop(model.parameters(), lr=0.01)"), SPENT
    ),
    "Adagrad": Cell(
        "14/42 1/18 0/18 0/42 7/21 0/42", STEPS, training("Adagrad(model.parameters(), lr=0.01)"), SPENT
    ),
    "scheduler": Cell(
        "10/30 3/4 0/4 0/30 6/18 0/30",
        STEPS.replace("    losses", "    scheduler.step()\n    losses") + "scheduler.get_last_lr()",
        SGD + "\nscheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)",
        SPENT,
    ),
    "DataLoader": Cell(
        "10/80 1/8 0/8 0/80 7/37 0/80",
        "from torch.utils.data import DataLoader, TensorDataset\nloader = DataLoader(TensorDataset(X.cpu(), Y.cpu()), 16, shuffle=True)\n"
        "for epoch in range(2):\n    for x, y in loader:\n        x, y = x.to('tpu'), y.to('tpu')\n        opt.zero_grad()\n"
        "        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n        opt.step()\n    print(epoch)",
        SGD,
        SPENT,
    ),
    "train step in a function": Cell(
        "10/30 1/3 0/3 0/30 8/11 0/30",
        "def train_step(x, y):\n    opt.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n"
        "    opt.step()\n    return loss.detach()\nfor _ in range(3):\n    last = train_step(X, Y)\nlast",
        SGD,
    ),
    "gradient accumulation": Cell(
        "15/54 3/6 0/6 0/54 6/8 0/54",
        "opt.zero_grad()\nfor i in range(4):\n    loss = F.cross_entropy(model(X), Y) / 2\n    loss.backward()\n"
        "    if i % 2:\n        opt.step()\n        opt.zero_grad()",
        SGD,
        SPENT,
    ),
    "weights by hand": Cell(
        "7/21 2/6 0/6 0/21 6/6 0/21",
        "for _ in range(3):\n    loss = F.cross_entropy(X @ w, Y)\n    loss.backward()\n    with torch.no_grad():\n"
        "        w -= 0.1 * w.grad\n        w.grad = None",
        "w = torch.zeros(32, 10, device='tpu', requires_grad=True)",
        SPENT,
    ),
    # errors
    "raise": Cell(
        "2/2 1/1 0/1 0/2 1/1 0/2",
        "y = X * 2\nz = y + 1\nraise ValueError('stop')\nnever = 1",
        error=("ValueError", [4]),
    ),
    "shapes that do not fit": Cell(
        "3/3 0/3 0/3 0/3 1/1 0/3",
        "y = X * 2\nz = y.T + 1\nbad = X @ X\nnever = 1",
        error=("RuntimeError", [4]),
    ),
    "error in a loop": Cell(
        "2/6 1/3 0/3 0/6 3/4 0/6",
        "h = X\nfor i in range(5):\n    h = h * 2\n    k = h + 1\n    inverse = 6 // (2 - i)\nnever = 1",
        error=("ZeroDivisionError", [6]),
    ),
    "error in a function": Cell(
        "2/2 0/2 0/2 0/2 1/1 0/2",
        "def deep(t):\n    u = t + 1\n    return u @ u\ny = X * 2\nz = deep(y)\nnever = 1",
        error=("RuntimeError", [6, 4]),
    ),
    "error in a training step": Cell(
        "10/20 1/2 0/2 0/20 10/12 0/20",
        STEPS.replace("losses.append", "1 / (len(losses) - 1)\n    losses.append"),
        SGD,
        SPENT,
        ("ZeroDivisionError", [9]),
    ),
    "mixed devices": Cell(
        "1/1 1/1 0/1 0/1 0/1 0/1", "y = X * 2\nz = y + torch.ones(3)\nnever = 1", error=("RuntimeError", [3])
    ),
    "name not defined": Cell(
        "1/1 1/1 0/1 0/1 0/1 0/1", "y = X * 2\nz = y + missing\nnever = 1", error=("NameError", [3])
    ),
    "assert": Cell(
        "5/5 1/5 0/5 0/5 2/2 0/5",
        "y = X.abs()\nassert (y >= 0).all()\nassert y.sum() < 0, 'positive'\nnever = 1",
        error=("AssertionError", [4]),
    ),
    "not Python": Cell("0/0 0/0 0/0 0/0 0/0 0/0", "y = X * 2\nz = = 1", error=("SyntaxError", [3])),
}


@dataclass
class Change:
    """One line of a cell that is changed: programs of the compiled cell before and after."""

    cell: str
    line: str
    other: str
    before: str
    after: str


CHANGES = [
    Change("f-strings and prints", "z = y.log()", "z = y.sqrt()", "2/4", "1/4"),
    Change("assignments", "(a.max(), a.min(), 3)", "(a.max(), a.std(), 3)", "1/1", "1/1"),
    Change("for", "h = torch.tanh(", "h = torch.sin(", "3/5", "2/5"),
    Change("SGD", "F.cross_entropy(model(X), Y)", "F.cross_entropy(model(X), Y) * 2", "1/3", "1/3"),
    Change("star import", "z = y + 1", "z = y", "1/2", "0/1"),
]
