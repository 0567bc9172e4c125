"""Out of device memory, told in full: what was wanted, what is free, who holds the rest, what to let go.

tpu-core refuses what does not fit and says how much was wanted. TorchTPU passes that on as a
RuntimeError; a notebook gets `torch.OutOfMemoryError`, as PyTorch raises it elsewhere.
"""

from __future__ import annotations

import re
import sys
from typing import Any

#: The sentence of tpu-core, wherever TorchTPU has put it.
_REFUSED = re.compile(r"out of device memory: .*?\((\d[\d.]*) ?(\w+) in use\)", re.DOTALL)
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MOST_HOLDERS = 5
_MOST_LOST = 10


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
    explained = torch.OutOfMemoryError("\n".join([said + ".", *diagnosis(error, _in_use(said))]))
    explained.__traceback__ = error.__traceback__
    explained.__cause__, explained.__suppress_context__ = error.__cause__, error.__suppress_context__
    explained.__notes__ = list(getattr(error, "__notes__", []))
    error._tpu_explained = explained  # type: ignore[attr-defined]
    return explained


def _in_use(said: str) -> float:
    found = _REFUSED.search(said)
    return float(found[1]) * _UNITS.get(found[2], 0) if found else 0


def diagnosis(error: BaseException | None = None, in_use: float = 0) -> list[str]:
    """Lines that say who holds the memory and how to let it go. `in_use`: bytes there were at the failure."""
    from . import device, holders
    from .cards.blocks import size

    counters = device.snapshot()
    if counters is None:
        return []
    held = holders.table(namespace(), counters["live_bytes"], error, failures=counters["errors"] > 0)
    lines = [f"Held by {_list(held)}."]
    freed = in_use - counters["live_bytes"]
    if freed > in_use / 8:
        lines.append(
            f"{size(int(freed))} of it are free by now: what variables held that the cell has assigned again, or "
            "what its functions held. Run the cell again; delete such a variable (`del`) before it is assigned."
        )
    lines += _cures(held)
    if held.lost:
        names = ", ".join(f"`{name}`" for name in held.lost[:_MOST_LOST])
        more = f" and {len(held.lost) - _MOST_LOST} more" if len(held.lost) > _MOST_LOST else ""
        lines.append(f"Lost, because what computes them failed: {names}{more}. Compute them again.")
    return lines


def namespace() -> dict[str, Any]:
    """The notebook's variables."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell.user_ns if shell is not None else vars(sys.modules["__main__"])


def _list(held: Any) -> str:
    from .cards.blocks import size

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


def _cures(held: Any) -> list[str]:
    """How to let go of the largest holders."""
    rows = held.by_root()[:_MOST_HOLDERS]
    names = [name for name, kind, *_ in rows if name and kind not in ("traceback", "graph")]
    graphs = [name.removeprefix("graph of ") for name, kind, *_ in rows if kind == "graph"]
    cures = []
    if names:
        cures.append(f"Delete what is no longer needed (`del {names[0]}`)")
    if graphs:
        cures.append(
            f"call `backward()` on `{graphs[0]}` or keep `{graphs[0]}.detach()`, its graph keeps its inputs"
        )
    if any(kind == "traceback" for _, kind, *_ in rows):
        cures.append("what the last traceback holds goes with the next error")
    cures.append("or compute on smaller tensors, such as a smaller batch")
    text = "; ".join(cures) + "."
    return [text[0].upper() + text[1:]]
