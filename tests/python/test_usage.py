"""`usage_request`: what the kernel panel of jupyter-resource-usage shows."""

from __future__ import annotations

import socket
import time
from typing import Any

import psutil
import pytest
from notebook import Notebook

pytestmark = pytest.mark.alone

HOLDS_THE_GIL = "import ctypes; print('begun', flush=True); ctypes.PyDLL(None).usleep(60_000_000)"


def usage(kernel: Notebook) -> dict[str, Any]:
    """One answer."""
    result = kernel.ask("usage_request", {}, channel="control")
    assert [c["execution_state"] for c in result.contents("status")] == ["busy", "idle"]
    assert result.reply["msg_type"] == "usage_reply"
    return result.content


def test_the_answer_has_the_fields_the_panel_reads(kernel: Notebook) -> None:
    content = usage(kernel)
    assert content["hostname"] == socket.gethostname()
    assert content["pid"] == int(kernel.run("import os; os.getpid()").text or 0)
    assert content["cpu_count"] == psutil.cpu_count(logical=True)
    memory = content["host_virtual_memory"]
    assert sorted(memory) == sorted(psutil.virtual_memory()._fields)
    assert memory["total"] == psutil.virtual_memory().total
    assert 0 < memory["percent"] < 100
    assert all(isinstance(memory[name], int) for name in memory if name != "percent")


def test_memory_is_that_of_the_kernel_and_its_children(kernel: Notebook) -> None:
    before = usage(kernel)["kernel_memory"]
    own = psutil.Process(usage(kernel)["pid"]).memory_full_info().pss
    assert abs(before - own) < 8 << 20
    kernel.run("kept = bytearray(b'x') * (64 << 20)")
    with_own = usage(kernel)["kernel_memory"]
    assert 60 << 20 < with_own - before < 80 << 20
    child = "kept = bytearray(b'x') * (96 << 20); print(1, flush=True); input()"
    kernel.run(
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=-1, stdout=-1)\n"
        "child.stdout.readline()"
    )
    with_child = usage(kernel)["kernel_memory"]
    assert 90 << 20 < with_child - with_own < 130 << 20
    kernel.run("del kept; child.communicate(b'\\n')")
    assert usage(kernel)["kernel_memory"] < before + (16 << 20)


def test_load_is_the_processor_time_of_the_kernel_since_the_last_answer(kernel: Notebook) -> None:
    usage(kernel)
    time.sleep(0.6)
    usage(kernel)
    begin = time.monotonic()
    code = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass"
    assert kernel.run(code).status == "ok"
    content = usage(kernel)
    seconds = content["kernel_cpu"] / 100 * (time.monotonic() - begin)
    assert 0.9 < seconds < 1.6
    assert 0 < content["host_cpu_percent"] <= 100


def test_each_of_many_that_ask_at_once_gets_an_answer(kernel: Notebook) -> None:
    asked = [kernel.request("usage_request", {}, channel="control") for _ in range(20)]
    for request in asked:
        result = kernel.wait(request, channel="control")
        assert [c["execution_state"] for c in result.contents("status")] == ["busy", "idle"]
        assert result.content["status"] == "ok"
        assert result.content["kernel_memory"] > 10 << 20


def test_it_is_answered_while_c_code_holds_the_gil(kernel: Notebook) -> None:
    cell = kernel.send(HOLDS_THE_GIL)
    kernel.wait_for_text(cell, "begun")
    usage(kernel)
    over = [m for m in kernel.strays if m["parent_header"]["msg_id"] == cell and m["msg_type"] == "status"]
    assert [m["content"]["execution_state"] for m in over] == ["busy"], "the cell still runs, and is shown so"
    kernel.interrupt()
    assert kernel.wait(cell).content["ename"] == "KeyboardInterrupt"
