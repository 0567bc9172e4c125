"""Functions that train, called under `%%tpu_compile`: one program a step, and the results of eager.

Counts come from tpu-core. The kernel of this file keeps no programs on disk. A plain run comes first:
what eager execution needs is compiled by then, so what is counted is the compiled cell's own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running_kernel
from notebook import Notebook, Result
from training_cells import CASES, FOUR, PREPARE, SGD, STEP

# A wrong update is off by at least the learning rate.
TOLERANCE = "rtol=1e-3, atol=1e-4"


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as kernel:
        run(kernel, PREPARE)
        yield kernel


def run(notebook: Notebook, code: str) -> Result:
    result = notebook.run(code)
    assert result.status == "ok", result.content
    return result


def counts(notebook: Notebook) -> tuple[int, int]:
    return ast.literal_eval(run(notebook, "counted()").text or "")


def run_counted(notebook: Notebook, cell: str) -> tuple[tuple[int, int], str]:
    """Programs made and run by a cell, and its card."""
    before = counts(notebook)
    result = run(notebook, f"%%tpu_compile\n{cell}")
    after = counts(notebook)
    return (after[0] - before[0], after[1] - before[1]), result.displays[-1]["text/plain"]


# One kernel runs the cases in their order: a program that an earlier one made is not made again.
@pytest.mark.parametrize("name", CASES)
def test_programs_and_results_of_a_function_that_trains(notebook: Notebook, name: str) -> None:
    case = CASES[name]
    keep = f"[None if t is None else t.detach().cpu().clone() for t in [{case.names}]]"
    if case.functions:
        run(notebook, case.functions)
    run(notebook, f"{case.setup}\n{case.cell}\n_eager = {keep}")
    run(notebook, case.setup)
    first, card = run_counted(notebook, case.cell)
    run(
        notebook,
        f"_compiled = {keep}\nassert len(_eager) == len(_compiled)\n"
        f"for e, c in zip(_eager, _compiled):\n    torch.testing.assert_close(c, e, {TOLERANCE})",
    )
    run(notebook, case.setup)
    second, _ = run_counted(notebook, case.cell)
    assert (first, second) == (case.first, (0, case.second)), card
    # Without line ends, columns and the number of the cell with the functions.
    outside = " ".join(re.sub(r" of In\[\d+\]", "", card.partition("not in a program:\n")[2]).split())
    assert outside == " ".join(case.outside)


def test_function_of_a_file_that_is_defined_again_and_fails(notebook: Notebook, tmp_path: Path) -> None:
    file = tmp_path / "steps_of_a_file.py"
    file.write_text(
        STEP.replace("(x, y)", "(model, opt, x, y)", 1).replace(
            "\ndef", "from torch.nn import functional as F\ndef"
        )
    )
    run(
        notebook,
        f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nfrom steps_of_a_file import train_step\n{SGD}",
    )
    cell = "for x, y in batches * 2:\n    loss = train_step(model, opt, x, y)"
    programs, card = run_counted(notebook, cell)
    assert (programs[1], "not in a program" in card) == (4, False)

    run(notebook, STEP.replace("(x, y)", "(model, opt, x, y)", 1).replace("return loss", "return 'another'"))
    assert run_counted(notebook, cell)[0][1] == 4
    assert run(notebook, "loss").text == "'another'"

    run(notebook, STEP.replace("model(x)", "model(x.T)"))
    frames = (
        "import sys, traceback\n"
        "[(f.name, f.lineno) for f in traceback.extract_tb(sys.last_traceback) if 'site-packages' not in f.filename]"
    )
    assert notebook.run(f"\n{FOUR}").content["ename"] == "RuntimeError"
    plain = run(notebook, frames).text
    assert notebook.run(f"%%tpu_compile\n{FOUR}").content["ename"] == "RuntimeError"
    assert (run(notebook, frames).text, plain) == ("[('<module>', 3), ('train_step', 4)]",) * 2


def test_condition_on_a_tensor_is_named_where_it_is_nested(notebook: Notebook) -> None:
    run(
        notebook,
        "def gate(t):\n    for i in range(2):\n        if t.sum().item() > 1e9:\n            t = t + 1\n    return t",
    )
    cell = "for x, y in batches:\n    if x.sum() > 1e9:\n        x = x + 1\n    while x[0, 0] > 1e9:\n        pass\nr = gate(X)"
    _, card = run_counted(notebook, cell)
    outside = " ".join(re.sub(r" of In\[\d+\]", "", card.partition("not in a program:\n")[2]).split())
    why, cure = "the branch depends on values of a tensor", "Instead: torch.where(condition, a, b)"
    assert outside == (
        f"line 3 if x.sum() > 1e9: {why} {cure} line 5 while x[0, 0] > 1e9: {why} {cure} "
        f"line 7 if t.sum().item() > 1e9: in gate, line 3: {why} {cure}"
    )
