"""Two cells that would be compiled at once, in the main shell and a subshell: each has its own counts."""

from __future__ import annotations

from notebook import Notebook

BUSY = """%%tpu_compile
y = X * 2 + 1
print('begun', flush=True)
while not globals().get('go'):
    time.sleep(0.01)
z = y * 3 - 1
z.sum().item()
"""
BESIDE = "%%tpu_compile\na = X + 1\na.sum().item()"


def card(displays: list[dict[str, str]]) -> str:
    """The text of the one card, as one line."""
    (shown,) = displays
    return " ".join(shown["text/plain"].split())


def test_a_cell_beside_a_compiled_one_runs_as_it_is_and_says_why(shared_kernel: Notebook) -> None:
    notebook = shared_kernel
    made = notebook.run("import time, torch; go = False; X = torch.ones(16, 8).to('tpu')", patience=120)
    assert made.status == "ok"
    subshell = notebook.ask("create_subshell_request", {}, channel="control").content["subshell_id"]
    cell = notebook.send(BUSY)
    begun = notebook.wait_for_text(cell, "begun", patience=120)
    beside = notebook.run(BESIDE, subshell=subshell, patience=120)
    refused = notebook.run(BESIDE.replace("compile", "compile --fullgraph"), subshell=subshell)
    previewed = notebook.run(BESIDE.replace("compile", "compile --explain"), subshell=subshell)
    compared = notebook.run(BESIDE.replace("compile", "compile --compare"), subshell=subshell)
    notebook.run("go = True", subshell=subshell)
    main = notebook.wait(cell, patience=120)
    main.messages[:0] = begun
    after = notebook.run(BESIDE, subshell=subshell, patience=120)
    notebook.ask("delete_subshell_request", {"subshell_id": subshell}, channel="control")

    assert (beside.status, beside.text) == ("ok", "256.0")
    assert "ran eagerly" in card(beside.displays)
    assert "It ran as it is: another cell was running compiled, and one at a time can." in card(
        beside.displays
    )
    for result in (refused, previewed, compared):
        assert result.content["ename"] == "UsageError"
        assert result.content["evalue"].endswith(
            ": another cell is running compiled, and one at a time can: run this when that one has ended"
        )
    assert (main.status, main.text) == ("ok", "1024.0")
    assert card(main.displays).startswith("compiled · lines 2, 6 · ")
    assert "graphs traced 2 (0 breaks)" in card(main.displays)
    assert card(after.displays).startswith("compiled · line 2 · ")
