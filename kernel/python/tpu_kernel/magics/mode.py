"""`%tpu_mode`: how the following cells run."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, line_magic, magics_class

from . import eagermode, options
from .running import compile_cells, compiles_cells

_MAGIC = "%tpu_mode"


@magics_class
class ModeMagics(Magics):
    """Chooses how the following cells run."""

    @line_magic
    def tpu_mode(self, line: str) -> Any:
        """Say, or choose, how the following cells run.

        Usage:

          %tpu_mode [strict|fused|debug|compiled]

        Alone it says which mode is in force, also one that was set through `torch.tpu.eager_mode`.

        Modes:

          strict    each operation is queued as it is reached: how a kernel starts
          fused     operations are recorded, fused, and run when a value is needed
          debug     each operation has ended before the next line
          compiled  each cell runs as under `%%tpu_compile --quiet`

        In `compiled`, cells that use `await`, and the bodies of other cell magics, run eagerly, in the
        eager mode that was in force. Any of the other three ends it.
        """
        chosen = options.read(_MAGIC, line).get("")
        if chosen == "compiled":
            compile_cells(self.shell, True)
        elif chosen is not None:
            eagermode.choose(_MAGIC, chosen)
            compile_cells(self.shell, False)
        print(describe(self.shell))


def describe(shell: Any) -> str:
    """The mode in force, in one line."""
    mode = eagermode.current()
    if mode is None:
        eager = "strict eager (torch_tpu is not loaded yet)"
    elif mode in eagermode.MODES:
        eager = f"{mode} eager: {eagermode.MODES[mode][1]}"
    else:
        eager = f"eager mode {mode}, set by user code"
    if compiles_cells(shell):
        return f"compiled: cells run as under %%tpu_compile; what stays eager is {eager}"
    return eager
