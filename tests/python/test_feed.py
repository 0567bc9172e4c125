"""The live feed: what a page with the panel open is told, and when; never of a kernel that rests."""

from __future__ import annotations

import time

import pytest
from feed_panel import Panel
from notebook import Notebook

pytestmark = pytest.mark.alone

HOLD_GIL = "import ctypes; print('begun', flush=True); ctypes.PyDLL(None).usleep({})"


def statuses(kernel: Notebook, msg_id: str) -> list[str]:
    """What was said of a request: its states, in order."""
    kernel.strays += kernel._take(kernel.client.iopub_channel, 0.1)
    return [
        m["content"]["execution_state"]
        for m in kernel.strays
        if m["msg_type"] == "status" and m["parent_header"].get("msg_id") == msg_id
    ]


def test_a_page_is_told_at_once_what_there_is(kernel: Notebook) -> None:
    page = Panel(kernel).open(interval_ms=500, tensors=False, unknown={"field": 1})
    sample = page.wait()
    assert sample["v"] == 1
    assert abs(sample["t"] - time.time()) < 30
    # it may be that Python is not up yet: the feed needs none
    assert sample["state"] in ("starting", "idle")
    if not sample["mode"] or sample["state"] != "idle":
        sample = page.wait(lambda sample: sample["mode"] and sample["state"] == "idle")
    assert (sample["device"], sample["state"], sample["cell"]) == (None, "idle", None)
    assert sample["mode"] == "strict"
    zeros = "hbm_used hbm_peak hbm_limit busy_ns compiles compile_ns cache_hits memory_hits executions"
    assert [sample[name] for name in f"{zeros} to_device_bytes from_device_bytes".split()] == [0] * 11
    assert (sample["now"], sample["events"]) == ([], [])
    assert not {"tensors", "said", "error"} & sample.keys()
    # the comm is listed, beside those of widgets
    infos = [kernel.ask("comm_info_request", content).content for content in ({}, {"target_name": "other"})]
    assert infos[0] == {"status": "ok", "comms": {page.comm_id: {"target_name": "tpu.stats"}}}
    assert infos[1] == {"status": "ok", "comms": {}}
    page.close()
    assert kernel.ask("comm_info_request", {}).content["comms"] == {}
    assert page.quiet(0.3) == []


def test_a_cell_is_marked_when_it_begins_and_when_it_ends(kernel: Notebook, panel: Panel) -> None:
    number = kernel.run("pass").content["execution_count"] + 1
    panel.quiet(0.5)
    cell = kernel.send("import time; print('begun', flush=True); time.sleep(0.6)", cell_id="a-cell")
    begun = panel.wait(lambda sample: sample["state"] == "busy")
    assert (begun["cell"]["id"], begun["cell"]["count"]) == ("a-cell", number)
    assert [(mark["id"], mark["count"], mark["t1"]) for mark in begun["cells"]] == [("a-cell", number, None)]
    ended = panel.wait(lambda sample: sample["state"] == "idle")
    (mark,) = ended["cells"]
    assert (mark["id"], mark["count"], mark["t0"]) == ("a-cell", number, begun["cell"]["started"])
    assert 0.5 < mark["t1"] - mark["t0"] < 30
    assert ended["cell"] is None
    kernel.wait(cell)


def test_nothing_is_sent_while_the_kernel_rests_or_the_page_is_hidden(kernel: Notebook, panel: Panel) -> None:
    assert panel.quiet(1.5) == []
    panel.say(pause=True)
    kernel.run("import time; time.sleep(0.5)", cell_id="unseen")
    assert panel.quiet(0.5) == []
    panel.say(resume=True)
    sample = panel.wait()
    assert [mark["id"] for mark in sample["cells"]] == ["unseen"]


def test_nothing_is_sent_while_a_cell_changes_nothing(kernel: Notebook, panel: Panel) -> None:
    cell = kernel.send("import time; print('begun', flush=True); time.sleep(3)")
    panel.wait(lambda sample: sample["state"] == "busy")
    time.sleep(0.8)
    panel.look()
    assert panel.quiet(1.0) == []
    kernel.wait(cell)
    assert panel.wait()["state"] == "idle"


def test_a_page_that_comes_while_c_code_holds_the_gil_is_told_at_once(kernel: Notebook) -> None:
    cell = kernel.send(HOLD_GIL.format(4_000_000), cell_id="held")
    kernel.wait_for_text(cell, "begun")
    began = time.monotonic()
    page = Panel(kernel).open()
    sample = page.wait()
    assert time.monotonic() - began < 3
    assert (sample["state"], sample["cell"]["id"]) == ("busy", "held")
    # the open is answered as any message is, and the indicator goes on to show the cell
    assert statuses(kernel, page.opened) == ["busy", "idle"]
    assert statuses(kernel, cell)[-1] == "busy"
    page.say(interval_ms=300)
    page.say(pause=True)
    kernel.strays += kernel._take(kernel.client.iopub_channel, 0.3)
    assert "idle" not in statuses(kernel, cell)
    page.say(resume=True)
    kernel.wait(cell)
    page.wait(lambda sample: sample["state"] == "idle")
    page.close()


def test_a_session_has_one_subscription_and_a_reloaded_page_is_another_session(kernel: Notebook) -> None:
    first = Panel(kernel, "browser-1").open()
    first.wait()
    second = Panel(kernel, "browser-1").open()
    second.wait()
    first.look(0.2)
    assert [message["content"] for message in first.closed] == [{"comm_id": first.comm_id, "data": {}}]
    other = Panel(kernel, "browser-2").open()
    other.wait()
    known = kernel.ask("comm_info_request", {}).content["comms"]
    assert sorted(known) == sorted([second.comm_id, other.comm_id])
    kernel.run("pass", cell_id="both")
    for page in (second, other):
        assert page.wait(lambda sample: sample["cells"])["cells"][0]["id"] == "both"
    assert first.quiet(0.2) == []
    assert second.closed == []
    second.quiet(0.6)
    second.close()
    kernel.run("pass", cell_id="one")
    assert other.wait(lambda sample: sample["cells"])["cells"][0]["id"] == "one"
    assert second.quiet(0.3) == []
    other.close()


def test_messages_on_the_channel_of_a_subshell_are_heard_and_its_cells_are_marked(kernel: Notebook) -> None:
    subshell = kernel.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    page = Panel(kernel).open(subshell=subshell)
    page.wait()
    page.say(subshell=subshell, pause=True)
    kernel.run("pass", cell_id="hidden")
    assert page.quiet(0.4) == []
    page.say(subshell=subshell, resume=True)
    page.wait()
    beside = kernel.send("import time; time.sleep(0.5)", cell_id="beside", subshell=subshell)
    assert page.wait(lambda sample: sample["state"] == "busy")["cell"]["id"] == "beside"
    kernel.wait(beside)
    page.wait(lambda sample: sample["state"] == "idle")
    kernel.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")
    page.close()


def test_orders_are_carried_out_between_cells_and_refused_while_one_runs(
    kernel: Notebook, panel: Panel
) -> None:
    panel.say(do="free")
    assert panel.wait(lambda sample: "said" in sample)["said"] == "nothing is on the device"
    panel.say(do="mode", mode="strict")
    told = panel.wait(lambda sample: "error" in sample)["error"]
    assert told == "torch is not imported yet: run a cell with `import torch` first"
    panel.say(do="mode", mode="slow")
    known = "there is no mode `slow`: strict, fused, debug, compiled"
    assert panel.wait(lambda sample: "error" in sample)["error"] == known
    panel.say(do="dance")
    told = panel.wait(lambda sample: "error" in sample)["error"]
    assert told == "there is no order `dance`: `free` or `mode`"
    cell = kernel.send(HOLD_GIL.format(1_500_000))
    kernel.wait_for_text(cell, "begun")
    panel.say(do="free")
    told = panel.wait(lambda sample: "error" in sample)
    assert told["error"] == "a cell runs: this waits for its end, or interrupt it first"
    assert told["state"] == "busy"
    kernel.wait(cell)
    # it was refused, not kept for later
    assert not any("said" in sample for sample in panel.quiet(0.6))


def test_an_interrupt_is_an_event_and_a_page_that_comes_later_is_told_of_it(
    kernel: Notebook, panel: Panel
) -> None:
    cell = kernel.send("import time; print('begun', flush=True); time.sleep(600)", cell_id="stopped")
    kernel.wait_for_text(cell, "begun")
    kernel.interrupt()
    kernel.wait(cell)
    (event,) = panel.wait(lambda sample: sample["events"])["events"]
    assert (event["kind"], event["text"], event["cell"]) == (
        "interrupted",
        "the cell was interrupted",
        "stopped",
    )
    later = Panel(kernel, "later").open()
    assert event in later.wait()["events"]
    later.close()


def test_what_is_no_message_of_the_feed_harms_nobody(kernel: Notebook, panel: Panel) -> None:
    for data in (None, [], "text", {"interval_ms": "soon"}, {"do": 7}, {"tensors": "many", "pause": 1}):
        content = {"comm_id": panel.comm_id, "data": data}
        kernel.wait(kernel.request("comm_msg", content), reply=False)
    panel.say(interval_ms=-5, tensors=False)
    kernel.run("pass", cell_id="after")
    assert panel.wait(lambda sample: sample["cells"])["cells"][0]["id"] == "after"
