"""What the live feed asks of Python, between cells: the mode, the names of tensors, orders of a panel.

The feed itself (comm `tpu.stats`) is the io thread's and needs no Python. Looking for names does not
wait for the device, nor have anything computed: they are found as `holders` finds them.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from .. import _kernel
from ..output import jsontext

if TYPE_CHECKING:
    from ..cells.shell import NotebookShell

#: Tensors a table names; the rest is counted.
_MOST_ROWS = 20


def obey(shell: NotebookShell, order: str) -> None:
    """Do what is wanted, and tell the feed."""
    wanted = json.loads(order)
    answer: dict[str, Any] = {}
    try:
        if what := wanted.get("do"):
            answer["comm_id"] = wanted["comm_id"]
            answer["said"] = _free(shell) if what == "free" else _choose(shell, wanted.get("mode"))
        if wanted["tensors"]:
            answer["tensors"] = _table(shell)
    except Exception as failure:  # noqa: BLE001  a panel shows it
        answer["error"] = str(failure).partition("\n")[0] or type(failure).__name__
    answer["mode"] = _mode(shell)
    _kernel.feed_answer(jsontext.dumps(answer))


def _mode(shell: NotebookShell) -> str:
    """How the next cell runs. Imports nothing that is not there."""
    running: Any = sys.modules.get("tpu_kernel.magics.running")
    if running is not None and running.compiles_cells(shell):
        return "compiled"
    if "torch_tpu" not in sys.modules:
        return "strict"
    from ..magics import eagermode

    return eagermode.in_force() or "strict"


def _choose(shell: NotebookShell, mode: str | None) -> str:
    """Put a mode in force, as `%tpu_mode` does."""
    from ..magics import eagermode, running

    if mode not in (*eagermode.MODES, "compiled"):
        known = ", ".join((*eagermode.MODES, "compiled"))
        raise ValueError(f"there is no mode `{mode}`: {known}")
    if "torch" not in sys.modules:
        raise ValueError("torch is not imported yet: run a cell with `import torch` first")
    if mode != "compiled":
        eagermode.choose("%tpu_mode", mode)
    running.compile_cells(shell, mode == "compiled")
    return f"cells run {mode} from now on"


def _free(shell: NotebookShell) -> str:
    """Let go of what nobody names, as `%tpu_free` does. That waits for the device: a person asked."""
    from . import device

    if "torch" not in sys.modules or device.snapshot() is None:
        return "nothing is on the device"
    from ..cards import blocks
    from ..memory.freeing import Freeing

    freeing = Freeing(shell)
    freeing.unnamed()
    freed = max(0, freeing.before - freeing.now)
    return f"freed {blocks.size(freed)}; {blocks.size(freeing.now)} are in use"


def _table(shell: NotebookShell) -> dict[str, Any]:
    """The largest tensors on the device, by the names the notebook has for them."""
    from . import device

    counters = device.snapshot() if "torch_tpu" in sys.modules else None
    if counters is None:
        return {"total": 0, "unnamed_bytes": 0, "rows": []}
    from ..memory import holders

    table = holders.table(shell.user_ns, counters["live_bytes"])
    largest = table.holdings[:_MOST_ROWS]
    live = {cell["cell"]: cell["live_bytes"] for cell in device.holdings()["cells"]}
    cells = made_by([holding.bytes for holding in largest], live, shared=table.rest < 0)
    rows = [
        {
            "name": holding.names[0] if holding.names else "",
            "shape": str(list(holding.shape)),
            "dtype": holding.dtype,
            "bytes": holding.bytes,
            "cell": cell,
        }
        for holding, cell in zip(largest, cells, strict=True)
    ]
    return {"total": len(table.holdings), "unnamed_bytes": table.unnamed, "rows": rows}


def made_by(sizes: list[int], live: dict[str, int], shared: bool = False) -> list[str]:
    """The cell that made each of these, or "" where that is not certain.

    tpu-core counts what each cell made and is `live`, and knows no Python tensors. What is larger than all
    that is left of a cell is not that cell's; where one cell remains, it is its maker, and less is left of it.
    `shared`: tensors may have memory in common, so nothing is taken off.
    """
    left, makers = dict(live), [""] * len(sizes)
    open_ones = set(range(len(sizes)))
    found = True
    while found:
        found = False
        for index in sorted(open_ones):
            able = [cell for cell, bytes_left in left.items() if bytes_left >= sizes[index]]
            if len(able) == 1:
                makers[index], found = able[0], True
                open_ones.discard(index)
                left[able[0]] -= 0 if shared else sizes[index]
    return makers
