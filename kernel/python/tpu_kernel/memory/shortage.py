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

#: The sentence of tpu-core, wherever TorchTPU has put it.
_REFUSED = re.compile(
    r"out of device memory: (?P<what>.*?) needs (?P<wanted>[\d.]+ ?\w+) more, (?P<free>[\d.]+ ?\w+) of "
    r"(?P<limit>[\d.]+ ?\w+) are free \((?P<used>[\d.]+ ?\w+) in use\)",
    re.DOTALL,
)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MOST_HOLDERS = 5
_MOST_LOST = 10


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
    #: Names to which the line gives a new value while they still hold an old one, with its bytes.
    old: dict[str, int] = field(default_factory=dict)
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
            lines.append(
                f"{size(self.freed)} of it are free by now: what variables held that the cell has assigned again, or "
                "what its functions held. Run the cell again; delete such a variable (`del`) before it is assigned."
            )
        return lines + self.cures() + self.lost()

    def cures(self) -> list[str]:
        """What to do, a sentence each."""
        from ..cards.blocks import size
        from ..cards.memory import delete

        cures = []
        for name, count in self.old.items():
            cell = f"{self.assigned[name]}, " if self.assigned.get(name) else ""
            cures.append(
                f"The old `{name}` ({cell}{size(count)}) is kept until the new one is made: `del {name}` before this cell."
            )
        fits = self.free + self.spare_bytes >= self.wanted > 0
        missing = self.wanted - self.free - self.spare_bytes
        worth = missing / 8  # less is not worth a line
        if fits or self.spare_bytes > worth:
            line = f"Would free {size(self.spare_bytes)}: `{delete(self.spare)}`"
            cures.append(f"{line}. {'Then it fits.' if fits else f'Even then {size(missing)} are missing.'}")
        rows = self.held.by_root()[:_MOST_HOLDERS]
        graphs = [
            name.removeprefix("graph of ")
            for name, kind, _, total in rows
            if kind == "graph" and total > worth
        ]
        if graphs:
            cures.append(
                f"The graph of `{graphs[0]}` keeps its inputs: call `backward()`, or keep `{graphs[0]}.detach()`."
            )
        if any(kind == "traceback" and total > worth for _, kind, _, total in rows):
            cures.append("What the last traceback holds goes with the next error, or with `%tpu_free`.")
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
        elif not self.spare_bytes or self.free + self.spare_bytes < self.wanted:
            cures.append("Compute on smaller tensors, such as a smaller batch.")
        return cures

    def lost(self) -> list[str]:
        """Which tensors were lost by it."""
        if not self.held.lost:
            return []
        names = ", ".join(f"`{name}`" for name in self.held.lost[:_MOST_LOST])
        more = f" and {len(self.held.lost) - _MOST_LOST} more" if len(self.held.lost) > _MOST_LOST else ""
        return [f"Lost, because what computes them failed: {names}{more}. Compute them again."]


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
    try:
        diagnosis = diagnose(said, error)
    except Exception:  # noqa: BLE001  what there is to say of it without the notebook is said in any case
        from ..loop import report_fault

        report_fault()
        diagnosis = None
    explained = torch.OutOfMemoryError("\n".join([said + ".", *(diagnosis.lines() if diagnosis else [])]))
    explained.__traceback__ = error.__traceback__
    explained.__cause__, explained.__suppress_context__ = error.__cause__, error.__suppress_context__
    explained.__notes__ = list(getattr(error, "__notes__", []))
    explained._tpu_diagnosis = diagnosis
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
    from . import batches, demand, holders

    counters = device.snapshot()
    if counters is None:
        return None
    names = namespace()
    live = counters["live_bytes"]
    held = holders.table(names, live, error, failures=counters["errors"] > 0, shares=True)
    made = Diagnosis(said, held)
    if found := _REFUSED.search(said):
        made.wanted, made.free = _bytes(found["wanted"]), _bytes(found["free"])
        made.limit, used = _bytes(found["limit"]), _bytes(found["used"])
        made.freed = used - live if used - live > used / 8 else 0
        made.wanted = demand.exact(found["what"], made.wanted)
    cell = demand.running_cell()
    place = demand.place_of(error, cell, held.lost, names)
    made.place, made.source, made.shape = place.words, place.line, place.shape
    groups = held.groups()[:8]
    made.assigned = {group.root: demand.assigned_in(group.root, cell, place.number) for group in groups}
    again = demand.assigned_again(cell, place.number) if place.number else set()
    made.old = {
        group.name: group.alone for group in groups if group.name in again and group.alone > made.wanted / 8
    }
    used_names = demand.names_in(cell.code) if cell is not None else set()
    made.spare, made.spare_bytes = _spare(held, used_names, names, made.wanted - made.free)
    made.batch, made.fitting, made.rows_of = batches.fitting(made, place, names)
    made.certain = demand.is_one_operation(place, names)
    return made


def _bytes(text: str) -> int:
    number, unit = re.fullmatch(r"([\d.]+) ?(\w+)", text).groups()  # type: ignore[union-attr]
    return round(float(number) * _UNITS.get(unit, 0))


def _spare(held: Any, used: set[str], names: dict[str, Any], missing: int) -> tuple[list[str], int]:
    """What can go because the cell does not use it, the largest first, and the bytes that frees: no more than
    is needed. Models and what trains them come last: a person can seldom do without."""
    from .freeing import output_number

    torch = sys.modules["torch"]
    deletable: list[str] = []
    kept: list[str] = []
    for group in held.groups()[:_MOST_HOLDERS]:
        value = names.get(group.root)
        is_mine = group.root in names or output_number(group.root) is not None
        if is_mine and group.root not in used and group.kind not in ("traceback", "running"):
            is_model = issubclass(type(value), (torch.nn.Module, torch.optim.Optimizer))
            (kept if is_model else deletable).append(group.root)
    chosen: list[str] = []
    for name in dict.fromkeys(deletable + kept):
        if 0 < missing <= held.freed_by(chosen):
            break
        if held.freed_by([*chosen, name]) > held.freed_by(chosen):
            chosen.append(name)
    return chosen, held.freed_by(chosen)


def namespace() -> dict[str, Any]:
    """The notebook's variables."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


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
