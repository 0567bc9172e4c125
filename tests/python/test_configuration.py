"""Extensions and settings that live longer than a cell: stored variables, reloaded modules, options."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from notebook import Notebook


def test_stored_variables_come_back_where_that_is_configured(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    (tmp_path / "profile_default").mkdir()
    config = tmp_path / "profile_default" / "ipython_kernel_config.py"
    config.write_text(
        "c = get_config()\nc.StoreMagics.autorestore = True\nc.InteractiveShellApp.extensions = ['storemagic']\n"
    )
    first = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    assert first.run("kept = {'a': [1, 2]}\n%store kept").stdout == "Stored 'kept' (dict)\n"
    first.ask("shutdown_request", {"restart": False}, channel="control")
    second = new_kernel(env={"IPYTHONDIR": str(tmp_path)})
    assert second.run("kept").text == "{'a': [1, 2]}"


def test_changed_modules_are_loaded_again(new_kernel: Callable[..., Notebook], tmp_path: Path) -> None:
    for name in ("marked", "other"):
        (tmp_path / f"{name}.py").write_text("def value(): return 1\n")
    kernel = new_kernel(cwd=tmp_path)

    def change(name: str, number: int) -> None:
        time.sleep(0.02)
        path = tmp_path / f"{name}.py"
        path.write_text(f"def value(): return {number}  {'#' * number}\n")

    kernel.run("%load_ext autoreload\n%autoreload 1\n%aimport marked\nimport other\nfrom other import value")
    change("marked", 2)
    change("other", 2)
    assert kernel.run("marked.value(), other.value()").text == "(2, 1)"
    kernel.run("%autoreload 2")
    kernel.run("other.value()")  # now it is watched
    change("other", 3)
    assert kernel.run("marked.value(), other.value(), value()").text == "(2, 3, 3)"
    kernel.run("%autoreload 3")
    (tmp_path / "other.py").write_text("def value(): return 4  ####\ndef added(): return 5\n")
    assert kernel.run("other.value(), value(), other.added()").text == "(4, 4, 5)"
    kernel.run("%autoreload 0")
    change("other", 6)
    assert kernel.run("other.value()").text == "4"


def test_options_of_the_command_line_reach_the_shell(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel(
        arguments=[
            "--InteractiveShell.ast_node_interactivity=all",
            "--IPKernelApp.exec_lines=chosen = 6",
            "--InteractiveShell.xmode=Minimal",
            "--HistoryManager.enabled=False",
        ]
    )
    result = kernel.run("chosen\nchosen + 1")
    assert [c["data"]["text/plain"] for c in result.contents("execute_result")] == ["6", "7"]
    assert len(kernel.run("1/0").content["traceback"]) == 1
    assert kernel.run("get_ipython().history_manager.enabled").text == "False"


def test_a_qt_console_that_is_not_installed_is_named(kernel: Notebook) -> None:
    assert kernel.run("%qtconsole").stderr == (
        "UsageError: %qtconsole: `qtconsole` is not installed; `%pip install qtconsole` first\n"
    )


def test_figures_can_be_drawn_without_a_front_end(kernel: Notebook) -> None:
    assert kernel.run("%matplotlib agg").status == "ok"
    assert kernel.run("import matplotlib; matplotlib.get_backend().lower()").text == "'agg'"
    assert kernel.run("%matplotlib inline").status == "ok"


def test_leaving_can_keep_the_kernel(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    for code in ("exit(keep_kernel=True)", "quit(keep_kernel=True)"):
        payload = kernel.run(code).content["payload"]
        assert payload == [{"source": "ask_exit", "keepkernel": True}]
    assert kernel.run("1 + 1").text == "2"
