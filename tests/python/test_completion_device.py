"""Completion and inspection of tensors and modules on the device: nothing is computed or read."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from notebook import Notebook

pytest.importorskip("torch_tpu")

SETUP = """
import torch
held = torch.full((4, 4), 7.0, device='tpu')
many = [held, held + 1]
named = {'weight': held, 'deep': [held]}
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to('tpu')
def step(data=held): return data
class Holder:
    def __init__(self): self.weight = held
holder = Holder()
import sys
core = sys.modules['tpu_kernel._kernel']
"""
COUNTERS = "{k: v for k, v in core.tpu_snapshot().items() if isinstance(v, int) and not k.startswith('busy')}"


@pytest.fixture(scope="module")
def device(kernelspec: str) -> Iterator[Notebook]:
    """A kernel with tensors on the device."""
    from conftest import running_kernel

    with running_kernel(kernelspec) as notebook:
        result = notebook.run(SETUP)
        assert result.status == "ok", result.content
        before = None
        while (counters := notebook.run(COUNTERS).text) != before:  # a compile in the background ends
            before = counters
            time.sleep(1)
        yield notebook


def ask(kernel: Notebook, kind: str, code: str) -> dict[str, Any]:
    content = {"code": code, "cursor_pos": len(code), "detail_level": 0}
    return kernel.ask(kind, content).content


def test_looking_at_tensors_does_nothing_on_the_device(device: Notebook) -> None:
    before = ast.literal_eval(device.run(COUNTERS).text or "")
    assert before["executions"] > 0
    for code, match in [
        ("held.reshap", "reshape"),
        ("held.T.reshap", "reshape"),
        ("held.grad.reshap", "reshape"),
        ("held.shape.num", "numel"),
        ("held[0].reshap", "reshape"),
        ("many[0].T.reshap", "reshape"),
        ("named['weight'].reshap", "reshape"),
        ("named['", "weight"),
        ("(held + held).reshap", "reshape"),
        ("held.exp().reshap", "reshape"),
        ("torch.zeros(3).reshap", "reshape"),
        ("torch.zer", "zeros"),
        ("torch.nn.functional.rel", "relu"),
        ("torch.zeros(3, dev", "device="),
        ("model.0", None),
        ("model[0].weight.reshap", "reshape"),
        ("model[0].weigh", "weight"),
        ("holder.weight.reshap", "reshape"),
        ("step(da", "data="),
        ("hel", "held"),
    ]:
        matches = ask(device, "complete_request", code)["matches"]
        assert match is None or match in matches, code
    for code, line in [
        ("held", "Shape: (4, 4)"),
        (
            "many",
            "String form: [<Tensor (4, 4) torch.float32 on tpu:0>, <Tensor (4, 4) torch.float32 on tpu:0>]",
        ),
        (
            "named",
            "String form: {'weight': <Tensor (4, 4) torch.float32 on tpu:0>, 'deep': [<Tensor (4, 4) torch.float32 on tpu:0>]}",
        ),
        ("model", "Type: Sequential"),
        ("model[0].weight", None),
        ("step", "Signature: step(data=<Tensor (4, 4) torch.float32 on tpu:0>)"),
        ("held.T", None),
        ("holder", "String form: <Holder>"),
    ]:
        reply = ask(device, "inspect_request", code)
        if line is not None:
            text = re.sub(r"\x1b\[[0-9;]*m", "", reply["data"]["text/plain"])
            assert line in [re.sub(r":\s+", ": ", shown) for shown in text.splitlines()], text
    for code in ("held?", "many?", "named?", "step?", "%who", "%whos", "%who_ls"):
        assert device.run(code).status == "ok"
    whos = device.run("%whos Tensor").stdout.splitlines()
    assert whos[-1].split() == ["held", "Tensor", "<Tensor", "(4,", "4)", "torch.float32", "on", "tpu:0>"]
    after = ast.literal_eval(device.run(COUNTERS).text or "")
    assert after == before


def test_completion_and_inspection_answer_while_a_cell_runs(device: Notebook) -> None:
    cell = device.send("import time\nprint('started', flush=True)\nwhile True: pass")
    device.wait_for_text(cell, "started")
    assert "Linear" in ask(device, "complete_request", "torch.nn.Linea")["matches"]
    assert ask(device, "inspect_request", "torch.nn.Linear")["found"] is True
    device.interrupt()
    assert device.wait(cell).content["ename"] == "KeyboardInterrupt"
