"""How a cell is compiled: straight-line device work is outlined, all else stays module code.

names      what a statement reads and binds (syntax only)
hazards    which names the notebook's functions see
values     what a live value is
classify   device work or Python, and why
run        straight-line statements, planned when reached
outline    functions made of them, and what they bound
cell       a lowered cell
backend    torch.compile
session    cells kept by text; `run_cell` for magics and modes
"""

from __future__ import annotations

from .report import Report
from .session import CellError, Lowering

__all__ = ["CellError", "Lowering", "Report"]
