"""The magics of the kernel: one file each, registered by `load_ipython_extension`.

compile   %%tpu_compile
eager     %%tpu_eager
mode      %tpu_mode
limit     %tpu_limit
stats     %tpu_stats
options   their options, read the same way everywhere
measure   the only place that asks tpu-core for numbers
eagermode the eager mode of TorchTPU
running   lowered cells on a shell: line numbers, tracebacks, the mode `compiled`
"""

from __future__ import annotations

from typing import Any

_MAGICS = (
    ("tpu_compile", "compile:CompileMagics", "cell"),
    ("tpu_eager", "eager:EagerMagics", "cell"),
    ("tpu_mode", "mode:ModeMagics", "line"),
    ("tpu_limit", "limit:LimitMagics", "line"),
    ("tpu_stats", "stats:StatsMagics", "line"),
)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics on a shell. Each is imported when it is first looked up."""
    for name, place, kind in _MAGICS:
        shell.magics_manager.register_lazy(name, f"{__name__}.{place}", kind)
