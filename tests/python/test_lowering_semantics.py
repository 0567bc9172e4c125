"""A lowered cell means what the plain cell means: names, Out, output, error and its line."""

from __future__ import annotations

import contextlib
import io
import itertools

import pytest
from lowering_cells import CELLS
from plain_and_lowered import EverythingOutlined, notebook, run_both
from tpu_kernel.lowering import Lowering


@pytest.mark.parametrize("name", CELLS)
def test_lowered_cell_means_what_the_plain_cell_means(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run_both(CELLS[name], EverythingOutlined(), monkeypatch)


def test_the_table_is_really_outlined() -> None:
    backend = EverythingOutlined()
    for cell in itertools.chain.from_iterable(CELLS.values()):
        shell = notebook()
        with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
            Lowering(shell, backend).run(cell)
    assert backend.called > 150
