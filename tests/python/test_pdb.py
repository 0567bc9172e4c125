"""Python's own debugger in a cell: it asks below the cell, and can be left."""

from __future__ import annotations

import re
import time
from pathlib import Path

from notebook import PATIENCE, Notebook, Result

FAIL = "def divide(number):\n    return number / 0\ndivide(7)"


def told(result: Result) -> list[str]:
    """What was printed and asked, in order: `> prompt` for a question."""
    lines: list[str] = []
    for message in result.messages:
        content = message["content"]
        if message["msg_type"] == "input_request":
            lines.append(f"> {content['prompt']}")
        elif message["msg_type"] == "stream":
            lines += [line for line in plain(content["text"]).splitlines() if line.strip()]
    return lines


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def prompts(result: Result) -> list[str]:
    """The questions."""
    return [m["content"]["prompt"] for m in result.messages if m["msg_type"] == "input_request"]


def test_a_breakpoint_in_the_code_asks_below_the_cell(kernel: Notebook) -> None:
    code = "def work():\n    inner = 41\n    breakpoint()\n    inner += 1\n    return inner\nwork()"
    result = kernel.run(code, answers=["p inner", "n", "p inner + 100", "c"])
    assert (result.status, result.text) == ("ok", "42")
    assert prompts(result) == ["ipdb> "] * 4
    lines = told(result)
    asked = [number for number, line in enumerate(lines) if line == "> ipdb> "]
    assert "41" in lines[asked[0] + 1 : asked[1]]
    assert "142" in lines[asked[2] + 1 : asked[3]]
    assert "".join(lines).count("ipdb>") == 4


def test_set_trace_of_pdb_asks_too(kernel: Notebook) -> None:
    result = kernel.run("import pdb\nkept = 1\npdb.set_trace()\nkept += 1\nkept", answers=["kept = 10", "c"])
    assert (result.status, result.text) == ("ok", "11")
    assert prompts(result) == ["ipdb> "] * 2


def test_debug_looks_at_the_last_error(kernel: Notebook) -> None:
    assert kernel.run(FAIL).content["ename"] == "ZeroDivisionError"
    result = kernel.run("%debug", answers=["p number", "u", "q"])
    assert result.status == "ok"
    lines = told(result)
    assert "7" in lines
    assert any("divide(7)" in line for line in lines)


def test_pdb_on_asks_when_a_cell_fails(kernel: Notebook) -> None:
    kernel.run("%pdb on")
    try:
        result = kernel.run(FAIL, answers=["p number * 2", "q"])
    finally:
        kernel.run("%pdb off")
    assert result.content["ename"] == "ZeroDivisionError"
    assert "14" in told(result)
    assert len(prompts(result)) == 2


def test_a_script_runs_under_the_debugger(kernel: Notebook, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("first = 1\nsecond = first + 1\nprint('second', second)\n")
    result = kernel.run(f"%run -d {script}", answers=["n", "n", "p second * 50", "c", "q"])
    assert "100" in told(result)
    assert "second 2" in told(result)


def test_interrupting_a_debugger_that_asks_ends_the_cell(kernel: Notebook) -> None:
    msg_id = kernel.send("breakpoint()\nlate = 1", allow_stdin=True)
    deadline = time.monotonic() + PATIENCE
    while not kernel._take(kernel.client.stdin_channel, 0.05):
        assert time.monotonic() < deadline
    kernel.interrupt()
    result = kernel.wait(msg_id)
    assert result.content["ename"] == "KeyboardInterrupt"
    assert kernel.run("'late' in globals()").text == "False"


def test_a_front_end_that_cannot_be_asked_is_told(kernel: Notebook) -> None:
    result = kernel.run("breakpoint()")
    assert result.status == "error"
    assert "takes no input" in result.content["evalue"]
    assert kernel.run("1 + 1").text == "2"
