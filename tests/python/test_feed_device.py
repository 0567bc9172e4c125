"""The live feed of a kernel that uses its device: compiles while they last, memory, names, failures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from conftest import running_kernel
from feed_panel import Panel
from long_work import chain
from notebook import Notebook

pytestmark = pytest.mark.alone

MIB = 1 << 20
PREPARE = "import torch\nbase = torch.ones(1024, 1024, device='tpu')"
#: A launch that lasts, with nothing for Python to do meanwhile.
LONG = "big = torch.ones(1500, 1500, device='tpu')\nfor _ in range(40): big = (big @ big).clamp(0, 1)\n"


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """One kernel for the tests of this file, in whose cache nothing is."""
    with running_kernel(
        kernelspec, env={"TPU_KERNEL_CACHE": str(tmp_path_factory.mktemp("cache"))}
    ) as kernel:
        assert kernel.run(PREPARE).status == "ok"
        yield kernel


def test_a_page_is_told_what_the_device_is_and_holds(panel: Panel) -> None:
    sample = panel.samples[-1]
    device = sample["device"]
    assert (device["name"], device["emulated"]) == ("TPU v5e", True)
    assert device["runtime"] == "XLA CPU plug-in"
    assert 4 * MIB <= sample["hbm_used"] <= sample["hbm_peak"] < sample["hbm_limit"]
    assert sample["executions"] > 0
    assert sample["mode"] == "strict"


def test_a_compile_is_seen_while_it_lasts_with_its_name_and_age(kernel: Notebook, panel: Panel) -> None:
    assert kernel.run(chain(120)).status == "ok"
    before = panel.settle().samples[-1]
    seen = len(panel.samples)
    cell = kernel.send("chain(x).cpu()", cell_id="compiles")
    panel.wait(lambda sample: sample["compiles"] > before["compiles"] and not sample["now"])
    kernel.wait(cell)
    during = [s for s in panel.samples[seen:] if s["now"] and s["now"][0]["kind"] == "compile"]
    ages: dict[str, list[int]] = {}
    for sample in during:
        assert (sample["state"], sample["cell"]["id"]) == ("busy", "compiles")
        work = sample["now"][0]
        assert work["cell"] == "compiles"
        ages.setdefault(work["name"], []).append(work["elapsed_ns"])
    long = max(ages.values(), key=len)
    assert len(long) >= 2
    assert all(earlier < later for earlier, later in itertools.pairwise(long))
    after = panel.samples[-1]
    assert after["compile_ns"] > before["compile_ns"]


def test_names_of_tensors_are_sent_when_asked_for_only(kernel: Notebook, panel: Panel) -> None:
    assert not any("tensors" in sample for sample in panel.samples)
    panel.say(tensors=True)
    table = panel.wait(lambda sample: "tensors" in sample)["tensors"]
    row = next(row for row in table["rows"] if row["name"] == "base")
    assert (row["shape"], row["dtype"], row["bytes"]) == ("[1024, 1024]", "float32", 4 * MIB)
    assert table["total"] >= len(table["rows"])
    code = "held = torch.zeros(3, 1 << 20, device='tpu', dtype=torch.bfloat16)\n"
    kernel.run(code + "many = [torch.ones(1, device='tpu') for _ in range(25)]")
    table = panel.wait(lambda sample: "tensors" in sample and "held" in str(sample))["tensors"]
    row = table["rows"][0] if table["rows"][0]["name"] == "held" else table["rows"][1]
    assert (row["name"], row["dtype"], row["bytes"]) == ("held", "bfloat16", 6 * MIB)
    assert len(table["rows"]) == 20 < table["total"]
    # while a cell runs nobody looks for names: the last table stays as it is, with its age
    told = table["t"]
    cell = kernel.send("del held, many\nimport time; print('begun', flush=True); time.sleep(1)")
    kernel.wait_for_text(cell, "begun")
    assert not any("tensors" in sample for sample in panel.quiet(0.6))
    panel.say(tensors=True)
    again = panel.wait(lambda sample: "tensors" in sample)
    assert (again["state"], again["tensors"]["t"]) == ("busy", told)
    kernel.wait(cell)
    gone = panel.wait(lambda sample: "tensors" in sample and "held" not in str(sample))["tensors"]
    assert gone["t"] > told
    panel.say(tensors=False)
    panel.quiet(0.6)
    kernel.run("base.add_(1)")
    assert not any("tensors" in sample for sample in panel.quiet(0.6))


def test_memory_nobody_names_is_let_go_of(kernel: Notebook, panel: Panel) -> None:
    kernel.run(
        "import gc; gc.disable()\nclass Knot: pass\nknot = Knot()\nknot.self = knot\n"
        "knot.tensor = torch.ones(8 << 20, device='tpu')\ndel knot"
    )
    full = panel.wait(lambda sample: sample["state"] == "idle")["hbm_used"]
    panel.say(do="free")
    told = panel.wait(lambda sample: "said" in sample)
    assert told["said"].startswith("freed 32")
    assert full - told["hbm_used"] == 32 * MIB
    kernel.run("gc.enable()")


def test_the_mode_is_chosen_from_a_panel_and_told(kernel: Notebook, panel: Panel) -> None:
    for mode in ("fused", "compiled", "strict"):
        panel.say(do="mode", mode=mode)
        told = panel.wait(lambda sample: "said" in sample)
        assert (told["said"], told["mode"]) == (f"cells run {mode} from now on", mode)
    kernel.run("%tpu_mode debug")
    panel.wait(lambda sample: sample["mode"] == "debug")
    kernel.run("%tpu_mode strict")
    panel.wait(lambda sample: sample["mode"] == "strict")


def test_a_full_device_and_a_new_limit_are_events(kernel: Notebook, panel: Panel) -> None:
    kernel.run("%tpu_limit 1GiB")
    (event,) = panel.wait(lambda sample: sample["events"])["events"]
    assert (event["kind"], event["text"]) == ("limit", "HBM limit: 1.00 GiB")
    assert panel.samples[-1]["hbm_limit"] == 1 << 30
    failed = kernel.run("torch.ones(1 << 29, device='tpu')", cell_id="too-much")
    assert failed.content["ename"] == "OutOfMemoryError"
    event = panel.wait(lambda sample: sample["events"])["events"][0]
    assert (event["kind"], event["cell"]) == ("oom", "too-much")
    assert event["text"]
    kernel.run("%tpu_limit off")
    (event,) = panel.wait(lambda s: any(e["kind"] == "limit" for e in s["events"]))["events"][-1:]
    assert event["text"] == "HBM limit: the chip's own"


def test_samples_of_steady_work_keep_to_the_interval_and_end_with_it(kernel: Notebook, panel: Panel) -> None:
    kernel.run(LONG)
    panel.settle()
    cell = kernel.send(
        "import time\nprint('begun', flush=True)\nend = time.time() + 4\n"
        "while time.time() < end: base = base.add(1); base.sum().item()"
    )
    kernel.wait_for_text(cell, "begun")
    panel.quiet(1.0)
    steady = panel.quiet(2.0)
    # two a second; a busy machine may bring fewer
    assert 1 <= len(steady) <= 5
    assert all(later["busy_ns"] > first["busy_ns"] for first, later in itertools.pairwise(steady))
    kernel.wait(cell)
    panel.wait(lambda sample: sample["state"] == "idle")
    panel.quiet(0.8)
    assert panel.quiet(1.0) == []


def test_the_feed_has_nothing_computed_and_waits_for_nothing(
    new_kernel: Callable[..., Notebook], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # without the wait at the end of a cell what was recorded in fused mode stays recorded
    cache = str(tmp_path_factory.mktemp("cache"))
    kernel = new_kernel(env={"TPU_KERNEL_DRAIN": "0", "TPU_KERNEL_CACHE": cache})
    kernel.run(PREPARE + "\nbase.sum().item()")
    kernel.run(
        "%tpu_mode fused\nfrom torch_tpu._internal.sync import _tpu_torch_sync as sync\n"
        "import torch.accelerator as accelerator\nwaits = []\nplain = accelerator.synchronize\n"
        "def counted(*a, **k): waits.append(1); return plain(*a, **k)\n"
        "accelerator.synchronize = torch.accelerator.synchronize = counted\n"
        "from tpu_kernel import _kernel\nlazy = base + 1"
    )
    count = "c = _kernel.tpu_snapshot(); (sync._is_materialized(lazy), c['executions'], c['downloads'], len(waits))"
    before = kernel.run(count).text
    assert before is not None and before.startswith("(False, ")
    pages = [Panel(kernel, f"page-{number}").open(tensors=True) for number in range(3)]
    for page in pages:
        assert page.wait(lambda sample: "tensors" in sample)["tensors"]["rows"][0]["name"] == "base"
    for number in range(5):
        kernel.run("x = 1", cell_id=f"cell-{number}")
        time.sleep(0.25)
    assert len([s for page in pages for s in page.quiet(0.3)]) > 5
    assert kernel.run(count).text == before
