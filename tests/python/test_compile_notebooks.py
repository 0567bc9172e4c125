"""What people's training notebooks do under `%%tpu_compile`, by the symptom: the numbers are those of the plain cell.

`Y` classes of `X` are learnt by small networks. `plain(cell)` and `compiled(cell)` run one in a kernel whose
notebook begins anew; each gives the text of its `Out`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

BEGIN = """
%reset -f
import torch, torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
X = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)).to("tpu")
Y = torch.randint(0, 10, (64,), generator=torch.Generator().manual_seed(0)).to("tpu")
def network():
    return nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10)).to("tpu")
"""
GAN = """
G, D = nn.Linear(8, 32).to("tpu"), nn.Linear(32, 1).to("tpu")
of_g, of_d = torch.optim.SGD(G.parameters(), lr=0.1), torch.optim.SGD(D.parameters(), lr=0.1)
before = G.weight.detach().clone()
noise = torch.randn(64, 8).to("tpu")
"""
INLINE = """
for _ in range(3):
    fake = G(noise)
    of_d.zero_grad()
    loss_d = (F.softplus(-D(X)) + F.softplus(D(fake.detach()))).mean()
    loss_d.backward()
    of_d.step()
    shown = loss_d.item()
    of_g.zero_grad()
    loss_g = F.softplus(-D(fake)).mean()
    loss_g.backward()
    of_g.step()
"""
IN_FUNCTIONS = """
def discriminator_loss(real, fake):
    return (F.softplus(-D(real)) + F.softplus(D(fake.detach()))).mean()
def train():
    fake = G(noise)
    of_d.zero_grad()
    loss_d = discriminator_loss(X, fake)
    loss_d.backward()
    of_d.step()
    shown = loss_d.item()
    of_g.zero_grad()
    loss_g = F.softplus(-D(fake)).mean()
    loss_g.backward()
    of_g.step()
    return loss_g
for _ in range(3):
    loss_g = train()
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as kernel:
        yield kernel


def run(notebook: Notebook, code: str) -> Result:
    result = notebook.run(code)
    assert result.status == "ok", result.content
    return result


def plain(notebook: Notebook, cell: str) -> str | None:
    run(notebook, BEGIN)
    return run(notebook, cell).text


def compiled(notebook: Notebook, cell: str) -> tuple[str | None, str]:
    """Its `Out` and its card, as one line."""
    run(notebook, BEGIN)
    result = run(notebook, f"%%tpu_compile\n{cell}")
    return result.text, " ".join(result.displays[-1]["text/plain"].split())


@pytest.mark.parametrize("loop", [INLINE, IN_FUNCTIONS], ids=["in the cell", "in functions"])
def test_the_generator_of_a_gan_is_trained(notebook: Notebook, loop: str) -> None:
    cell = f"{GAN}{loop}\nround((G.weight - before).norm().item(), 3), round(loss_g.item(), 3)"
    wanted = plain(notebook, cell)
    assert wanted is not None and not wanted.startswith("(0.0,")
    assert compiled(notebook, cell)[0] == wanted


def test_what_backward_did_not_go_through_keeps_its_graph(notebook: Notebook) -> None:
    cell = """
w = torch.ones(32, 10, device="tpu", requires_grad=True)
loss = F.cross_entropy(X @ w, Y)
extra = (w * 2).sum()
loss.backward()
shown = loss.item()
w.grad = None
extra.backward()
w.grad.mean().item()
"""
    assert plain(notebook, cell) == "2.0"
    assert compiled(notebook, cell)[0] == "2.0"


def test_backward_through_a_graph_a_second_time_is_the_same_error(notebook: Notebook) -> None:
    run(notebook, f"{BEGIN}net = network()")
    result = notebook.run(
        "%%tpu_compile\nloss = F.cross_entropy(net(X), Y)\nloss.backward()\nloss.backward()"
    )
    assert result.content["ename"] == "RuntimeError"
    assert result.content["evalue"].startswith("Trying to backward through the graph a second time")


def test_a_step_whose_model_returns_a_dictionary_is_one_program(notebook: Notebook) -> None:
    cell = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(32, 10), None
    def forward(self, x, y):
        self.last = self.layer(x)
        return {"logits": self.last, "loss": F.cross_entropy(self.last, y)}
model = Model().to("tpu")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    out = model(X, Y)
    losses = [out["loss"], out["logits"].pow(2).mean()]
    total = sum(losses)
    total.backward()
    opt.step()
round(total.item(), 2)
"""
    wanted = plain(notebook, cell)
    seen, card = compiled(notebook, cell)
    assert seen == wanted
    assert card.startswith("compiled · lines 14–18 · ")
    assert "graphs traced 1 (0 breaks)" in card


def test_a_gradient_hook_is_called_also_one_that_comes_after_the_program(notebook: Notebook) -> None:
    run(
        notebook,
        BEGIN + "net = nn.Linear(32, 10).to('tpu')\nopt = torch.optim.SGD(net.parameters(), lr=1.0)\n"
        "def train():\n    opt.zero_grad()\n    loss = F.cross_entropy(net(X), Y)\n    loss.backward()\n"
        "    opt.step()\n    return loss",
    )
    first = run(notebook, "%%tpu_compile\nloss = train()").displays[-1]["text/plain"]
    assert first.startswith("compiled · ")
    run(
        notebook,
        "before = net.weight.detach().clone(); seen = []\n"
        "net.weight.register_hook(lambda g: g * 0)\n"
        "net.bias.register_post_accumulate_grad_hook(lambda p: seen.append(p.shape[0]))",
    )
    card = run(notebook, "%%tpu_compile\nloss = train()").displays[-1]["text/plain"]
    assert "a hook on a gradient is Python, so it ran eagerly" in " ".join(card.split())
    assert run(notebook, "seen, (net.weight - before).abs().sum().item()").text == "([10], 0.0)"


def test_names_that_a_function_of_the_cell_uses_for_itself_do_not_cut_a_step(notebook: Notebook) -> None:
    cell = """
net = network()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def accuracy(batches):
    out = [net(x).argmax(1) for x, _ in batches]
    loss = len(out)
    return loss
for _ in range(2):
    opt.zero_grad()
    out = net(X)
    loss = F.cross_entropy(out, Y)
    loss.backward()
    opt.step()
"""
    _, card = compiled(notebook, cell)
    assert card.startswith("compiled · lines 11–14 · ")
    assert "graphs traced 1 (0 breaks)" in card


def test_gradient_accumulation_is_not_traced_at_each_step(notebook: Notebook) -> None:
    cell = """
net = network()
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
for _ in range(6):
    for _ in range(2):
        loss = F.cross_entropy(net(X), Y) / 2
        loss.backward()
    opt.step()
    opt.zero_grad()
round(loss.item(), 3)
"""
    wanted = plain(notebook, cell)
    seen, card = compiled(notebook, cell)
    assert seen == wanted
    # Gradients made, gradients added to, and the step.
    assert "graphs traced 3 (0 breaks)" in card
    assert "`net.0.bias.grad` was None" in card or "net.0.bias.grad was None" in card


def test_a_scheduler_that_changes_betas_does_not_compile_at_each_step(notebook: Notebook) -> None:
    cell = """
net = network()
opt = torch.optim.Adam(net.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=8)
for _ in range(8):
    opt.zero_grad()
    loss = F.cross_entropy(net(X), Y)
    loss.backward()
    opt.step()
    sched.step()
round(loss.item(), 2)
"""
    wanted = plain(notebook, cell)
    seen, card = compiled(notebook, cell)
    assert seen == wanted
    assert "betas of Adam changes at each step Instead: cycle_momentum=False in the scheduler" in card
    assert "PyTorch compiles for 8 shapes at most" not in card


def test_a_cell_runs_again_after_reset(notebook: Notebook) -> None:
    cell = """
net = nn.Linear(32, 10).to("tpu")
def penalty(a):
    inner = (a * 2).requires_grad_(True)
    return torch.autograd.grad(net(inner).sum(), inner, create_graph=True)[0].norm()
p = penalty(X) + 1
round(p.item(), 2) > 1
"""
    assert compiled(notebook, cell)[0] == "True"
    assert compiled(notebook, cell)[0] == "True"  # it begins with `%reset`


def test_a_bound_method_of_random_in_the_notebook_is_no_endless_look(notebook: Notebook) -> None:
    cell = """
import random
from random import sample
memory = [torch.full((2,), float(i), device="tpu") for i in range(4)]
def draw():
    return torch.stack(sample(memory, 4)).sum()
total = draw() * 2
total.item()
"""
    assert compiled(notebook, cell)[0] == "24.0"


def test_an_eager_cell_beside_a_compiled_one_leaves_no_setting_behind(notebook: Notebook) -> None:
    run(notebook, f"{BEGIN}import time; go = False")
    subshell = notebook.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    waits = "print('begun', flush=True)\nwhile not go: time.sleep(0.01)"
    cell = notebook.send(f"%%tpu_eager --mode debug\n{waits}")
    notebook.wait_for_text(cell, "begun")
    beside = notebook.run("%%tpu_compile\n(X + 1).sum()", subshell=subshell)
    refused = notebook.run("%%tpu_eager --mode fused\n(X + 1).sum()", subshell=subshell)
    notebook.run("go = True", subshell=subshell)
    assert notebook.wait(cell).status == "ok"
    notebook.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    card = " ".join(beside.displays[-1]["text/plain"].split())
    assert "It ran as it is: another cell was running under %%tpu_eager, and one at a time can." in card
    assert refused.content["evalue"] == (
        "%%tpu_eager: another cell is running under %%tpu_eager, and one at a time can: "
        "run this when that one has ended"
    )
    assert run(notebook, "%tpu_mode").stdout.startswith("strict eager")
    after = run(notebook, "from torch._dynamo import eval_frame\neval_frame._stance.stance")
    assert after.text == "'default'"
