"""The end of a kernel, whatever it is doing: in time, with its exit functions run and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from notebook import PATIENCE, Notebook

pytestmark = pytest.mark.alone

#: jupyter_client sends SIGTERM 2.5 s after its request, and SIGKILL at twice that. The kernel's own
#: budget is 2.2 s; the rest is for a machine that is busy.
IN_TIME = 4.0

FAMILY = """
import json, multiprocessing, os, subprocess, sys, time
pids = []
def note(pid): pids.append(int(pid))
note(subprocess.Popen(["sleep", "600"]).pid)
deaf = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
note(deaf.pid); note(deaf.stdout.readline())
with open("background", "w") as file: pass
get_ipython().system("sleep 600 & echo $! > background")
note(open("background").read())
daemon = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\nif os.fork(): os._exit(0)\\nprint(os.getpid(), flush=True)\\ntime.sleep(600)"
note(subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE, text=True).stdout.readline())
def forked(queue):
    os.setsid()
    if os.fork(): os._exit(0)
    queue.put(os.getpid())
    while True: time.sleep(600)
queue = multiprocessing.get_context("fork").Queue()
multiprocessing.get_context("fork").Process(target=forked, args=(queue,)).start()
note(queue.get())
worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
worker.start(); note(worker.pid)
print(json.dumps(pids))
"""


def alive(pid: int) -> bool:
    """There, and not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"


def remember_exit(kernel: Notebook, path: Path) -> None:
    """Let an exit function write to `path`."""
    code = f"import atexit, pathlib\natexit.register(lambda: pathlib.Path({str(path)!r}).write_text('ran'))"
    assert kernel.run(code).status == "ok"


def wait_for_end(kernel: Notebook) -> int:
    """The exit code; fails when it takes too long."""
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    return process.wait(IN_TIME)


def shut_down(kernel: Notebook) -> None:
    """Ask for the end; it must be answered first, and in time."""
    begin = time.monotonic()
    kernel.client.shutdown(restart=False)
    assert kernel.client.get_control_msg(timeout=PATIENCE)["msg_type"] == "shutdown_reply"
    assert wait_for_end(kernel) == 0
    assert time.monotonic() - begin < IN_TIME


def start_family(kernel: Notebook) -> list[int]:
    """Processes of every kind, alive."""
    result = kernel.run(FAMILY)
    assert result.status == "ok", result.content
    pids = json.loads(result.stdout.splitlines()[-1])
    assert (len(pids), all(alive(pid) for pid in pids)) == (7, True)
    return pids


def ended(pids: list[int]) -> bool:
    """All of them gone, at most a moment later."""
    deadline = time.monotonic() + 1
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("busy", ["", "while True: pass", "!sleep 600"], ids=["idle", "loop", "command"])
def test_nothing_a_cell_started_outlives_the_kernel(
    new_kernel: Callable[..., Notebook], tmp_path: Path, busy: str
) -> None:
    kernel = new_kernel(cwd=tmp_path)
    remember_exit(kernel, tmp_path / "exit")
    pids = start_family(kernel)
    if busy:
        kernel.send(busy)
        time.sleep(0.3)
    shut_down(kernel)
    assert ended(pids)
    assert (tmp_path / "exit").read_text() == "ran"


TRAINING = """
import os, torch, torch.distributed, warnings
from torch.utils.data import DataLoader, TensorDataset
warnings.simplefilter("ignore")
torch.distributed.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0, world_size=1)
x = torch.randn(64, 64).to("tpu")
loaders = [DataLoader(TensorDataset(torch.arange(100)), num_workers=2, persistent_workers=True, multiprocessing_context=how) for how in ("fork", "spawn")]
iterators = [iter(loader) for loader in loaders]
for iterator in iterators: next(iterator)
pids = [worker.pid for iterator in iterators for worker in iterator._workers]
print(*pids)
"""


def test_a_kernel_that_trains_ends_with_its_workers(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel(cwd=tmp_path)
    result = kernel.run(TRAINING)
    assert result.status == "ok", result.content
    pids = [int(pid) for pid in result.stdout.split()]
    assert len(pids) == 4
    remember_exit(kernel, tmp_path / "exit")
    kernel.send(
        "subprocess = __import__('subprocess').Popen(['sleep', '600'])\nwhile True: x = (x @ x).tanh()"
    )
    time.sleep(1)
    shut_down(kernel)
    assert ended(pids)
    assert (tmp_path / "exit").read_text() == "ran"


def test_c_code_that_holds_the_gil_does_not_keep_the_kernel(new_kernel: Callable[..., Notebook]) -> None:
    kernel = new_kernel()
    kernel.send("sum(range(10**12))")
    time.sleep(0.5)
    shut_down(kernel)


def test_a_question_that_nobody_answers_does_not_keep_the_kernel(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    remember_exit(kernel, tmp_path / "exit")
    kernel.send("input('Who? ')", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"] == "Who? "
    shut_down(kernel)
    assert (tmp_path / "exit").read_text() == "ran"


def test_an_exit_function_that_does_not_end_is_cut_off(
    new_kernel: Callable[..., Notebook], tmp_path: Path
) -> None:
    kernel = new_kernel()
    kernel.run("import atexit, time\natexit.register(time.sleep, 600)")
    remember_exit(kernel, tmp_path / "exit")  # runs first: the last one registered
    shut_down(kernel)
    assert (tmp_path / "exit").read_text() == "ran"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("busy", ["", "while True: pass"], ids=["idle", "busy"])
def test_a_signal_ends_the_kernel_as_a_request_does(
    new_kernel: Callable[..., Notebook], tmp_path: Path, number: int, busy: str
) -> None:
    # Under nohup SIGHUP is ignored, and what starts there inherits that.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        kernel = new_kernel()
    finally:
        signal.signal(number, before)
    remember_exit(kernel, tmp_path / "exit")
    pid = int(kernel.run("import subprocess; subprocess.Popen(['setsid', 'sleep', '600']).pid").text or 0)
    kernel.send(busy)
    time.sleep(0.3)
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    process.send_signal(number)
    assert wait_for_end(kernel) == 128 + number
    assert ended([pid])
    assert (tmp_path / "exit").read_text() == "ran"


def test_a_kernel_whose_parent_dies_takes_its_processes_along(kernelspec: str, tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom jupyter_client.manager import start_new_kernel\n"
        f"m, c = start_new_kernel(kernel_name={kernelspec!r})\n"
        'c.execute_interactive(\'import os, subprocess; print(os.getpid(), subprocess.Popen(["setsid", "sleep", "600"]).pid)\','
        " output_hook=lambda m: print(m['content'].get('text', ''), end='') if m['msg_type'] == 'stream' else None)\n"
        "sys.stdout.flush(); os._exit(0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    pids = [int(word) for word in run.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.parametrize("now", [False, True], ids=["asked", "killed"])
def test_a_restart_leaves_no_process_of_the_life_before(
    new_kernel: Callable[..., Notebook], tmp_path: Path, now: bool
) -> None:
    kernel = new_kernel(cwd=tmp_path)
    pids = start_family(kernel)
    kernel.send("while True: pass")
    time.sleep(0.3)
    kernel.manager.restart_kernel(now=now)
    kernel.client.wait_for_ready(timeout=PATIENCE)
    assert kernel.run("'pids' in globals()").text == "False"
    deadline = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [pid for pid in pids if alive(pid)] == []


def test_nbclient_leaves_nothing_behind(kernelspec: str) -> None:
    code = "import os, subprocess; print(os.getpid(), subprocess.Popen(['setsid', 'sleep', '600']).pid)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, kernel_name=kernelspec, timeout=PATIENCE).execute()
    pids = [int(word) for word in notebook.cells[0].outputs[0].text.split()]
    assert (len(pids), ended(pids)) == (2, True)


def test_a_process_that_gave_up_the_variable_and_the_session_stays(
    new_kernel: Callable[..., Notebook],
) -> None:
    kernel = new_kernel()
    result = kernel.run(
        "import subprocess, time\n"
        "subprocess.run('env -u TPU_KERNEL_OWNER setsid -f sh -c \"echo \\$\\$ > /dev/shm/kept-$PPID; exec sleep 600\"', shell=True)\n"
        "time.sleep(0.3); import os; name = f'/dev/shm/kept-{os.getpid()}'; print(open(name).read()); os.remove(name)"
    )
    pid = int(result.stdout)
    try:
        shut_down(kernel)
        assert alive(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_children_of_cells_are_theirs_alone(kernel: Notebook) -> None:
    code = (
        "import os, subprocess, sys\n"
        "for _ in range(3): get_ipython().system('true')\n"
        "subprocess.run(['true'])\n"
        "subprocess.run('setsid -f sleep 0.1', shell=True)\n"
        "import time; time.sleep(0.5)\n"
        "try: os.wait()\n"
        "except ChildProcessError: print('no child')\n"
        "pid = os.fork()\n"
        "if pid == 0: os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL)"
    )
    assert kernel.run(code).stdout == "no child\n7\nTrue\n"
