"""`%%tpu_profile`: the card, the file and what they are made of, against the counters of tpu-core."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SETUP = """import time, torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(8, 4).to("tpu")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8).to("tpu")
(x + 1).sum().item()
"""
LOOP = """for _ in range(3):
    opt.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def new_notebook(kernelspec: str, folder: Path) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}, cwd=folder) as notebook:
        yield notebook


@pytest.fixture(scope="module")
def device(new_notebook: Notebook) -> Notebook:
    assert new_notebook.run(SETUP).status == "ok"
    return new_notebook


def card(result: Result) -> str:
    """The text of the card of a profile."""
    shown = [each["text/plain"] for each in result.displays if each["text/plain"].startswith("profile · ")]
    assert len(shown) == 1, (result.displays, result.content)
    return shown[0]


def trace(folder: Path, text: str) -> dict[str, Any]:
    """The file that a card names."""
    name = re.search(r"^  (\S+\.json): every event", text, re.MULTILINE)
    assert name is not None, text
    return json.loads((folder / name[1]).read_text())


def slices(trace: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for one in trace["traceEvents"] if one.get("cat") == kind]


def nanoseconds(rows: list[dict[str, Any]]) -> int:
    return sum(round(row["dur"] * 1000) for row in rows)


def agrees(trace: dict[str, Any]) -> dict[str, int]:
    """What the file holds is what tpu-core counted, to the nanosecond; the counters."""
    counted = trace["otherData"]["counted"]
    for kind, count, time_ns in (
        ("execute", "executions", "busy_ns"),
        ("compile", "compiles", "compile_ns"),
        ("cache_hit", "cache_hits", "cache_hit_ns"),
    ):
        rows = slices(trace, kind)
        assert (len(rows), nanoseconds(rows)) == (counted[count], counted[time_ns]), kind
    for kind in ("upload", "download"):
        rows = slices(trace, kind)
        assert len(rows) == counted[f"{kind}s"]
        assert sum(row["args"]["bytes"] for row in rows) == counted[f"{kind}_bytes"]
    for one in slices(trace, "execute"):
        moments = one["args"]
        assert moments["queued_us"] <= moments["launched_us"] <= moments["ended_us"]
        assert round((one["ts"] + one["dur"] - moments["ended_us"]) * 1000) == 0
    # no two programs at a time
    runs = sorted(slices(trace, "execute"), key=lambda one: one["ts"])
    for one, following in pairwise(runs):
        assert following["ts"] - one["ts"] - one["dur"] > -0.0005
    is_one_perfetto_takes(trace)
    return counted


def is_one_perfetto_takes(trace: dict[str, Any]) -> None:
    """What the trace event format asks for: of each track a name, and slices that lie side by side or within
    each other. Perfetto leaves out one that lies across the end of another."""
    assert trace["displayTimeUnit"] == "ms"
    tracks: dict[int, list[tuple[int, int]]] = {}
    named = set()
    for row in trace["traceEvents"]:
        assert row["pid"] == 1 and row["name"] and row["ph"] in ("M", "X", "i"), row
        if row["ph"] == "M":
            assert row["args"]["name"], row
            named.add(row["tid"])
        elif row["ph"] == "X":
            start = round(row["ts"] * 1000)
            tracks.setdefault(row["tid"], []).append((start, start + round(row["dur"] * 1000)))
        else:
            assert row["s"] == "p" and row["ts"] >= 0, row
    assert tracks.keys() <= named
    for track, found in tracks.items():
        ends: list[int] = []
        for start, end in sorted(found, key=lambda one: (one[0], -one[1])):
            assert 0 <= start <= end, (track, start, end)
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or end <= ends[-1], (track, start, end, ends)
            ends.append(end)


def test_a_cell_without_a_device_says_so(new_notebook: Notebook, folder: Path) -> None:
    result = new_notebook.run("%%tpu_profile\nimport sys\n'torch' in sys.modules")
    assert (result.status, result.text) == ("ok", "False")
    text = card(result)
    assert text.startswith("profile · In[1] used no device · ")
    assert re.search(r"^  waits for Python +\S+ (s|ms) +100 %$", text, re.MULTILINE)
    assert slices(trace(folder, text), "execute") == []


def test_a_training_loop_has_its_counts_its_lines_and_a_file_that_agrees_with_tpu_core(
    device: Notebook, folder: Path
) -> None:
    first = device.run(f"%%tpu_profile\n{LOOP}loss.item()")
    assert (first.status, float(first.text or "0") > 0) == ("ok", True)
    text = card(first)
    counted = agrees(trace(folder, text))
    assert {name: counted[name] for name in ("executions", "compiles", "cache_hits", "downloads")} == {
        "executions": 30,
        "compiles": 9,
        "cache_hits": 0,
        "downloads": 1,
    }
    assert "30 runs" in text and "9 compiled" in text and "1 down (4 B)" in text
    assert re.search(r"^  linear_backward +\S.* 3 +[\d.]+ (ms|µs)", text, re.MULTILINE), text
    shares = [int(share) for share in re.findall(r"^  [a-zA-Z ]+ +\S+ (?:s|ms) +(\d+) %", text, re.MULTILINE)]
    assert len(shares) == 4 and sum(shares) == 100
    assert max(map(len, text.split("\n"))) <= 80

    # now that all is compiled, the device waits while Python sleeps in line 7; the file says so too
    again = card(device.run(f"%%tpu_profile\n{LOOP}time.sleep(1)"))
    recorded = trace(folder, again)
    counted = agrees(recorded)
    assert (counted["executions"], counted["compiles"], counted["uploads"]) == (30, 0, 0)
    assert re.search(r"longest wait was \S+ m?s with Python at line 7\.", again), again
    asleep = [one for one in slices(recorded, "sampled") if one["name"] == "line 7"]
    assert sum(one["dur"] for one in asleep) > 900_000
    waits = max(slices(recorded, "wait"), key=lambda one: one["dur"])
    assert (waits["args"]["python"], waits["dur"] > 700_000) == ("line 7", True)


def test_the_card_is_small_escaped_and_needs_no_script(device: Notebook) -> None:
    result = device.run("%%tpu_profile\ndef f():\n    return x @ x.T\nfor _ in range(5): f()\n")
    bundle = result.displays[-1]
    html = bundle["text/html"]
    assert len(html.encode()) <= 6144
    assert len(html) <= 8192
    assert "<script" not in html and html.count('src="data:image/png;base64,') == 3
    assert html.count("&lt;") == 0
    assert re.search(r"device busy: \d+ % of the time", html)


def test_a_compiled_cell_names_its_lines(device: Notebook, folder: Path) -> None:
    result = device.run(f"%%tpu_profile\n%%tpu_compile\n{LOOP}")
    assert result.status == "ok"
    assert result.displays[0]["text/plain"].startswith("compiled · ")
    text = card(result)
    recorded = trace(folder, text)
    counted = agrees(recorded)
    assert (counted["compiles"], counted["executions"]) == (1, 3)
    assert [one["name"] for one in slices(recorded, "execute")] == ["compiled lines 5–7"] * 3
    assert re.search(r"^  compiled lines 5–7 +5–7 +3 ", text, re.MULTILINE), text
    assert [one["name"] for one in slices(recorded, "compile")] == ["compile compiled lines 5–7"]
    assert "PyTorch traced for" in text
    # the same text again: made before, and still known by its lines
    again = card(device.run(f"%%tpu_profile\n%%tpu_compile\n{LOOP}"))
    assert re.search(r"^  compiled lines 5–7 +5–7 +3 ", again, re.MULTILINE), again


def test_an_error_stays_the_error_and_what_ran_is_shown_first(device: Notebook, folder: Path) -> None:
    result = device.run("%%tpu_profile\ny = x * 3\ny @ y")
    assert (result.status, result.content["ename"]) == ("error", "RuntimeError")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(result.content["traceback"]))
    assert "----> 3 y @ y" in shown and "tpu_kernel" not in shown
    text = card(result)
    assert " · ended in RuntimeError" in text
    assert result.types.index("display_data") < result.types.index("error")
    assert [one["name"] for one in slices(trace(folder, text), "execute")] == ["mul"]
    assert device.run("y.shape == x.shape").text == "True"


def test_an_interrupt_shows_what_ran(device: Notebook, folder: Path) -> None:
    cell = device.send("%%tpu_profile\nz = x * 5\nprint('now')\nwhile True:\n    time.sleep(0.01)")
    device.wait_for_text(cell, "now")
    time.sleep(0.3)
    device.interrupt()
    result = device.wait(cell)
    assert result.content["ename"] == "KeyboardInterrupt"
    text = card(result)
    assert text.partition("\n")[0].endswith(" · interrupted")
    assert len(slices(trace(folder, text), "execute")) == 1
    assert re.search(r"^  line 5 +\d", text, re.MULTILINE)
    # and the next one can be taken
    assert device.run("%%tpu_profile\n1").text == "1"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%tpu_profile --fast\n1", "%%tpu_profile: no option `--fast`; valid: `--xprof`, `--to FOLDER`"),
        ("%%tpu_profile --to\n1", "%%tpu_profile: `--to` takes FOLDER, and none is given"),
        ("%%tpu_profile here\n1", "%%tpu_profile takes no argument, only options: `here` is none"),
        ("%%tpu_profile\nawait f()", "%%tpu_profile: a cell that awaits cannot be profiled"),
        (
            "%%tpu_profile --to taken\n1",
            "%%tpu_profile: there can be no folder `taken`: File exists",
        ),
    ],
)
def test_wrong_use_is_one_line_and_runs_nothing(
    device: Notebook, folder: Path, cell: str, message: str
) -> None:
    (folder / "taken").write_text("a file")
    result = device.run(cell)
    assert (result.content["ename"], result.content["evalue"], result.displays) == ("UsageError", message, [])


def test_one_profile_at_a_time(device: Notebook) -> None:
    number = device.run("None").content["execution_count"] + 1
    result = device.run("%%tpu_profile\n%%tpu_profile\nw = 2")
    said = f"%%tpu_profile: a profile of In[{number}] is being taken already: there can be one at a time"
    assert (result.content["ename"], result.content["evalue"]) == ("UsageError", said)
    assert device.run("'w' in globals()").text == "False"


def test_it_stacks_with_other_magics_and_keeps_what_a_cell_means(device: Notebook, folder: Path) -> None:
    result = device.run("%%time\n%%tpu_profile\nq = 4\nq + 1")
    assert (result.text, "Wall time" in result.stdout) == ("5", True)
    captured = device.run("%%capture shown\n%%tpu_profile\nx + 1")
    assert captured.displays == [] and captured.text is None
    assert device.run("shown.outputs[0].data['text/plain'].startswith('profile · ')").text == "True"
    eager = device.run("%%tpu_profile --to deep/er\n%%tpu_eager --mode fused\ny = (x * 2 + 1) * 3")
    text = card(eager)
    assert "  deep/er/tpu_profile-" in text
    assert len(slices(trace(folder, text), "execute")) == 1
    # a loop is the cell's own code, as without the magic: not one call of something a turn
    frames = device.run(
        "%%tpu_profile\nimport sys\nseen = set()\nfor _ in range(3):\n    seen.add(id(sys._getframe()))\nlen(seen)"
    )
    assert frames.text == "1"


def test_torch_tpus_own_trace_is_written_on_request_and_has_no_device_in_it(
    device: Notebook, folder: Path
) -> None:
    result = device.run("%%tpu_profile --xprof --to traces\n(x + 1).sum().item()")
    text = card(result)
    assert re.search(r"^  traces/xprof: TorchTPU's trace, of the host only", text, re.MULTILINE)
    files = list((folder / "traces" / "xprof" / "plugins" / "profile").glob("*/*.xplane.pb"))
    assert len(files) == 1
    content = files[0].read_bytes()
    assert b"/host:CPU" in content and b"ExecutionTask::Run" in content
    assert b"/device:" not in content


def test_more_launches_than_find_room_are_counted_and_said(device: Notebook, folder: Path) -> None:
    device.run("import tpu_kernel.profiling.recording as r; most, r.MOST_BYTES = r.MOST_BYTES, 0")
    result = device.run("%%tpu_profile\nfor _ in range(22_000):\n    v = x + 1")
    text = card(result)
    assert "22,000 runs" in text
    lost = re.search(r"([\d,]+) earlier launches and transfers found no room", text)
    assert lost is not None, text
    recorded = trace(folder, text)
    missing = int(lost[1].replace(",", ""))
    assert recorded["otherData"]["events_lost"] == missing > 1000
    assert len(slices(recorded, "execute")) == 22_000 - missing
    device.run("r.MOST_BYTES = most")


def test_an_interrupt_while_a_profile_begins_leaves_nothing_of_it_on(new_notebook: Notebook) -> None:
    new_notebook.run(
        "from tpu_kernel.profiling.xprof import XProf; import threading; begin = XProf.begin\n"
        "def interrupted(trace): raise KeyboardInterrupt\nXProf.begin = interrupted"
    )
    result = new_notebook.run("%%tpu_profile --xprof\nran = True", patience=60)
    assert result.content["ename"] == "KeyboardInterrupt"
    left = new_notebook.run(
        "XProf.begin = begin; from tpu_kernel.lowering import backend\n"
        "'ran' in globals(), backend.watch, [t.name for t in threading.enumerate() if 'profile' in t.name]"
    )
    assert left.text == "(False, None, [])"
