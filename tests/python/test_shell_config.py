"""Configuration, start-up files and extensions, as ipykernel loads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from notebook import Notebook


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The default profile of an IPYTHONDIR of the test's own."""
    folder = tmp_path / "profile_default"
    (folder / "startup").mkdir(parents=True)
    return folder


def test_configuration_start_up_files_and_lines_are_loaded(
    new_kernel: Callable[..., Notebook], profile: Path, tmp_path: Path
) -> None:
    (profile / "ipython_config.py").write_text(
        "c = get_config()\nc.InteractiveShellApp.exec_lines = ['from_line = 1']\n"
        "c.InteractiveShell.ast_node_interactivity = 'all'\n"
    )
    (tmp_path / "run_me.py").write_text("from_file = 2\n")
    (profile / "ipython_kernel_config.py").write_text(
        f"c = get_config()\nc.IPKernelApp.exec_files = [{str(tmp_path / 'run_me.py')!r}]\n"
        "c.InteractiveShellApp.extensions = ['my_extension']\n"
    )
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "my_extension.py").write_text(
        "def load_ipython_extension(shell): shell.user_ns['from_extension'] = 3\n"
    )
    (profile / "startup" / "10-first.py").write_text("from_startup = 4\n")
    (profile / "startup" / "20-second.ipy").write_text(
        "from_magic = get_ipython().run_line_magic('pwd', '')\n"
    )
    (tmp_path / "pythonstartup.py").write_text("from_pythonstartup = 5\n")
    kernel = new_kernel(
        env={
            "IPYTHONDIR": str(tmp_path),
            "PYTHONPATH": str(tmp_path / "modules"),
            "PYTHONSTARTUP": str(tmp_path / "pythonstartup.py"),
        }
    )
    result = kernel.run(
        "(from_line, from_file, from_extension, from_startup, from_pythonstartup)\nbool(from_magic)"
    )
    assert [c["data"]["text/plain"] for c in result.contents("execute_result")] == ["(1, 2, 3, 4, 5)", "True"]
    assert kernel.run("%who_ls").text == "[]"


def test_arguments_of_the_command_line_configure(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel(
        arguments=["--InteractiveShellApp.exec_lines=from_argument = 6", "--IPKernelApp.matplotlib=agg"]
    )
    assert kernel.run("from_argument").text == "6"


def test_a_broken_start_up_file_does_not_stop_the_kernel(
    new_kernel: Callable[..., Notebook], profile: Path, tmp_path: Path
) -> None:
    (profile / "startup" / "bad.py").write_text("1 / 0\n")
    (profile / "ipython_config.py").write_text(
        "c = get_config()\nc.InteractiveShellApp.extensions = ['no_such_one']\n"
    )
    kernel = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    assert kernel.run("1 + 1").text == "2"


def test_the_session_has_a_name(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel(env={"JPY_SESSION_NAME": "/home/me/lesson.ipynb"})
    assert kernel.run("__session__").text == "'/home/me/lesson.ipynb'"


def test_the_configuration_names_the_connection_file(kernel: Notebook) -> None:
    path = kernel.manager.connection_file
    assert kernel.run("get_ipython().config['IPKernelApp']['connection_file']").text == repr(path)
    assert kernel.run("'IPKernelApp' in get_ipython().config").text == "True"


def test_autoreload_loads_a_changed_module(kernel: Notebook, tmp_path: Path) -> None:
    (tmp_path / "changing.py").write_text("def f(): return 1\n")
    kernel.run(
        f"%load_ext autoreload\n%autoreload 2\nimport sys; sys.path.insert(0, {str(tmp_path)!r})\nimport changing"
    )
    assert kernel.run("changing.f()").text == "1"
    (tmp_path / "changing.py").write_text("def f():\n    return 'longer than before'\n")
    assert kernel.run("changing.f()").text == "'longer than before'"


def test_garbage_is_collected_and_the_notebooks_names_are_found(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    code = (
        "import gc, weakref\n"
        "class Ring: pass\n"
        "ring = Ring(); ring.itself = ring; gone = weakref.ref(ring); del ring\n"
        "filling = [[] for _ in range(100_000)]\n"
        "kept = ['kept']\n"
        "gc.isenabled(), gone() is None, any(one is globals() for one in gc.get_referrers(kept))"
    )
    assert kernel.run(code).text == "(True, True, True)"
