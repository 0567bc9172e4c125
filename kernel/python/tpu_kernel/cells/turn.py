"""What each shell has of its own while it runs a cell: the main shell and subshells run cells at once.

IPython has one shell object with the state of one cell. Here attributes that belong to the cell are kept for
each thread, and cells get their numbers in the order in which they begin.
"""

from __future__ import annotations

import threading
from typing import Any, Self

from IPython.core.display_trap import DisplayTrap
from IPython.core.payload import PayloadManager
from traitlets import Integer


class OfThread:
    """An attribute of which each thread has its own; the object keeps them in `turn`."""

    def __init__(self, default: Any = None) -> None:
        self._default = default
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else getattr(instance.turn, self._name, self._default)

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance.turn, self._name, value)


class Turn(threading.local):
    """The cell a thread runs."""

    number: int | None = None
    """Its number; once IPython has counted it, the next."""
    reserved = False
    """IPython has not counted it yet."""


class CellNumber(Integer):
    """The number of the next cell; within a cell, that cell's own as IPython would see it."""

    _lock = threading.Lock()

    def get(self, obj: Any, cls: Any = None) -> Any:
        own = obj.turn.number
        return super().get(obj, cls) if own is None else own

    def set(self, obj: Any, value: Any) -> None:
        turn = obj.turn
        if turn.number is None:
            super().set(obj, value)
        elif turn.reserved and value == turn.number + 1:
            turn.number, turn.reserved = value, False
        else:
            turn.number = value
            super().set(obj, value)

    def begin(self, obj: Any, counts: bool) -> int:
        """The number of a cell that begins now; `counts` when it is to be stored."""
        with self._lock:
            number = super().get(obj, type(obj))
            if counts:
                super().set(obj, number + 1)
        obj.turn.number, obj.turn.reserved = number, counts
        return number

    def end(self, obj: Any) -> None:
        """The cell is over. One that never ran gives its number back, unless the next is taken."""
        turn = obj.turn
        with self._lock:
            if turn.reserved and super().get(obj, type(obj)) == turn.number + 1:
                super().set(obj, turn.number)
        turn.number, turn.reserved = None, False


class Payloads(PayloadManager):
    """What a cell asks of the front end goes with that cell's reply."""

    _payload = OfThread()

    def __init__(self, **traits: Any) -> None:
        self.turn = threading.local()
        super().__init__(**traits)

    def write_payload(self, data: dict[str, Any], single: bool = True) -> None:
        if self._payload is None:
            self._payload = []
        super().write_payload(data, single)

    def read_payload(self) -> list[dict[str, Any]]:
        return self._payload or []


class SharedDisplayTrap(DisplayTrap):
    """`sys.displayhook` is ours as long as any shell runs a cell."""

    def __init__(self, hook: Any = None) -> None:
        super().__init__(hook)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        with self._lock:
            return super().__enter__()

    def __exit__(self, *failure: object) -> bool:
        with self._lock:
            return super().__exit__(*failure)
