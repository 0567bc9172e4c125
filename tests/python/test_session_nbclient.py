"""Whole notebooks, run as nbclient, papermill and `nbconvert --execute` run them."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook import PATIENCE


def run(*cells: str, kernelspec: str, allow_errors: bool = False) -> nbformat.NotebookNode:
    """A notebook of these cells, executed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    NotebookClient(notebook, kernel_name=kernelspec, timeout=PATIENCE, allow_errors=allow_errors).execute()
    nbformat.validate(notebook)
    return notebook


def test_a_notebook_runs_from_top_to_bottom(kernelspec: str) -> None:
    notebook = run(
        "x = 20\nprint('set')",
        "x + 22",
        "from IPython.display import HTML, display\nhandle = display(HTML('<i>a</i>'), display_id=True)\n"
        "handle.update(HTML('<i>b</i>'))",
        "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'",
        "!echo from the shell",
        kernelspec=kernelspec,
    )
    outputs = [cell.outputs for cell in notebook.cells]
    assert outputs[0] == [{"output_type": "stream", "name": "stdout", "text": "set\n"}]
    assert outputs[1][0]["data"]["text/plain"] == "42"
    assert outputs[2][0]["data"]["text/html"] == "<i>b</i>"
    assert outputs[3][0]["data"]["text/plain"] == "'awaited'"
    assert outputs[4][0]["text"] == "from the shell\n"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, 5]


def test_a_notebook_stops_at_an_error(kernelspec: str) -> None:
    with pytest.raises(CellExecutionError, match="division by zero"):
        run("1 / 0", "print('not reached')", kernelspec=kernelspec)


def test_a_notebook_goes_on_after_errors_when_allowed(kernelspec: str) -> None:
    notebook = run("1 / 0", "'reached'", kernelspec=kernelspec, allow_errors=True)
    assert notebook.cells[0].outputs[0]["ename"] == "ZeroDivisionError"
    assert notebook.cells[1].outputs[0]["data"]["text/plain"] == "'reached'"
