"""Fifty cells mean the same plainly, under `%%tpu_compile` and in each eager mode, and cost what they should.

Each cell starts with no program known, so its numbers do not depend on the cells before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import running_kernel
from fifty_cells import CELLS, CHANGES, RUNS, Change
from notebook import Notebook, Result

MAGICS = {
    "plain": "# plainly",
    "compiled": "%%tpu_compile --quiet",
    "again": "%%tpu_compile --quiet",
    "strict": "%%tpu_eager --mode strict",
    "fused": "%%tpu_eager --mode fused",
    "debug": "%%tpu_eager --mode debug",
}


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    env = {"TPU_KERNEL_CACHE": "off", "PYTHONPATH": str(Path(__file__).parent)}
    with running_kernel(kernelspec, env=env) as notebook:
        assert notebook.run("import fifty_kernel").status == "ok"
        yield notebook


def shown(result: Result) -> tuple[object, ...]:
    """What somebody sees of a cell besides its values."""
    error = None
    if result.status == "error":
        text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
        if result.content["ename"] == "SyntaxError":
            lines = re.findall(r"line (\d+)", text)
        else:
            lines = re.findall(r"^-+> (\d+) ", text, re.MULTILINE)
        message = re.sub(r"\d+\.py", "the cell", result.content["evalue"])
        error = (result.content["ename"], message, [int(line) for line in lines])
    return result.stdout, result.stderr, result.text is None, error


@dataclass
class Left:
    """What a run of a cell left: programs made and run, what was shown, what differs from the plain run."""

    programs: str
    shown: tuple[object, ...]
    different: list[str]


def run_all(
    notebook: Notebook, setup: str, runs: list[tuple[str, str]], spent: tuple[str, ...]
) -> list[Left]:
    """Run texts, each in a notebook as new, the first one with no program known."""
    found = []
    seen: list[tuple[object, ...]] = []
    for number, (kind, text) in enumerate([*runs, ("", "")]):
        # What the run before left is looked at with the same request that makes all new for the next.
        observe = f"_k.observed({runs[number - 1][0]!r}, {spent!r})" if number else "None"
        prepare = f"_k.begin({number == 0})\n{setup}\n_k.mark()" if kind else ""
        ready = notebook.run(f"import fifty_kernel as _k\n_k_left = {observe}\n{prepare}\n_k_left")
        assert ready.status == "ok", ready.content
        if number:
            found.append(ast.literal_eval(ready.text or ""))
        if kind:
            seen.append(shown(notebook.run(f"{MAGICS[kind]}\n{text}")))
    return [
        Left(programs, shows, different) for (programs, different), shows in zip(found, seen, strict=True)
    ]


@pytest.mark.parametrize("name", CELLS)
def test_cell_means_the_same_in_every_mode(notebook: Notebook, name: str) -> None:
    cell = CELLS[name]
    left = run_all(notebook, cell.setup, [(run, cell.text) for run in RUNS], cell.spent)
    assert {run: each.different for run, each in zip(RUNS, left, strict=True) if each.different} == {}
    assert {run: each.shown for run, each in zip(RUNS, left, strict=True)} == dict.fromkeys(
        RUNS, left[0].shown
    )
    *_, error = left[0].shown
    assert (None if error is None else (error[0], error[2])) == cell.error  # type: ignore[index]
    wanted = cell.programs.split()
    programs = [each.programs for each in left]
    assert [
        p if p in w.split("|") else f"{p}, not {w}" for p, w in zip(programs, wanted, strict=True)
    ] == programs


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.cell)
def test_a_changed_line_compiles_only_what_changed(notebook: Notebook, change: Change) -> None:
    cell = CELLS[change.cell]
    assert cell.text.count(change.line) == 1
    other = cell.text.replace(change.line, change.other)
    # Eagerly first, as in the test above: what stays eager needs no program any more.
    runs = [("plain", cell.text), ("plain", other), ("compiled", cell.text), ("compiled", other)]
    *_, before, after = run_all(notebook, cell.setup, runs, cell.spent)
    assert (before.programs, after.programs) == (change.before, change.after)


def test_most_cells_need_programs() -> None:
    assert len(CELLS) >= 50
    compiled = [cell.programs.split()[1] for cell in CELLS.values()]
    assert sum(not programs.startswith("0/") for programs in compiled) >= 35


@pytest.mark.parametrize(
    "made",
    [
        "def late():\n    return u",
        "late = lambda: u",
        "exec('def late():\\n    return u')",
        "%run -i {file}",
        "%%time\ndef late():\n    return u",
        "get_ipython().run_cell('def late():\\n    return u')",
    ],
    ids=["def", "lambda", "exec", "run", "under time", "run_cell"],
)
def test_function_made_since_the_last_run_is_seen(notebook: Notebook, made: str, tmp_path: Path) -> None:
    file = tmp_path / "late.py"
    file.write_text("def late():\n    return u\n")
    notebook.run("import fifty_kernel as _k\n_k.begin(False)\nk = 5.0\nu = 0\ndef late():\n    return 1.0")
    cell = "%%tpu_compile --quiet\nu = X[0, 0] * 0 + k\nr = late() * 2\nr.item() if torch.is_tensor(r) else r"
    assert [notebook.run(cell).text for _ in range(2)] == ["2.0", "2.0"]
    notebook.run(made.format(file=file))
    notebook.run("k = 6.0")
    assert notebook.run(cell).text == "12.0"
    notebook.run("k = 7.0")
    assert notebook.run(cell).text == "14.0"


def test_compiled_cell_leaves_no_names_and_runs_again_after_reset(notebook: Notebook) -> None:
    notebook.run("import fifty_kernel as _k\n_k.begin(False)")
    cell = "%%tpu_compile --quiet\ny = torch.tanh(X) + 1\ny.shape[0]"
    before = notebook.run("_before = set(globals()) | {'y', '_before'}; len(_before) > 0").text
    assert (before, notebook.run(cell).text) == ("True", "64")
    assert (
        notebook.run(
            "[n for n in set(globals()) - _before if not n.startswith('_i') and not n[1:].isdigit()]"
        ).text
        == "[]"
    )
    notebook.run("%reset -f")
    notebook.run("import fifty_kernel as _k\n_k.begin(False)")
    assert notebook.run(cell).text == "64"


def test_card_says_why_a_function_with_backward_runs_eagerly(notebook: Notebook) -> None:
    cell = CELLS["train step in a function"]
    notebook.run(f"import fifty_kernel as _k\n_k.begin(False)\n{cell.setup}")
    text = cell.text.replace("def train_step", "@torch.enable_grad()\ndef train_step")
    displays = notebook.run(f"%%tpu_compile\n{text}").displays
    card = displays[-1]["text/plain"]
    assert card.startswith("ran eagerly · no program was made from this cell · ")
    assert card.endswith(
        "    line 10  last = train_step(X, Y)\n"
        "        train_step runs backward() inside: the library torch calls it\n"
        "        Instead: write the training step as a function with def in a cell, or\n"
        "        into the loop"
    )
