"""What a person sees while an interrupt waits, and what becomes of the cells behind it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from long_work import chain, states, texts
from notebook import PATIENCE, Notebook, Result

RUNNING = "print('running', flush=True)\n"
CHAIN = f"""{chain(120)}
def tell_when_it_compiles():
    while not any(work["kind"] == "compile" and work["elapsed_ns"] > 2e8 for work in _kernel.tpu_ongoing()):
        time.sleep(0.01)
    print("compiling", flush=True)
watcher = threading.Thread(target=tell_when_it_compiles)
"""


def lines(result: Result) -> list[str]:
    """The line under the cell as it changed."""
    return texts(states(result, "interrupt-"))


def interrupted(kernel: Notebook, code: str) -> Result:
    """Interrupt `code` once it runs, and wait for its end."""
    cell = kernel.send(RUNNING + code)
    kernel.wait_for_text(cell, "running")
    time.sleep(0.3)
    kernel.interrupt()
    return kernel.wait(cell)


def test_an_interrupt_during_a_compile_says_so_and_lands_at_its_end(
    new_kernel: Callable[..., Notebook], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kernel = new_kernel(env={"TPU_KERNEL_CACHE": str(tmp_path_factory.mktemp("cache"))})
    assert kernel.run(CHAIN).status == "ok"
    cell = kernel.send("watcher.start(); chain(x).cpu()")
    kernel.wait_for_text(cell, "compiling")
    kernel.interrupt()
    result = kernel.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    said = lines(result)
    assert re.fullmatch(r"interrupt pending: XLA compile \d+ s \(tt_jit_.*\)", said[0])
    assert re.fullmatch(r"interrupted \d+\.\d s after it was asked for \(XLA compile\)", said[-1])
    assert kernel.run("chain(x).cpu().shape").text == "torch.Size([5, 27])"


def test_an_interrupt_that_c_code_holds_up_says_so(kernel: Notebook) -> None:
    said = lines(interrupted(kernel, "sum(range(2 * 10**8))"))
    pending = re.compile(r"interrupt pending: C code holds the GIL \d+ s")
    assert any(pending.fullmatch(line) for line in said)
    assert re.fullmatch(r"interrupted \d+\.\d s after it was asked for \(C code holds the GIL\)", said[-1])


def test_an_interrupt_that_the_cell_handles_says_where(kernel: Notebook) -> None:
    code = "import time\ntry:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    time.sleep(2.5)"
    result = interrupted(kernel, code)
    count = result.content["execution_count"]
    said = lines(result)
    pending = re.compile(rf"interrupt pending: Python code handles it \d s \(in In\[{count}\], line 6\)")
    assert any(pending.fullmatch(line) for line in said)
    assert re.fullmatch(r"the cell ended \d\.\d s after the interrupt \(Python code handles it\)", said[-1])


@pytest.mark.parametrize(
    "slow",
    [
        "class Slow:\n    def __del__(self): time.sleep(0.5)\nwhile True: Slow()",
        "class Gone: pass\ndef slow(_): time.sleep(0.5)\nwhile True: kept = weakref.ref(Gone(), slow)",
    ],
    ids=["destructor", "callback"],
)
def test_an_interrupt_that_lands_in_a_destructor_is_not_lost(kernel: Notebook, slow: str) -> None:
    result = interrupted(kernel, f"import time, weakref\n{slow}")
    assert result.content["ename"] == "KeyboardInterrupt"
    assert "Exception ignored" not in result.stderr
    assert "ZeroDivisionError" in kernel.run("class Bad:\n    def __del__(self): 1/0\nBad(); None").stderr


def test_the_traceback_of_an_interrupt_leaves_out_where_a_library_was(kernel: Notebook) -> None:
    code = "import time\ndef deeper(n):\n    return deeper(n - 1) if n else time.sleep(600)\ndeeper(40)"
    result = interrupted(kernel, code)
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert "----> 5 deeper(40)" in text
    assert "[... 31 frames in the middle are not shown ...]\nKeyboardInterrupt: " in text


def test_an_interrupt_that_is_ignored_says_which_line_goes_on(kernel: Notebook) -> None:
    code = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "end = time.time() + 3\nwhile time.time() < end: pass"
    )
    result = interrupted(kernel, code)
    count = result.content["execution_count"]
    goes_on = re.compile(rf"interrupt pending: Python code goes on \d s \(in In\[{count}\], line 5\)")
    assert any(goes_on.fullmatch(line) for line in lines(result))


def test_an_interrupt_that_is_obeyed_at_once_says_nothing(kernel: Notebook) -> None:
    result = interrupted(kernel, "import time; time.sleep(600)")
    assert result.content["ename"] == "KeyboardInterrupt"
    assert "display_data" not in result.types


@pytest.mark.parametrize("how", ["error", "interrupt"])
def test_cells_behind_one_that_fails_are_aborted_in_order(kernel: Notebook, how: str) -> None:
    first = kernel.send(
        RUNNING
        + ("import time; time.sleep(600)" if how == "interrupt" else "import time; time.sleep(0.5); 1/0")
    )
    kernel.wait_for_text(first, "running")
    behind = [kernel.send(f"print({number})") for number in range(5)]
    if how == "interrupt":
        kernel.interrupt()
    order = []
    while len(order) < 6:
        reply = kernel.client.get_shell_msg(timeout=PATIENCE)
        order.append((reply["parent_header"]["msg_id"], reply["content"]["status"]))
    assert order == [(first, "error"), *[(cell, "aborted") for cell in behind]]
    assert kernel.run("'fine'").text == "'fine'"
