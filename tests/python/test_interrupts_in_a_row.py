"""However often somebody interrupts, and when: a cell that fails has one `error` and a reply that is the same."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SLOW = """
import asyncio, time
class Slow(Exception):
    def __str__(self):
        print("making", flush=True)
        time.sleep(0.3)
        return "slow to tell"
class Endless(Exception):
    def __str__(self):
        print("making", flush=True)
        while True: pass
"""


@pytest.fixture(scope="module")
def kernel(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec) as notebook:
        notebook.run(SLOW)
        yield notebook


def end(kernel: Notebook, cell: str, pause: float) -> Result:
    """Interrupt again and again until there is a reply: what was shown and answered is one error."""
    deadline = time.monotonic() + 60
    while cell not in kernel.replies:
        assert time.monotonic() < deadline
        kernel.ask("interrupt_request", {}, channel="control")  # answered: none is left for the next cell
        time.sleep(pause)
        for message in kernel._take(kernel.client.shell_channel, 0):
            kernel.replies[message["parent_header"]["msg_id"]] = message
    result = kernel.wait(cell)
    [error] = result.contents("error")
    assert error == {key: result.content[key] for key in ("ename", "evalue", "traceback")}
    return result


def until_told(kernel: Notebook, cell: str) -> None:
    """Wait until the traceback is being made; what is shown meanwhile stays to be looked at."""
    kernel.strays += kernel.wait_for_text(cell, "making")


@pytest.fixture(params=["plain", "awaiting", "beside"])
def where(request: pytest.FixtureRequest, kernel: Notebook) -> Iterator[tuple[str, str | None]]:
    """What a cell begins with, and its subshell."""
    if request.param != "beside":
        yield ("await asyncio.sleep(0)\n" if request.param == "awaiting" else ""), None
        return
    made = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    yield "", made
    kernel.ask("delete_subshell_request", {"subshell_id": made}, channel="control")


def test_an_interrupt_while_the_traceback_is_made_leaves_one_error(
    kernel: Notebook, where: tuple[str, str | None]
) -> None:
    begin, subshell = where
    cell = kernel.send(begin + "raise Slow", subshell=subshell)
    until_told(kernel, cell)
    result = end(kernel, cell, 0.05)
    assert (result.content["ename"], result.content["evalue"]) == ("Slow", "slow to tell")
    assert "raise Slow" in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert kernel.run("'fine'").text == "'fine'"


@pytest.mark.parametrize("begin", ["", "await asyncio.sleep(0)\n"], ids=["plain", "awaiting"])
def test_a_traceback_that_never_gets_ready_is_left_by_an_interrupt(kernel: Notebook, begin: str) -> None:
    cell = kernel.send(begin + "raise Endless")
    until_told(kernel, cell)
    result = end(kernel, cell, 0.3)
    assert (result.content["ename"], result.content["evalue"]) == (
        "Endless",
        "<Endless whose str() takes long>",
    )
    assert kernel.run("'fine'").text == "'fine'"


@pytest.mark.parametrize(
    "code",
    [
        "print('begun', flush=True)\nwhile True: pass",
        "print('begun', flush=True)\nawait asyncio.sleep(600)",
        "print('begun', flush=True)\ntime.sleep(600)",
        "print('begun', flush=True)\ntry: time.sleep(600)\nfinally: {}['gone']",
    ],
    ids=["loop", "await", "sleep", "finally"],
)
def test_many_interrupts_in_a_row_leave_one_error(kernel: Notebook, code: str) -> None:
    for turn in range(8):
        cell = kernel.send(code)
        kernel.strays += kernel.wait_for_text(cell, "begun")
        result = end(kernel, cell, turn * 0.002)
        assert result.content["ename"] in ("KeyboardInterrupt", "KeyError")
    assert kernel.run("'fine'").text == "'fine'"


def test_an_interrupt_of_a_cell_that_shows_errors_itself_is_felt(kernel: Notebook) -> None:
    code = "shell = get_ipython()\nwhile True:\n    try: raise Slow\n    except Slow: shell.showtraceback()\n"
    cell = kernel.send(code)
    until_told(kernel, cell)
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    names = [error["ename"] for error in result.contents("error")]
    assert names == ["Slow"] * (len(names) - 1) + ["KeyboardInterrupt"]
