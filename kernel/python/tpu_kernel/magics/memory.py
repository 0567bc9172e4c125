"""`%tpu_mem`: who holds HBM."""

from __future__ import annotations

import time
from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class

from ..cards import show
from ..cards.memory import CellsCard, MemoryCard, ModulesCard
from ..memory import holders, shortage
from ..tpu import device
from . import measure, options

_MAGIC = "%tpu_mem"
#: Seconds TorchTPU is given to free what was let go of, which it does on a thread of its own.
_PATIENCE, _LOOK = 0.3, 0.01


@magics_class
class MemoryMagics(Magics):
    """Shows who holds HBM."""

    @line_magic
    def tpu_mem(self, line: str) -> None:
        """Show who holds the device's memory (HBM), and what would be free if it went.

        Usage:

          %tpu_mem [--by variable|module|cell]

        Each row says how many of its bytes `del` would free: deleting a name frees only what nothing
        else holds, and the others that hold it are named. The same bytes are shown by what they are:
        parameters, gradients, optimizer state, what graphs keep for `backward()`, tensors in variables,
        outputs, the last traceback, running code.

        Options:

          --by  what the rows are; `variable` without it

        Rows:

          variable  variables, outputs, the last traceback, functions that other threads are in
          module    modules and their layers: weights, gradients, optimizer state
          cell      the cells that made what is live now, as the runtime session counts them

        All rows together are the bytes the runtime session counts. What no tensor of Python's holds
        is said with its bytes: scalars and programs' results TorchTPU keeps. Nothing is computed,
        copied from the device or waited for; an unevaluated tensor of the fused mode stays one and
        has no memory yet.
        """
        chosen = options.read(_MAGIC, line)
        if device.snapshot() is None:
            print(measure.NO_DEVICE)
            return
        by = chosen.get("by", "variable")
        if by == "cell":
            counters, cells = counted(), device.holdings()["cells"]
            show(CellsCard(measure.device_name(), counters, cells, self._cell))
            return
        table, counters = held(shares=by == "variable")
        kind = MemoryCard if by == "variable" else ModulesCard
        show(kind(measure.device_name(), counters, table))

    def _cell(self, cell: str) -> tuple[str, str]:
        """A cell's name and first line."""
        parents = getattr(self.shell, "cell_parents", {})
        numbers = [
            number for number, parent in list(parents.items()) if cell in (parent.cell_id, str(number))
        ]
        if not numbers:
            return "", ""
        codes = self.shell.history_manager.input_hist_raw
        code = codes[numbers[-1]] if numbers[-1] < len(codes) else ""
        return f"In[{numbers[-1]}]", next((line for line in code.splitlines() if line.strip()), "")


def held(shares: bool = True) -> tuple[holders.Table, dict[str, Any]]:
    """Who holds memory, and the counters it was held against."""
    counters = counted()
    # To ask a tensor whether it failed waits for it: not while something is computed.
    failures = counters["errors"] > 0 and counters["pending"] == 0
    table = holders.table(shortage.namespace(), counters["live_bytes"], failures=failures, shares=shares)
    return table, counters


def counted() -> dict[str, Any]:
    """Counters, once what was let go of is free. The device is not waited for."""
    deadline = time.monotonic() + _PATIENCE
    counters = device.snapshot() or {}
    while time.monotonic() < deadline:
        time.sleep(_LOOK)
        now = device.snapshot() or {}
        same = now["live_bytes"] == counters["live_bytes"]
        counters = now
        if same:
            break
    return counters
