"""How a cell is compiled: straight-line device work is outlined, all else stays module code.

names      what a statement reads and binds (syntax only)
hazards    which names code reads and rebinds behind a statement's back
functions  which names the notebook's functions see
values     what a live value is
classify   device work or Python, and why
known      names of Python and of torch whose meaning it knows
run        straight-line statements, planned when reached
outline    functions made of them, and what they bound
spent      which of that keeps its graph after `backward()`
body       blocks of statements, with the runs in them
calls      what their Python code asks on its way
cell       a lowered cell
callees    functions it calls that are lowered too
function   one of them
returning  what its `return` computes
training   which functions train
sources    the syntax tree of a function that exists
files      whose a source file is
backend    torch.compile
dynamo     what Dynamo's books say it did
causes     its reasons in plain words
findings   where in the cell that was
preview    a cell looked through without running it
texts      programs as StableHLO
session    cells kept by text; `run_cell` for magics and modes
"""

from __future__ import annotations

from .errors import CellError
from .findings import Finding
from .report import Report
from .session import Lowering

__all__ = ["CellError", "Finding", "Lowering", "Report"]
