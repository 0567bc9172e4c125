"""Values that a failure on the device took: which are new, where the others were lost, and how that is said.

What is computed from a lost value is lost too, without a failure that anybody counts.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .storages import Holding, lost_tensors, root_of

if TYPE_CHECKING:
    from .._kernel import Parent

_MOST_NAMES = 10
#: So many of one variable are named one by one.
_FEW = 3
_LONGEST_NAME = 60
_GRAPH = "graph of "

#: Lost tensors of cells that have ended, by address, and where that was, as `In[8], line 3`.
_known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_places: dict[int, str] = {}


class _Last:
    """Where the failure that was told last was; "" for none since `remember`."""

    place = ""


def happened(place: str) -> None:
    """A failure is told, which was in this place."""
    _Last.place = place.removesuffix(" or before").removesuffix(" or after")


def never_raising(function: Callable[..., None]) -> Callable[..., None]:
    """A cell runs whatever goes wrong in looking at what others lost."""

    @functools.wraps(function)
    def guarded(*arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001
            from ..loop import report_fault

            report_fault()

    return guarded


@never_raising
def remember(owner: Parent | None) -> None:
    """A cell in which something failed has ended: what is lost now is not news any more."""
    place, _Last.place = _Last.place or _cell(owner), ""
    for tensor in lost_tensors():
        if not is_known(id(tensor)):
            _known[id(tensor)] = tensor
            _places[id(tensor)] = place
    for address in set(_places) - set(_known.keys()):
        del _places[address]


def is_known(address: int) -> bool:
    """This tensor was lost before the running cell."""
    return _known.get(address) is not None


def news(gone: Iterable[Holding]) -> list[Holding]:
    """Those that were lost in this cell."""
    return [each for each in gone if not any(map(is_known, each.tensors))]


@never_raising
def tell_derived(code: str) -> None:
    """Say which values the cell that has ended made of lost ones: nothing else would, until one is read."""
    if not len(_known):
        return
    if all(is_known(id(tensor)) for tensor in lost_tensors()):
        return
    from . import demand, shortage

    found = _table().gone
    made = names_of(news(found))
    used = demand.names_used(code, shortage.namespace())
    before = names_of(each for each in found if any(map(is_known, each.tensors)))
    before = [name for name in before if root_of(name, "variable") in used]
    if made:
        has = "has" if len(made) == 1 else "have"
        source = f"{words(before)}, which {'was' if len(before) == 1 else 'were'}" if before else "what was"
        print(
            f"Hint: {words(made)} {has} no value: made from {source} lost in {where()}. Compute that again first.",
            file=sys.stderr,
        )
    remember(None)


def where(address: int = 0) -> str:
    """Where this tensor was lost, else the last of those that are known."""
    places = [place for place in _places.values() if place]
    return _places.get(address) or (places[-1] if places else "an earlier cell")


def before() -> tuple[str, list[str]]:
    """Where what earlier cells lost was lost, and what of it the notebook has names for."""
    from ..tpu.device import ended_cell

    names = names_of(each for each in _table().gone if any(map(is_known, each.tensors)))
    return where() if len(_known) else _cell(ended_cell()) or "an earlier cell", names


def names_of(gone: Iterable[Holding]) -> list[str]:
    """Their names in the notebook, sorted. Names in functions of a traceback are of no use to anybody."""
    named = (each for each in gone if each.names and each.kind not in ("traceback", "running"))
    return sorted({each.names[0] for each in named})


def words(names: Iterable[str]) -> str:
    """Names for people, those of a model or a list in one."""
    plain = [name for name in names if not name.startswith(_GRAPH)]
    groups: dict[str, list[str]] = {}
    for name in plain or [name.removeprefix(_GRAPH) for name in names]:
        groups.setdefault(root_of(name, "variable"), []).append(name)
    parts = []
    for root, members in groups.items():
        if len(members) > _FEW:
            parts.append(f"`{root}` ({len(members):,} tensors)")
        else:
            parts += [
                f"`{name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + '…'}`" for name in members
            ]
    more = f" and {len(parts) - _MOST_NAMES:,} more" if len(parts) > _MOST_NAMES else ""
    return ", ".join(parts[:_MOST_NAMES]) + more


def _table() -> Any:
    from . import holders, shortage

    return holders.table(shortage.namespace(), 0, failures=True)


def _cell(owner: Parent | None) -> str:
    from IPython.core.getipython import get_ipython

    parents = getattr(get_ipython(), "cell_parents", {})
    numbers = [number for number, parent in list(parents.items()) if owner is not None and parent == owner]
    return f"In[{numbers[-1]}]" if numbers else ""
