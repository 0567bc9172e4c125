"""`%%tpu_compile`: this cell compiled."""

from __future__ import annotations

import time
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced

from ..cards import show
from ..cards.compile import CompileCard
from ..lowering import Report
from . import measure, options
from .running import lowering_of, run_body

_MAGIC = "%%tpu_compile"


@magics_class
class CompileMagics(Magics):
    """Runs a cell compiled."""

    @cell_magic
    @output_can_be_silenced
    def tpu_compile(self, line: str, cell: str) -> Any:
        """Run this cell with its device work compiled into programs.

        Usage:

          %%tpu_compile [--quiet]

        Straight-line device work and the bodies of loops become programs of their own; a
        training step (forward, `backward()`, `opt.step()`) becomes one program. Everything else
        runs as ordinary Python, and means what it means in a plain cell: assignments, imports,
        functions, classes, the last expression's `Out`, errors and their lines. Running the same
        text again compiles nothing.

        Under the cell a card says what was measured: programs compiled and executed, cache hits,
        compile time, and which lines ran eagerly and why.

        Differences from a plain cell: after `loss.backward()` in a program, `loss` and what it was
        made from have their values but no graph any more (`requires_grad` is False); an optimizer
        with a step counter on the CPU (Adam, AdamW, RMSprop) is made `capturable` for good.

        Options:

          --quiet  no card

        `await` cannot be compiled. Stacks with %%time and %%capture in either order.
        """
        chosen = options.read(_MAGIC, line, flags=("quiet",))
        lowering = lowering_of(self.shell)
        before = measure.counters()
        first, _ = measure.programs()
        started = time.perf_counter()
        if "quiet" in chosen:
            return run_body(self.shell, lowering, _MAGIC, cell)[0]
        report: Report | None = None
        try:
            value, report = run_body(self.shell, lowering, _MAGIC, cell)
        finally:
            if report is None:
                # An error: the card would only stand in the way of the traceback.
                lowering.last = None
        now = measure.counters(settle=True)
        used = now.since(before) if now is not None else None
        _, programs = measure.programs()
        show(CompileCard(report, used, time.perf_counter() - started, programs, first))
        return value
