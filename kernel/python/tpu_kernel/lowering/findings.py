"""What Dynamo did, told in lines of the cell: one finding for each place, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .causes import LIMIT, is_error, of_dynamo, of_guard
from .dynamo import APART, ON_CPU, OPEN_SIZES, Spot, Trace, Trouble, plain


@dataclass(frozen=True)
class Finding:
    """A line of the cell, what about it, and what to do."""

    #: 0 where it is not known.
    line: int
    why: str
    cure: str = ""
    #: The source text of the place, where that is not simply the line of the cell.
    text: str = ""
    #: The place when it is not the line itself but in a function called there.
    place: str = ""
    #: The last line, when several in a row have the same reason.
    last: int = 0
    #: A graph break of Dynamo's.
    broke: bool = False

    def __post_init__(self) -> None:
        if not self.last:
            object.__setattr__(self, "last", self.line)


#: How people know a file: `In[3]` of a cell.
Namer = Callable[[str], str]


class Findings:
    """What is known of a lowered cell. Kept with it: Dynamo tells it only when it traces."""

    def __init__(self, filename: str, name_of: Namer) -> None:
        self.filename = filename
        self.name_of = name_of
        #: Why no program was made of the lines around one.
        self.failed: dict[Any, Finding] = {}
        self._breaks: dict[Any, Finding] = {}
        #: The line of the cell in which a function was called.
        self._called: dict[tuple[str, str], int] = {}

    @property
    def breaks(self) -> list[Finding]:
        return list(self._breaks.values())

    def learn(self, trace: Trace, functions: Iterable[tuple[int, ...]]) -> None:
        """Add what Dynamo did. What was known of functions traced anew is void; `functions` are the
        lines of each."""
        for lines in functions:
            if (self.filename, lines[0]) in trace.begun:
                for kept in (self._breaks, self.failed):
                    for key in [key for key, found in kept.items() if found.line in lines]:
                        del kept[key]
        for trouble in trace.troubles:
            if any(spot.file for spot in trouble.stack):  # else nobody knows where
                self.add(trouble)

    def add(self, trouble: Trouble) -> Finding:
        """Add one place, which Dynamo has named."""
        why, cure = of_dynamo(trouble.reason)
        spot = trouble.stack[-1]
        line = self._line(trouble)
        place = "" if self._is_cell(spot) else self._place(spot)
        broke = not (trouble.reason.startswith((ON_CPU, APART, OPEN_SIZES)) or is_error(trouble.reason))
        key = spot.file, spot.line, why
        if trouble.whole and spot.function and place:
            why += f"; all of `{spot.function}` runs eagerly"
        known = self._breaks.get(key)
        if known is None or (trouble.whole and spot.function and place):
            line = line or (known.line if known else 0)
            self._breaks[key] = Finding(line, why, cure, spot.text, place, broke=broke)
        if (trouble.whole and not place) or trouble.reason.startswith(ON_CPU):
            self.failed[line] = self._breaks[key]
        return self._breaks[key]

    def guards(self, trace: Trace) -> list[Finding]:
        """Guards that failed, each once."""
        found: dict[tuple[int, str], Finding] = {}
        full = any(trouble.reason.startswith(LIMIT) for trouble in trace.troubles)
        for each in trace.recompiles[:-1] if full else trace.recompiles:  # the last one was refused
            spot = Spot(each.file, each.line, plain(each.function), "")
            inside = not self._is_cell(spot)
            line = self._called.get((spot.file, spot.function), 0) if inside else each.line
            why = of_guard(each.guard, each.now)
            found[line, why] = Finding(line, why, place=self._place(spot) if inside else "")
        return list(found.values())

    def _line(self, trouble: Trouble) -> int:
        """The line of the cell it happened in."""
        own = next((spot for spot in trouble.stack if self._is_cell(spot)), None)
        line = own.line if own else 0
        for spot in trouble.stack:
            function = spot.file, plain(spot.function)
            line = line or self._called.get(function, 0)
        for spot in trouble.stack:
            if line and not self._is_cell(spot):
                self._called.setdefault((spot.file, plain(spot.function)), line)
        return line

    def _is_cell(self, spot: Spot) -> bool:
        return spot.file == self.filename and plain(spot.function) == "<module>"

    def _place(self, spot: Spot) -> str:
        file = "" if spot.file == self.filename else f" of {self.name_of(spot.file)}"
        function = f"`{plain(spot.function)}`, " if spot.function else ""
        return f"{function}line {spot.line}{file}"
