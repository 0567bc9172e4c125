"""The debugger and the device: tensors are not formatted there, compiled cells stay compiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook
from panel import Panel, finish, place

COMPILED = "import tpu_kernel.tpu.device as _device\n_device.snapshot()['compiles']"


@pytest.fixture(scope="module")
def device(kernelspec: str) -> Iterator[Notebook]:
    """A kernel with tensors on the device."""
    with running_kernel(kernelspec) as notebook:
        notebook.run("import torch\nx = torch.arange(6.0).reshape(2, 3).to('tpu')\ny = x + 1")
        yield notebook


@pytest.fixture
def panel(device: Notebook) -> Iterator[Panel]:
    """The panel, switched on."""
    panel = Panel(device)
    panel.start()
    yield panel
    panel.stop()


def test_tensors_are_shown_without_running_anything_on_the_device(device: Notebook, panel: Panel) -> None:
    code = "def look(tensor):\n    pair = [tensor, 1]\n    return pair\nlook(x) and None"
    panel.break_at(code, 3)
    before = device.run(COMPILED).text
    msg_id = device.send(code)
    frame = panel.stopped()[0]
    summary = "Tensor(shape=[2, 3], dtype=float32, device='tpu:0')"
    assert panel.variables(frame) == {"tensor": summary, "pair": f"[{summary}, 1]"}
    reference = panel.get("scopes", frameId=frame["id"])["scopes"][0]["variablesReference"]
    found = panel.get("variables", variablesReference=reference)["variables"]
    inside = panel.inside({each["name"]: each["variablesReference"] for each in found}["tensor"])
    assert (inside["shape"], inside["dtype"]) == ("(2, 3)", "'torch.float32'")
    assert inside["values"] == "tensor([[0., 1., 2.],\n        [3., 4., 5.]])"
    rich = panel.get("richInspectVariables", variableName="tensor", frameId=frame["id"])
    assert rich["data"]["text/plain"] == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='tpu:0')"
    rich = panel.get("richInspectVariables", variableName="pair", frameId=frame["id"])
    assert rich["data"]["text/plain"] == f"[{summary}, 1]"
    panel.go_on()
    assert finish(device, msg_id).status == "ok"
    found = {each["name"]: each["value"] for each in panel.get("inspectVariables")["variables"]}
    assert found["x"] == summary
    assert device.run(COMPILED).text == before


def test_a_compiled_cell_runs_while_somebody_debugs_and_its_functions_stop(
    device: Notebook, panel: Panel
) -> None:
    magic = "%%tpu_compile --quiet\n"
    code = "def shown(value):\n    return value\nz = (x * 2 + 1).sum()\nprint(shown(float(z)))"
    cell = magic + code
    expected = device.run(cell)
    assert (expected.status, expected.stdout) == ("ok", "36.0\n")
    panel.break_at(cell, 3)
    msg_id = device.send(cell)
    assert place(panel.stopped()) == ("shown", 3)
    panel.go_on()
    assert finish(device, msg_id).stdout == "36.0\n"


def test_torch_compile_works_while_somebody_debugs(device: Notebook, panel: Panel) -> None:
    code = "@torch.compile\ndef f(a):\n    return a.sin() * 2\nround(float(f(x).sum()), 4)"
    panel.break_at("nothing = 1", 1)
    assert device.run(code).text == "0.3523"
