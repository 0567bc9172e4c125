"""The magics of the kernel: one file each, listed once in `MAGICS`, registered by `load_ipython_extension`.

The table says which options each takes. It is what reads them (`options`), completes them
(`completion`), and what docs/magics.md is made from, together with the docstrings.

compile     %%tpu_compile
eager       %%tpu_eager
profile     %%tpu_profile
mode        %tpu_mode
limit       %tpu_limit
stats       %tpu_stats
memory      %tpu_mem
free        %tpu_free
watch       %tpu_watch
explain     %tpu_explain
options     their options, read the same way everywhere
completion  their options, completed
compare     --compare of %%tpu_compile
restoring   the state a cell starts from, kept and put back
measure     the only place that asks tpu-core for numbers
eagermode   the eager mode of TorchTPU
running     lowered cells on a shell: line numbers, tracebacks, the mode `compiled`

front_end        those without the device (%notebook, %edit, %whos …), registered by the shell
notebook_export  what %notebook writes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_EAGER = ("strict", "fused", "debug")


class Magic(NamedTuple):
    """One magic and what may stand on its line.

    Among words to choose from, one in capitals stands for any text (`SIZE`), and for one or more
    of them when it ends in dots (`NAME...`). `completion` knows what some of them mean.
    """

    name: str
    #: File in this package and class in it.
    place: str
    #: `line`, `cell` or `line_cell`.
    kind: str
    #: Options that stand alone.
    flags: tuple[str, ...] = ()
    #: Options with a value: the words it may be.
    values: Mapping[str, tuple[str, ...]] = {}
    #: The words that may stand by themselves.
    argument: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name as it is typed."""
        return ("%%" if self.kind == "cell" else "%") + self.name

    @property
    def usage(self) -> str:
        """One line that shows all of it."""
        parts = [f"[--{flag}]" for flag in self.flags]
        parts += [f"[--{name} {'|'.join(words)}]" for name, words in self.values.items()]
        if self.argument:
            parts.append(f"[{'|'.join(self.argument)}]")
        return " ".join([self.title, *parts])


MAGICS = (
    Magic(
        "tpu_compile",
        "compile:CompileMagics",
        "cell",
        flags=("explain", "fullgraph", "dynamic", "compare", "hlo", "quiet"),
        values={"save-hlo": ("FOLDER",)},
    ),
    Magic("tpu_eager", "eager:EagerMagics", "cell", values={"mode": _EAGER}),
    Magic("tpu_profile", "profile:ProfileMagics", "cell", flags=("xprof",), values={"to": ("FOLDER",)}),
    Magic("tpu_mode", "mode:ModeMagics", "line", argument=(*_EAGER, "compiled")),
    Magic("tpu_limit", "limit:LimitMagics", "line", argument=("SIZE", "off")),
    Magic("tpu_stats", "stats:StatsMagics", "line", flags=("live",)),
    Magic("tpu_mem", "memory:MemoryMagics", "line", values={"by": ("variable", "module", "cell")}),
    Magic("tpu_free", "free:FreeMagics", "line", flags=("out", "cache", "all"), argument=("NAME...",)),
    Magic("tpu_watch", "watch:WatchMagics", "line", argument=("on", "off")),
    Magic("tpu_explain", "explain:ExplainMagics", "line", argument=("OLD_NAME",)),
)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics on a shell. Each is imported when it is first looked up."""
    for magic in MAGICS:
        shell.magics_manager.register_lazy(magic.name, f"{__name__}.{magic.place}", magic.kind)
