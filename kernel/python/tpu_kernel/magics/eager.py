"""`%%tpu_eager`: this cell eagerly, compiled functions included."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced

from ..lowering import CellError, Lowering
from ..lowering.backend import EagerBackend
from ..lowering.session import alone
from . import eagermode, options
from .running import eagerly, run_body

_MAGIC = "%%tpu_eager"


@magics_class
class EagerMagics(Magics):
    """Runs a cell eagerly."""

    @cell_magic
    @output_can_be_silenced
    def tpu_eager(self, line: str, cell: str) -> Any:
        """Run this cell eagerly, compiled functions included.

        Usage:

          %%tpu_eager [--mode strict|fused|debug]

        Functions made with `torch.compile` run uncompiled too.

        Options:

          --mode  the eager mode for this cell; without it, the one in force stays

        Modes:

          strict  each operation is queued as it is reached (TorchTPU: `DEFER_NEVER`)
          fused   operations are recorded, fused, and run when a value is needed (`DEFER_AND_FUSE`)
          debug   each operation has ended before the next line, so that an error names the line that
                  caused it (`DEFER_NEVER_AND_LAUNCH_BLOCKING`)

        The mode in force before comes back when the cell ends, by an error or an interrupt too. One cell
        at a time runs so: beside one that is compiled, or under this magic, in another subshell it is
        refused.
        """
        chosen = options.read(_MAGIC, line)
        eagermode.torch_tpu(_MAGIC)
        try:
            with alone("under %%tpu_eager"), eagerly(), eagermode.within(_MAGIC, chosen.get("mode")):
                return run_body(self.shell, Lowering(self.shell, EagerBackend()), _MAGIC, cell)[0]
        except CellError as error:
            raise UsageError(f"{_MAGIC}: {error}") from None
