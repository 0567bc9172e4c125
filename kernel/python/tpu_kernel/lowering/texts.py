"""`--hlo`: the programs of a cell as text, as TorchTPU hands them to XLA and as XLA keeps them.

TorchTPU gives the first to its backend's `debug_callback`, the plug-in the second; nothing is asked of
either without the option.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import backend as compiling
from .report import Report

if TYPE_CHECKING:
    from .cell import LoweredCell

#: What is in an optimised program and is no work.
_NO_WORK = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})


@dataclass(frozen=True)
class Optimized:
    """What XLA made of a program: a serialised `HloProto`, or why the plug-in gave none."""

    proto: bytes = b""
    problem: str = ""

    def text(self, whole: bool = False) -> str:
        """XLA's own notation; `whole`: with where each instruction comes from and XLA's notes."""
        from .. import _kernel

        return _kernel.hlo_text(self.proto, whole) if self.proto else ""

    @cached_property
    def computations(self) -> list[str]:
        """The text by computation, that which is run first."""
        found = re.findall(r"^(?:ENTRY )?%.*?^\}.*?$", self.text(), re.MULTILINE | re.DOTALL)
        return sorted(found, key=lambda text: not text.startswith("ENTRY "))

    @property
    def operations(self) -> Counter[str]:
        """What is run one after the other: the operations of the computation that is entered."""
        entered = self.computations[:1]
        names = re.findall(r"^  (?:ROOT )?%\S+ = .*? ([\w-]+)\(", "".join(entered), re.MULTILINE)
        return Counter(name for name in names if name not in _NO_WORK)


@dataclass(frozen=True)
class ProgramText:
    """One program: the lines of the cell it was made of, and its StableHLO without places."""

    lines: tuple[int, ...]
    #: `forward`, or `backward` where that is a program of its own.
    part: str
    text: str
    optimized: Optimized = Optimized()

    @property
    def operations(self) -> Counter[str]:
        names = re.findall(r'(?:= |^ +)"?(?:stablehlo|chlo)\.(\w+)', self.text, re.MULTILINE)
        return Counter(name for name in names if name != "return")


@dataclass(eq=False)
class _Told:
    """What TorchTPU told of a graph's programs: the file and lines it was traced in."""

    file: str
    lines: tuple[int, ...]
    programs: list[Any] = field(default_factory=list)


class TextBackend(compiling.TorchBackend):
    """Compiles as always, and keeps the text of what it compiles as long as the program is kept."""

    def __init__(self) -> None:
        #: Those that the last run of a cell ran, in the order of their first calls.
        self._ran: list[_Told] = []

    @contextlib.contextmanager
    def session(self, cell: LoweredCell) -> Iterator[None]:
        self._ran = []
        with super().session(cell):
            yield

    @property
    def program_of(self) -> Callable[..., Any]:
        return self._program_of

    def _program_of(self, graph: Any, inputs: Any, **options: Any) -> Callable[..., Any]:
        outlined = compiling.running
        if outlined is None:
            return compiling.program_of(graph, inputs, **options)
        told = _Told(outlined.function.__code__.co_filename, outlined.lines)
        # A program from PyTorch's own cache would come without its text.
        options["options"] = {"debug_callback": told.programs.append, "serializable": False}
        program = compiling.program_of(graph, inputs, **options)

        def noted(*arguments: Any) -> Any:
            if told not in self._ran:
                self._ran.append(told)
            return program(*arguments)

        return noted

    def programs(self, report: Report) -> list[ProgramText]:
        """The programs that a run of a cell and the functions it called ran."""
        told = [(ran.lines, each) for ran in self._ran if ran.file == report.file for each in ran.programs]
        for file, first, last, line in report.called:
            if file != report.file:
                made = [ran for ran in self._ran if ran.file == file and first <= ran.lines[0] <= last]
                told += [((line,), each) for ran in made for each in ran.programs]
        found = []
        for lines, debug in told:
            executables = dict(_executables(debug))
            for part in ("forward", "backward"):
                for text in getattr(debug, f"stablehlo_{part}_text"):
                    optimized = _optimized(executables.get(text))
                    found.append(ProgramText(lines, part, plain(text), optimized))
        return found


def _executables(debug: Any) -> Iterator[tuple[str, Any]]:
    """What was compiled of each text."""
    for artifact in debug.compiled_executables:
        for executable in artifact.compiled_executables:
            if text := getattr(executable, "mlir_text", None):
                yield text, executable


def _optimized(executable: Any) -> Optimized:
    """What the plug-in keeps of a program that is loaded; it is found by its fingerprint."""
    from .. import _kernel

    if executable is None:
        return Optimized(problem="TorchTPU does not say which program it is")
    try:
        return Optimized(_kernel.tpu_optimized(bytes.fromhex(executable.fingerprint())))
    except (RuntimeError, ValueError) as error:
        return Optimized(problem=str(error).partition("\n")[0] or "it gives no reason")


def plain(text: str) -> str:
    """MLIR without the places in TorchTPU's own source, which are most of it."""
    text = re.sub(r"^#loc\d*(?: = .*)?\n", "", text, flags=re.MULTILINE)
    return re.sub(r" loc\((?:#loc\d*|unknown|\"[^\"]*\"[^()]*(?:\([^()]*\))?)\)", "", text).strip() + "\n"
