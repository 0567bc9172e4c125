"""Out of device memory, told in full: what was wanted and where, what is free, who holds the rest, what to do.

tpu-core refuses what does not fit and says how much was wanted. TorchTPU passes that on as a
RuntimeError; a notebook gets `torch.OutOfMemoryError`, as PyTorch raises it elsewhere, and above it a
card that says the same.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any

from .storages import root_of

#: The sentence of tpu-core, wherever TorchTPU has put it.
_REFUSED = re.compile(
    r"out of device memory: (?P<what>.*?) needs (?P<wanted>[\d.]+ ?\w+) more, (?P<free>[\d.]+ ?\w+) of "
    r"(?P<limit>[\d.]+ ?\w+) are free \((?P<used>[\d.]+ ?\w+) in use\)",
    re.DOTALL,
)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NO_VALUE = "this has no value"
_MOST_HOLDERS = 5


@dataclass
class Diagnosis:
    """Why it did not fit, for the error's text and for the card. Holds no tensor."""

    said: str
    #: Who holds memory now.
    held: Any
    wanted: int = 0
    free: int = 0
    limit: int = 0
    #: Bytes there were in use at the failure and are not any more.
    freed: int = 0
    #: Bytes that the error before had kept, which are free by now.
    kept: int = 0
    #: Where it was wanted, as `In[8], line 3`, and that line; "" where nobody knows.
    place: str = ""
    source: str = ""
    #: What was to be made, as `f32 8×4`; "" where it is not one tensor.
    shape: str = ""
    #: Names that may go, since the cell does not use them, and what that frees.
    spare: list[str] = field(default_factory=list)
    spare_bytes: int = 0
    #: The batch that explains the size, and the one that would fit; 0 for none. `rows_of`: the tensor it is
    #: the rows of, where that may be no batch. `certain`: nothing follows in the line that might need more.
    batch: int = 0
    fitting: int = 0
    rows_of: str = ""
    certain: bool = False
    #: Names to which the line gives a new value while they still hold an old one, with its bytes; and the bytes
    #: that are free without all of them.
    old: dict[str, int] = field(default_factory=dict)
    old_bytes: int = 0
    #: Names of what was lost by it, and of models and what trains them among it.
    lost: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    #: One of these stands where an old one stood until then.
    anew: bool = False
    #: The cell that assigned a name last, by name.
    assigned: dict[str, str] = field(default_factory=dict)
    #: The card was shown.
    shown: bool = False

    def lines(self) -> list[str]:
        """What the error says after its first line."""
        from ..cards.blocks import size

        lines = [f"Wanted by {self.place}: `{self.source}`."] if self.source else []
        lines.append(f"Held by {_list(self.held)}.")
        if self.freed:
            lines.append(f"{size(self.freed)} of it are free by now: {self.freed_words()}")
        return lines + self.cures() + self.losses()

    def freed_words(self) -> str:
        """What it was that was in use and is free by now, and what follows."""
        if self.models and not self.anew:
            return "what was computed on the way, and what was lost."
        return (
            "what variables held that the cell has assigned again, or what its functions held. Run the cell again; "
            "delete such a variable (`del`) before it is assigned."
        )

    def cures(self) -> list[str]:
        """What to do, a sentence each."""
        from ..cards.blocks import size
        from ..cards.memory import delete

        cures = []
        there = self.free + self.old_bytes + self.kept + (self.freed if self.anew else 0)
        fits = there + self.spare_bytes >= self.wanted > 0
        missing = self.wanted - there - self.spare_bytes
        enough = (
            "Then it fits." if self.certain else "Then there is room for this, not yet for what may follow."
        )
        if self.kept:
            again = "run the cell again" if there >= self.wanted else "this cell has them"
            cures.append(f"{size(self.kept)} were kept by the error before and are free now: {again}.")
        for name, count in self.old.items():
            cell = f"{self.assigned[name]}, " if self.assigned.get(name) else ""
            cures.append(
                f"The old `{name}` ({cell}{size(count)}) is kept until the new one is made: `del {name}` before this cell."
            )
        worth = missing / 8  # less is not worth a line
        if self.spare and (fits or self.spare_bytes > worth):
            line = f"Would free {size(self.spare_bytes)}: `{delete(self.spare)}`"
            cures.append(f"{line}. {enough if fits else f'Even then {size(missing)} are missing.'}")
        rows = self.held.by_root()[:_MOST_HOLDERS]
        graphs = [group for group in self.held.groups()[:_MOST_HOLDERS] if group.kind == "graph"]
        if graphs and graphs[0].bytes > worth:
            cures.append(_of_graph(graphs[0]))
        kept = sum(total for _, kind, _, total in rows if kind == "traceback")
        if kept > max(worth, 0):
            cures.append(
                f"{size(kept)} are held by the functions that this error ended: they are free in the next cell."
            )
        if self.held.unnamed > max(worth, 0):
            cures.append(
                f"{size(self.held.unnamed)} have no name here: `%tpu_free` frees what only reference cycles keep."
            )
        if self.fitting:
            what = (
                f"{self.batch:,} rows of `{self.rows_of}` do"
                if self.rows_of
                else f"A batch of {self.batch:,} does"
            )
            cures.append(
                f"{what} not fit in this line; about {self.fitting:,} would."
                if self.certain
                else f"{what} not fit. At most about {self.fitting:,} can, fewer where more follows in the same step."
            )
        elif not fits or not (self.spare or self.old or self.kept or self.anew):
            cures.append("Compute on smaller tensors, such as a smaller batch.")
        return cures

    def losses(self) -> list[str]:
        """Which tensors were lost by it."""
        from . import lost

        if not self.lost:
            return []
        said = f"Lost, because what computes them failed: {lost.words(self.lost)}. Compute them again."
        if not self.models:
            return [said]
        cells = sorted({cell for name in self.models if (cell := self.assigned.get(name))})
        again = f" ({', '.join(cells)})" if cells else ""
        anew = f"Make {_and(self.models)} again{again}. "
        return [
            said,
            anew + "In `%tpu_mode debug` a cell ends where it does not fit, before it comes to the weights.",
        ]


def refusal(text: str) -> str | None:
    """What tpu-core said when it refused something, if this text is about that."""
    found = _REFUSED.search(text)
    return found[0] if found else None


def explained(error: BaseException) -> BaseException:
    """The error itself; or, where memory ran out, a `torch.OutOfMemoryError` that says who holds it.

    The same object for the same error, and its traceback stays the user's.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return error
    told = getattr(error, "_tpu_explained", None)
    if told is not None:
        return told
    said = refusal(str(error))
    if said is None or "\nHeld by" in str(error):
        return error
    from ..tpu import device

    if not device.failed_here():
        return _as_shown(error, _old(said))
    try:
        diagnosis = diagnose(said, error)
    except Exception:  # noqa: BLE001  what there is to say of it without the notebook is said in any case
        from ..loop import report_fault

        report_fault()
        diagnosis = None
    explained = torch.OutOfMemoryError(
        "\n".join([f"{_plain(said)}.", *(diagnosis.lines() if diagnosis else [])])
    )
    explained._tpu_diagnosis = diagnosis
    return _as_shown(error, explained)


def advice(error: BaseException) -> Any:
    """What `%tpu_explain` says of an error of the device's memory; None for another."""
    from ..cards.blocks import size
    from ..explain import Advice

    diagnosis: Diagnosis | None = getattr(error, "_tpu_diagnosis", None)
    if diagnosis is None:
        words, _, cure = str(error).partition("\n")
        return (
            Advice(words, cure.replace("\n", " ")) if refusal(words) or words.startswith(_NO_VALUE) else None
        )
    what = f"`{diagnosis.source}` ({diagnosis.place})" if diagnosis.source else "What the cell asked for"
    words = f"{what} needed {size(diagnosis.wanted)} more of the device's memory (HBM), {size(diagnosis.free)} were free."
    return Advice(words, " ".join(diagnosis.cures() + diagnosis.losses()))


def _old(said: str) -> BaseException:
    """A value is read for which memory ran out in an earlier cell."""
    from . import lost

    place, names = lost.before()
    left = (
        f"Without a value since then: {lost.words(names)}. Compute them again."
        if names
        else "Compute it again."
    )
    what = _plain(said).removeprefix("out of device memory: ").replace(" needs ", " needed ", 1)
    what = what.replace(" are free ", " were free ", 1)
    return sys.modules["torch"].OutOfMemoryError(
        f"{_NO_VALUE}: the device was out of memory in {place}, where it was to be computed.\n{left}\nThen {what}."
    )


def _plain(said: str) -> str:
    """With no name of a compiled function's program: that is a place in TorchTPU's own source."""
    return re.sub(r"program `tt_jit_export_\w+`", "a compiled program", said)


def _as_shown(error: BaseException, explained: Any) -> BaseException:
    """What is shown in place of an error."""
    explained.__traceback__ = error.__traceback__
    explained.__cause__, explained.__suppress_context__ = error.__cause__, error.__suppress_context__
    explained.__notes__ = list(getattr(error, "__notes__", []))
    explained._tpu_from = (error,)
    error._tpu_explained = explained  # type: ignore[attr-defined]
    return explained


def show_card(error: BaseException | None) -> None:
    """The card that belongs to an error, once, above it."""
    diagnosis: Diagnosis | None = getattr(error, "_tpu_diagnosis", None)
    if diagnosis is None or diagnosis.shown:
        return
    diagnosis.shown = True
    from ..cards import show
    from ..cards.shortage import ShortageCard
    from ..magics.measure import device_name

    show(ShortageCard(device_name(), diagnosis))


def diagnose(said: str, error: BaseException | None = None) -> Diagnosis | None:
    """Why something did not fit; None where there is no device."""
    from ..tpu import device
    from . import batches, demand, freeing, holders, lost

    counters = device.snapshot()
    if counters is None:
        return None
    names = namespace()
    used = counters["live_bytes"]
    live = freeing.forget_shown_and_count()
    held = holders.table(names, live, error, failures=counters["errors"] > 0, shares=True)
    made = Diagnosis(said, held)
    if found := _REFUSED.search(said):
        made.wanted, made.free = _bytes(found["wanted"]), _bytes(found["free"])
        made.limit, used = _bytes(found["limit"]), _bytes(found["used"])
        before = counters["live_bytes"] - live
        made.kept = before if before > made.wanted / 8 else 0
        freed = used - live - made.kept
        made.freed = freed if freed > used / 8 else 0
        made.wanted = demand.exact(found["what"], made.wanted)
    cell = demand.running_cell()
    made.lost = lost.names_of(lost.news(held.gone))
    place = demand.place_of(error, cell, made.lost, names, made.wanted)
    lost.happened(place.words)
    made.place, made.source, made.shape = place.words, place.line, place.shape
    groups = held.groups()[:8]
    gone = {address for each in lost.news(held.gone) for address in each.tensors}
    roots = {root_of(name, "variable") for name in made.lost}
    made.models = sorted(
        name for name, value in names.items() if is_model(value) and (name in roots or _trains(value, gone))
    )
    made.anew = demand.overwritten(made.models, cell)
    told = {*(group.root for group in groups), *made.models}
    made.assigned = {root: demand.assigned_in(root, cell, place.number) for root in told}
    again = demand.assigned_again(cell, place.number) if place.number else set()
    made.old = {
        group.name: group.alone for group in groups if group.name in again and group.alone > made.wanted / 8
    }
    made.old_bytes = held.freed_by(made.old)
    used_names = demand.names_used(cell.code, names) if cell is not None else set()
    missing = made.wanted - made.free - made.old_bytes - made.kept
    made.spare, made.spare_bytes = _spare(held, used_names, names, missing)
    made.certain = demand.is_one_operation(place, names)
    made.batch, made.fitting, made.rows_of = batches.fitting(made, place, names, used - live)
    return made


def is_model(value: Any) -> bool:
    """A model, or what trains one."""
    torch = sys.modules["torch"]
    return issubclass(type(value), (torch.nn.Module, torch.optim.Optimizer))


def _trains(value: Any, gone: set[int]) -> bool:
    """An optimizer of parameters that are lost."""
    groups = value.param_groups if issubclass(type(value), sys.modules["torch"].optim.Optimizer) else ()
    return any(id(each) in gone for group in groups for each in group["params"])


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+) ?(\w+)", text).groups()  # type: ignore[union-attr]
    return round(float(number) * _UNITS.get(unit, 0))


def _spare(held: Any, used: set[str], names: dict[str, Any], missing: int) -> tuple[list[str], int]:
    """What can go because the cell does not use it, the largest first, and the bytes that frees: no more than
    is needed. Models and what trains them come last: a person can seldom do without."""
    from .freeing import output_number

    deletable: list[str] = []
    kept: list[str] = []
    for group in held.groups()[:_MOST_HOLDERS]:
        value = names.get(group.root)
        # a name that cannot be typed cannot be deleted by one line
        is_mine = (group.root in names and group.root.isidentifier()) or output_number(group.root) is not None
        if is_mine and group.root not in used and group.kind not in ("traceback", "running"):
            (kept if is_model(value) else deletable).append(group.root)
    chosen: list[str] = []
    if missing <= 0:
        return [], 0
    for name in dict.fromkeys(deletable + kept):
        if missing <= held.freed_by(chosen):
            break
        if held.freed_by([*chosen, name]) > held.freed_by(chosen) + missing // 100:
            chosen.append(name)
    return chosen, held.freed_by(chosen)


def namespace() -> dict[str, Any]:
    """The notebook's variables."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


def _of_graph(group: Any) -> str:
    """What to do about graphs that keep what they were made from."""
    name = group.root
    inside = {each.names[0].removeprefix("graph of ") for each in group.members} != {name}
    if inside:
        return f"What is in `{name}` keeps its graphs and their inputs: put `….detach()` or `….item()` into it instead."
    return f"The graph of `{name}` keeps its inputs: call `backward()`, or keep `{name}.detach()`."


def _and(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _list(held: Any) -> str:
    from ..cards.blocks import size

    parts = []
    rows = held.by_root()
    for name, _, count, total in rows[:_MOST_HOLDERS]:
        what = f"`{name}`" if name else "tensors without a name in the notebook"
        parts.append(f"{what} {size(total)}" + (f" in {count:,} tensors" if count > 1 else ""))
    others = sum(total for *_, total in rows[_MOST_HOLDERS:])
    if others:
        parts.append(f"others {size(others)}")
    if held.rest > 0:
        parts.append(f"TorchTPU {size(held.rest)}")
    return ", ".join(parts) or "nobody"
