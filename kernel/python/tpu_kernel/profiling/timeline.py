"""A profiled cell on one axis of time: launches, compiles, transfers, and where Python was.

Times are nanoseconds from the start of the profile. When a launch was handed over and when it ended
is measured. When it began on the device is not known: it is taken to have begun when it was handed
over, or when the launches before it had ended. tpu-core counts the time the device was busy the same
way, so the two agree to the nanosecond.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .sampling import Sample

Interval = tuple[int, int]

#: TorchTPU's name of a compiled function: where its export begins, and what it ends with.
_COMPILED = re.compile(r"tt_jit_export_L\d+C\d+_")


class Work(NamedTuple):
    """A compile, a load from a cache, or a transfer."""

    kind: str
    start: int
    end: int
    name: str
    program: str
    bytes: int
    cell: str


class Launch(NamedTuple):
    """One execution of a program."""

    #: It was wanted, handed to the device, taken to begin, and had ended.
    queued: int
    launched: int
    began: int
    ended: int
    name: str
    program: str
    bytes: int
    cell: str


class Segment(NamedTuple):
    """A stretch of time in which Python was seen in one place."""

    start: int
    end: int
    line: str
    places: tuple[str, ...]
    tracing: bool

    @property
    def place(self) -> str:
        """The innermost function of the notebook."""
        return self.places[-1] if self.places else ""


@dataclass
class Ran:
    """The runs of one program."""

    name: str
    program: str
    line: str
    runs: int = 0
    total: int = 0


@dataclass
class AtLine:
    """What went on while Python was seen in one place."""

    place: str
    time: int = 0
    busy: int = 0
    compiling: int = 0
    waiting: int = 0


@dataclass
class Timeline:
    """What happened in `[0, wall]`."""

    label: str
    wall: int
    launches: list[Launch] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    #: Lines of the cell whose compiled functions ran, one for each program they ran, in order.
    calls: Sequence[str] = ()
    #: Programs by hash, as tpu-core knows them.
    programs: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: Events that did not find room, and work that had not ended.
    lost: int = 0
    unfinished: int = 0

    def __post_init__(self) -> None:
        #: The device's time, each moment counted once: a launch before a compile before a transfer.
        self.busy = self._within((one.began, one.ended) for one in self.launches)
        compiling = self._within((one.start, one.end) for one in self.of("compile", "cache_hit"))
        transfers = self._within((one.start, one.end) for one in self.of("upload", "download"))
        self.compiling = without(compiling, self.busy)
        taken = union([*self.busy, *self.compiling])
        self.moving = without(transfers, taken)
        self.waiting = without([(0, self.wall)], union([*taken, *self.moving]))
        self._starts = [segment.start for segment in self.segments]
        compiled = [one for one in self.launches if is_compiled(one.name)]
        #: Each program ran one launch: so they are told apart by their order.
        self._lines = (
            {one.program: lines for one, lines in zip(compiled, self.calls, strict=True)}
            if len(compiled) == len(self.calls)
            else {}
        )

    def of(self, *kinds: str) -> list[Work]:
        """The compiles, loads or transfers of these kinds."""
        return [one for one in self.works if one.kind in kinds]

    def _within(self, intervals: Iterable[Interval]) -> list[Interval]:
        return union((max(start, 0), min(end, self.wall)) for start, end in intervals)

    def at(self, moment: int) -> Segment | None:
        """Where Python was last seen at that moment."""
        index = bisect_right(self._starts, moment) - 1
        return self.segments[index] if index >= 0 else None

    def longest_wait(self) -> tuple[int, str]:
        """The longest time the device waited for Python, and where Python was seen most of it."""
        start, end = max(self.waiting, key=lambda one: one[1] - one[0], default=(0, 0))
        return end - start, self.place_during(start, end)

    def place_during(self, start: int, end: int) -> str:
        """Where Python was seen most of that time, the innermost function of the notebook."""
        times: Counter[str] = Counter()
        first = max(0, bisect_right(self._starts, start) - 1)
        for segment in self.segments[first:]:
            if segment.start >= end:
                break
            if segment.place:
                times[segment.place] += max(0, min(end, segment.end) - max(start, segment.start))
        return times.most_common(1)[0][0] if times else ""

    def tracing(self) -> int:
        """How long PyTorch's compiler was seen to trace."""
        return sum(segment.end - segment.start for segment in self.segments if segment.tracing)

    def ran(self) -> list[Ran]:
        """The programs that ran, the longest first."""
        found: dict[str, Ran] = {}
        lines: dict[str, Counter[str]] = {}
        for one in self.launches:
            entry = found.setdefault(one.program, Ran(self.title(one.program, one.name), one.program, ""))
            entry.runs += 1
            entry.total += one.ended - one.began
            segment = self.at(one.queued)
            if segment is not None and segment.place:
                lines.setdefault(one.program, Counter())[short(segment.place)] += 1
        for program, entry in found.items():
            seen = [line for line, _ in lines.get(program, Counter()).most_common(2)]
            entry.line = self.made_at(program) or ", ".join(sorted(seen, key=_in_order))
        return sorted(found.values(), key=lambda entry: -entry.total)

    def made_at(self, program: str) -> str:
        """The lines of this cell that a compiled function was made of, where that is known for sure."""
        if program in self._lines:
            return self._lines[program]
        known = self.programs.get(program, {})
        label, _, where = (known.get("place") or "").partition(", ")
        if not is_compiled(known.get("name", "")) or label != self.label or "before" in where:
            return ""
        return where.removeprefix("lines ").removeprefix("line ")

    def title(self, program: str, name: str) -> str:
        """What a program is called on the card: the operation, or the lines it was made of."""
        if not is_compiled(name):
            return name.removeprefix("tt_jit_") or "a program"
        lines = self.made_at(program)
        if not lines:
            return "compiled function"
        return f"compiled line{'s' if '–' in lines or ',' in lines else ''} {lines}"

    def lines(self) -> list[AtLine]:
        """What went on while Python was in each line of the notebook, the longest first."""
        found: dict[str, AtLine] = {}
        for segment in self.segments:
            if not segment.place:
                continue
            entry = found.setdefault(segment.place, AtLine(segment.place))
            entry.time += segment.end - segment.start
        for attribute in ("busy", "compiling", "waiting"):
            for place, time in self._shared(getattr(self, attribute)).items():
                setattr(found[place], attribute, time)
        return sorted(found.values(), key=lambda entry: -entry.time)

    def _shared(self, intervals: Sequence[Interval]) -> dict[str, int]:
        """How much of each place's time lies in these."""
        times: dict[str, int] = {}
        index = 0
        for segment in self.segments:
            if not segment.place:
                continue
            while index < len(intervals) and intervals[index][1] <= segment.start:
                index += 1
            at = index
            while at < len(intervals) and intervals[at][0] < segment.end:
                start, end = intervals[at]
                shared = min(end, segment.end) - max(start, segment.start)
                times[segment.place] = times.get(segment.place, 0) + shared
                at += 1
        return times


def build(
    label: str,
    events: Iterable[dict[str, Any]],
    samples: Sequence[Sample],
    programs: Iterable[dict[str, Any]],
    *,
    started_unix_ns: int,
    started_ns: int,
    wall: int,
    ended: int,
    lost: int = 0,
    unfinished: int = 0,
    calls: Sequence[str] = (),
) -> Timeline:
    """From what was recorded. The profile began at `started_unix_ns` on the clock of the events and at
    `started_ns` on that of the samples; Python had left the cell after `ended`, all was over after `wall`."""
    launches, works, failures = [], [], []
    for event in events:
        start = event["started_unix_ns"] - started_unix_ns
        end = start + event["duration_ns"]
        name, cell, program = event.get("name") or "", event["cell"], event["program"]
        if event["kind"] == "execute":
            held, ran = event.get("held_ns", 0), event.get("ran_ns", 0)
            launches.append(Launch(start - held, start, end - ran, end, name, program, event["bytes"], cell))
        elif event["kind"] == "error":
            failures.append((start, event.get("message") or event.get("code") or ""))
        else:
            works.append(Work(event["kind"], start, end, name, program, event["bytes"], cell))
    launches.sort(key=lambda one: one.launched)
    works.sort(key=lambda one: one.start)
    segments = _segments(samples, started_ns, ended)
    known = {each["program"]: each for each in programs}
    return Timeline(label, wall, launches, works, failures, segments, calls, known, lost, unfinished)


def _segments(samples: Sequence[Sample], started_ns: int, ended: int) -> list[Segment]:
    """Each sample lasts until the next; what is the same goes together."""
    segments: list[Segment] = []
    samples = [sample for sample in samples if sample.at - started_ns < ended]
    for index, sample in enumerate(samples):
        start = sample.at - started_ns if index else 0
        end = samples[index + 1].at - started_ns if index + 1 < len(samples) else ended
        start, end = min(start, ended), min(end, ended)
        last = segments[-1] if segments else None
        if last is not None and last[2:] == sample[1:]:
            segments[-1] = last._replace(end=end)
        else:
            segments.append(Segment(start, end, *sample[1:]))
    return segments


def is_compiled(name: str) -> bool:
    """A program TorchTPU made of a compiled function, not of an operation."""
    return _COMPILED.match(name) is not None


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlap, in order."""
    result: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


def without(intervals: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """What of `intervals` is not in `taken`; both in order and without overlap."""
    result = []
    index = 0
    for start, end in intervals:
        while index < len(taken) and taken[index][1] <= start:
            index += 1
        at = index
        while at < len(taken) and taken[at][0] < end:
            if taken[at][0] > start:
                result.append((start, taken[at][0]))
            start = max(start, taken[at][1])
            at += 1
        if start < end:
            result.append((start, end))
    return result


def total(intervals: Iterable[Interval]) -> int:
    """How long they last together."""
    return sum(end - start for start, end in intervals)


def coverage(intervals: Iterable[Interval], wall: int, columns: int) -> list[float]:
    """How much of each of so many equal parts of the time is covered, from 0 to 1."""
    parts = [0.0] * columns
    width = max(wall, 1) / columns
    for start, end in intervals:
        first = min(columns - 1, int(start / width))
        last = min(columns - 1, int(end / width))
        for column in range(first, last + 1):
            shared = min(end, (column + 1) * width) - max(start, column * width)
            parts[column] += max(0.0, shared) / width
    return [min(1.0, part) for part in parts]


def short(place: str) -> str:
    """`In[2], line 5 (f)` as `In[2]:5`, `line 3` as `3`."""
    return place.partition(" (")[0].replace(", line ", ":").removeprefix("lines ").removeprefix("line ")


def _in_order(line: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", line))
