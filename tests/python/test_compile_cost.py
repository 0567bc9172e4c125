"""What a `%%tpu_compile` cell costs when it runs again, counted: no look through the memory, few questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from notebook import Notebook, Result

SETUP = """
import gc
import torch
from tpu_kernel import _kernel

counts = {"looks": 0, "snapshots": 0}

def counted(name, call):
    def inner(*arguments):
        counts[name] += 1
        return call(*arguments)
    return inner

gc.get_referrers = counted("looks", gc.get_referrers)
_kernel.tpu_snapshot = counted("snapshots", _kernel.tpu_snapshot)

x = torch.full((4,), 3.0).to("tpu")
tensors = list(torch.ones(3000).to("tpu").unbind())
for number in range(200):
    exec(f"def function_{number}():\\n    return tensors[{number}]")
"""
TAKEN = "counts['looks'], counts['snapshots'], [counts.update(dict.fromkeys(counts, 0))][1:]"
BODY = "y = torch.tanh(x) * 3\nz = y + x"
COMPILED = f"%%tpu_compile --quiet\n{BODY}"


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as notebook:
        ready = notebook.run(SETUP)
        assert ready.status == "ok", ready.content
        for cell in (COMPILED, COMPILED.replace(" --quiet", ""), BODY):
            assert notebook.run(cell).status == "ok"
        yield notebook


def looks(notebook: Notebook, *cells: str) -> int:
    """How often the garbage collector was asked for the notebook's functions while cells ran."""
    return counts(notebook, *cells)[0]


def counts(notebook: Notebook, *cells: str) -> tuple[int, int]:
    notebook.run(TAKEN)
    for cell in cells:
        result = notebook.run(cell)
        assert result.status == "ok", result.content
    found, snapshots, _ = eval(notebook.run(TAKEN).text or "")
    return found, snapshots


def cards(result: Result) -> list[str]:
    """What was shown; a slow machine also shows what takes long, which has an identity."""
    return [c["data"]["text/plain"] for c in result.contents("display_data") if not c["transient"]]


def test_a_second_run_asks_the_session_before_and_after_for_its_card_and_not_at_all_without(
    notebook: Notebook,
) -> None:
    plain = counts(notebook, BODY)[1]
    assert counts(notebook, COMPILED) == (0, plain)
    assert counts(notebook, COMPILED.replace(" --quiet", "")) == (0, plain + 2)


def test_a_card_is_made_once_for_runs_that_differ_in_their_time_alone(notebook: Notebook) -> None:
    notebook.run(
        "from tpu_kernel.cards import compile as _cards\n"
        "_made, _fitting = [], _cards.fitting\n"
        "_cards.fitting = lambda html, rows: [_made.append(rows), _fitting(html, rows)][1]"
    )
    cell = "%%tpu_compile\nfor turn in range(turns):\n    w = x * 2 + 1\n    print(turn)"
    told = []
    for turns in (2, 2, 2, 3, 3):
        notebook.run(f"turns = {turns}")
        (card,) = cards(notebook.run(cell))
        (executed,) = [line.split()[-1] for line in card.splitlines() if "programs executed" in line]
        told.append((int(executed), int(notebook.run("len(_made)").text or "")))
    notebook.run("_cards.fitting = _fitting")
    # one for the run that compiled, then one for each number of programs
    assert told == [(2, 1), (2, 2), (2, 2), (3, 3), (3, 3)]


def test_a_second_run_sends_its_card_and_nothing_else(notebook: Notebook) -> None:
    quiet = notebook.run(COMPILED)
    assert (quiet.types, cards(quiet)) == (["execute_input"], [])
    shown = notebook.run(COMPILED.replace(" --quiet", ""))
    (card,) = cards(shown)
    assert card.startswith("compiled · lines 2–3 · ")
    assert "programs compiled  0\n" in card and card.endswith("programs executed  1")


def test_functions_are_looked_for_only_where_a_cell_may_have_made_one_that_matters(
    notebook: Notebook, tmp_path: Path
) -> None:
    assert looks(notebook, COMPILED) == 0
    # Nothing in these concerns `x`, `y` or `z`.
    other = "key = lambda pair: pair[1]\ndef show(x):\n    return x, number"
    assert looks(notebook, other, COMPILED, other, COMPILED) == 0
    for harmless in (
        "layer = torch.nn.Linear(2, 2).eval()",
        f"%%time\n{COMPILED}",
        "%%time\nfor x1 in 'a': ...",
    ):
        assert looks(notebook, harmless, COMPILED) == 0, harmless
    # Nobody knows what these run.
    script = tmp_path / "script.py"
    script.write_text("")
    for unknown in ("exec('')", "%load_ext storemagic", f"%%time\n%run -i {script}", "import pickle"):
        assert looks(notebook, unknown, COMPILED) == 1, unknown
    assert looks(notebook, COMPILED, COMPILED) == 0


def test_a_cell_that_reads_a_scope_does_not_look_at_each_turn(notebook: Notebook) -> None:
    loop = "%%tpu_compile --quiet\nfor i in range(5):\n    y = torch.tanh(x) * 3\n    if vars() is None:\n        print(i)"
    assert notebook.run(loop).status == "ok"
    assert looks(notebook, loop) == 0


def test_what_a_function_of_the_notebook_reads_is_known_after_each_edit(notebook: Notebook) -> None:
    reads, leaves = "def scaled(t):\n    return t * factor", "def scaled(t):\n    return t * 2"
    cell = "%%tpu_compile\nfactor = x + 1\nresult = scaled(x)"

    def ran(*cells: str) -> tuple[int, str, str]:
        """Looks, the result, and the programs the compiled cell at the end executed."""
        notebook.run(TAKEN)
        *_, last = [notebook.run(each) for each in cells]
        (card,) = cards(last)
        found = eval(notebook.run(TAKEN).text or "")[0]
        executed = re.search(r"programs executed  (\d+)", card)
        assert executed, card
        return found, notebook.run("result.tolist()").text or "", executed[1]

    assert ran("factor = x", reads, cell) == (1, "[12.0, 12.0, 12.0, 12.0]", "2")
    assert ran(cell) == (0, "[12.0, 12.0, 12.0, 12.0]", "2")
    # The same again changes nothing.
    assert ran("factor = x", reads, cell) == (0, "[12.0, 12.0, 12.0, 12.0]", "2")
    assert ran(leaves, cell) == (1, "[6.0, 6.0, 6.0, 6.0]", "1")
    assert ran(cell) == (0, "[6.0, 6.0, 6.0, 6.0]", "1")
    # Another way to run compiled in between is told too, and does not keep it for itself.
    other = "%%tpu_compile --fullgraph\ndoubled = x * 2\ntripled = doubled + x"
    assert ran("factor = x", reads, other, cell) == (1, "[12.0, 12.0, 12.0, 12.0]", "2")
    assert ran(leaves, other, cell)[1:] == ("[6.0, 6.0, 6.0, 6.0]", "1")
