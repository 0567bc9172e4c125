"""What the card of `%%tpu_compile` tells of Dynamo: graphs, breaks, guards, lines outside of programs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, run

PREPARE = """
import copy, random, time, warnings
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
from torch._dynamo.utils import counters
from tpu_kernel.magics import measure
torch.manual_seed(0)
X = torch.randn(16, 8).to("tpu")
Y = torch.zeros(16, dtype=torch.long).to("tpu")
S = torch.tensor(2.0)
W, n, rate = X, 3, 0.5
def printing(t):
    u = t * 2
    print("inside")
    return u + 1
def item(t): return t * t.sum().item()
def branch(t):
    if t.sum() > 0:
        return t + 1
    return t - 1
def loop(t):
    for i in range(3):
        t = t * 2
        time.time()
    return t
def clock(t): return t * time.time()
def masked(t): return t[t > 0].sum()
def copied(t): return copy.deepcopy(t) + 1
def scaled(t): return t * S
def from_numpy(t): return t + torch.from_numpy(np.ones(8, dtype="float32")).to("tpu")
def equal(t): return t + 1 if torch.equal(t, t) else t
def rated(t): return t * rate
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        h = self.fc(x)
        if h.mean() > 0:
            h = h * 2
        return h
def seen():
    now = measure.counters(settle=True)
    stats, breaks = counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())
    return stats, breaks, now.compiles, now.cache_hits, now.executions
"""
CALL = "%%tpu_compile\nb = X + 1\na = {}(b)\nc = X * 3"


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        result = notebook.run(PREPARE)
        assert result.status == "ok", result.content
        yield notebook


def card(notebook: Notebook, cell: str) -> list[str]:
    """The text of the cell's card, in lines."""
    (shown,) = run(notebook, cell).displays
    assert len(shown["text/html"].encode()) <= 6144
    lines = shown["text/plain"].splitlines()
    assert [line for line in lines if len(line) > 80] == []
    return lines


def outside(lines: list[str]) -> list[str]:
    """What the card says was not in a program."""
    return lines[lines.index("  not in a program:") + 1 :]


def numbers(lines: list[str]) -> dict[str, str]:
    return dict(re.findall(r"^  (\w[\w ]*\w)  +(\d.*)$", "\n".join(lines), re.MULTILINE))


def test_numbers_are_those_of_dynamo_and_of_the_session(notebook: Notebook) -> None:
    before = ast.literal_eval(run(notebook, "seen()").text or "")
    lines = card(notebook, CALL.format("printing"))
    after = ast.literal_eval(run(notebook, "seen()").text or "")
    graphs, breaks, compiles, hits, executions = (b - a for a, b in zip(before, after, strict=True))
    # The cell up to the call, the function up to `print`, its rest, the rest of the cell.
    assert (graphs, breaks, executions) == (4, 2, 4)
    told = numbers(lines)
    assert told["graphs traced"] == f"{graphs} ({breaks} breaks)" == "4 (2 breaks)"
    assert told["programs compiled"] == str(compiles) and told["cache hits"] == str(hits) == "0"
    assert told["programs executed"] == str(executions) == "4"


def test_the_second_run_traces_nothing_and_still_names_the_break(notebook: Notebook) -> None:
    card(notebook, CALL.format("printing"))
    before = ast.literal_eval(run(notebook, "seen()").text or "")
    lines = card(notebook, CALL.format("printing"))
    after = ast.literal_eval(run(notebook, "seen()").text or "")
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 0, 0, 0, 4]
    assert "graphs traced" not in numbers(lines)
    assert re.fullmatch(r"compiled · lines 2–4 · \S+ \w+ · graph breaks in 1 place", lines[0])
    assert outside(lines) == [
        '    line 3  print("inside")',
        "        in printing, line 14 of In[1]: prints",
        "        Instead: print outside the function, or every 100th turn",
    ]


@pytest.mark.parametrize(
    ("function", "text", "why", "cure"),
    [
        (
            "item",
            "def item(t): return t * t.sum().item()",
            "in item, line 16 of In[1]: needs the value of a tensor on the host",
            "keep it a tensor, and read it after the loop",
        ),
        (
            "branch",
            "if t.sum() > 0:",
            "in branch, line 18 of In[1]: the branch depends on values of a tensor",
            "torch.where(condition, a, b), or branch outside the function",
        ),
        (
            "loop",
            "time.time()",
            "in loop, line 24 of In[1]: reads the clock; all of loop runs eagerly",
            "read it in the cell, around the call",
        ),
        (
            "clock",
            "def clock(t): return t * time.time()",
            "in clock, line 26 of In[1]: reads the clock",
            "read it in the cell, around the call",
        ),
        (
            "masked",
            "def masked(t): return t[t > 0].sum()",
            "in masked, line 27 of In[1]: nonzero (as in x[mask]): the size of its result depends on "
            + "values: the host waits, and each new size is a new program",
            "torch.where(mask, x, 0), or multiply by the mask",
        ),
        (
            "copied",
            "def copied(t): return copy.deepcopy(t) + 1",
            "in copied, line 28 of In[1]: copies a tensor with copy.deepcopy",
            "x.clone()",
        ),
        (
            "equal",
            "def equal(t): return t + 1 if torch.equal(t, t) else t",
            "in equal, line 31 of In[1]: equal needs the value of a tensor on the host",
            "(a == b).all() stays on the device",
        ),
    ],
)
def test_a_break_has_its_line_text_reason_and_cure(
    notebook: Notebook, function: str, text: str, why: str, cure: str
) -> None:
    code, *words = outside(card(notebook, CALL.format(function)))
    assert code == f"    line 3  {text}"
    assert " ".join(word.strip() for word in words) == f"{why} Instead: {cure}"


def test_a_tensor_left_on_the_cpu_in_a_function_is_named_and_the_result_is_right(notebook: Notebook) -> None:
    assert outside(card(notebook, CALL.format("scaled"))) == [
        "    line 2–4  b = X + 1 …",
        "        S is on the CPU (in scaled, line 29 of In[1])",
        '        Instead: S = S.to("tpu") once, before',
    ]
    # Given to TorchTPU, this one ends the process.
    assert outside(card(notebook, CALL.format("from_numpy")))[0] == "    line 2–4  b = X + 1 …"
    assert run(notebook, "torch.equal(a, X + 1 + 1), torch.equal(c, X * 3)").text == "(True, True)"


def test_lines_eager_by_themselves_and_breaks_are_one_list(notebook: Notebook) -> None:
    lines = card(
        notebook,
        "%%tpu_compile\nm = X[X > 0]\nh = X * 2\nprint(h.shape)\nk = X * S\nz = printing(h)\nv = z.sum().item()",
    )
    assert lines[0].startswith("compiled · lines 3, 6 · ")
    rows = [line.strip() for line in outside(lines) if line.startswith("    line")]
    assert rows == [
        "line 2  m = X[X > 0]",
        "line 4  print(h.shape)",
        "line 5  k = X * S",
        'line 6  print("inside")',
        "line 7  v = z.sum().item()",
    ]


def test_failed_guards_say_which_name_was_what(notebook: Notebook) -> None:
    cell = "%%tpu_compile\nw2 = W * n + rate\nw3 = rated(w2)"
    changes = [
        ("", None),
        ("W = X[:8].clone()", "    line 2  dimension 0 of W was 16, is 8"),
        ("n = 4", "    line 2  n was 3, is 4"),
        ("rate = 0.7", "    line 2  rate was 0.5, is 0.7"),
        ("W = X.bfloat16()[:8]", "    line 2  W was float32, is bfloat16"),
    ]
    for change, told in changes:
        run(notebook, change)
        lines = card(notebook, cell)
        assert numbers(lines)["graphs traced"] == "1 (0 breaks)"
        again = lines[lines.index("  compiled again:") + 1 :] if "  compiled again:" in lines else [None]
        assert again == [told], change


def test_what_an_optimizer_and_gradients_become_after_the_first_step_is_said_in_words(
    notebook: Notebook,
) -> None:
    run(notebook, "net = nn.Linear(8, 4).to('tpu'); sgd = torch.optim.SGD(net.parameters(), momentum=0.9)")
    step = "loss = F.cross_entropy(net(X), Y)\n    loss.backward()\n    sgd.step()"
    lines = card(notebook, f"%%tpu_compile\nfor _ in range(3):\n    sgd.zero_grad()\n    {step}")
    again = lines.index("  compiled again:") + 1
    assert lines[again] == "    line 4  the first step of sgd made its momentum_buffer"
    # cleared at the end: each turn but the first has the gradients of the one before
    lines = card(notebook, f"%%tpu_compile\nfor _ in range(3):\n    {step}\n    sgd.zero_grad()")
    again = lines.index("  compiled again:") + 1
    assert lines[again] == "    line 3  net.bias.grad was a tensor, is None"


def test_a_break_that_was_cured_is_not_told_any_more(notebook: Notebook) -> None:
    run(notebook, "def curable(t):\n    print('x')\n    return t * 2")
    assert len(outside(card(notebook, CALL.format("curable")))) == 3
    run(notebook, "def curable(t):\n    return t * 2")
    lines = card(notebook, CALL.format("curable"))
    assert lines[0].startswith("compiled · lines 2–4 · ") and "break" not in lines[0]
    assert "  not in a program:" not in lines


def test_many_cells_may_call_one_function_with_a_break(notebook: Notebook) -> None:
    # Dynamo compiles a function for each backend it meets, eight times at most.
    for number in range(9):
        lines = card(notebook, CALL.format("branch") + f"\nd{number} = X * {number}")
        assert outside(lines)[0] == "    line 3  if t.sum() > 0:"
        assert numbers(lines)["graphs traced"] in ("2 (1 break)", "4 (1 break)")


def test_a_training_step_with_a_break_trains_as_it_does_eagerly(notebook: Notebook) -> None:
    # Dynamo's own `backward()` after a break finds no parameters, and says nothing.
    setup = "torch.manual_seed(1); net = Net().to('tpu'); opt = torch.optim.SGD(net.parameters(), lr=0.1)"
    cell = (
        "losses = []\nfor _ in range(3):\n    opt.zero_grad()\n    loss = F.cross_entropy(net(X), Y)\n"
        "    loss.backward()\n    opt.step()\n    losses.append(loss.item())"
    )
    run(notebook, f"{setup}\n{cell}\neager = losses")
    run(notebook, setup)
    lines = card(notebook, f"%%tpu_compile\n{cell}")
    assert run(notebook, "losses[0] > losses[1] > losses[2]").text == "True"
    assert run(notebook, "max(abs(a - b) for a, b in zip(eager, losses)) < 1e-4").text == "True"
    rows = [line.strip() for line in outside(lines) if line.startswith("    line")]
    assert rows == [
        "line 5  if h.mean() > 0:",
        "line 6  loss.backward()",
        "line 8  losses.append(loss.item())",
    ]


STATE = """
import random
from tpu_kernel.tpu import device
def counts():
    now = device.snapshot()
    return [now[name] for name in ("executions", "compiles", "uploads", "downloads", "live_bytes")]
def draws():
    states = torch.get_rng_state(), torch.accelerator.random.get_rng_state()
    return hash(random.getstate()), [each.tolist() for each in states]
"""
UNRUN = """%%tpu_compile --explain
fresh = X + 1
shown = printing(fresh)
chosen = branch(shown)
later = chosen * 2
print(shown.sum())
kept.append(fresh)
scaled_here = X * S
noise = torch.rand(4, device="tpu") + fresh[0, :4]
for i in range(3):
    fresh = fresh * i
for x, y in loader:
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    print(loss.item())
"""


def test_explain_says_it_all_and_runs_nothing(notebook: Notebook) -> None:
    run(notebook, STATE)
    run(
        notebook,
        "kept, loader = [], [(X, Y)] * 3\nnet = nn.Linear(8, 4).to('tpu')\n"
        "opt = torch.optim.AdamW(net.parameters())\nfor x, y in loader: break\ni = 7",
    )
    names = "[n for n in globals() if not n.startswith('_')]"
    run(notebook, f"names_before = {names} + ['names_before', 'before']\nbefore = draws(), counts()")
    result = run(notebook, UNRUN)
    assert (result.stdout, result.stderr, result.text) == ("", "", None)
    assert run(notebook, "counts() == before[1], draws() == before[0]").text == "(True, True)"
    assert run(notebook, f"set({names}) - set(names_before), kept, i").text == "(set(), [], 7)"
    untouched = "[p.grad for p in net.parameters()], dict(opt.state), opt.param_groups[0]['capturable']"
    assert run(notebook, untouched).text == "([None, None], {}, False)"
    (shown,) = result.displays
    lines = shown["text/plain"].splitlines()
    assert lines[0] == "not run · lines 2–4, 9, 14–16 would be compiled · graph breaks in 2 places"
    rows = [line.strip() for line in outside(lines) if line.startswith("    line")]
    assert rows == [
        'line 3  print("inside")',
        "line 4  if t.sum() > 0:",
        "line 6  print(shown.sum())",
        "line 7  kept.append(fresh)",
        "line 8  scaled_here = X * S",
        "line 11  fresh = fresh * i",
        "line 17  print(loss.item())",
        "line 5  later = chosen * 2",
    ]
    words = " ".join(line.strip() for line in lines)
    assert "only a run can tell: line 5  later = chosen * 2 chosen has no value before the cell runs" in words
    assert words.endswith(
        "Taken as they are now: x, y. Nothing was run. Only a run tells what breaks after the first break "
        "of a part, what is compiled again, and how long things take."
    )


def test_explain_agrees_with_the_run_that_follows(notebook: Notebook) -> None:
    cell = "m = X[X > 0]\nh = X * 2\nz = printing(h)\nk = z * S"
    (told,) = run(notebook, f"%%tpu_compile --explain\n{cell}").displays
    ran = card(notebook, f"%%tpu_compile\n{cell}")
    said = told["text/plain"].splitlines()
    end = next(i for i, line in enumerate(said) if line.startswith("  Nothing was run."))
    assert outside(said[:end]) == outside(ran)


@pytest.mark.parametrize(
    ("cell", "told", "left"),
    [
        (
            "early = X + 1\nn = 5\nlate = printing(early)\nnever = 1",
            "line 4 (in `printing`, line 14 of In[1]) cannot be in a program: prints. "
            + "Nothing from line 4 on has run.",
            "(True, 5, False)",
        ),
        (
            "early = X + 2\nn = 6\nprint(early.sum())\nnever = 1",
            "line 4 cannot be in a program: prints. Nothing from line 4 on has run.",
            "(True, 6, False)",
        ),
        (
            "early = X + 3\nn = 7\nlate = scaled(early)\nnever = 1",
            "line 4 (in `scaled`, line 29 of In[1]) cannot be in a program: `S` is on the CPU. "
            + "Nothing from line 4 on has run.",
            "(True, 7, False)",
        ),
        (
            "early = X + 4\nn = 8\nlate = early[early > 0]\nnever = 1",
            "line 4 cannot be in a program: `nonzero` (as in `x[mask]`): the size of its result depends on "
            + "values: the host waits, and each new size is a new program. Nothing from line 4 on has run.",
            "(True, 8, False)",
        ),
        (
            "early = X + 5\nn = 9\nlate = item(early)\nnever = 1",
            "line 4 (in `item`, line 16 of In[1]) cannot be in a program: needs the value of a tensor on "
            + "the host. Nothing from line 4 on has run.",
            "(True, 9, False)",
        ),
    ],
)
def test_fullgraph_ends_at_the_first_thing_outside_with_card_and_error(
    notebook: Notebook, cell: str, told: str, left: str
) -> None:
    run(notebook, "globals().pop('late', None), globals().pop('never', None);")
    result = notebook.run(f"%%tpu_compile --fullgraph\n{cell}")
    assert (result.status, result.content["ename"]) == ("error", "UsageError")
    assert result.content["evalue"] == f"%%tpu_compile: {told}"
    (shown,) = result.displays
    lines = shown["text/plain"].splitlines()
    row, *words = outside(lines)
    assert lines[0].startswith("ended early · line 2 · ") and row.startswith("    line 4  ")
    inside = re.search(r"\(in (`.+In\[1\])\)", told)
    assert inside is None or words[0].strip().startswith("in " + inside[1].replace("`", "") + ": ")
    assert result.stdout == ""
    assert run(notebook, "isinstance(early, torch.Tensor), n, 'late' in globals()").text == left


def test_fullgraph_lets_a_whole_step_run_and_errors_be_their_own(notebook: Notebook) -> None:
    run(notebook, "net = nn.Linear(8, 4).to('tpu')\nopt = torch.optim.SGD(net.parameters(), lr=0.1)")
    step = "opt.zero_grad()\n    loss = F.cross_entropy(net(X), Y)\n    loss.backward()\n    opt.step()"
    lines = card(notebook, f"%%tpu_compile --fullgraph\nfor _ in range(2):\n    {step}")
    assert lines[0].startswith("compiled · lines 4–6 · ") and numbers(lines)["programs executed"] == "2"
    assert numbers(lines)["graphs traced"] == "1 (0 breaks)"
    wrong = notebook.run("%%tpu_compile --fullgraph\nok = X + 1\nX @ X")
    assert (wrong.content["ename"], wrong.displays) == ("RuntimeError", [])
    assert "mat1 and mat2 shapes cannot be multiplied (16x8 and 16x8)" in wrong.content["evalue"]


def test_explain_stands_alone(notebook: Notebook) -> None:
    result = notebook.run("%%tpu_compile --explain --quiet\nX + 1")
    message = "%%tpu_compile: `--explain` runs nothing, so it stands alone"
    assert (result.content["ename"], result.content["evalue"]) == ("UsageError", message)


def test_sizes_that_are_not_fixed_are_refused_on_the_emulated_chip(notebook: Notebook) -> None:
    result = notebook.run("%%tpu_compile --dynamic\nX + 1")
    assert (result.content["ename"], result.content["evalue"]) == (
        "UsageError",
        "%%tpu_compile: `--dynamic` needs a chip: the emulated one's compiler knows fixed sizes only. "
        + "Pad to one size, or leave out a last short batch",
    )
    run(notebook, "marked = X.clone()\ntorch._dynamo.mark_dynamic(marked, 0)")
    lines = card(notebook, "%%tpu_compile\na = marked * 2 + 1")
    assert " ".join(line.strip() for line in outside(lines)) == (
        "line 2  a = marked * 2 + 1 a size is marked dynamic, and the emulated chip's compiler knows fixed "
        "sizes only Instead: remove mark_dynamic, and pad to one size"
    )
    assert run(notebook, "torch.equal(a, X * 2 + 1)").text == "True"


def test_a_condition_on_a_tensor_is_named_and_one_on_its_shape_is_not(notebook: Notebook) -> None:
    cell = "if X.sum() > 0:\n    pos = X + 1\nelse:\n    pos = X - 1"
    told = ["    line 2  if X.sum() > 0:", "        the branch depends on values of a tensor"]
    told.append("        Instead: torch.where(condition, a, b)")
    assert outside(card(notebook, f"%%tpu_compile\n{cell}")) == told
    said = run(notebook, f"%%tpu_compile --explain\n{cell}").displays[0]["text/plain"].splitlines()
    assert outside(said)[:3] == told
    shapes = "if X.shape[0] > 3 and X is not None and len(X) == 16:\n    pos = X + 1"
    assert "  not in a program:" not in card(notebook, f"%%tpu_compile\n{shapes}")
