"""`%%tpu_compile --compare`: the same inputs for each run, one run's state afterwards, and the card."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

PREPARE = """
import builtins, random
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
X = torch.randn(64, 32).to("tpu")
Y = torch.randint(0, 10, (64,)).to("tpu")

def training():
    torch.manual_seed(1); np.random.seed(1); random.seed(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)).to("tpu")
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), []

# What is in a Python module is not put back: here each run leaves what it started from.
builtins.seen = []

def noted(*tensors):
    builtins.seen.append([t.detach().cpu().clone() for t in tensors])
"""

CELL = """
noted(*model.parameters(), *[t for state in opt.state.values() for t in state.values()])
for _ in range(2):
    opt.zero_grad()
    loss = F.cross_entropy(model(X), Y)
    loss.backward()
    opt.step()
log.append(loss.item())
drawn = random.random(), np.random.rand(), torch.rand(1).item(), torch.rand(1, device="tpu").item()
print("printed")
loss.item() > 0
"""

AFTER = """[*[p.detach().cpu() for p in model.parameters()], *[p.grad.cpu() for p in model.parameters()],
 *[s["exp_avg"].cpu() for s in opt.state.values()], *[s["step"].cpu() for s in opt.state.values()],
 torch.tensor(drawn), torch.tensor([random.random(), np.random.rand(), torch.rand(1).item()]),
 torch.rand(3, device="tpu").cpu()]"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        assert notebook.run(PREPARE).status == "ok"
        yield notebook


def card_of(result: Result) -> dict[str, str]:
    """The card; a slow machine also shows what takes long to compile."""
    (card,) = [d for d in result.displays if d["text/plain"].startswith(("compared · ", "ran eagerly · "))]
    return card


def test_notebook_is_left_as_after_one_run_and_each_run_starts_the_same(notebook: Notebook) -> None:
    notebook.run(f"model, opt, log = training()\n{CELL}")
    notebook.run(f"plain = {AFTER}; seen.clear()")
    notebook.run("model, opt, log = training()\nkeep = [id(p) for p in model.parameters()]")
    result = notebook.run(f"%%tpu_compile --compare\n{CELL}")
    assert result.status == "ok", result.content
    assert (result.stdout, result.stderr, result.text) == ("printed\n", "", "True")
    assert notebook.run("len(log), keep == [id(p) for p in model.parameters()]").text == "(1, True)"
    assert (
        notebook.run(f"[torch.allclose(a, b, atol=1e-4) for a, b in zip(plain, {AFTER})] == 19 * [True]").text
        == "True"
    )
    # Once eagerly, once or more compiled, and five of each in turn.
    assert notebook.run("len(seen) >= 12, len(seen[0])").text == "(True, 4)"
    same = "all(len(run) == 4 and all(map(torch.equal, run, seen[0])) for run in seen)"
    assert notebook.run(same).text == "True"
    card = card_of(result)
    text = card["text/plain"]
    assert re.match(r"compared · compiled is \d+\.\d\d × as fast as eager · 5 runs each, in turn\n", text)
    rows = dict(re.findall(r"^  (\w+)  +\S.*?  +([\d.e-]+|none)(?:  +[\d.e-]+)?$", text, re.MULTILINE))
    assert {"loss", "log", "model", "opt"} <= rows.keys() and "_" not in rows
    assert all(value == "none" or float(value) < 1e-4 for value in rows.values())
    assert all(len(line) <= 80 for line in text.splitlines())
    text = " ".join(text.split())
    assert "random numbers (Python, NumPy, CPU, device)" in text
    assert "opt (AdamW) is now capturable" in text
    assert "<script" not in card["text/html"] and len(card["text/html"]) < 6144


def test_in_place_changes_objects_and_names_are_put_back(notebook: Notebook) -> None:
    notebook.run(
        "h = X.clone()\nalias = h\nclass Count:\n    made = 0\n    def __init__(self): self.n = 0\ncount = Count()\n"
        "table = {'a': [1]}\ngone = 1\ndef bump():\n    count.n += 1\n"
        "with torch.inference_mode():\n    still = X * 1"
    )
    result = notebook.run(
        "%%tpu_compile --compare\nh += 1\nh.mul_(2)\nbump()\nCount.made += 1\ntable['a'].append(2)\ndel gone\n"
        "fresh = h.sum() / 64 + still.sum() * 0\nwith torch.inference_mode():\n    still += 1",
    )
    assert result.status == "ok", result.content
    left = "alias is h, torch.equal(h, (X + 1) * 2), count.n, Count.made, table, 'gone' in globals(), torch.equal(still, X + 1)"
    assert notebook.run(left).text == "(True, True, 1, 1, {'a': [1, 2]}, False, True)"
    text = card_of(result)["text/plain"]
    assert re.search(r"^  h +float32 64 × 32  none$", text, re.MULTILINE)


def test_what_cannot_be_put_back_is_named(notebook: Notebook) -> None:
    notebook.run(
        "class Source:\n    pass\nsource = Source()\nsource.rows = iter([1, 2])\nimport threading\nlock = threading.Lock()"
    )
    result = notebook.run("%%tpu_compile --compare\nn = len(source.__dict__)\nwith lock:\n    y = X * n + 1")
    assert result.status == "ok", result.content
    text = " ".join(card_of(result)["text/plain"].split())
    assert "Not put back: lock (lock), source.rows (list_iterator)." in text


def test_what_a_proxy_says_it_is_is_not_asked(notebook: Notebook) -> None:
    notebook.run(
        "asked = []\nclass Proxy:\n    @property\n    def __class__(self):\n        asked.append(1)\n"
        "        raise RuntimeError\n    @property\n    def __dict__(self):\n        asked.append(2)\n        return {}\n"
        "class Listing(list):\n    def __iter__(self):\n        asked.append(3)\n        raise RuntimeError\n"
        "proxy = Proxy()\nheld = {'proxy': Proxy(), 'list': Listing([X]), 'sparse': torch.eye(2).to_sparse()}"
    )
    result = notebook.run("%%tpu_compile --compare\nkept = proxy, len(held)\nraised = X + 0.5")
    assert result.status == "ok", result.content
    assert re.search(r"^  raised +float32 64 × 32  none$", card_of(result)["text/plain"], re.MULTILINE)
    assert notebook.run("del held, kept, proxy; asked").text == "[]"


def test_one_copy_is_kept_of_what_the_cell_starts_from(notebook: Notebook) -> None:
    notebook.run(
        "import gc\ndata = torch.full((1000, 100), 7.5).to('tpu')\n"
        "def copies():\n    same = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.device.type == 'cpu']\n"
        "    builtins.seen.append(len({t.data_ptr() for t in same if t.shape == (1000, 100)}))\n"
        "builtins.seen = []"
    )
    result = notebook.run("%%tpu_compile --compare\ncopies()\ny = (data * 2).sum()")
    assert result.status == "ok", result.content
    assert notebook.run("set(seen)").text == "{1}"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "y = next(rows) + 1",
            "`rows` (list_iterator) is used up by a run and cannot be put back: make it in the cell, or turn it into a list",
        ),
        ("open('x')", "the cell runs several times, but it opens files, which cannot be put back (`open`)"),
        ("input()", "the cell runs several times, but it asks for input (`input`)"),
        (
            "!true",
            "the cell runs several times, but it has magics or commands, whose effects cannot be put back (`get_ipython`)",
        ),
    ],
)
def test_what_cannot_run_again_is_refused(notebook: Notebook, cell: str, message: str) -> None:
    notebook.run("rows = iter([X])")
    result = notebook.run(f"%%tpu_compile --compare\n{cell}")
    assert (result.content["ename"], result.content["evalue"]) == ("UsageError", f"%%tpu_compile: {message}")
    assert notebook.run("len(list(rows))").text == "1"


def test_error_of_the_cell_is_the_cells_own(notebook: Notebook) -> None:
    result = notebook.run("%%tpu_compile --compare\nprint('before')\nz = X * 2\n1 / 0")
    assert (result.content["ename"], result.stdout) == ("ZeroDivisionError", "before\n")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert re.search(r"^-+> 4 1 / 0$", text, re.MULTILINE) and "tpu_kernel" not in text
    assert notebook.run("torch.equal(z, X * 2)").text == "True"


def test_cell_that_can_run_only_once_says_so(notebook: Notebook) -> None:
    notebook.run("w = torch.ones(32, device='tpu', requires_grad=True)\nloss = (X @ w).square().mean()")
    result = notebook.run("%%tpu_compile --compare\nloss.backward()")
    assert result.content["ename"] == "RuntimeError"
    assert "A cell that uses up something made before it can run only once." in "\n".join(
        result.content["traceback"]
    )


def test_differences_are_measured(notebook: Notebook) -> None:
    eagerly = "torch._dynamo.eval_frame._stance.stance == 'force_eager'"
    cell = f"k = 2.0 if {eagerly} else 3.0\nr = torch.ones(3, device='tpu') * k\nprint(k)"
    result = notebook.run(f"%%tpu_compile --compare\n{cell}")
    assert (result.status, result.stdout) == ("ok", "3.0\n")
    text = card_of(result)["text/plain"]
    assert re.search(r"^  r +float32 3 +1 +0.5$", text, re.MULTILINE)
    text = " ".join(text.split())
    assert "What the cell prints differs between the two; shown is the compiled run's." in text
