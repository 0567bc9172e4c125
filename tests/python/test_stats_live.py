"""`%tpu_stats --live`: one display that follows its cell, and what is left of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import running_kernel
from nbclient import NotebookClient
from notebook import Message, Notebook
from PIL import Image

pytestmark = pytest.mark.alone

HOLD_GIL = "ctypes.PyDLL(None).usleep(3_000_000)"


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str) -> Iterator[Notebook]:
    """One kernel with a device for the tests of this file."""
    with running_kernel(kernelspec) as kernel:
        code = "import ctypes, time, torch\nx = torch.ones(1024, 1024, device='tpu')\nx.sum().item()"
        assert kernel.run(code).status == "ok"
        yield kernel


def bundles(messages: list[Message]) -> list[dict[str, str]]:
    """What the display showed, one after the other: shown once, then brought up to date."""
    found = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    assert [m["msg_type"] for m in found] == ["display_data", *["update_display_data"] * (len(found) - 1)]
    assert len({m["content"]["transient"]["display_id"] for m in found}) == 1
    return [m["content"]["data"] for m in found]


def test_it_follows_a_cell_that_holds_the_gil_and_leaves_a_picture(kernel: Notebook) -> None:
    result = kernel.run(
        "%tpu_stats --live\nbig = torch.ones(64 << 20, device='tpu')\ntorch.accelerator.synchronize()\n"
        f"{HOLD_GIL}\nfor _ in range(20): x = (x @ x).clamp(0, 1)\nprint('done')"
    )
    assert result.status == "ok", result.content
    shown = bundles(result.messages)
    assert len(shown) >= 3
    # while the GIL was held it was brought up to date too
    assert sum("HBM 260 MiB of 15.7 GiB" in each["text/plain"] for each in shown) >= 2
    assert all(set(each) == {"text/plain", "text/html"} for each in shown[:-1])
    last = shown[-1]
    assert set(last) == {"text/plain", "text/html", "image/png"}
    words, did, hbm, busy = last["text/plain"].split("\n")
    assert words.startswith("TPU v5e (emulated) · ") and max(len(words), len(did)) <= 80
    assert " executions" in did and "now:" not in did
    assert all(len(each["text/html"].encode()) <= 6144 for each in shown)
    assert (hbm[:7], hbm[67:75], busy[:7], len(busy)) == ("  HBM  ", "  up to ", "  busy ", 67)
    # how many of the 4 MiB in between there are at once is TorchTPU's, which runs ahead of the device
    assert 260 <= int(hbm[75:].removesuffix(" MiB")) <= 260 + 2 * 20 * 4
    assert "<script" not in last["text/html"] and "<svg" not in last["text/html"]
    assert Image.open(io.BytesIO(base64.b64decode(last["image/png"]))).size == (600, 126)
    # all of it is there before the cell is answered, and nothing comes after
    kinds = [m["msg_type"] for m in result.messages]
    assert kinds[-1] == "status"
    kernel.strays += kernel._take(kernel.client.iopub_channel, 0.8)
    assert not [m for m in kernel.strays if m["msg_type"] == "update_display_data"]
    kernel.run("del big")


def test_a_cell_that_fails_keeps_its_picture_and_the_next_has_none(kernel: Notebook) -> None:
    failed = kernel.run("%tpu_stats --live\n%tpu_stats --live\ntime.sleep(0.7)\n1 / 0")
    assert failed.content["ename"] == "ZeroDivisionError"
    assert "image/png" in bundles(failed.messages)[-1]
    assert bundles(kernel.run("%tpu_stats --live").messages)[-1].keys() >= {"image/png"}
    assert kernel.run("time.sleep(0.7)").types == ["execute_input"]
    wrong = kernel.run("%tpu_stats --alive")
    assert wrong.content["evalue"] == "%tpu_stats: no option `--alive`; valid: `--live`"


def test_the_picture_stands_in_a_notebook_that_was_run_without_a_browser(
    kernelspec: str, tmp_path: Path
) -> None:
    cells = [nbformat.v4.new_code_cell("%tpu_stats --live\nimport time; time.sleep(1.2)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook, kernel_name=kernelspec, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    (output,) = notebook.cells[0].outputs
    assert output["data"]["text/plain"].startswith("no device is in use yet\n")
    assert "image/png" in output["data"]
