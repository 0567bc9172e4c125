"""Over the live feed: a storm, a cancellation, and which cell made a tensor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from feed_panel import Panel, Sample
from notebook import Notebook
from tpu_kernel.tpu.feed import made_by

MIB = 1 << 20


@pytest.fixture(scope="module")
def kernel(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel in whose cache nothing is, with a device."""
    cache = str(tmp_path_factory.mktemp("cache"))
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": cache}) as notebook:
        code = "import os, signal, time, torch\nw = torch.ones(128, 128, device='tpu')"
        assert notebook.run(code, patience=120).status == "ok"
        yield notebook


def event(panel: Panel, kind: str) -> Sample:
    """The next event of a kind."""
    sample = panel.wait(lambda sample: kind in [each["kind"] for each in sample["events"]], patience=120)
    return next(each for each in sample["events"] if each["kind"] == kind)


def test_a_loop_that_compiles_at_every_step_is_an_event_of_its_cell(kernel: Notebook) -> None:
    panel = Panel(kernel).open()
    code = "for n in range(60, 70):\n    x = torch.ones(n, 128).to('tpu')\n    print((x @ w).relu().sum().item())"
    cell = kernel.send(code, cell_id="grows")
    storm = event(panel, "storm")
    assert storm["cell"] == "grows"
    # told when the third size was seen, or a little later
    told = r"a loop compiles at every step: dimension 0 of `float32\[\d\d, 128\]` was 60, 61, 62(, \d\d)*"
    assert re.fullmatch(told, storm["text"])
    assert kernel.wait(cell, patience=120).status == "ok"
    panel.close()


def test_a_second_interrupt_is_an_event_of_the_cell_it_cancels(kernel: Notebook, tmp_path: Path) -> None:
    panel = Panel(kernel).open()
    path = str(tmp_path / "enough")
    # deaf, so that both interrupts find it
    code = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('begun', flush=True)\n"
        f"while not os.path.exists({path!r}): time.sleep(0.01)"
    )
    cell = kernel.send(code, cell_id="twice")
    kernel.strays += kernel.wait_for_text(cell, "begun")
    for _ in range(2):
        kernel.ask("interrupt_request", {}, channel="control")
    cancelled = event(panel, "cancelled")
    assert (cancelled["text"], cancelled["cell"]) == ("what waited for the device was cancelled", "twice")
    Path(path).touch()
    interrupted = event(panel, "interrupted")
    assert (interrupted["text"], interrupted["cell"]) == ("the cell was interrupted", "twice")
    kernel.wait(cell)
    panel.close()


def test_a_tensor_is_told_with_the_cell_that_made_it(kernel: Notebook) -> None:
    panel = Panel(kernel).open(tensors=True)
    kernel.run("large = torch.ones(64, 1 << 18, device='tpu')", cell_id="makes-large")
    kernel.run("small = torch.ones(32, 1 << 18, device='tpu')", cell_id="makes-small")
    table = panel.wait(lambda sample: "small" in str(sample.get("tensors")))["tensors"]
    told = [(row["name"], row["bytes"], row["cell"]) for row in table["rows"][:2]]
    assert told == [("large", 64 * MIB, "makes-large"), ("small", 32 * MIB, "makes-small")]
    panel.close()


def test_what_two_cells_may_have_made_has_no_cell() -> None:
    assert made_by([], {}) == []
    assert made_by([300, 50, 50], {"model": 100, "data": 300}) == ["data", "model", "model"]
    assert made_by([50, 50], {"one": 50, "other": 50}) == ["", ""]
    assert made_by([100, 50], {"one": 150, "other": 50}) == ["one", ""]
    assert made_by([100, 50], {"one": 150, "other": 40}) == ["one", "one"]
    assert made_by([300, 50], {"model": 100, "data": 300}, shared=True) == ["data", ""]
    assert made_by([100], {"one": 90}) == [""]
