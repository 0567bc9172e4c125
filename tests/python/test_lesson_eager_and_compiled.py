"""Lesson 2 runs from top to bottom: what its cards say is what tpu-core counted, and its check cell passes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

LESSON = Path(__file__).parents[2] / "notebooks" / "02-eager-and-compiled.ipynb"
COUNT = "from tpu_kernel.magics import measure as _m\n_n = _m.counters(settle=True)\n_n.compiles, _n.cache_hits, _n.executions"


def cards(cell: NotebookNode) -> list[str]:
    texts = [output.data["text/plain"] for output in cell.outputs if output.output_type == "display_data"]
    return [text for text in texts if text.startswith(("compiled · ", "compared · "))]


def test_lesson_runs_to_its_check(kernelspec: str) -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    # tpu-core's counters before and after each compiled cell
    cells = []
    for cell in notebook.cells:
        around = cell.cell_type == "code" and cell.source.startswith("%%tpu_compile\n")
        count = [nbformat.v4.new_code_cell(COUNT)] if around else []
        cells += [*count, cell, *count]
    counted = nbformat.v4.new_notebook(metadata=notebook.metadata)
    counted.cells = [nbformat.from_dict(dict(cell)) for cell in cells]
    NotebookClient(counted, timeout=300, kernel_name=kernelspec).execute()
    code = [cell for cell in counted.cells if cell.cell_type == "code"]
    (checked,) = code[-1].outputs
    assert checked.text.startswith("All checks passed: ")
    outputs = [output for cell in code for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []
    compiled = [number for number, cell in enumerate(code) if cell.source.startswith("%%tpu_compile\n")]
    assert len(compiled) == 3
    for number in compiled:
        (card,) = cards(code[number])
        before, after = (
            ast.literal_eval(code[place].outputs[0].data["text/plain"]) for place in (number - 1, number + 1)
        )
        said = dict(re.findall(r"^  ([a-z ]+[a-z])  +([\d,]+)$", card, re.MULTILINE))
        used = [b - a for a, b in zip(before, after, strict=True)]
        names = ("programs compiled", "cache hits", "programs executed")
        assert [int(said[name].replace(",", "")) for name in names] == used
    again = cards(code[compiled[-1]])[0]
    for line in ("  programs compiled  0", "  cache hits         0", "  programs executed  120"):
        assert line in again.splitlines()
    assert [len(cards(cell)) for cell in code if "--compare" in cell.source] == [1, 1]


def test_lesson_is_saved_without_outputs() -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    nbformat.validate(notebook)
    assert [c for c in notebook.cells if c.cell_type == "code" and (c.outputs or c.execution_count)] == []
