"""The one wheel under every Python of this machine, each in an environment of its own that is not activated.

With a shared libpython and without. TorchTPU is not in these environments: that a kernel needs none to
run Python is part of the test.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from installed import ROOT
from notebook import Notebook
from panel import Panel, finish, place

UV = Path(sys.prefix) / "bin" / "uv"
NEEDS = ["ipython", "comm", "debugpy", "matplotlib-inline"]
CELL = "def twice(n):\n    return n * 2\ntwice(21)"


def interpreters() -> list[Path]:
    """Those of these tests, of pyenv and of the system, from Python 3.11 on."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [
        Path(sys._base_executable).resolve(),  # type: ignore[attr-defined]
        *sorted(pyenv.glob("versions/3.*/bin/python3.??")),
        *sorted(Path("/usr/bin").glob("python3.??")),
    ]
    found = {path.resolve(): re.fullmatch(r"python3\.(\d+)", path.resolve().name) for path in candidates}
    return [path for path, name in found.items() if name and int(name[1]) >= 11]


@pytest.fixture(scope="module", params=interpreters(), ids=str)
def notebook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    """A kernel of an environment made with this interpreter."""
    folder = tmp_path_factory.mktemp("interpreter")
    environment = folder / "environment"
    (wheel,) = (ROOT / "dist").glob("*.whl")
    clean = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    python = str(environment / "bin/python")
    constraints = ["-c", str(ROOT / "requirements/dev.txt")]
    for command in (
        [UV, "venv", "-q", "--python", str(request.param), str(environment)],
        [UV, "pip", "install", "-q", "--compile-bytecode", "--python", python, *constraints, *NEEDS],
        [UV, "pip", "install", "-q", "--compile-bytecode", "--python", python, "--no-deps", str(wheel)],
        [environment / "bin/tpu-kernel", "install", "--prefix", str(folder), "--name", "other"],
    ):
        subprocess.run(command, check=True, env=clean)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share/jupyter"))
        with running_kernel("other") as kernel:
            kernel.interpreter = request.param  # type: ignore[attr-defined]
            yield kernel


def test_python_runs_in_the_launcher_where_there_is_a_shared_library_of_it(notebook: Notebook) -> None:
    interpreter = notebook.interpreter  # type: ignore[attr-defined]
    ask = (
        "import os, sys, sysconfig as s; library = s.get_config_var('INSTSONAME') or ''; "
        "shared = '.so' in library and os.path.isfile(os.path.join(s.get_config_var('LIBDIR'), library)); "
        "print([sys.version, shared])"
    )
    said = subprocess.run([interpreter, "-c", ask], check=True, capture_output=True, text=True).stdout
    version, shared = ast.literal_eval(said)
    assert notebook.run("import os, sys; print(sys.version)").stdout == f"{version}\n"
    program = notebook.run("print(os.path.basename(os.readlink('/proc/self/exe')))").stdout.strip()
    assert (program == "tpu-kernel") is shared, program
    assert notebook.run("sys.executable").text == repr(
        str(Path(notebook.run("sys.prefix").text.strip("'"), "bin/python"))
    )
    assert notebook.run("'torch' in sys.modules, 'ipykernel' in sys.modules").text == "(False, True)"


def test_cells_print_fail_await_and_are_interrupted(notebook: Notebook) -> None:
    result = notebook.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (result.stdout, result.text) == ("out\n", "42")
    assert result.stderr.endswith("err\n")  # before it, perhaps, that the disk is too slow for the history
    failed = notebook.run("def f():\n    1 / 0\nf()")
    assert (failed.content["ename"], failed.content["evalue"]) == ("ZeroDivisionError", "division by zero")
    shown = re.sub("\x1b\\[[0-9;]*m", "", "\n".join(failed.content["traceback"]))
    assert "----> 2     1 / 0" in shown
    assert notebook.run("import asyncio\nawait asyncio.sleep(0.01, 'slept')").text == "'slept'"
    for code in (
        "print('on')\nwhile True: pass",
        "print('on')\nawait asyncio.sleep(600)",
        "print('on')\nimport time; time.sleep(600)",
    ):
        cell = notebook.send(code)
        notebook.wait_for_text(cell, "on")
        notebook.interrupt()
        assert notebook.wait(cell).content["ename"] == "KeyboardInterrupt"
    assert notebook.run("1 + 1").text == "2"


def test_completion_and_subshells_answer(notebook: Notebook) -> None:
    content = notebook.ask("complete_request", {"code": "sys.version_i", "cursor_pos": 13}).content
    assert content["matches"] == ["version_info"]
    name = notebook.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    assert notebook.run("import threading; threading.current_thread().name", subshell=name).text == repr(
        f"subshell-{name}"
    )
    assert notebook.ask("delete_subshell_request", {"subshell_id": name}, channel="control").status == "ok"


def test_the_debugger_stops_at_a_breakpoint(notebook: Notebook) -> None:
    panel = Panel(notebook)
    panel.start()
    path = panel.break_at(CELL, 2)
    cell = notebook.send(CELL)
    frames = panel.stopped()
    assert place(frames) == ("twice", 2)
    assert panel.variables(frames[0]) == {"n": "21"}
    panel.break_in(path)
    panel.go_on()
    assert finish(notebook, cell).text == "42"
    panel.stop()
