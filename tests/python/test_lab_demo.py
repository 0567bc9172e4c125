"""`make demo`: a lesson in the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from installed import ROOT

LESSON = ROOT / "notebooks/01-first-steps.ipynb"


def show(notebook: Path) -> subprocess.CompletedProcess[str]:
    """Run a notebook as `make demo` does."""
    command = [sys.executable, ROOT / "notebooks/run.py", notebook]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=580)


def written(folder: Path, *cells: str) -> Path:
    """A notebook with these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    path = folder / "short.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.mark.timeout(600)
def test_the_first_lesson_runs_to_its_end() -> None:
    before = LESSON.read_bytes()
    run = show(LESSON)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    cells = sum(cell.cell_type == "code" for cell in nbformat.read(LESSON, as_version=4).cells)
    assert run.stdout.splitlines()[-1].startswith(f"01-first-steps.ipynb: {cells} cells ran in ")
    assert LESSON.read_bytes() == before


def test_outputs_are_shown_below_their_cell(tmp_path: Path) -> None:
    run = show(written(tmp_path, "print('one')", "1 + 1"))
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line]
    assert lines[:5] == [
        "short.ipynb with the kernel pytorch-tpu",
        "    print('one')",
        "one",
        "    1 + 1",
        "2",
    ]


def test_a_failing_cell_is_shown_and_gives_a_failing_exit_code(tmp_path: Path) -> None:
    run = show(written(tmp_path, "print('before')", "raise ValueError('too bad')", "print('after')"))
    assert run.returncode == 1
    assert "before\n" in run.stdout
    assert "ValueError: too bad" in run.stdout
    assert run.stdout.splitlines()[-1] == "short.ipynb: a cell failed: ValueError: too bad"
    assert "after" not in run.stdout
