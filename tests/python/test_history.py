"""The history in `~/.ipython`: kept, and never in the way, whatever the file system does."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from notebook import PATIENCE, Notebook

pytestmark = pytest.mark.alone

WARNING = "history is not saved"

#: What a home directory on a bad network file system does to the history's file.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int concerned(int fd, const char *how) {
    char name[64], path[4096];
    const char *fault = getenv("HISTORY_FAULT");
    if (!fault || strcmp(fault, how)) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strstr(path, "history.sqlite") != NULL;
}

static int locks(int fd, int command, void *argument, const char *symbol) {
    if ((command == F_SETLK || command == F_SETLKW || command == F_GETLK) && concerned(fd, "stall"))
        for (;;) sleep(1000);
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, symbol);
    return real(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    return locks(fd, command, argument, "fcntl");
}

int fcntl64(int fd, int command, ...) {
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list);
    return locks(fd, command, argument, "fcntl64");
}

static ssize_t writes(int fd, const void *data, size_t size, off_t at, const char *symbol) {
    if (concerned(fd, "full")) { errno = ENOSPC; return -1; }
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, symbol);
    return real(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return writes(fd, data, size, at, "pwrite"); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) { return writes(fd, data, size, at, "pwrite64"); }
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that makes the file of the history stall, or full."""
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    compiler = shutil.which("cc") or "gcc"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(folder / "shim.so"),
        str(folder / "shim.c"),
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return folder / "shim.so"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory for IPython of this test's own."""
    folder = tmp_path / "ipython"
    folder.mkdir()
    return folder


def inputs(home: Path) -> list[list[str]]:
    """What is saved, a list for each session that has any."""
    path = home / "profile_default" / "history.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        rows = db.execute("SELECT session, source_raw FROM history ORDER BY session, line").fetchall()
    return [
        [source for number, source in rows if number == session] for session in sorted({r[0] for r in rows})
    ]


def shut_down(kernel: Notebook) -> None:
    """Ask for the end and wait for it."""
    kernel.client.shutdown(restart=False)
    kernel.manager.provisioner.process.wait(PATIENCE)  # type: ignore[union-attr]


def usable(kernel: Notebook) -> None:
    """Cells run, and their history is there though nothing is saved."""
    assert kernel.run("a = 1 + 1").status == "ok"
    assert kernel.run("a").text == "2"
    assert kernel.run("In[1]").text == "'a = 1 + 1'"
    assert kernel.run("%history -n 1-2").stdout.split("\n")[:2] == ["   1: a = 1 + 1", "   2: a"]


@pytest.mark.parametrize("fault", ["stall", "full"])
def test_a_bad_file_system_costs_a_warning_and_nothing_else(
    new_kernel: Callable[..., Notebook], home: Path, shim: Path, capfd: pytest.CaptureFixture[str], fault: str
) -> None:
    begin = time.monotonic()
    kernel = new_kernel(env={"IPYTHONDIR": str(home), "LD_PRELOAD": str(shim), "HISTORY_FAULT": fault})
    usable(kernel)
    assert time.monotonic() - begin < 15  # not the 5 s and more of each lock, on a busy machine
    time.sleep(2)
    usable_again = kernel.run("import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)[1]")
    assert usable_again.text == "0"
    tail = kernel.ask("history_request", {"hist_access_type": "tail", "n": 10, "raw": True, "output": False})
    assert "a = 1 + 1" in [entry[2] for entry in tail.content["history"]]
    shut_down(kernel)
    assert capfd.readouterr().err.count(WARNING) == 1


def test_a_place_that_cannot_be_written_costs_a_warning(
    new_kernel: Callable[..., Notebook], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel = new_kernel(
        env={"IPYTHONDIR": str(home)}, arguments=["--HistoryManager.hist_file=/proc/none/history.sqlite"]
    )
    usable(kernel)
    shut_down(kernel)
    assert capfd.readouterr().err.count(WARNING) == 1


def test_a_home_that_cannot_be_written_does_not_keep_the_kernel_from_starting(
    new_kernel: Callable[..., Notebook],
) -> None:
    kernel = new_kernel(env={"HOME": "/proc/none", "IPYTHONDIR": "/proc/none/ipython"})
    usable(kernel)


def test_a_database_that_another_program_locks_is_written_once_it_is_free(
    new_kernel: Callable[..., Notebook], home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = new_kernel(env={"IPYTHONDIR": str(home)})
    first.run("'first'")
    shut_down(first)
    db = sqlite3.connect(home / "profile_default" / "history.sqlite", isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    kernel = new_kernel(env={"IPYTHONDIR": str(home)})
    usable(kernel)
    time.sleep(1.5)
    db.execute("ROLLBACK")
    db.close()
    deadline = time.monotonic() + PATIENCE
    while len(inputs(home)) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert inputs(home) == [["'first'"], ["a = 1 + 1", "a", "In[1]", "%history -n 1-2"]]
    assert sorted(path.name for path in (home / "profile_default").glob("history*")) == ["history.sqlite"]
    assert capfd.readouterr().err.count(WARNING) == 1


def test_a_damaged_database_is_put_aside(new_kernel: Callable[..., Notebook], home: Path) -> None:
    profile = home / "profile_default"
    profile.mkdir()
    damaged = b"not a database, but someone's file" * 1000
    (profile / "history.sqlite").write_bytes(damaged)
    kernel = new_kernel(env={"IPYTHONDIR": str(home)})
    usable(kernel)
    shut_down(kernel)
    kept = list(profile.glob("history-corrupt-*.sqlite"))
    assert [path.read_bytes() for path in kept] == [damaged]
    assert inputs(home) == [["a = 1 + 1", "a", "In[1]", "%history -n 1-2"]]


def test_two_kernels_that_write_at_once_lose_nothing(new_kernel: Callable[..., Notebook], home: Path) -> None:
    kernels = [new_kernel(env={"IPYTHONDIR": str(home)}) for _ in range(2)]
    cells = [
        [kernel.send(f"{name} = {number}") for number in range(60)]
        for name, kernel in zip("ab", kernels, strict=True)
    ]
    for kernel, sent in zip(kernels, cells, strict=True):
        kernel.wait(sent[-1])
    for kernel in kernels:
        kernel.client.shutdown(restart=False)
    for kernel in kernels:
        kernel.manager.provisioner.process.wait(PATIENCE)  # type: ignore[union-attr]
    assert sorted(inputs(home)) == [[f"{name} = {number}" for number in range(60)] for name in "ab"]


def test_the_last_cell_before_sigterm_is_saved(new_kernel: Callable[..., Notebook], home: Path) -> None:
    kernel = new_kernel(env={"IPYTHONDIR": str(home)})
    kernel.run("'last words'")
    process = kernel.manager.provisioner.process  # type: ignore[union-attr]
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)
    assert inputs(home) == [["'last words'"]]
    with sqlite3.connect(home / "profile_default" / "history.sqlite") as db:
        assert db.execute("SELECT num_cmds, end IS NOT NULL FROM sessions").fetchall() == [(1, 1)]


def test_cells_after_a_fork_are_saved_too(new_kernel: Callable[..., Notebook], home: Path) -> None:
    kernel = new_kernel(env={"IPYTHONDIR": str(home)})
    kernel.run("import os\npid = os.fork()\nif pid == 0: os._exit(0)\n_ = os.waitpid(pid, 0)")
    kernel.run("'after'")
    shut_down(kernel)
    assert [session[-1] for session in inputs(home)] == ["'after'"]
