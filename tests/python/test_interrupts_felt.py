"""An interrupt is felt once, whatever the main thread was about to do, and disturbs nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from long_work import chain
from notebook import Notebook, Result, run

# An interrupt ends `usleep`, which does not tell Python of it, and without a look at signals the next call
# begins: as where an interrupt comes just before that call.
SETUP = """
import asyncio, ctypes, operator, os, select, signal, subprocess, threading, time
from functools import partial
usleep = ctypes.CDLL(None).usleep
until_interrupted = partial(usleep, 600_000_000)
def one_call(*parts): return list(map(operator.call, parts))
class Waits:
    def __del__(self): until_interrupted()
pipe, full = os.pipe()
held = threading.Lock()
assert held.acquire()
stubborn = ["sh", "-c", "trap '' INT; sleep 3"]
interrupts, urgent = [], []
"""
COMPILED = """
import sys, torch
y = torch.ones(3, 3, device="tpu")
settings = torch._dynamo.config
parts = tuple(f"tpu_kernel.lowering.{part}" for part in ("backend", "cell", "outline", "run", "session"))
def interrupted_at_another_place(tried):
    'The place in what compiles and runs a cell, where a compiled cell is interrupted, none of those before.'
    place = None
    def trace(frame, event, _):
        nonlocal place
        if frame.f_globals.get("__name__") not in parts:
            return None
        here = frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno
        if event == "line" and place is None and here not in tried:
            place = here
            raise KeyboardInterrupt
        return trace
    sys.settrace(trace)
    try:
        get_ipython().run_cell_magic("tpu_compile", "--quiet", "z = (y @ y).sum()")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return place
"""
EACH = """
tried, changed = set(), []
while (place := interrupted_at_another_place(tried)) is not None:
    tried.add(place)
    if settings.suppress_errors:
        changed.append(place)
        settings.suppress_errors = False
assert {"session", "call", "run", "execute"} <= {name for _, name, _ in tried}, tried
changed
"""
DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
HEARING = "signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.fixture(scope="module")
def shared_kernel(kernelspec: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    cache = {"TPU_KERNEL_CACHE": str(tmp_path_factory.mktemp("cache"))}
    with running_kernel(kernelspec, env=cache) as notebook:
        run(notebook, SETUP)
        yield notebook


def interrupted(kernel: Notebook, code: str, **options: object) -> Result:
    """Interrupt `code` where it waits."""
    cell = kernel.send("print('begun', flush=True)\n" + code)
    kernel.strays += kernel.wait_for_text(cell, "begun")
    time.sleep(0.2)
    kernel.interrupt()
    return kernel.wait(cell, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wait",
    [
        "until_interrupted, partial(time.sleep, 600)",
        "until_interrupted, partial(select.select, [pipe], [], [], 600)",
        "until_interrupted, partial(os.read, pipe, 1)",
        "until_interrupted, held.acquire",
        "until_interrupted, partial(os.waitpid, subprocess.Popen(stubborn[:2] + ['trap \"\" INT; sleep 600']).pid, 0)",
        "kept.clear, partial(time.sleep, 600)",
    ],
    ids=["sleep", "select", "read", "lock", "child", "after a destructor"],
)
def test_an_interrupt_just_before_a_call_that_waits_ends_it(kernel: Notebook, wait: str) -> None:
    result = interrupted(kernel, f"kept = [Waits()] if 'kept' in {wait!r} else []\none_call({wait})")
    assert result.content["ename"] == "KeyboardInterrupt"
    assert [error["ename"] for error in result.contents("error")] == ["KeyboardInterrupt"]
    assert kernel.run("1 + 1").text == "2"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("one_call(until_interrupted, partial(time.sleep, 600))", "time.sleep(0.05)"),
        ("time.sleep(600)", "time.sleep(0.05)"),
        ("go = True\n    while go: time.sleep(0.001)", "sum(range(1000))\n        usleep(20_000)"),
        ("child = subprocess.Popen(stubborn)\n    child.wait()", "child.wait()\n        time.sleep(0.05)"),
        ("await asyncio.sleep(600)", "await asyncio.sleep(0.05)"),
        ("go = True\n    while go: await asyncio.sleep(0)", "await asyncio.sleep(0.05)"),
    ],
    ids=["just before", "sleep", "loop", "child", "await", "loop that awaits"],
)
def test_code_that_catches_an_interrupt_is_interrupted_once(kernel: Notebook, first: str, then: str) -> None:
    caught = "except KeyboardInterrupt:\n    interrupts.append('{}')\n"
    result = interrupted(
        kernel,
        f"interrupts.clear()\ntry:\n    {first}\n{caught.format('first')}"
        f"try:\n    for _ in range(30):\n        {then}\n{caught.format('then')}interrupts",
    )
    assert (result.status, result.text) == ("ok", "['first']")


def test_a_question_after_an_interrupted_one_is_not_interrupted(kernel: Notebook) -> None:
    cell = kernel.send("try: input('a')\nexcept KeyboardInterrupt: print(input('b'))", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"] == "a"
    kernel.interrupt()
    assert kernel.client.get_stdin_msg(timeout=120)["content"]["prompt"] == "b"
    time.sleep(1)
    kernel.client.input("answer")
    result = kernel.wait(cell)
    assert (result.status, result.stdout) == ("ok", "answer\n")


def test_calls_that_are_woken_with_no_interrupt_to_feel_go_on_for_as_long_as_they_should(
    kernel: Notebook,
) -> None:
    # SIGINT is ignored: what ends `usleep` is what comes after it.
    result = interrupted(
        kernel,
        DEAF
        + "writer = threading.Timer(2, os.write, (full, b'x'))\nwriter.start()\nbegun = time.monotonic()\n"
        "_, _, nothing, read = one_call(until_interrupted, partial(time.sleep, 0.8), \n"
        "    partial(select.select, [], [], [], 0.8), partial(os.read, pipe, 1))\n"
        + HEARING
        + "nothing, read, 1.6 <= time.monotonic() - begun < 120",
    )
    assert (result.status, result.text) == ("ok", "(([], [], []), b'x', True)")


def test_a_compile_that_is_interrupted_is_felt_once_and_gives_the_right_program(kernel: Notebook) -> None:
    run(kernel, chain(8))
    result = interrupted(
        kernel,
        "interrupts.clear()\nwhile not interrupts:\n    try: found = chain(x).cpu()\n"
        "    except KeyboardInterrupt: interrupts.append('first')\n"
        "try:\n    for _ in range(20): time.sleep(0.05)\nexcept KeyboardInterrupt: interrupts.append('then')\n"
        "plain = x.cpu()\nfor w in weights: plain = torch.softmax((plain @ w.cpu()).sin() + plain.sum(), -1)\n"
        "interrupts, torch.allclose(chain(x).cpu(), plain, atol=1e-4)",
    )
    assert (result.status, result.text) == ("ok", "(['first'], True)")


def test_an_interrupt_of_a_compiled_cell_between_any_two_lines_leaves_dynamo_as_it_was(
    kernel: Notebook,
) -> None:
    run(kernel, COMPILED)
    run(kernel, "%%tpu_compile\nz = (y @ y).sum()")
    assert run(kernel, "settings.suppress_errors").text == "False"
    assert run(kernel, EACH).text == "[]"
    result = run(kernel, "%%tpu_compile\nz = (y @ y).sum()")
    assert "programs executed  1" in result.displays[0]["text/plain"]
    assert run(kernel, "z.item(), settings.suppress_errors").text == "(27.0, False)"


def test_an_interrupt_while_a_magic_is_loaded_leaves_it_as_good_as_new(kernel: Notebook) -> None:
    code = (
        "import sys, _thread\ndef trace(frame, *_):\n"
        "    if frame.f_globals.get('__name__') == 'tpu_kernel.magics.explain':\n"
        "        sys.settrace(None)\n        _thread.interrupt_main()\n"
        "sys.settrace(trace)\n%tpu_explain torch.cuda\nprint('not interrupted')"
    )
    result = kernel.run(code)
    assert (result.content["ename"], result.stdout) == ("KeyboardInterrupt", "")
    assert run(kernel, "%tpu_explain torch.cuda.is_available").displays != []


def test_signals_that_somebody_else_handles_are_left_to_them(kernel: Notebook) -> None:
    handle = "signal.signal(signal.{0}, lambda *_: urgent.append('{0}'))"
    # What was there before is what Python calls the default, which can be put back.
    code = f"before = {handle.format('SIGURG')}\nbefore is signal.SIG_DFL"
    assert run(kernel, code).text == "True"
    # There is another.
    result = interrupted(kernel, "one_call(until_interrupted, partial(time.sleep, 600))")
    assert result.content["ename"] == "KeyboardInterrupt"
    assert run(kernel, "os.kill(os.getpid(), signal.SIGURG)\nurgent").text == "['SIGURG']"
    run(kernel, f"urgent.clear()\nresized = {handle.format('SIGWINCH')}\nassert resized is signal.SIG_DFL")
    # None is left.
    result = interrupted(kernel, "one_call(until_interrupted, partial(time.sleep, 1))")
    assert result.content["ename"] == "KeyboardInterrupt"
    assert run(kernel, "urgent").text == "[]"
    back = "signal.signal(signal.SIGURG, before) and None\nsignal.signal(signal.SIGWINCH, resized) and None\n"
    run(kernel, back + "os.kill(os.getpid(), signal.SIGURG)\nassert not urgent")


def test_children_have_the_signals_as_they_are_by_default(kernel: Notebook) -> None:
    with_signals = (
        "status = subprocess.run(['cat', '/proc/self/status'], capture_output=True, text=True).stdout\n"
        "masks = dict(line.split(':') for line in status.splitlines() if line.startswith('Sig'))\n"
        "bits = 1 << signal.SIGURG - 1 | 1 << signal.SIGWINCH - 1 | 1 << signal.SIGINT - 1\n"
        "[int(masks[kind], 16) & bits for kind in ('SigBlk', 'SigIgn', 'SigCgt')]"
    )
    assert run(kernel, with_signals).text == "[0, 0, 0]"
