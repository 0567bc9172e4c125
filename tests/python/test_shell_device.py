"""Tensors on the device, as the shell sees them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from notebook import Notebook

pytest.importorskip("torch_tpu")


@pytest.fixture(scope="module")
def device_kernel(kernelspec: str) -> Iterator[Notebook]:
    """A kernel with torch."""
    from conftest import running_kernel

    with running_kernel(kernelspec) as notebook:
        result = notebook.run("import torch\nheld = torch.full((2, 3), 7.0, device='tpu')", cell_id="first")
        assert result.status == "ok", result.content
        yield notebook


def test_events_of_the_cell_that_imports_torch_are_its_own(device_kernel: Notebook) -> None:
    device_kernel.run("other = held + 1", cell_id="second")
    result = device_kernel.run(
        "import sys\nkernel = sys.modules['tpu_kernel._kernel']\n"
        "sorted({event['cell'] for event in kernel.tpu_events(0)[1]})"
    )
    assert ast.literal_eval(result.text or "") == ["first", "second"]


def test_inspecting_a_tensor_does_not_read_it(device_kernel: Notebook) -> None:
    answer = device_kernel.ask(
        "inspect_request", {"code": "held", "cursor_pos": 4, "detail_level": 0}
    ).content
    assert answer["data"]["text/plain"].splitlines()[:4] == [
        "Type:     Tensor",
        "Shape:    (2, 3)",
        "Dtype:    torch.float32",
        "Device:   tpu:0",
    ]
    matches = device_kernel.ask("complete_request", {"code": "held.sha", "cursor_pos": 8}).content["matches"]
    assert "shape" in [match.rsplit(".", 1)[-1] for match in matches]


def test_an_error_of_the_device_is_the_cells_own(device_kernel: Notebook) -> None:
    result = device_kernel.run("line = 1\nheld @ held")
    assert result.content["ename"] == "RuntimeError"
    assert "line 2" in "\n".join(result.content["traceback"]).replace("\x1b[39m", "").replace("\x1b[32m", "")
    assert device_kernel.run("held.sum().item()").text == "42.0"
