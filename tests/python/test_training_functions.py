"""Functions that train, called under `%%tpu_compile`: one program a step, and the results of eager.

Counts come from tpu-core. The kernel of this file keeps no programs on disk. A plain run comes first:
what eager execution needs is compiled by then, so what is counted is the compiled cell's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from conftest import running_kernel
from notebook import Notebook, Result
from training_cells import CASES, PREPARE

# A wrong update is off by at least the learning rate.
TOLERANCE = "rtol=1e-3, atol=1e-4"


@pytest.fixture(scope="module")
def notebook(kernelspec: str) -> Iterator[Notebook]:
    with running_kernel(kernelspec, env={"TPU_KERNEL_CACHE": "off"}) as kernel:
        run(kernel, PREPARE)
        yield kernel


def run(notebook: Notebook, code: str) -> Result:
    result = notebook.run(code, patience=120)
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
    outside = [line.strip() for line in card.partition("not in a program:\n")[2].splitlines()]
    assert outside == list(case.outside)
