"""`%%tpu_eager`: this cell eagerly, compiled functions included."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced

from ..lowering import Lowering
from ..lowering.backend import EagerBackend
from . import eagermode, options
from .running import run_body

_MAGIC = "%%tpu_eager"


@magics_class
class EagerMagics(Magics):
    """Runs a cell eagerly."""

    @cell_magic
    @output_can_be_silenced
    def tpu_eager(self, line: str, cell: str) -> Any:
        """Run this cell eagerly: functions made with `torch.compile` run uncompiled too.

        Usage:

          %%tpu_eager [--mode strict|fused|debug]

        Options:

          --mode  the eager mode for this cell; without it, the one in force stays:
                  strict  each operation is queued as it is reached
                  fused   operations are recorded, fused, and run when a value is needed
                  debug   each operation has ended before the next line, so that an error
                          names the line that caused it

        The mode in force before comes back when the cell ends, by an error or interrupt too.
        """
        chosen = options.read(_MAGIC, line, values={"mode": tuple(eagermode.MODES)})
        eagermode.torch_tpu(_MAGIC)
        import torch

        with torch.compiler.set_stance("force_eager"), eagermode.within(_MAGIC, chosen.get("mode")):
            return run_body(self.shell, Lowering(self.shell, EagerBackend()), _MAGIC, cell)[0]
