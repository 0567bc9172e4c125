"""The magics in the kernel: cards, errors of one line, modes, stacking, tracebacks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

TRAIN = """%%tpu_compile
for _ in range(3):
    opt.zero_grad()
    loss = F.cross_entropy(model(X), Y)
    loss.backward()
    opt.step()
print(loss.item() > 0)
"""


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        yield notebook


@pytest.fixture(scope="module")
def device(notebook: Notebook) -> Notebook:
    result = notebook.run(
        "import torch, torch.nn as nn, torch.nn.functional as F\n"
        "torch.manual_seed(0)\n"
        "X = torch.randn(16, 8).to('tpu')\nY = torch.randint(0, 4, (16,)).to('tpu')\n"
        "model = nn.Linear(8, 4).to('tpu')\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n",
    )
    assert result.status == "ok", result.content
    return notebook


def shown_error(result: Result) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))


def test_loading_the_magics_imports_no_torch(notebook: Notebook) -> None:
    assert notebook.run("import sys; 'torch' in sys.modules").text == "False"


def test_stats_without_a_device_say_how_to_get_one(notebook: Notebook) -> None:
    assert notebook.run("%tpu_stats").stdout == (
        'No device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu").\n'
    )


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "%%tpu_compile --fast\n1",
            "%%tpu_compile: no option `--fast`; valid: `--explain`, `--fullgraph`, `--dynamic`, `--compare`, `--hlo`, "
            + "`--quiet`, `--save-hlo FOLDER`",
        ),
        ("%%tpu_compile x\n1", "%%tpu_compile takes no argument, only options: `x` is none"),
        ("%%tpu_eager --mode slow\n1", "%%tpu_eager: `--mode` takes strict, fused or debug, not `slow`"),
        ("%%tpu_eager --mode\n1", "%%tpu_eager: `--mode` takes strict, fused or debug, and none is given"),
        ("%%tpu_eager --x\n1", "%%tpu_eager: no option `--x`; valid: `--mode strict|fused|debug`"),
        ("%tpu_mode lazy", "%tpu_mode: `lazy` is none of strict, fused, debug or compiled"),
        ("%tpu_stats --alive", "%tpu_stats: no option `--alive`; valid: `--live`"),
        (
            "%%tpu_compile\nimport asyncio\nawait asyncio.sleep(0)",
            "%%tpu_compile: `await` cannot be compiled (line 3): put it into a cell of its own without the magic.",
        ),
    ],
)
def test_wrong_use_is_one_line(notebook: Notebook, cell: str, message: str) -> None:
    result = notebook.run(cell)
    assert result.status == "error"
    assert (result.content["ename"], result.content["evalue"]) == ("UsageError", message)
    assert "Traceback" not in shown_error(result)


def test_card_says_what_was_compiled_and_what_ran(device: Notebook) -> None:
    first = device.run(TRAIN)
    assert first.stdout == "True\n"
    (card,) = first.displays
    lines = card["text/plain"].splitlines()
    assert lines[0].startswith("compiled · lines 4–6 · ")
    assert lines[-3:] == [
        "  not in a program:",
        "    line 7  print(loss.item() > 0)",
        "        prints",
    ]
    (again,) = device.run(TRAIN).displays
    numbers = dict(re.findall(r"^  (\w[\w ]*\w)  +(\d+)", again["text/plain"], re.MULTILINE))
    assert numbers == {
        "programs compiled": "0",
        "compile time": "0",
        "cache hits": "0",
        "programs executed": "3",
    }
    assert "<script" not in card["text/html"] and len(card["text/html"]) < 6144


def test_cell_without_a_program_says_ran_eagerly(device: Notebook) -> None:
    (card,) = device.run("%%tpu_compile\nn = 3\nm = n + 1").displays
    assert card["text/plain"].startswith("ran eagerly · no program was made from this cell · ")
    assert "ran eagerly" in card["text/html"]


def test_quiet_shows_no_card(device: Notebook) -> None:
    result = device.run("%%tpu_compile --quiet\nq = X + 1\n7")
    assert (result.displays, result.text) == ([], "7")


def test_last_expression_is_out_unless_silenced(device: Notebook) -> None:
    assert device.run("%%tpu_compile --quiet\nX.shape[0] + 1").text == "17"
    assert device.run("%%tpu_compile --quiet\nX.shape[0] + 1;").text is None


@pytest.mark.parametrize("magics", ["%%time\n%%tpu_compile --quiet", "%%tpu_compile --quiet\n%%time"])
def test_stacks_with_time(device: Notebook, magics: str) -> None:
    result = device.run(f"{magics}\nstacked = X.sum() * 0\nround(stacked.item())")
    assert "Wall time" in result.stdout and result.text == "0"


def test_capture_takes_output_and_card(device: Notebook) -> None:
    result = device.run("%%capture got\n%%tpu_compile\ncaptured = X + 1\nprint('inside')")
    assert (result.stdout, result.displays) == ("", [])
    assert device.run("got.stdout, len(got.outputs)").text == "('inside\\n', 1)"
    assert device.run("%%tpu_compile --quiet\n%%capture got2\nprint('in')").stdout == ""
    assert device.run("got2.stdout").text == "'in\\n'"


def test_error_has_the_cells_own_line_and_keeps_what_came_before(device: Notebook) -> None:
    result = device.run("%%tpu_compile\n\nkept = X + 1\nbad = kept @ kept\nnever = 1")
    assert (result.status, result.content["ename"]) == ("error", "RuntimeError")
    text = shown_error(result)
    assert re.search(r"^-+> 4 bad = kept @ kept$", text, re.MULTILINE)
    assert "site-packages" not in text and "tpu_kernel" not in text
    assert device.run("tuple(kept.shape), 'never' in globals()").text == "((16, 8), False)"


def test_interrupt_stops_a_compiled_loop_at_one_of_its_lines(device: Notebook) -> None:
    # Bounded, so that a lost interrupt fails the test and does not hang the kernel.
    body = "print('running', flush=True)\nfor turn in range(200_000):\n    wave = torch.sin(X)\n    wave = wave + 1"
    device.run(
        "%%tpu_compile --quiet\nfor turn in range(2):\n    wave = torch.sin(X)\n    wave = wave + 1",
    )
    cell = device.send(f"%%tpu_compile\n{body}")
    device.wait_for_text(cell, "running")
    time.sleep(1.0)
    device.interrupt()
    result = device.wait(cell)
    assert (result.status, result.content["ename"]) == ("error", "KeyboardInterrupt")
    text = shown_error(result)
    assert re.search(r"^-+> [345] ", text, re.MULTILINE) and "tpu_kernel" not in text
    assert device.run("0 < turn < 199_999, torch._dynamo.config.suppress_errors").text == "(True, False)"
    assert device.run("torch.equal(wave, torch.sin(X) + 1)").text == "True"


def test_syntax_error_shows_only_its_line(device: Notebook) -> None:
    result = device.run("%%tpu_compile\na = 1\nb = = 2")
    assert result.content["ename"] == "SyntaxError"
    text = shown_error(result)
    assert "line 3" in text and "b = = 2" in text and "site-packages" not in text


def test_eager_runs_compiled_functions_uncompiled(device: Notebook) -> None:
    device.run(
        "seen = []\ncompiled = torch.compile(lambda t: (seen.append(torch.compiler.is_compiling()), t * 2)[1])"
    )
    device.run("%%tpu_eager\ncompiled(X)")
    assert device.run("seen").text == "[False]"


def test_modes_are_chosen_shown_and_restored(device: Notebook) -> None:
    strict = "strict eager: each operation is queued as it is reached\n"
    debug = "debug eager: each operation has ended before the next line\n"
    assert device.run("%tpu_mode").stdout == strict
    assert device.run("%tpu_mode debug").stdout == debug
    inside = device.run("%%tpu_eager --mode fused\nprint(torch.tpu.eager_mode.name)\n1 / 0")
    assert (inside.stdout, inside.content["ename"]) == ("DEFER_AND_FUSE\n", "ZeroDivisionError")
    assert inside.stderr == ""
    assert device.run("%tpu_mode").stdout == debug
    device.run("torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_NEVER")
    assert device.run("%tpu_mode").stdout == strict


def test_mode_compiled_compiles_cells_without_a_magic(device: Notebook) -> None:
    device.run("%tpu_mode compiled")
    try:
        device.run("from tpu_kernel.tpu import device as tpu")
        before = device.run("tpu.snapshot()['executions']").text
        assert device.run("follow = torch.tanh(X) * 3\nfollow.shape[0]").text == "16"
        # One program; eagerly it would be one for each operation.
        assert device.run(f"tpu.snapshot()['executions'] - {before}").text == "1"
        error = device.run("follow = X * 2\nnot_there")
        assert error.content["ename"] == "NameError"
        assert re.search(r"^-+> 2 not_there$", shown_error(error), re.MULTILINE)
        assert "tpu_kernel" not in shown_error(error)
        assert device.run("import asyncio\nawait asyncio.sleep(0)\n5").text == "5"
    finally:
        device.run("%tpu_mode strict")
    assert device.run("hasattr(get_ipython().run_ast_nodes, 'plain')").text == "False"


def test_stats_agree_with_the_session(device: Notebook) -> None:
    (card,) = device.run("%tpu_stats").displays
    text = card["text/plain"]
    assert text.startswith("TPU v5e (emulated)\n  HBM in use   ")
    executions = re.search(r"executions   ([\d,]+) \(busy", text)
    assert executions
    now = device.run("from tpu_kernel.tpu import device; device.snapshot()['executions']").text
    assert executions[1].replace(",", "") == now


def test_magics_have_help(device: Notebook) -> None:
    result = device.run("%%tpu_compile?")
    page = result.content["payload"][0]["data"]["text/plain"]
    assert "%%tpu_compile [--explain] [--fullgraph] [--dynamic] [--compare] [--hlo]" in page
