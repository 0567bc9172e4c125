"""The magics of the kernel: one file each, registered by `load_ipython_extension`.

compile   %%tpu_compile
eager     %%tpu_eager
mode      %tpu_mode
stats     %tpu_stats
options   their options, read the same way everywhere
measure   the only place that asks tpu-core for numbers
eagermode the eager mode of TorchTPU
running   lowered cells on a shell: line numbers, tracebacks, the mode `compiled`
"""

from __future__ import annotations

from typing import Any


def load_ipython_extension(shell: Any) -> None:
    """Register the magics on a shell. Imports no torch."""
    from .compile import CompileMagics
    from .eager import EagerMagics
    from .mode import ModeMagics
    from .running import trim_tracebacks
    from .stats import StatsMagics

    shell.register_magics(CompileMagics, EagerMagics, ModeMagics, StatsMagics)
    trim_tracebacks(shell)
