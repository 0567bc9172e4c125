"""Processes that a cell forks: they have the kernel's memory, none of its threads and no way to the notebook."""

from __future__ import annotations

from notebook import Notebook

#: Runs `work` in a forked child, for at most a minute; what it returns.
FORK = """
import os, pickle, select, signal

def in_child(work):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    told = b"" if select.select([reader], [], [], 60)[0] == [] else os.read(reader, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reader)
    return pickle.loads(told) if told else None
"""


def test_files_that_a_child_opens_are_open_in_its_own_children_too(kernel: Notebook) -> None:
    result = kernel.run(
        FORK + "\ndef are_open(files):\n"
        "    return [os.path.exists(f'/proc/self/fd/{file}') for file in files]\n"
        "def opens_and_forks():\n"
        "    files = [os.open('/dev/null', os.O_RDONLY) for _ in range(20)]\n"
        "    return in_child(lambda: are_open(files))\n"
        "in_child(opens_and_forks) == [True] * 20"
    )
    assert (result.status, result.text) == ("ok", "True")


def test_a_child_that_asks_for_input_is_told_why_it_cannot(kernel: Notebook) -> None:
    result = kernel.run(
        FORK + "\ndef asks():\n    try:\n        return input('name? ')\n"
        "    except Exception as failure:\n        return f'{type(failure).__name__}: {failure}'\n"
        "print(in_child(asks))",
        allow_stdin=True,
    )
    assert result.stdout == (
        "StdinNotImplementedError: input() cannot ask: a forked process does not reach the notebook; "
        "ask before it is forked\n"
    )
    assert kernel.run("1 + 1").text == "2"
