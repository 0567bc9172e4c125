"""`%%tpu_compile`: this cell compiled."""

from __future__ import annotations

import time
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class

from ..cards import show
from ..cards.compile import CompileCard
from ..cards.hlo import HloCard
from ..cards.preview import PreviewCard
from ..lowering import Report
from ..lowering.backend import DynamicBackend, FullGraphBackend, is_emulated
from ..lowering.session import running_number
from ..lowering.texts import ProgramText, TextBackend
from ..tpu.device import drains
from . import measure, options
from .running import cell_lines, explain_body, is_all, is_timed, lowering_of, run_below, run_body

_MAGIC = "%%tpu_compile"
_KEPT_CARDS = 64


@magics_class
class CompileMagics(Magics):
    """Runs a cell compiled."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        #: The last card of each cell.
        self._cards: OrderedDict[str, CompileCard] = OrderedDict()

    @cell_magic
    def tpu_compile(self, line: str, cell: str) -> Any:
        """Run this cell compiled: its device work becomes programs.

        Usage:

          %%tpu_compile [--explain] [--fullgraph] [--dynamic] [--compare] [--hlo] [--quiet] [--save-hlo FOLDER]

        The cell means what it means without the magic: assignments, imports, functions and classes,
        the last expression's `Out`, exceptions and their lines. Running the same text again compiles
        nothing; new tensor shapes do.

        Options:

          --explain    say what would become programs and what would not, and why, without running
                       the cell: nothing is assigned, executed or drawn at random
          --fullgraph  end the cell at the first thing that touches the device and would be in no
                       program: the card and the error say what it is. What stood before it has run
          --dynamic    let sizes that change be sizes without a fixed value, in up to 4 buckets of 128:
                       on a chip only, the emulated one's compiler knows fixed sizes only
          --compare    run the cell eagerly and compiled in turn, and show how they differ
          --hlo        show each program as StableHLO and as the optimised HLO that XLA made of it,
                       folded, with an index of the operations
          --quiet      no card
          --save-hlo FOLDER  as --hlo, and write all of it into FOLDER: .stablehlo.mlir, and of the
                       optimised HLO .hlo.txt and .hlo.pb, which XLA's tools and XProf read

        What becomes a program:

        - straight-line device work: consecutive statements that compute with tensors or modules on
          the device;
        - the body of a loop, once for each turn. A training step (`zero_grad`, forward, `backward`,
          `opt.step`) is one program a turn. The loop itself stays Python;
        - the same in functions that the cell calls and that train: functions and methods of the
          notebook or of your own files, and what they call in turn. Also functions with a loop that
          reads values on the host, such as one that evaluates a model. The functions themselves are
          left as they are; other functions you call become part of the program that calls them;
        - blocks under `torch.no_grad()`, `torch.enable_grad()` or `torch.autocast(...)`.

        What stays Python, and is named on the card when it touches the device:

        - what needs a value on the host: `print`, `.item()`, `.cpu()`, `.tolist()`, `float()`,
          f-strings, `and`, `or`, conditions;
        - transfers (`.to("tpu")`, `torch.tensor`), and work on tensors that are on the CPU;
        - building modules, optimizers and other objects; definitions, imports, `del`, annotations,
          `lambda`, `:=`;
        - a statement with a number that changes from turn to turn, such as a loop counter: a program
          has its numbers built in, so it would be compiled again each time. Slice on a line of its own
          (`part = X[:, i]`): what is done to `part` is compiled, once;
        - statements that set a `.grad`; `backward()` with arguments, or through a graph that was made
          before a statement that stayed Python, or in another function, or where a parameter has a
          gradient hook;
        - functions that train and are generators, lambdas, `async` or call themselves, use `locals()`,
          `exec` or names like `self.__name`, are run by a library (`@torch.enable_grad()`), or have no
          source;
        - `GradScaler`, which bfloat16 does not need;
        - a name that a function of the notebook changes through `global`.

        Where PyTorch's compiler cannot follow, that part runs eagerly, with the same result and the
        same errors.

        The card: only what was measured while the cell ran, by the runtime session and by Dynamo,
        PyTorch's tracer. Programs compiled and the time that took, programs found in a cache instead,
        programs executed (those of eager lines too), graphs that Dynamo traced and their breaks, the
        lines that were compiled. What was compiled again and why: which name was what, and is what
        now. All that was not in a program, in one list with its line, its text, the reason and the
        usual cure: lines that ran eagerly, tensors that are on the CPU, and graph breaks, which are
        places in functions you call where a program ends and another begins. A cell from which no
        program was made says `ran eagerly`. A cell that ends in an error shows the error only.

        Optimizers: the steps of `SGD`, `Adam`, `AdamW`, `Adamax` and `RMSprop` go into programs;
        others step eagerly, and so do those with step hooks. Where the step counter is a CPU scalar
        (all of these but SGD), the optimizer is made `capturable`, PyTorch's option for a counter on
        the device. It stays so after the cell, and the card says so. A learning rate that a scheduler
        changes becomes an argument of the program: it is compiled once more, not at each change. Where a
        scheduler changes `momentum` or `betas` too, as `OneCycleLR` does, the step becomes eager.

        `--compare` runs the cell several times: eagerly once and compiled until nothing is compiled
        any more, then both in turn, up to five times each or 20 seconds. Before each run all that
        the cell starts from is put back bit-equal: the notebook's names, every tensor, container and
        object reached from the names the cell mentions (modules, optimizers, gradients), and the
        random number generators of Python, NumPy, PyTorch and the device; their values are kept on
        the host meanwhile. What was printed is shown once. The card shows the times, how much faster
        compiled is, and for each result the largest difference, also relative to the largest value;
        and it names what could not be put back. A cell that takes from an iterator made before it,
        opens files, asks for input or has magics is refused. The notebook is left as after one
        compiled run.

        Differences from a plain cell:

        - After `loss.backward()` in a program, `loss` and what it was made from keep their values but
          not their graph: `requires_grad` is False. In a plain cell the graph is there but used up.
        - `opt.zero_grad()` between the forward pass and `backward()` takes place before the forward
          pass; this shows only if the forward pass raises.
        - A cell that is not valid Python as a whole does not start; IPython runs the statements
          before a `return` outside a function.
        - Where a function of the notebook is traced by PyTorch's compiler, PyTorch's compiler leaves names that
          begin with `__` in the notebook, as it does for any compiled function.

        `await` cannot be compiled: put it into a cell of its own. `%%time`, `%%timeit`, `%%capture`
        and `%%prun` may stand above or below; the body of another cell magic is not compiled. There
        is no card under `%%timeit`. One cell at a time is compiled: one that a subshell runs meanwhile
        runs as it is, and its card says so. Of `%%tpu_eager` and `%%tpu_compile`, the lower one counts.
        """
        value = self._run(line, cell)
        # As IPython's `output_can_be_silenced`, which reads every cell for it.
        if value is not None and ";" in cell and DisplayHook.semicolon_at_end_of_expression(cell):
            return None
        return value

    def _run(self, line: str, cell: str) -> Any:
        chosen = options.read(_MAGIC, line)
        if (done := run_below(self.shell, _MAGIC, line, cell)) is not None:
            return done[0]
        lowering = lowering_of(self.shell)
        if "compare" in chosen:
            from .compare import compare

            return compare(self.shell, lowering, _MAGIC, cell)
        if "explain" in chosen:
            if len(chosen) > 1:
                raise UsageError(f"{_MAGIC}: `--explain` runs nothing, so it stands alone")
            preview = explain_body(self.shell, lowering, _MAGIC, cell)
            show(PreviewCard(preview, cell_lines(self.shell, cell)))
            return None
        if "fullgraph" in chosen:
            lowering = lowering_of(self.shell, "fullgraph", FullGraphBackend)
        if "hlo" in chosen or "save-hlo" in chosen:
            if "fullgraph" in chosen:
                raise UsageError(
                    f"{_MAGIC}: `--hlo` and `--fullgraph` do not go together: run one after the other"
                )
            lowering = lowering_of(self.shell, "hlo", TextBackend)
        if "dynamic" in chosen:
            if len(chosen) > 1:
                raise UsageError(f"{_MAGIC}: `--dynamic` goes with no other option")
            if is_emulated():
                raise UsageError(
                    f"{_MAGIC}: `--dynamic` needs a chip: the emulated one's compiler knows fixed sizes only. "
                    "Pad to one size, or leave out a last short batch"
                )
            lowering = lowering_of(self.shell, "dynamic", DynamicBackend)
        if "quiet" in chosen or is_timed():
            return run_body(self.shell, lowering, _MAGIC, cell)[0]
        began = _Begin()
        lowering.last = None
        try:
            value, report = run_body(self.shell, lowering, _MAGIC, cell)
        except UsageError:
            if "fullgraph" in chosen and lowering.last is not None:
                self._show(lowering.last, began, cell, ended=True)
            raise
        finally:
            # After any other error a card would only stand in the way of the traceback.
            lowering.last = None
        if isinstance(lowering.backend, TextBackend):
            self._show(report, began, cell)
            self._show_programs(lowering.backend.programs(report), chosen.get("save-hlo"))
            return value
        # Where nothing comes below the card, the end of the cell is waited for: to wait twice costs twice.
        ends = value is None and drains() and is_all(self.shell, cell)
        if not (ends and self.shell.when_done(partial(self._show, report, began, cell, done=True))):
            self._show(report, began, cell)
        return value

    def _show_programs(self, programs: list[ProgramText], folder: str | None) -> None:
        saved = save(programs, folder, f"cell-{running_number(self.shell)}", _MAGIC) if folder else ""
        show(HloCard(programs, saved))

    def _show(
        self, report: Report, began: _Begin, cell: str, ended: bool = False, done: bool = False
    ) -> None:
        """Show the card. `ended`: by `--fullgraph`; `done`: the device is."""
        # What follows the wait runs with the caches of the processor full of other things: it is kept short.
        known = self._cards.get(cell)
        if known is not None and not known.is_of(report, ended):
            known = None
        now = measure.counters(settle=not done)
        used = now.since(began.counters) if now is not None else None
        seconds = time.perf_counter() - began.moment
        card = known.repeated(used, seconds) if known is not None else None
        if card is None:
            programs = measure.programs() if used is not None and used.compiles else []
            source = cell_lines(self.shell, cell)
            card = self._cards[cell] = CompileCard(
                report, used, seconds, programs, began.unix_ns, source, ended
            )
            while len(self._cards) > _KEPT_CARDS:
                self._cards.popitem(last=False)
        show(card, self.shell)


def save(programs: list[ProgramText], folder: str, stem: str, magic: str) -> str:
    """Write each program into files of its own, relative to the notebook; what these are called."""
    place = Path(folder).expanduser()
    try:
        place.mkdir(parents=True, exist_ok=True)
        for number, program in enumerate(programs, 1):
            file = f"{stem}-program-{number}"
            (place / f"{file}.stablehlo.mlir").write_text(program.text, encoding="utf-8")
            if program.optimized.proto:
                (place / f"{file}.hlo.txt").write_text(program.optimized.text(whole=True), encoding="utf-8")
                (place / f"{file}.hlo.pb").write_bytes(program.optimized.proto)
    except OSError as error:
        raise UsageError(f"{magic}: cannot write to `{place}`: {error.strerror}") from None
    if not programs:
        return ""
    which = "1" if len(programs) == 1 else f"{{1…{len(programs)}}}"
    kinds = ["stablehlo.mlir"]
    if any(program.optimized.proto for program in programs):
        kinds += ["hlo.txt", "hlo.pb"]
    first, *others = (f".{kind}" for kind in kinds)
    return ", ".join([f"`{place}/{stem}-program-{which}{first}`", *(f"`{kind}`" for kind in others)])


class _Begin:
    """Where everything stood when a cell began."""

    def __init__(self) -> None:
        self.counters = measure.counters()
        self.unix_ns = time.time_ns()
        self.moment = time.perf_counter()
