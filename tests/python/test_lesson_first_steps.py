"""Lesson 1 runs from top to bottom in the kernel, and its check cell says so."""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

LESSON = Path(__file__).parents[2] / "notebooks" / "01-first-steps.ipynb"


def test_lesson_runs_to_its_check(kernelspec: str) -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    assert notebook.metadata.kernelspec.name == "pytorch-tpu"
    NotebookClient(notebook, timeout=300, kernel_name=kernelspec).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    (checked,) = code[-1].outputs
    assert checked.text.startswith("All checks passed: ")
    errors = [o.ename for cell in code for o in cell.outputs if o.output_type == "error"]
    assert errors == ["RuntimeError", "RuntimeError"]
    stderr = [
        o.text for cell in code for o in cell.outputs if o.output_type == "stream" and o.name == "stderr"
    ]
    assert stderr == []


def test_lesson_is_saved_without_outputs() -> None:
    notebook = nbformat.read(LESSON, as_version=4)
    nbformat.validate(notebook)
    assert [c for c in notebook.cells if c.cell_type == "code" and (c.outputs or c.execution_count)] == []
