"""Cell magics one above the other: the body is compiled whichever is on top; modes nest and come back."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

BODY = "stacked = torch.tanh(X) * 3\nstacked = stacked + X"
ONE_ABOVE = ["%%time", "%%timeit -n 2 -r 3", "%%capture caught", "%%prun -q"]
RUNS = {"%%timeit -n 2 -r 3": 6}


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        ready = notebook.run(
            "import torch\nfrom tpu_kernel.magics import measure\nX = torch.ones(4, 4).to('tpu')",
        )
        assert ready.status == "ok", ready.content
        yield notebook


def executions(notebook: Notebook) -> int:
    return int(notebook.run("measure.counters(settle=True).executions").text or "")


def cards(result: Result) -> list[str]:
    """The cards; a slow machine also shows what takes long to compile."""
    return [d["text/plain"] for d in result.displays if d["text/plain"].startswith("compiled · ")]


def trace(result: Result) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))


@pytest.mark.parametrize("other", ONE_ABOVE)
@pytest.mark.parametrize("below", [False, True], ids=["above", "below"])
def test_body_is_compiled_whichever_magic_is_on_top(notebook: Notebook, other: str, below: bool) -> None:
    top = f"%%tpu_compile --quiet\n{other}" if below else f"{other}\n%%tpu_compile --quiet"
    notebook.run(f"{top}\n{BODY}")
    before = executions(notebook)
    result = notebook.run(f"{top}\n{BODY}")
    assert result.status == "ok", result.content
    # Eagerly it would be three programs a run.
    assert executions(notebook) - before == RUNS.get(other, 1)
    assert notebook.run("round(stacked[0, 0].item(), 3)").text == "3.285"
    if other == "%%time":
        assert "Wall time" in result.stdout
    if other.startswith("%%timeit"):
        assert re.search(r"per loop \(mean ± std\. dev\. of 3 runs, 2 loops each\)", result.stdout)


def test_timed_cell_shows_no_card_for_each_run(notebook: Notebook) -> None:
    for top in ("%%timeit -n 2 -r 3\n%%tpu_compile", "%%tpu_compile\n%%timeit -n 2 -r 3"):
        assert cards(notebook.run(f"{top}\n{BODY}")) == []


def test_captured_card_and_value_of_a_timed_cell(notebook: Notebook) -> None:
    for top in ("%%capture caught\n%%tpu_compile", "%%tpu_compile\n%%capture caught"):
        result = notebook.run(f"{top}\n{BODY}\nprint('inside')")
        assert (result.stdout, cards(result)) == ("", [])
        assert notebook.run("caught.stdout, len(caught.outputs)").text == "('inside\\n', 1)"
    for top in ("%%time\n%%tpu_compile", "%%tpu_compile\n%%time"):
        result = notebook.run(f"{top}\n{BODY}\nstacked.shape[0]")
        assert (result.text, len(cards(result))) == ("4", 1)


def shown(result: Result) -> list[str]:
    """What a person sees, in order: cards by their first word, printed lines, values."""
    found: list[str] = []
    for message in result.messages:
        content = message["content"]
        if message["msg_type"] == "stream":
            found += content["text"].split("\n")
        elif message["msg_type"] in ("display_data", "execute_result"):
            found.append(content["data"]["text/plain"].split(" ·")[0])
    return [line for line in found if line and not line.startswith("Compiling")]


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (f"%%tpu_compile\nprint('inside')\n{BODY}", ["inside", "compiled"]),
        (f"%%tpu_compile\n{BODY}\nstacked.shape[0]", ["compiled", "4"]),
        (f"%%tpu_compile\n{BODY}\nprint('inside')\nstacked.shape[0];", ["inside", "compiled"]),
        (
            f"get_ipython().run_cell({f'%%tpu_compile{chr(10)}{BODY}'!r})\nprint('after')\n0",
            ["compiled", "after", "0"],
        ),
        (
            f"get_ipython().run_cell({f'%%tpu_compile{chr(10)}{BODY}'!r}, store_history=True)\nprint('after')",
            ["compiled", "after"],
        ),
    ],
    ids=["printed", "value", "silent value", "nested", "nested and stored"],
)
def test_a_card_stands_below_what_the_cell_printed_and_above_its_value(
    notebook: Notebook, cell: str, wanted: list[str]
) -> None:
    notebook.run(cell)
    assert shown(notebook.run(cell)) == wanted


@pytest.mark.parametrize("other", ["%%time", "%%capture caught", "%%timeit -n 1 -r 1"])
@pytest.mark.parametrize("below", [False, True], ids=["above", "below"])
def test_error_has_the_line_of_the_cell(notebook: Notebook, other: str, below: bool) -> None:
    top = f"%%tpu_compile\n{other}" if below else f"{other}\n%%tpu_compile"
    result = notebook.run(f"{top}\n\nkept = X + 1\nkept.missing\nnever = 1")
    # `%%capture` reports an error and goes on.
    (error,) = result.contents("error")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))
    assert re.search(r"^-+> 5 kept\.missing$", text, re.MULTILINE), text
    assert notebook.run("kept[0, 0].item(), 'never' in globals()").text == "(2.0, False)"


@pytest.mark.parametrize("top", ["%%tpu_compile", "%%tpu_compile\n%%time", "%%time\n%%tpu_compile"])
def test_await_is_refused_in_one_line(notebook: Notebook, top: str) -> None:
    result = notebook.run(f"{top}\nimport asyncio\nawait asyncio.sleep(0)")
    assert result.content["ename"] == "UsageError"
    line = 3 + top.count("\n")
    assert result.content["evalue"] == (
        f"%%tpu_compile: `await` cannot be compiled (line {line}): put it into a cell of its own without the magic."
    )


def test_of_eager_and_compiled_the_lower_one_counts(notebook: Notebook) -> None:
    for top, wanted in (
        ("%%tpu_eager --mode debug\n%%tpu_compile --quiet", 1),
        ("%%tpu_compile --quiet\n%%tpu_eager", 3),
    ):
        cell = f"{top}\n{BODY}\nmode = torch.tpu.eager_mode.name"
        notebook.run(cell)
        before = executions(notebook)
        result = notebook.run(cell)
        assert result.status == "ok", result.content
        assert executions(notebook) - before == wanted
    assert notebook.run("torch._dynamo.eval_frame._stance.stance, torch.tpu.eager_mode.name").text == (
        "('default', 'DEFER_NEVER')"
    )


def test_modes_nest_and_come_back_after_errors_and_interrupts(notebook: Notebook) -> None:
    mode = "torch.tpu.eager_mode.name"
    notebook.run("torch.tpu.eager_mode = torch.tpu.EagerMode.DEFER_AND_FUSE")
    assert notebook.run("%tpu_mode").stdout.startswith("fused eager: ")
    result = notebook.run(
        f"%%tpu_eager --mode debug\n%%tpu_eager --mode strict\nprint({mode})\nwith torch.tpu.set_eager_mode("
        f"torch.tpu.EagerMode.DEFER_AND_FUSE):\n    print({mode})\nprint({mode})\n1 / 0"
    )
    assert result.stdout.split() == ["DEFER_NEVER", "DEFER_AND_FUSE", "DEFER_NEVER"]
    assert re.search(r"^-+> 7 1 / 0$", trace(result), re.MULTILINE)
    cell = notebook.send(f"%%tpu_eager --mode debug\nprint({mode}, flush=True)\nimport time\ntime.sleep(600)")
    notebook.wait_for_text(cell, "LAUNCH_BLOCKING")
    time.sleep(0.3)
    notebook.interrupt()
    assert notebook.wait(cell).content["ename"] == "KeyboardInterrupt"
    state = f"({mode}, torch._dynamo.eval_frame._stance.stance)"
    assert ast.literal_eval(notebook.run(state).text or "") == ("DEFER_AND_FUSE", "default")
    assert notebook.run("%tpu_mode strict").stdout.startswith("strict eager: ")
