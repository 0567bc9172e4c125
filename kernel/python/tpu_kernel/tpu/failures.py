"""Whose a failure on the device is, and how it is told when it is not the running cell's.

TorchTPU hands every launch to one thread of its own, so tpu-core cannot see which thread of the notebook
asked for it. A cell begins with an empty queue and ends with one, so what fails in between is its own,
unless something of an earlier cell still uses the device: a thread, or work an interrupt left behind.
Then the tensors that were lost tell whose they are; where they do not, it is said that nobody knows.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import types
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import _kernel
from ..output.ownership import owner_of
from ..parent import PARENT
from ..threads import is_own
from . import device

if TYPE_CHECKING:
    from .._kernel import Parent

#: Objects looked at to learn whether a thread may use the device.
_MOST_LOOKED_AT = 400
_OF_A_THREAD = "A thread this cell started failed on the device: {}"
_LATE = "What went on after this cell failed on the device: {}"
_UNKNOWN = "On the device, of an unknown cell (this one, or something an earlier one started): {}"


def others() -> dict[threading.Thread, Parent]:
    """Threads that earlier cells started and that may use the device."""
    now = _kernel.running()
    return {
        thread: owner
        for thread in threading.enumerate()
        if (owner := owner_of(thread)) not in (None, now) and not is_own(thread) and _may_use_device(thread)
    }


def _may_use_device(thread: threading.Thread) -> bool:
    """Whether what the thread runs leads to torch, a tensor or a module: nothing of it is called."""
    frame = sys._current_frames().get(thread.ident or 0)
    reached: list[Any] = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in ("torch", "torch_tpu"):
            return True
        reached += frame.f_locals.values()
        reached += _named(frame.f_code, frame.f_globals)
        frame = frame.f_back
    torch = sys.modules["torch"]
    seen: set[int] = set()
    while reached and len(seen) < _MOST_LOOKED_AT:
        value = reached.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        if value is torch or issubclass(kind, torch.Tensor | torch.nn.Module | torch.optim.Optimizer):
            return True
        if issubclass(kind, types.MethodType):
            reached += (value.__self__, value.__func__)
        elif issubclass(kind, types.FunctionType):
            reached += _named(value.__code__, value.__globals__)
            reached += (cell.cell_contents for cell in value.__closure__ or () if _is_full(cell))
        elif kind in (list, tuple):
            reached += value[:8]
        elif kind is dict:
            reached += list(value.values())[:8]
    return bool(reached)


def _named(code: types.CodeType, names: dict[str, Any]) -> Iterable[Any]:
    """Global values that code may refer to, also in functions inside it."""
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _named(inner, names)
    for name in code.co_names:
        if name in names:
            yield names[name]


def _is_full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def tell(messages: list[str], suspects: dict[threading.Thread, Parent], code: str) -> bool:
    """Say on stderr what failed while `suspects` may have used the device too; False where it is certain
    to be the running cell's own: that cell fails by it."""
    from ..memory import storages

    fresh = [tensor for tensor in storages.lost_tensors() if _is_fresh(tensor)]
    addresses = {id(tensor) for tensor in fresh}
    owner = next((owner for thread, owner in suspects.items() if addresses & _held_by(thread)), None)
    if owner is None and _assigned(code) & _roots_of_lost():
        return False
    _told.update((id(tensor), tensor) for tensor in fresh)
    text = _OF_A_THREAD if owner is not None else _UNKNOWN
    _say(text, messages, owner or _kernel.running() or device.ended_cell())
    return True


def tell_late(messages: list[str], owner: Parent | None = None) -> None:
    """Say what failed while no cell ran, under the cell that is known to have caused it, else the last."""
    if owner is None:
        started = set(others().values())
        owner = started.pop() if len(started) == 1 else device.ended_cell()
    _say(_LATE if device.drains() else _UNKNOWN, messages, owner)


def tell_unknown(messages: list[str]) -> None:
    """Say what failed where cells do not wait for the device."""
    _say(_UNKNOWN, messages, _kernel.running())


def _say(text: str, messages: list[str], owner: Parent | None) -> None:
    token = PARENT.set(owner)
    try:
        for message in messages:
            print(text.format(message), file=sys.stderr)
    finally:
        PARENT.reset(token)


#: Lost tensors that were told, by address.
_told: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def _is_fresh(tensor: Any) -> bool:
    return _told.get(id(tensor)) is not tensor


def _held_by(thread: threading.Thread) -> set[int]:
    """Addresses of what the functions of a thread hold."""
    frame = sys._current_frames().get(thread.ident or 0)
    held: set[int] = set()
    while frame is not None:
        if frame.f_locals is not frame.f_globals:
            for value in list(frame.f_locals.values()):
                held.add(id(value))
                if type(value) in (list, tuple):
                    held.update(map(id, value))
                elif type(value) is dict:
                    held.update(map(id, value.values()))
        frame = frame.f_back
    return held


def _roots_of_lost() -> set[str]:
    from ..memory import holders, shortage

    lost = holders.table(shortage.namespace(), 0, failures=True).lost
    return {re.split(r"[.\[]", name, maxsplit=1)[0] for name in lost}


def _assigned(code: str) -> set[str]:
    """Names a cell assigns outside its functions."""
    from IPython.core.getipython import get_ipython

    try:
        tree = ast.parse(get_ipython().transform_cell(code))
    except (SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return names
