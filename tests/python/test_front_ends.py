"""Front ends other than JupyterLab: consoles, papermill, nbconvert, and what VS Code asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pexpect
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from notebook import PATIENCE, Notebook


def write(path: Path, kernelspec: str, *cells: nbformat.NotebookNode) -> Path:
    """A notebook in a file, with this kernel."""
    book = new_notebook(
        cells=list(cells),
        metadata={"kernelspec": {"name": kernelspec, "display_name": "PyTorch (TPU)", "language": "python"}},
    )
    nbformat.write(book, path)
    return path


def printed(book: nbformat.NotebookNode) -> list[str]:
    """What each code cell printed or returned."""
    return [
        "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    ]


def test_a_session_in_jupyter_console(kernelspec: str) -> None:
    arguments = ["-m", "jupyter_console", "--kernel", kernelspec, "--simple-prompt", "--no-confirm-exit"]
    child = pexpect.spawn(
        sys.executable, arguments, encoding="utf-8", timeout=PATIENCE, env={**os.environ, "TERM": "dumb"}
    )
    try:
        child.expect("PyTorch \\(TPU\\)")
        child.expect("In \\[1\\]: ")
        child.sendline("print('he' + 'llo')")
        child.expect("hello")
        child.expect("In \\[2\\]: ")
        child.sendline("6 * 7")
        child.expect("Out\\[2\\]: 42")
        child.expect("In \\[3\\]: ")
        child.sendline("input('name? ').upper()")
        child.expect("name\\? ")
        child.sendline("ada")
        child.expect("'ADA'")
        child.expect("In \\[4\\]: ")
        child.sendline("1 / 0")
        child.expect("ZeroDivisionError")
        child.expect("In \\[5\\]: ")
        child.sendline("print('be' + 'gun'); import time; time.sleep(600)")
        child.expect("begun")
        child.sendintr()
        child.expect("KeyboardInterrupt")
        child.expect("In \\[6\\]: ")
        child.sendline("exit")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)


def test_papermill_passes_parameters(kernelspec: str, tmp_path: Path) -> None:
    import papermill

    defaults = new_code_cell("rate, name = 0.1, 'default'")
    defaults.metadata["tags"] = ["parameters"]
    source = write(
        tmp_path / "in.ipynb",
        kernelspec,
        new_markdown_cell("# run"),
        defaults,
        new_code_cell("print(rate, name)"),
    )
    target = tmp_path / "out.ipynb"
    papermill.execute_notebook(source, target, parameters={"rate": 0.5, "name": "é\n"}, progress_bar=False)
    book = nbformat.read(target, 4)
    assert [cell.metadata.get("tags") for cell in book.cells[1:3]] == [
        ["parameters"],
        ["injected-parameters"],
    ]
    assert printed(book) == ["", "", "0.5 é\n\n"]
    assert book.metadata.papermill.exception is None


def test_papermill_keeps_the_notebook_of_a_failed_run(kernelspec: str, tmp_path: Path) -> None:
    import papermill

    source = write(
        tmp_path / "in.ipynb",
        kernelspec,
        new_code_cell("print('before')"),
        new_code_cell("1 / 0"),
        new_code_cell("2"),
    )
    with pytest.raises(papermill.PapermillExecutionError, match="ZeroDivisionError: division by zero"):
        papermill.execute_notebook(source, tmp_path / "out.ipynb", progress_bar=False)
    book = nbformat.read(tmp_path / "out.ipynb", 4)
    assert book.metadata.papermill.exception is True
    assert "before\n" in printed(book)


def test_nbconvert_executes_and_keeps_widgets_bars_and_figures(kernelspec: str, tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.ipynb",
        kernelspec,
        new_code_cell("from tqdm.auto import tqdm\nfor n in tqdm(range(4), desc='steps'): pass"),
        new_code_cell("import ipywidgets\nipywidgets.IntSlider(value=6, description='depth')"),
        new_code_cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]);"),
        new_code_cell("print('done')"),
    )
    run = [
        sys.executable,
        "-m",
        "nbconvert",
        "--execute",
        "--to",
        "notebook",
        "--output",
        "out.ipynb",
        str(source),
    ]
    done = subprocess.run(run, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    book = nbformat.read(tmp_path / "out.ipynb", 4)
    view = "application/vnd.jupyter.widget-view+json"
    assert [sorted(o.data) for cell in book.cells[:3] for o in cell.outputs] == [
        [view, "text/plain"],
        [view, "text/plain"],
        ["image/png", "text/plain"],
    ]
    states = book.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    slider = states[book.cells[1].outputs[0].data[view]["model_id"]]
    assert (slider["model_name"], slider["state"]["value"]) == ("IntSliderModel", 6)
    (bar,) = [s["state"] for s in states.values() if s["model_name"] == "FloatProgressModel"]
    assert (bar["value"], bar["bar_style"]) == (4.0, "success")
    assert printed(book)[3] == "done\n"


def test_what_vs_code_runs_unseen_leaves_no_trace(kernel: Notebook) -> None:
    """Its variable view and settings come as silent cells outside the history."""
    kernel.run("weights = [1, 2, 3]\nlabel = 'x'")
    count = kernel.run("get_ipython().execution_count").content["execution_count"]
    silent = {"silent": True, "store_history": False, "allow_stdin": False, "stop_on_error": False}
    names = kernel.run("_rwho_ls = %who_ls\nprint(_rwho_ls)", **silent)
    assert "'label', 'weights'" in names.stdout
    assert "execute_input" not in names.types
    described = kernel.run(
        "import builtins as _b\ndef _vscode(names):\n    import json as _json\n"
        "    return _json.dumps([[n, type(globals()[n]).__name__, str(globals()[n])[:80]] for n in names])\n"
        "_b.print(_vscode(['label', 'weights']))\ndel _vscode, _b",
        **silent,
    )
    assert json.loads(described.stdout) == [["label", "str", "x"], ["weights", "list", "[1, 2, 3]"]]
    broken = kernel.run("1 / 0", **silent)
    assert broken.content["ename"] == "ZeroDivisionError"
    assert kernel.run("weights").content["execution_count"] == count + 1


def test_expressions_asked_for_beside_a_cell_are_answered(kernel: Notebook) -> None:
    result = kernel.run("n = 3", user_expressions={"n": "n * 2", "bad": "1 / 0"})
    assert result.content["user_expressions"]["n"]["data"] == {"text/plain": "6"}
    assert result.content["user_expressions"]["bad"]["ename"] == "ZeroDivisionError"


def test_the_start_of_a_vs_code_session(kernel: Notebook) -> None:
    """The working folder and inline figures are set by silent cells; cells come with `metadata.cellId`."""
    silent = {"silent": True, "store_history": False}
    folder = kernel.run("import os; print(os.getcwd())").stdout.strip()
    setup = kernel.run(
        "import os as _os, sys as _sys\n%matplotlib inline\n"
        f"_os.chdir({folder!r})\nif {folder!r} not in _sys.path: _sys.path.insert(0, {folder!r})\ndel _os, _sys\n"
        "__vsc_ipynb_file__ = '/home/ada/a.ipynb'",
        **silent,
    )
    assert (setup.status, setup.types) == ("ok", [])
    assert kernel.run("__vsc_ipynb_file__").text == "'/home/ada/a.ipynb'"
    first = kernel.send("print('a')", cell_id="vscode-notebook-cell:/a.ipynb#W0sZmlsZQ==")
    second = kernel.send("print('b')", cell_id="vscode-notebook-cell:/a.ipynb#X1sZmlsZQ==")
    assert [kernel.wait(m).stdout for m in (first, second)] == ["a\n", "b\n"]


def test_languages_and_logos_front_ends_ask_for(kernel: Notebook) -> None:
    info = kernel.ask("kernel_info_request", {}).content
    assert (info["status"], info["protocol_version"], info["implementation"]) == ("ok", "5.5", "pytorch-tpu")
    language = info["language_info"]
    assert (language["name"], language["file_extension"], language["mimetype"]) == (
        "python",
        ".py",
        "text/x-python",
    )
    assert (language["pygments_lexer"], language["nbconvert_exporter"]) == ("ipython3", "python")
