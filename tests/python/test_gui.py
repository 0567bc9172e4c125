"""`%gui`: windows are served between cells where they can be opened, else one line says why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook


@pytest.fixture(scope="module")
def no_display(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(
        kernelspec, env={"DISPLAY": "", "WAYLAND_DISPLAY": "", "QT_QPA_PLATFORM": ""}
    ) as kernel:
        yield kernel


@pytest.mark.parametrize(
    ("gui", "message"),
    [
        (
            "tk",
            'no window can be opened here (couldn\'t connect to display ""); use',
        ),
        (
            "qt",
            "PyQt6 or PySide6 or PyQt5 or PySide2 is not installed; `%pip install PyQt6`, or use",
        ),
        (
            "gtk3",
            "this kernel serves the windows of tk and qt; else use",
        ),
    ],
)
def test_windows_that_cannot_be_opened_are_refused_in_one_line(
    no_display: Notebook, gui: str, message: str
) -> None:
    line = f"`%gui {gui}`: {message} `%matplotlib inline` or `%matplotlib widget`"
    assert line in no_display.run(f"%gui {gui}").stderr.splitlines()[0]
    assert no_display.run("1 + 1").text == "2"


def test_the_event_loop_of_the_notebook_is_always_on(no_display: Notebook) -> None:
    for code in ("%gui asyncio", "%gui", "%gui none"):
        assert no_display.run(code).status == "ok"
    assert no_display.run("import asyncio\nawait asyncio.sleep(0, 'awake')").text == "'awake'"


def test_events_of_a_toolkit_are_handled_between_cells_and_while_one_awaits(
    new_kernel: Callable[..., Notebook],
) -> None:
    kernel = new_kernel()
    # Tcl without Tk: timers and events of the real toolkit, and no window
    kernel.run(
        "import tkinter, time\nfrom tpu_kernel.cells import gui\ntcl = tkinter.Tcl()\n"
        "tkinter._default_root = tcl; gui.enable('tk')\nfired = []\ntcl.after(50, lambda: fired.append('first'))"
    )
    time.sleep(0.5)
    assert kernel.run("fired").text == "['first']"
    kernel.run("import asyncio\ntcl.after(50, lambda: fired.append('second'))\nawait asyncio.sleep(0.5)")
    assert kernel.run("fired").text == "['first', 'second']"
    kernel.run("%gui none\ntcl.after(50, lambda: fired.append('third'))")
    time.sleep(0.5)
    assert kernel.run("fired").text == "['first', 'second']"
