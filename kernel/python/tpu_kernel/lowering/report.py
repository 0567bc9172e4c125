"""What one run of a lowered cell did: the facts a card is made of. Only what was observed."""

from __future__ import annotations

from dataclasses import dataclass, field

from .causes import cure_of, is_of_loops
from .findings import Finding, Findings

#: Why lines ran eagerly of which PyTorch's compiler made nothing, until it is known better.
NO_PROGRAM = "PyTorch's compiler made no program of it"


@dataclass
class Report:
    """Lines by what happened to them, programs, and what was changed for the user's sake."""

    #: The name the cell is compiled under.
    file: str = ""
    #: Lines in loops of the cell: what to do "after the loop" is told of these alone.
    looped: frozenset[int] = frozenset()
    # Line -> why it ran eagerly; "" for ordinary Python that has nothing to do with the device.
    eager: dict[int, str] = field(default_factory=dict)
    compiled: set[int] = field(default_factory=set)
    # Programs captured by Dynamo in this run, and calls of captured programs.
    graphs: int = 0
    executed: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = field(default=0.0, compare=False)
    # Dynamo's own count of graphs and breaks in this run; None when it traced nothing.
    traced: tuple[int, int] | None = None
    # Where programs of this cell end early, found in this run or when they were made.
    breaks: list[Finding] = field(default_factory=list)
    # What ran eagerly in functions of other cells: file and line there -> what and where.
    inside: dict[tuple[str, int], Finding] = field(default_factory=dict)
    # Lowered functions that were called: file, first and last line, and the line of the cell.
    called: list[tuple[str, int, int, int]] = field(default_factory=list)
    # Guards that failed in this run.
    retraced: list[Finding] = field(default_factory=list)

    def ran_eagerly(self, lines: tuple[int, ...], why: str) -> None:
        for line in lines:
            if why or line not in self.eager:
                self.eager[line] = why

    def take_over(self, known: Findings) -> None:
        """Of lines without a program the reason, where it is known; of the rest where programs end."""
        self.called = known.called_functions()
        told = set()
        for line, why in self.eager.items():
            if why == NO_PROGRAM and known.failed:
                found = known.failed.get(line) or next(iter(known.failed.values()))
                self.eager[line] = f"{found.why} (in {found.place})" if found.place else found.why
                told.add(found)
        for place, inner in list(self.inside.items()):
            if inner.why == NO_PROGRAM and known.failed:
                found = known.failed.get(inner.line) or next(iter(known.failed.values()))
                self.inside[place] = found
                told.add(found)
        self.breaks = [
            each
            for each in known.breaks
            if each not in told and (each.place or not self.eager.get(each.line))
        ]

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def compiled_lines(self) -> list[int]:
        """Lines that ran in programs, and never eagerly."""
        broken = {found.line for found in self.breaks if not found.place}
        broken |= {found.line for found in self.inside.values()}
        return sorted(line for line in self.compiled - broken if not self.eager.get(line))

    def eager_lines(self) -> list[tuple[int, str]]:
        """Device lines that ran eagerly, with the reason."""
        return sorted((line, why) for line, why in self.eager.items() if why)

    def outside(self) -> list[Finding]:
        """All that was not in a program: lines that ran eagerly and places where a program ended."""
        broken = {found.line for found in self.breaks if not found.place}
        rows = list(dict.fromkeys([*self.breaks, *self.inside.values()]))
        group: Finding | None = None
        for line, why in self.eager_lines():
            if line in broken:
                continue
            if group is not None and group.why == why and line == group.last + 1:
                rows.remove(group)
                group = Finding(group.line, why, group.cure, last=line)
            else:
                cure = cure_of(why)
                group = Finding(line, why, "" if line not in self.looped and is_of_loops(cure) else cure)
            rows.append(group)
        return sorted(rows, key=lambda row: (row.line or 1 << 30, bool(row.place)))
