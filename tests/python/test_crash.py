"""A crash in C or C++: the notebook says what happened before the kernel's process ends."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook import PATIENCE, Notebook, Result

NULL = "import ctypes\ndef read():\n    ctypes.string_at(0)\nread()"


GATE = "import os, time\nwhile not os.path.exists({path!r}): time.sleep(0.01)"


def crash(kernel: Notebook, code: str, number: int) -> Result:
    """Run `code`; it must answer with an error, and the process must die of signal `number`."""
    with tempfile.TemporaryDirectory() as folder:
        # nothing runs before the kernel has read all three cells: it answers what comes behind them
        gate = kernel.send(GATE.format(path=f"{folder}/open"), silent=True)
        cell = kernel.send(code)
        behind = kernel.send("1 + 1")
        kernel.ask("kernel_info_request", {})
        Path(folder, "open").touch()
        assert kernel.wait(gate).status == "ok"
    result = kernel.wait(cell)
    assert kernel.wait(behind).status == "aborted"
    assert (result.status, result.content["ename"]) == ("error", signal.Signals(number).name)
    assert [e["traceback"] for e in result.contents("error")] == [result.content["traceback"]]
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    assert process.wait(PATIENCE) == -number
    return result


def frames(result: Result) -> list[str]:
    """The Python stack, innermost call first, as `line N in name`."""
    return [line.split(", ", 1)[1] for line in result.content["traceback"] if line.startswith("  File ")]


def test_a_segmentation_fault_is_told_with_address_and_stack(new_kernel: Callable[..., Notebook]) -> None:
    result = crash(new_kernel(), NULL, signal.SIGSEGV)
    assert result.content["evalue"] == (
        "the kernel's process ended in cell [1] by SIGSEGV (segmentation fault at address 0x0). "
        "Variables are lost; restart the kernel"
    )
    assert frames(result)[1:] == ["line 3 in read", "line 4 in <module>"]


@pytest.mark.parametrize(
    ("number", "what", "code"),
    [
        (signal.SIGABRT, "aborted", "import os\nos.abort()"),
        (signal.SIGFPE, "arithmetic fault", "import os, signal\nos.kill(os.getpid(), signal.SIGFPE)"),
        (
            signal.SIGILL,
            "illegal instruction",
            "import os, signal\nos.kill(os.getpid(), signal.SIGILL)",
        ),
        (
            signal.SIGABRT,
            "aborted: terminate called without an active exception",
            "import ctypes\nctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()",
        ),
        (
            signal.SIGABRT,
            "aborted: F0000 00:00:1.5 77 partitioner.cc:269] Check failed: a.size() == 1",
            (
                "import os\nos.write(2, b'''F0000 00:00:1.5 77 partitioner.cc:269] Check failed: a.size() == 1\n"
                "*** Check failure stack trace: ***\n    @ 0x7f0011 absl::Die\n''')\nos.abort()"
            ),
        ),
        (
            signal.SIGSEGV,
            "segmentation fault, the stack overflowed (a recursion too deep)",
            "import ctypes, sys\nsys.setrecursionlimit(10**9)\n@ctypes.CFUNCTYPE(None)\ndef deeper(): deeper()\ndeeper()",
        ),
    ],
    ids=["abort", "division", "instruction", "terminate", "check", "overflow"],
)
def test_each_way_to_crash_is_named(
    new_kernel: Callable[..., Notebook], number: int, what: str, code: str
) -> None:
    result = crash(new_kernel(), code, number)
    assert f" ({what}). Variables are lost" in result.content["evalue"]


def test_a_bus_error_is_told(new_kernel: Callable[..., Notebook]) -> None:
    code = (
        "import mmap, tempfile\nfile = tempfile.TemporaryFile()\nfile.truncate(4096)\n"
        "view = mmap.mmap(file.fileno(), 4096)\nfile.truncate(0)\nview[0]"
    )
    result = crash(new_kernel(), code, signal.SIGBUS)
    assert "(bus error at address 0x" in result.content["evalue"]
    assert frames(result) == ["line 6 in <module>"]


def test_a_broken_heap_is_told_though_the_allocator_is_locked(new_kernel: Callable[..., Notebook]) -> None:
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
        "libc.free.argtypes = [ctypes.c_void_p]\n"
        "blocks = [libc.malloc(2000) for _ in range(20)]\n"
        "for block in blocks: ctypes.memset(block - 16, 0xff, 4000)\n"
        "for block in blocks: libc.free(block)\nblocks = [libc.malloc(3000) for _ in range(20)]"
    )
    result = crash(new_kernel(), code, signal.SIGABRT)
    assert "malloc" in result.content["evalue"] or "free()" in result.content["evalue"]


def test_a_crash_in_a_thread_shows_both_stacks(new_kernel: Callable[..., Notebook]) -> None:
    code = (
        "import ctypes, threading, time\ndef fall():\n    time.sleep(0.3)\n    ctypes.string_at(8)\n"
        "threading.Thread(target=fall).start()\nwhile True: pass"
    )
    result = crash(new_kernel(), code, signal.SIGSEGV)
    assert "line 4 in fall" in frames(result)
    assert frames(result)[-1] == "line 6 in <module>"


def test_a_crash_between_cells_is_told_under_the_last_one(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    cell = kernel.send(
        "import ctypes, threading, time\n"
        "threading.Timer(0.5, lambda: ctypes.string_at(8)).start()\nprint('done')"
    )
    assert kernel.wait(cell).stdout == "done\n"
    kernel.wait_for_text(cell, "the kernel's process ended by SIGSEGV (segmentation fault at address 0x8)")


def test_what_c_wrote_before_the_crash_is_shown(new_kernel: Callable[..., Notebook]) -> None:
    code = "import os\nos.write(2, b'one\\ntwo\\n')\nos.abort()"
    result = crash(new_kernel(), code, signal.SIGABRT)
    assert result.stderr == "one\ntwo\n"
    assert result.content["traceback"][-3:] == ["The last lines on stderr:", "one", "two"]


def test_nbclient_fails_with_the_reason(kernelspec: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(NULL)])
    with pytest.raises(CellExecutionError, match="segmentation fault at address 0x0"):
        NotebookClient(notebook, kernel_name=kernelspec, timeout=PATIENCE).execute()
    assert notebook.cells[0].outputs[0].ename == "SIGSEGV"


def test_a_forked_child_that_crashes_is_no_crash_of_the_kernel(kernel: Notebook) -> None:
    result = kernel.run(
        "import ctypes, os\npid = os.fork()\nif pid == 0: ctypes.string_at(0)\nprint(os.waitpid(pid, 0)[1] & 127)"
    )
    assert (result.status, result.stdout) == ("ok", "11\n")
    assert "Fatal Python error: Segmentation fault" in result.stderr
    assert kernel.run("'alive'").text == "'alive'"


def test_a_child_process_that_aborts_is_no_crash_of_the_kernel(kernel: Notebook) -> None:
    result = kernel.run(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os; os.abort()']).returncode"
    )
    assert (result.text, kernel.run("'alive'").text) == ("-6", "'alive'")


def test_the_notebooks_own_faulthandler_file_gets_the_stack(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    path = tmp_path / "stack.txt"
    kernel = new_kernel()
    result = kernel.run(
        f"import faulthandler\nprint(faulthandler.is_enabled())\nfile = open({str(path)!r}, 'w')\n"
        "faulthandler.enable(file)\nprint(faulthandler.is_enabled())"
    )
    assert result.stdout == "False\nTrue\n"
    crash(kernel, "import os\nos.abort()", signal.SIGABRT)
    assert path.read_text().startswith("Fatal Python error: Aborted\n")


def test_the_notebooks_own_handler_is_called(kernel: Notebook) -> None:
    result = kernel.run(
        "import os, signal\nbefore = signal.signal(signal.SIGFPE, lambda *_: print('mine'))\n"
        "os.kill(os.getpid(), signal.SIGFPE)\nimport time; time.sleep(0.05)"
    )
    assert result.stdout == "mine\n"
    assert kernel.run("'alive'").text == "'alive'"


def test_children_end_with_a_kernel_that_crashes(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    pid = int(kernel.run("import subprocess; subprocess.Popen(['sleep', '600']).pid").text or 0)
    crash(kernel, "import os\nos.abort()", signal.SIGABRT)
    until(lambda: not os.path.exists(f"/proc/{pid}"))


#: The io thread gets next to no time as the cell crashes: what a front end sends meanwhile it finds at its
#: socket together with the news of the crash.
LATE = """
import os, pathlib, signal, subprocess, sys
[io] = [int(t) for t in os.listdir('/proc/self/task') if 'tpu-kernel-io' in pathlib.Path(f'/proc/self/task/{{t}}/comm').read_text()]
core = {{min(os.sched_getaffinity(0))}}
hog = 'import os, sys\\nwhile not os.path.exists(sys.argv[1]): pass'
hogs = [subprocess.Popen([sys.executable, '-c', hog, {path!r}]) for _ in range(2)]
for hog in hogs: os.sched_setaffinity(hog.pid, core)
os.sched_setaffinity(io, core)
os.sched_setscheduler(io, os.SCHED_IDLE, os.sched_param(0))
os.kill(os.getpid(), signal.SIGSTOP)
os.abort()
"""


def until(holds: Callable[[], bool]) -> None:
    """Wait for a state."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def unread(port: int) -> int:
    """Bytes that have reached connections of this port of this machine, and that nobody has read."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    connected = [row for row in rows if int(row[1].split(":")[1], 16) == port and row[3] == "01"]
    return sum(int(row[4].split(":")[1], 16) for row in connected)


def test_a_cell_that_comes_as_the_kernel_crashes_is_answered(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    pid = kernel.manager.provisioner.process.pid  # type: ignore[union-attr]
    cell = kernel.send(LATE.format(path=str(tmp_path / "enough")))
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    behind = [kernel.send("1 + 1") for _ in range(3)]
    until(lambda: unread(kernel.manager.shell_port) > 0)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    (tmp_path / "enough").touch()
    assert kernel.wait(cell).content["ename"] == "SIGABRT"
    assert [kernel.wait(one).status for one in behind] == ["aborted"] * 3
