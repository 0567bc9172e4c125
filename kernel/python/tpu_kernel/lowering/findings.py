"""What Dynamo did, told in lines of the cell: one finding for each place, in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .causes import LIMIT, is_error, of_dynamo, of_guard
from .dynamo import APART, HIDDEN, HOOKED, ON_CPU, OPEN_SIZES, Spot, Trace, Trouble, plain

if TYPE_CHECKING:
    from .function import LoweredFunction
    from .run import Run


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


class Kept:
    """What is known of the programs of a cell or function, as long as they are."""

    def __init__(self) -> None:
        self.breaks: dict[tuple[str, int, str], Finding] = {}
        self.failed: dict[int, Finding] = {}

    def forget(self, trace: Trace, file: str, runs: Iterable[Run]) -> None:
        """What is known of functions that were traced anew."""
        for outlined in (each for run in runs for each in run.functions.values()):
            if (file, outlined.lines[0]) not in trace.begun:
                continue
            for key, found in list(self.breaks.items()):
                inside = key[0] == file and key[1] in outlined.lines
                if inside or found.line in outlined.lines:
                    del self.breaks[key]
                    self.failed = {line: each for line, each in self.failed.items() if each is not found}


#: How people know a file: `In[3]` of a cell.
Namer = Callable[[str], str]


class Findings:
    """What is known of a lowered cell. Kept with it: Dynamo tells it only when it traces."""

    def __init__(self, filename: str, name_of: Namer) -> None:
        self.filename = filename
        self.name_of = name_of
        self._own = Kept()
        #: The line of the cell in which a function was called.
        self._called: dict[tuple[str, str], int] = {}
        #: Lowered functions that were called in this run. They keep what is found in them.
        self._lowered: dict[tuple[str, str], LoweredFunction] = {}

    @property
    def breaks(self) -> list[Finding]:
        """What is known, told in lines of this run."""
        found = list(self._own.breaks.values())
        for body in self._lowered.values():
            found += [replace(each, line=body.line, last=0) for each in body.kept.breaks.values()]
        return found

    @property
    def failed(self) -> dict[int, Finding]:
        """Why no program was made of the lines around one."""
        found = dict(self._own.failed)
        for body in self._lowered.values():
            for each in body.kept.failed.values():
                found[body.line] = replace(each, line=body.line, last=0)
        return found

    def begin(self) -> None:
        self._lowered.clear()

    def called(self, body: LoweredFunction) -> None:
        """A lowered function is called."""
        self._called[body.filename, body.name] = body.line
        self._lowered[body.filename, body.name] = body

    def called_functions(self) -> list[tuple[str, int, int, int]]:
        """File, first and last line, and the line of the cell."""
        bodies = self._lowered.values()
        return [(b.filename, b.lines[0], b.lines[-1], b.line) for b in bodies]

    def learn(self, trace: Trace, runs: Iterable[Run]) -> None:
        """Add what Dynamo did. What was known of functions traced anew is void."""
        self._own.forget(trace, self.filename, runs)
        for body in self._lowered.values():
            body.kept.forget(trace, body.filename, body.runs)
        for trouble in trace.troubles:
            if any(spot.file for spot in trouble.stack):  # else nobody knows where
                self.add(trouble)

    def add(self, trouble: Trouble) -> Finding:
        """Add one place, which Dynamo has named."""
        why, cure = of_dynamo(trouble.reason)
        spot, first = trouble.stack[-1], trouble.stack[0]
        body = self._lowered.get((first.file, plain(first.function)))
        kept = self._own if body is None else body.kept
        line = self._line(trouble)
        place = "" if self._is_cell(spot) else self._place(spot)
        told = (ON_CPU, APART, OPEN_SIZES, HIDDEN, HOOKED)
        broke = not (trouble.reason.startswith(told) or is_error(trouble.reason))
        key = spot.file, spot.line, why
        if trouble.whole and spot.function and place and body is None:
            why += f"; all of `{spot.function}` runs eagerly"
        known = kept.breaks.get(key)
        if known is None or (trouble.whole and spot.function and place):
            line = line or (known.line if known else 0)
            kept.breaks[key] = Finding(line, why, cure, spot.text, place, broke=broke)
        if (trouble.whole and (not place or body is not None)) or trouble.reason.startswith(ON_CPU):
            kept.failed[line] = kept.breaks[key]
        return kept.breaks[key]

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
        return self.place(spot.file, spot.line, plain(spot.function))

    def place(self, file: str, line: int, function: str) -> str:
        """`step`, line 3 of In[2]."""
        of = "" if file == self.filename else f" of {self.name_of(file)}"
        return f"{f'`{function}`, ' if function else ''}line {line}{of}"
