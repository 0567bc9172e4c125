"""Magics, shell commands, and the environment a cell finds."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

from notebook import Notebook


def test_shell_commands_show_their_output_while_they_run(kernel: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    cell = kernel.send(f"!echo first; until [ -e {go} ]; do sleep 0.1; done; echo second")
    kernel.wait_for_text(cell, "first")
    go.touch()
    assert kernel.wait(cell).stdout == "second\n"
    result = kernel.run("!echo $((6 * 7)); exit 3")
    assert result.stdout == "42\n"
    assert kernel.run("_exit_code").text == "3"
    assert kernel.run("word = 'curly'\n!echo {word} $word").stdout == "curly curly\n"


def test_shell_commands_read_an_empty_input(kernel: Notebook) -> None:
    assert kernel.run("!cat; echo done").stdout == "done\n"


def test_python_in_a_shell_command_does_not_hold_its_output_back(kernel: Notebook) -> None:
    cell = kernel.send('import sys\n!"{sys.executable}" -c "import time; print(\'early\'); time.sleep(600)"')
    kernel.wait_for_text(cell, "early")
    kernel.interrupt()
    kernel.wait(cell)


def test_output_of_a_command_can_be_kept(kernel: Notebook) -> None:
    assert kernel.run("lines = !printf 'a\\nb\\n'\nlines").text == "['a', 'b']"


def test_bash_cells_run(kernel: Notebook) -> None:
    result = kernel.run("%%bash\necho out\necho err >&2")
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert kernel.run("%%bash\nexit 4").content["ename"] == "CalledProcessError"


def test_a_background_command_does_not_hold_the_cell(kernel: Notebook, tmp_path: Path) -> None:
    go = tmp_path / "go"
    cell = kernel.send(f"!(until [ -e {go} ]; do sleep 0.1; done; echo later) &")
    assert kernel.wait(cell).status == "ok"
    assert kernel.run("'next'").text == "'next'"
    go.touch()
    kernel.wait_for_text(cell, "later\n")


def test_the_usual_magics_work(kernel: Notebook) -> None:
    assert kernel.run("%pwd").status == "ok"
    assert "loops" in kernel.run("%timeit -n 2 -r 2 pass").stdout
    assert "Wall time" in kernel.run("%%time\nx = 1").stdout
    assert kernel.run("%who_ls").text is not None
    assert "1: %pwd" in kernel.run("%history 1 -n").stdout or kernel.run("%history -n").status == "ok"
    assert kernel.run("%run -c 1").status in ("ok", "error")
    assert "UsageError" in kernel.run("%no_such_magic").content["ename"]


def test_less_and_man_show_a_page(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "read.txt").write_text("hello page\n")
    payload = kernel.run(f"%less {tmp_path}/read.txt").content["payload"]
    assert payload[0]["source"] == "page"
    assert "hello page" in payload[0]["data"]["text/plain"]
    assert kernel.run("%more").content["ename"] == "UsageError"


def test_connect_info_tells_how_to_connect(kernel: Notebook) -> None:
    text = kernel.run("%connect_info").stdout
    info = json.loads(text[: text.index("\n}") + 2])
    assert info["shell_port"] == kernel.client.get_connection_info()["shell_port"]
    assert "--existing" in text


def test_clear_clears_the_output(kernel: Notebook) -> None:
    assert kernel.run("%clear").contents("clear_output") == [{"wait": False}]


def test_edit_is_ours_also_after_load(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("x = 1\n")
    kernel.run(f"%load {tmp_path}/m.py")
    payload = kernel.run(f"%ed {tmp_path}/m.py").content["payload"]
    assert [p["source"] for p in payload] == ["edit_magic"]


def test_a_run_file_sees_its_arguments(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nprint(sys.argv[1:], __name__)\nmade = 5\n")
    result = kernel.run(f"%run {tmp_path}/script.py a b")
    assert result.stdout == "['a', 'b'] __main__\n"
    assert kernel.run("made").text == "5"


def test_variables_can_be_stored(kernel: Notebook) -> None:
    kernel.run("stored_value = [1, 2]\n%store stored_value\ndel stored_value")
    assert kernel.run("%store -r stored_value\nstored_value").text == "[1, 2]"


def test_a_cell_finds_the_environment_of_a_notebook(kernel: Notebook) -> None:
    names = ["TERM", "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "PAGER", "GIT_PAGER", "MPLBACKEND"]
    result = kernel.run(f"import os\n[os.environ[n] for n in {names}]")
    assert ast.literal_eval(result.text or "") == [
        "xterm-color",
        "1",
        "1",
        "1",
        "cat",
        "cat",
        "module://matplotlib_inline.backend_inline",
    ]


def test_a_cell_is_the_main_module(kernel: Notebook) -> None:
    assert kernel.run("__name__").text == "'__main__'"
    assert kernel.run("import sys; sys.modules['__main__'].__dict__ is globals()").text == "True"
    assert kernel.run("'__file__' in globals(), __spec__").text == "(False, None)"
    assert kernel.run("sys.argv[0].endswith('ipykernel_launcher.py'), sys.argv[1]").text == "(True, '-f')"


def test_functions_of_a_notebook_can_be_pickled_and_spawned(kernel: Notebook) -> None:
    kernel.run("import pickle, multiprocessing as mp, sys\ndef double(x): return 2 * x\nclass Point: pass")
    assert kernel.run("pickle.loads(pickle.dumps(double))(4)").text == "8"
    assert kernel.run("type(pickle.loads(pickle.dumps(Point()))) is Point").text == "True"
    result = kernel.run(
        "import os\nwith mp.get_context('spawn').Pool(1) as p: print(p.apply(os.getpid) != os.getpid())"
    )
    assert result.stdout == "True\n"
    result = kernel.run("with mp.get_context('fork').Pool(2) as p: print(p.map(double, [1, 2, 3]))")
    assert result.stdout == "[2, 4, 6]\n"


def test_the_working_directory_can_be_imported_from(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    (tmp_path / "beside.py").write_text("value = 11\n")
    (tmp_path / "random.py").write_text("raise RuntimeError('shadowed')\n")
    kernel = new_kernel(cwd=tmp_path)
    assert kernel.run("import beside, random; beside.value").text == "11"
    assert kernel.run("import sys; '' in sys.path").text == "True"


def test_breakpoint_talks_over_stdin(kernel: Notebook) -> None:
    result = kernel.run("value = 9\nbreakpoint()\nprint('after')", answers=["p value + 1", "c"])
    assert "10" in result.stdout
    assert result.stdout.endswith("after\n")
    assert result.status == "ok"


def test_post_mortem_debugging_works(kernel: Notebook) -> None:
    kernel.run("def fail(inner): return inner / 0")
    kernel.run("fail(41)")
    result = kernel.run("%debug", answers=["p inner", "q"])
    assert "41" in result.stdout
    assert result.status == "ok"
