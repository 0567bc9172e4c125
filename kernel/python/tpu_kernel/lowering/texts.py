"""`--hlo`: the programs of a cell as text, as TorchTPU hands them to XLA.

TorchTPU gives the text to its backend's `debug_callback`; nothing is asked of it without the option.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import backend as compiling


@dataclass(frozen=True)
class ProgramText:
    """One program: the lines of the cell it was made of, and its StableHLO without places."""

    lines: tuple[int, ...]
    #: `forward`, or `backward` where that is a program of its own.
    part: str
    text: str

    @property
    def operations(self) -> Counter[str]:
        return Counter(re.findall(r'(?:= |^ +)"?(?:stablehlo|chlo)\.(\w+)', self.text, re.MULTILINE))


class TextBackend(compiling.TorchBackend):
    """Compiles as always, and keeps the text of what it compiles, by cell."""

    def __init__(self) -> None:
        #: File of a cell -> lines and what TorchTPU told of each of its programs.
        self._told: dict[str, list[tuple[tuple[int, ...], Any]]] = {}

    @property
    def program_of(self) -> Callable[..., Any]:
        return self._program_of

    def _program_of(self, graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        outlined = compiling.running
        if outlined is not None:
            told = self._told.setdefault(outlined.function.__code__.co_filename, [])
            options["options"] = {
                "debug_callback": lambda debug: told.append((outlined.lines, debug)),
                # A program from PyTorch's own cache would come without its text.
                "serializable": False,
            }
        return compiling.program_of(graph, inputs, **options)

    def programs(self, file: str) -> list[ProgramText]:
        """The programs of a cell, as they were made."""
        found = []
        for lines, debug in self._told.get(file, []):
            for part in ("forward", "backward"):
                texts = getattr(debug, f"stablehlo_{part}_text")
                found += [ProgramText(lines, part, plain(text)) for text in texts]
        return found


def plain(text: str) -> str:
    """MLIR without the places in TorchTPU's own source, which are most of it."""
    text = re.sub(r"^#loc\d*(?: = .*)?\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?:#loc\d*|unknown|\"[^\"]*\"[^()]*(?:\([^()]*\))?)\)", "", text).strip() + "\n"
