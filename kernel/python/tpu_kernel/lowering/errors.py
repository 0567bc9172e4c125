"""Why a cell cannot be compiled, for reasons its author can act on."""

from __future__ import annotations


class CellError(Exception):
    """The cell cannot be compiled for a reason the user can act on."""


class NotWhole(CellError):
    """Something touches the device and is in no program, in a cell that is to have nothing of the kind."""

    def __init__(self, line: int, why: str, place: str, first: int) -> None:
        """`first` is the first line that has not run."""
        where = f" (in {place})" if place else ""
        super().__init__(
            f"line {line}{where} cannot be in a program: {why}. Nothing from line {first} on has run."
        )
