"""The numbers for others than a panel: `tpu-kernel top`, and metrics for a host's dashboard."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import running_kernel
from installed import LAUNCHER
from jupyter_client.manager import KernelManager
from notebook import PATIENCE, Notebook

PREPARE = "import torch\nx = torch.ones(1024, 1024, device='tpu')\nx.sum().item()"
HOLD_GIL = "import ctypes; print('begun', flush=True); ctypes.PyDLL(None).usleep(4_000_000)"
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the user's running programs."""
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str, runtime: Path) -> Iterator[Notebook]:
    """A kernel of a notebook, whose metrics are served."""
    env = {
        "XDG_RUNTIME_DIR": str(runtime),
        "JPY_SESSION_NAME": "/home/ada/training.ipynb",
        "TPU_KERNEL_METRICS": "0",
        "TPU_KERNEL_METRICS_TOKEN": TOKEN,
    }
    with running_kernel(kernelspec, env=env) as kernel:
        assert kernel.run(PREPARE).status == "ok"
        yield kernel


def run_top(runtime: Path, *arguments: str) -> str:
    """What `tpu-kernel top` prints."""
    env = os.environ | {"XDG_RUNTIME_DIR": str(runtime)}
    command = [str(LAUNCHER), "top", *arguments]
    outcome = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    return outcome.stdout


def told(runtime: Path, notebook: str) -> dict[str, Any]:
    """What `tpu-kernel top --json` says of the kernel of a notebook."""
    (found,) = [k for k in json.loads(run_top(runtime, "--json")) if k["notebook"] == notebook]
    return found


def ask(port: int, path: str = "/metrics", token: str | None = TOKEN) -> tuple[int, str]:
    """Status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def test_top_shows_each_kernel_with_its_notebook_also_while_the_gil_is_held(
    kernel: Notebook, runtime: Path, new_kernel: Callable[..., Notebook]
) -> None:
    other = new_kernel(env={"XDG_RUNTIME_DIR": str(runtime), "JPY_SESSION_NAME": "lesson/second.ipynb"})
    other.run("1")
    cell = kernel.send(HOLD_GIL)
    kernel.wait_for_text(cell, "begun")
    lines = run_top(runtime).splitlines()
    kernel.wait(cell)
    assert lines[0].split() == ["PID", "STATE", "CHIP", "HBM", "BUSY", "CPU", "MEMORY", "NOTEBOOK", "NOW"]
    (first,) = [line for line in lines if "training.ipynb" in line]
    assert re.search(r"busy \[\d+\] \d+ s  +TPU v5e \(emulated\)  +[\d.]+MiB/15.7GiB  +0%", first), first
    (second,) = [line for line in lines if "second.ipynb" in line]
    assert re.search(r"idle \d+ s  +-  +-  +0%", second), second


def test_top_tells_programs_all_there_is(kernel: Notebook, runtime: Path) -> None:
    found = told(runtime, "/home/ada/training.ipynb")
    assert found["pid"] == int(kernel.run("import os; os.getpid()").text or 0)
    assert (found["state"], found["device"]["name"]) == ("idle", "TPU v5e")
    assert 4 << 20 <= found["hbm_used"] <= found["hbm_peak"] < found["hbm_limit"] == 16_909_336_064
    assert found["connection_file"] == kernel.manager.connection_file
    assert found["cells"] >= 1
    assert found["idle_seconds"] < 60
    assert found["memory_bytes"] > 100 << 20


def test_nobody_else_can_ask_and_what_killed_kernels_leave_is_taken_away(
    runtime: Path, new_kernel: Callable[..., Notebook]
) -> None:
    folder = runtime / "tpu-kernel"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    env = {"XDG_RUNTIME_DIR": str(runtime), "JPY_SESSION_NAME": "killed.ipynb"}
    killed, ended = new_kernel(env=env), new_kernel(env={**env, "JPY_SESSION_NAME": "ended.ipynb"})
    pids = [int(each.run("import os; os.getpid()").text or 0) for each in (killed, ended)]
    ended.manager.shutdown_kernel()
    assert list(folder.glob(f"{pids[1]}-*")) == []
    (left,) = folder.glob(f"{pids[0]}-*.sock")
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
    os.kill(pids[0], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while left.exists() and time.monotonic() < deadline:
        assert "ended.ipynb" not in run_top(runtime)
    assert not left.exists()


def test_metrics_are_given_to_who_has_the_token(kernel: Notebook, runtime: Path) -> None:
    address = told(runtime, "/home/ada/training.ipynb")["metrics"]
    port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", address)[1])  # type: ignore[index]
    assert ask(port, token=None) == (401, "Unauthorized\n")
    assert ask(port, token="wrong") == (401, "Unauthorized\n")
    assert ask(port, "/") == (404, "Not Found\n")
    cell = kernel.send(HOLD_GIL)
    kernel.wait_for_text(cell, "begun")
    status, text = ask(port)
    kernel.wait(cell)
    assert status == 200
    lines = text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["tpu_kernel_busy"] == "1"
    assert values["tpu_kernel_hbm_limit_bytes"] == "16909336064"
    assert int(values["tpu_kernel_hbm_used_bytes"]) >= 4 << 20
    assert int(values["tpu_kernel_executions_total"]) >= 2
    (info,) = [name for name in values if name.startswith("tpu_kernel_info{")]
    assert 'notebook="/home/ada/training.ipynb",device="TPU v5e",emulated="true"' in info
    for name in values:
        name = name.partition("{")[0]
        assert sum(line.startswith((f"# HELP {name} ", f"# TYPE {name} ")) for line in lines) == 2
    # who sends no end, or too much, holds nobody up
    with (
        socket.create_connection(("127.0.0.1", port)) as silent,
        socket.create_connection(("127.0.0.1", port)) as endless,
    ):
        silent.sendall(b"GET /metrics HTTP/1.1\r\n")
        endless.sendall(b"GET /metrics HTTP/1.1\r\nx: " + b"y" * 8192)
        assert ask(port)[0] == 200
        assert endless.recv(64).startswith(b"HTTP/1.1 431 ")


def test_a_token_is_made_in_a_file_of_this_user_and_other_hosts_are_refused(
    runtime: Path, kernelspec: str, tmp_path: Path
) -> None:
    place = tmp_path / "metrics.sock"
    log = tmp_path / "log"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "TPU_KERNEL_METRICS": f"unix:{place}"}
    with open(log, "wb") as stderr:
        managers = [KernelManager(kernel_name=kernelspec) for _ in range(2)]
        managers[0].start_kernel(env=env, stderr=stderr)
        managers[1].start_kernel(env={**env, "TPU_KERNEL_METRICS": "0.0.0.0:9401"}, stderr=stderr)
    try:
        deadline = time.monotonic() + PATIENCE
        while log.read_text().count("tpu-kernel: ") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        said = log.read_text()
        assert "`0.0.0.0:9401` is no place for metrics: give `unix:/PATH`, a port, or a port of" in said
        file = Path(re.search(rf"metrics at unix:{place}; the token is in `(.*)`", said)[1])  # type: ignore[index]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text()
        assert len(token) == 64
        for given, status in ((token, b"HTTP/1.1 200 OK"), (token[:-1], b"HTTP/1.1 401 Unauthorized")):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(place))
                connection.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {given}\r\n\r\n".encode())
                assert connection.recv(1024).startswith(status)
    finally:
        for manager in managers:
            manager.shutdown_kernel()
    assert not file.exists()
    assert not place.exists()
