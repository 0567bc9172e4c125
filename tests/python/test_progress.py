"""One line under the cell while a compile or a transfer takes long; it says how long when that has ended."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from typing import Any

import pytest
from long_work import chain, states, texts
from notebook import Notebook, Result

pytestmark = pytest.mark.alone

SETUP = f"""{chain(30)}
def tell_when(kind):
    def watch():
        while not any(work["kind"] == kind for work in _kernel.tpu_ongoing()):
            time.sleep(0.005)
        print("begun", flush=True)
    threading.Thread(target=watch).start()
"""


@pytest.fixture(scope="module")
def device(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from conftest import running_kernel

    cache = str(tmp_path_factory.mktemp("cache"))
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": cache}) as notebook:
        assert notebook.run(SETUP).status == "ok"
        yield notebook


def lines(result: Result) -> list[str]:
    """The line as it changed, twice a second at most."""
    found = states(result)
    dates = [m["header"]["date"] for m in found[:-1]]
    assert all((b - a).total_seconds() > 0.3 for a, b in itertools.pairwise(dates))
    return texts(found)


def stopped(device: Notebook, code: str) -> list[str]:
    """What is said of something that is long on any machine: the process stands still in the middle of it."""
    cell = device.send(code)
    device.wait_for_text(cell, "begun")
    pid = device.manager.provisioner.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(pid, signal.SIGCONT)
    result = device.wait(cell)
    assert result.status == "ok"
    return lines(result)


def test_a_long_compile_says_which_and_for_how_long(device: Notebook) -> None:
    said = stopped(device, "tell_when('compile'); y = chain(x).cpu()")
    name = r"tt_jit_\d+_L\d+C\d+_chain_softmax"
    assert re.fullmatch(rf"compiling {name} · \d+ s", said[0])
    assert re.fullmatch(rf"compiled {name} in \d+\.\d s", said[-1])
    # The time is that of the session, not of who looked.
    told = float(said[-1].split()[-2])
    longest = "max(e['duration_ns'] for e in _kernel.tpu_events(0)[1] if e['kind'] == 'compile') / 1e9"
    assert abs(float(device.run(longest).text or "0") - told) < 0.06


def test_nothing_is_said_of_what_is_quick(device: Notebook) -> None:
    result = device.run("z = (x + 1).cpu(); time.sleep(2.5)")
    assert result.displays == []


def test_a_long_transfer_says_how_much_and_for_how_long(device: Notebook) -> None:
    up = "big = torch.zeros(1 << 28); tell_when('upload'); there = big.to('tpu')"
    down = "tell_when('download'); back = there.cpu(); del there"
    for code, words in ((up, "to the device"), (down, "from the device")):
        said = stopped(device, code)
        assert re.fullmatch(rf"moving 1\.00 GiB {words} · \d+ s", said[0])
        assert re.fullmatch(rf"moved 1\.00 GiB {words} in \d+\.\d s", said[-1])
