"""The line under each cell that `%tpu_watch` turns on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from conftest import running_kernel
from notebook import Message, Notebook, Result

OUTPUTS = ("stream", "display_data", "execute_result", "error")
TIME = r"(?:[\d.]+ ms|[\d.]+ s)"


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    # As in a kernelspec; each kernel compiles for itself.
    with running_kernel(kernelspec, env={"TPU_KERNEL_WATCH": "on", "TPU_KERNEL_CACHE": "off"}) as kernel:
        yield kernel


def states(result: Result) -> list[Message]:
    """All states of the line: other displays may stand under a cell too."""
    shown = [m for m in result.messages if m["msg_type"] in ("display_data", "update_display_data")]
    return [m for m in shown if m["content"]["transient"].get("display_id", "").startswith("watch")]


def line(result: Result) -> str:
    """The one line of a cell, in its last state, which comes after all else and stands below all else."""
    shown = states(result)
    places: dict[str, str] = {}
    for message in shown:
        name, new = message["content"]["transient"]["display_id"], message["msg_type"] == "display_data"
        assert new == (name not in places)
        places[name] = message["content"]["data"]["text/plain"]
    # where other output followed the line, what stood there is empty
    assert [bool(text) for text in places.values()] in ([True], [False, True]), places
    assert len({m["parent_header"]["msg_id"] for m in shown}) == 1
    # later are only `idle`, and on a slow machine the last word about an interrupt that took its time
    later = result.messages[result.messages.index(shown[-1]) + 1 :]
    assert {m["msg_type"] for m in later} <= {"status", "update_display_data"}
    outputs = [m for m in result.messages if m["msg_type"] in OUTPUTS]
    last = next(m for m in reversed(shown) if m["msg_type"] == "display_data")
    assert outputs[-1] is last
    bundle = shown[-1]["content"]["data"]
    html = bundle["text/html"]
    assert len(html) <= 600 and "<script" not in html and "<style" not in html
    text = bundle["text/plain"]
    assert max(map(len, text.split("\n"))) <= 80
    in_one = text.replace("\n  ", " · ")
    assert re.sub(r"<[^>]*>", "", html) == in_one
    return in_one


def test_a_cell_without_device_work_has_its_time_only(notebook: Notebook) -> None:
    assert re.fullmatch(TIME, line(notebook.run("1 + 1")))
    assert notebook.run("%tpu_watch").stdout == "%tpu_watch is on\n"
    assert re.fullmatch(TIME, line(notebook.run("import asyncio\nawait asyncio.sleep(0)")))


@pytest.fixture
def with_x(notebook: Notebook) -> Notebook:
    """The kernel with one tensor of 4 MiB, whose square is compiled already."""
    code = (
        "import time, torch\nfor name in ('x', 'y', 'z', 'w'): globals().pop(name, None)\n"
        "x = torch.ones(1 << 20).to('tpu'); (x * x).cpu(); None"
    )
    assert notebook.run(code).status == "ok"
    return notebook


def test_what_a_cell_did_on_the_device_is_counted(notebook: Notebook) -> None:
    made = notebook.run("import torch\nx = torch.ones(1 << 20).to('tpu')")
    assert line(made).endswith(" · HBM +4.00 MiB, now 4.00 MiB, peak 4.00 MiB"), line(made)
    first = line(notebook.run("y = x * x"))
    assert re.fullmatch(
        rf"{TIME} · device busy {TIME} · compiled 1 in {TIME} · launched 1 · HBM \+4.00 MiB, now 8.00 MiB, peak 8.00 MiB",
        first,
    )
    again = line(notebook.run("y = x * x; del y"))
    assert re.fullmatch(
        # the first y is let go of when the second is made
        rf"{TIME} · device busy {TIME} · launched 1 \(1 in memory\) · HBM −4.00 MiB, now 4.00 MiB, peak (?:8|12).00 MiB",
        again,
    )


def test_the_line_is_there_after_an_error_and_an_interrupt(with_x: Notebook) -> None:
    notebook = with_x
    failed = notebook.run("z = x * x; raise ValueError")
    assert failed.content["ename"] == "ValueError"
    assert " · launched 1 (1 in memory) · HBM +4.00 MiB, now 8.00 MiB, peak 8.00 MiB" in line(failed)
    wrong = notebook.run("1 +")
    assert wrong.content["ename"] == "SyntaxError" and re.fullmatch(TIME, line(wrong))
    cell = notebook.send("del z\nprint('go')\nwhile True: time.sleep(0.1)")
    before = notebook.wait_for_text(cell, "go")
    notebook.interrupt()
    stopped = notebook.wait(cell)
    stopped.messages[:0] = before
    assert stopped.content["ename"] == "KeyboardInterrupt"
    assert " · HBM −4.00 MiB, now 4.00 MiB, peak 8.00 MiB" in line(stopped)


def test_a_cell_that_runs_on_is_followed_at_most_twice_a_second(with_x: Notebook) -> None:
    notebook = with_x
    result = notebook.run("for _ in range(35):\n    w = x * x; time.sleep(0.1)")
    words = line(result)
    assert "launched 35 (35 in memory)" in words
    shown = states(result)
    running = shown[:-1]
    assert 1 <= len(running) <= 10
    for message in running:
        text = message["content"]["data"]["text/plain"]
        assert re.match(
            r"running for \d+ s · device busy .* · launched \d+ \(\d+ in memory\)\n  HBM ", text
        ), text
    for earlier, later in pairwise(running):
        assert (later["header"]["date"] - earlier["header"]["date"]).total_seconds() >= 0.5


def test_the_line_ends_up_below_what_came_after_it(notebook: Notebook) -> None:
    wait = "import time\nfrom tpu_kernel.tpu.cell_line import _State\nwhile not _State.run._line.shown: time.sleep(0.05)\n"
    for output in ("print('later')", "display(7)", "7", "1 / 0"):
        result = notebook.run(wait + output)
        assert re.fullmatch(TIME, line(result))
        first, *others = states(result)
        assert first["content"]["data"]["text/plain"].startswith("running for ")
        assert others[-1]["msg_type"] == "display_data", output
    # the line is gone with the output that a cell clears
    cleared = notebook.run(f"{wait}from IPython.display import clear_output\nclear_output()")
    assert states(cleared)[-1]["msg_type"] == "display_data"
    # a cell that shows nothing more keeps its line where it is
    quiet = notebook.run(wait)
    assert re.fullmatch(TIME, line(quiet))
    assert len({m["content"]["transient"]["display_id"] for m in states(quiet)}) == 1


def test_what_no_person_runs_and_what_runs_after_off_has_no_line(with_x: Notebook) -> None:
    notebook = with_x
    assert notebook.run("1", silent=True).displays == []
    assert re.fullmatch(TIME, line(notebook.run("%tpu_watch off")))
    assert notebook.run("x.sum().item()").displays == []
    assert notebook.run("%tpu_watch on").displays == []
    assert len(notebook.run("2").displays) == 1
    refused = notebook.run("%tpu_watch maybe")
    assert refused.content["evalue"] == "%tpu_watch: `maybe` is none of on or off"
