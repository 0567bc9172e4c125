"""The card of `%%tpu_profile`: where the device's time went, on an axis of time, by program, by line."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..output import tensors
from ..profiling.timeline import Interval, Segment, coverage, total
from . import blocks, lanes

if TYPE_CHECKING:
    from ..profiling.recording import Recorded
    from ..profiling.timeline import Timeline

_MOST_PROGRAMS, _MOST_LINES, _MOST_PARTS = 5, 3, 8
#: Bytes of a card, and the rows of both tables that are tried until it is no larger.
_MOST_BYTES = 6144
_ROWS_OF_TABLES = ((5, 3), (5, 2), (4, 2), (4, 1), (3, 1), (2, 1), (1, 1))
#: Letters of a program's name.
_MOST_OF_NAME = 60
_COLUMNS, _ROWS = 240, 4
_TEXT_COLUMNS = 60
#: Pixels a lane has where there is room for the whole card.
_LANE_WIDTH = 580
_SHADES = " ░▒▓█"
#: 4 to 1 and more against the background in light and dark themes.
_DEVICE, _COMPILING, _MOVING = (25, 118, 210), (194, 96, 15), (46, 139, 87)


@dataclass
class Files:
    """What was written."""

    trace: str = ""
    xprof: str = ""
    problems: list[str] = field(default_factory=list)


class ProfileCard:
    """What one profiled cell did."""

    def __init__(
        self, device: str, recorded: Recorded, files: Files, error: BaseException | None = None
    ) -> None:
        self.device = device
        self.timeline: Timeline = recorded.timeline
        self.counted = recorded.counted
        self.samples = recorded.samples
        self.emulated = recorded.emulated
        self.files = files
        self.outcome = ""
        if error is not None:
            interrupted = isinstance(error, KeyboardInterrupt)
            self.outcome = "interrupted" if interrupted else f"ended in {type(error).__name__}"

    def html(self) -> str:
        card = ""
        for programs, lines in _ROWS_OF_TABLES:
            card = self._html(programs, lines)
            if len(card.encode()) <= _MOST_BYTES:
                break
        return card

    def _html(self, most_programs: int, most_lines: int) -> str:
        timeline = self.timeline
        facts = [
            blocks.duration(timeline.wall / 1e9),
            self._device(),
            *([self.outcome] if self.outcome else []),
        ]
        parts = [
            blocks.headline("profile", "warn" if self.outcome else "good", self._title(), *facts),
            blocks.tiles([(name, f"{share} %", detail) for name, _, share, detail in self._sums()]),
            lanes.lanes(
                [
                    ("Python at line", lanes.parts(list(map(_fitting, self._parts())))),
                    ("device busy", _picture(timeline.busy, timeline.wall, _DEVICE, "device busy")),
                    ("compiling", _picture(timeline.compiling, timeline.wall, _COMPILING, "compiling")),
                    ("transfers", _picture(timeline.moving, timeline.wall, _MOVING, "transfers")),
                    ("time", lanes.parts(self._axis())),
                ]
            ),
        ]
        if programs := self._programs(most_programs):
            parts.append(blocks.table(_HEAD_PROGRAMS, programs, range(2, 6), widths=("34%",)))
        if lines := self._lines(most_lines):
            parts.append(blocks.table(_HEAD_LINES, lines, range(1, 5), widths=("34%",)))
        parts += [blocks.paragraph(note, muted=True) for note in self._notes()]
        parts += [blocks.paragraph(said) for said in self._files()]
        return blocks.card(*parts)

    def text(self) -> str:
        timeline = self.timeline
        head = ["profile", self._title(), blocks.duration(timeline.wall / 1e9), self._device(), self.outcome]
        lines = [head[0]]
        for word in filter(None, head[1:]):
            if len(lines[-1]) + len(word) + 3 <= 80:
                lines[-1] += f" · {word}"
            else:
                lines.append(f"  · {word}")
        lines += blocks.columns(
            [(name, time, f"{share:>3} %", detail) for name, time, share, detail in self._sums()]
        )
        lines.append(f"  {'Python at':<10}{_text_parts(self._parts())}")
        for name, intervals in (
            ("device", timeline.busy),
            ("compiling", timeline.compiling),
            ("transfers", timeline.moving),
        ):
            lines.append(f"  {name:<10}|{_text_bar(intervals, timeline.wall)}|")
        lines.append(f"  {'time':<10}{_text_parts(self._axis())}")
        if programs := self._programs():
            lines += ["", *blocks.columns([_HEAD_PROGRAMS, *(_short(row) for row in programs)])]
        if at_lines := self._lines():
            lines += ["", *blocks.columns([_HEAD_LINES, *(_short(row) for row in at_lines)])]
        for said in (*self._notes(), *self._files()):
            lines += [
                "",
                textwrap.fill(said.replace("`", ""), 80, initial_indent="  ", subsequent_indent="  "),
            ]
        return "\n".join(lines)

    def _title(self) -> str:
        if not self.counted.get("issued") and not self.timeline.works:
            return f"{self.timeline.label} used no device"
        return f"{self.timeline.label}, device busy {self._percent(total(self.timeline.busy))} %"

    def _device(self) -> str:
        return f"{self.device} (emulated)" if self.emulated else self.device

    def _percent(self, nanoseconds: int) -> int:
        return round(100 * nanoseconds / max(1, self.timeline.wall))

    def _sums(self) -> list[tuple[str, str, int, str]]:
        """Name, time, percent and details of the four that make up the whole."""
        timeline, counted = self.timeline, self.counted
        tracing = timeline.tracing()
        compiles, hits = counted.get("compiles", 0), counted.get("cache_hits", 0)
        compiled = [f"{compiles:,} compiled"] if compiles else []
        compiled += [f"{hits:,} from cache"] if hits else []
        up, down = counted.get("uploads", 0), counted.get("downloads", 0)
        moved = [f"{up:,} up ({blocks.size(counted['upload_bytes'])})"] if up else []
        moved += [f"{down:,} down ({blocks.size(counted['download_bytes'])})"] if down else []
        rows = [
            ("device busy", timeline.busy, f"{counted.get('executions', 0):,} runs"),
            ("compiling", timeline.compiling, ", ".join(compiled) or "none"),
            ("transfers", timeline.moving, ", ".join(moved) or "none"),
            (
                "waits for Python",
                timeline.waiting,
                f"PyTorch traced for {blocks.duration(tracing / 1e9)}" if tracing else "",
            ),
        ]
        times = [(name, total(intervals), detail) for name, intervals, detail in rows]
        shares = _rounded([time for _, time, _ in times])
        return [
            (name, blocks.duration(time / 1e9), share, detail)
            for (name, time, detail), share in zip(times, shares, strict=True)
        ]

    def _programs(self, most: int = _MOST_PROGRAMS) -> list[tuple[str, ...]]:
        ran = self.timeline.ran()
        whole = sum(one.total for one in ran) or 1
        rows = [
            (
                one.name if len(one.name) <= _MOST_OF_NAME else f"{one.name[: _MOST_OF_NAME - 1]}…",
                one.line,
                f"{one.runs:,}",
                _time(one.total),
                _time(one.total / one.runs),
                f"{100 * one.total / whole:.0f} %",
            )
            for one in ran[:most]
        ]
        if rest := ran[most:]:
            runs, time = sum(one.runs for one in rest), sum(one.total for one in rest)
            rows.append(
                (
                    f"{len(rest)} more",
                    "",
                    f"{runs:,}",
                    _time(time),
                    _time(time / runs),
                    f"{100 * time / whole:.0f} %",
                )
            )
        return rows

    def _lines(self, most: int = _MOST_LINES) -> list[tuple[str, ...]]:
        times = [one for one in self.timeline.lines() if one.time * 200 >= self.timeline.wall]
        return [
            (one.place, _time(one.time), _time(one.busy), _time(one.compiling), _time(one.waiting))
            for one in times[:most]
        ]

    def _parts(self) -> list[tuple[float, str]]:
        """The lines Python was in, as few pieces; the last one is the wait for the device."""
        timeline = self.timeline
        if not timeline.segments:
            return [(1.0, "–")]
        pieces = _pieces(timeline.segments, timeline.wall)
        if (left := timeline.wall - timeline.segments[-1].end) * 50 > timeline.wall:
            pieces.append((left / timeline.wall, "end"))
        return pieces

    def _axis(self) -> list[tuple[float, str]]:
        wall = self.timeline.wall
        return [(0.25, _time(wall * quarter / 4)) for quarter in range(4)]

    def _notes(self) -> list[str]:
        timeline = self.timeline
        notes = []
        longest, place = timeline.longest_wait()
        if longest * 20 > timeline.wall:
            where = f" with Python at {place}" if place else ""
            notes.append(f"The device's longest wait was {_time(longest)}{where}.")
        if timeline.lost:
            notes.append(
                f"{timeline.lost:,} earlier launches and transfers found no room: the counts are of all, times "
                "and tables of the last ones."
            )
        if timeline.unfinished:
            notes.append(f"{timeline.unfinished:,} launches or transfers had not ended and are not shown.")
        if timeline.launches or timeline.segments:
            notes.append(
                "When a program began is estimated, when it ended measured. "
                f"Python's lines are sampled ({self.samples:,} times)."
            )
        return notes

    def _files(self) -> list[str]:
        said = []
        if self.files.trace:
            said.append(f"`{_near(self.files.trace)}`: every event, opens at ui.perfetto.dev")
        if self.files.xprof:
            said.append(
                f"`{_near(self.files.xprof)}`: TorchTPU's trace, of the host only; `xprof {_near(self.files.xprof)}`"
            )
        return said + self.files.problems


_HEAD_PROGRAMS = ("program", "line or before", "runs", "total", "mean", "share")
_HEAD_LINES = ("Python at", "time", "device busy", "compiling", "device waits")


def _pieces(segments: Sequence[Segment], wall: int) -> list[tuple[float, str]]:
    """Lines as pieces in the order of time; the shortest are put together with their neighbours."""
    pieces: list[tuple[int, set[int]]] = []
    for segment in segments:
        lines = _numbers(segment.line)
        length = segment.end - segment.start
        if pieces and pieces[-1][1] == lines:
            pieces[-1] = pieces[-1][0] + length, lines
        elif pieces and length * 200 < wall and len(pieces) > 1:
            pieces[-1] = pieces[-1][0] + length, pieces[-1][1] | lines
        else:
            pieces.append((length, lines))
    while len(pieces) > _MOST_PARTS:
        at = min(range(len(pieces)), key=lambda index: pieces[index][0])
        near = [index for index in (at - 1, at + 1) if 0 <= index < len(pieces)]
        other = min(near, key=lambda index: pieces[index][0])
        first, second = sorted((at, other))
        pieces[first : second + 1] = [
            (pieces[first][0] + pieces[second][0], pieces[first][1] | pieces[second][1])
        ]
    return [(length / max(1, wall), blocks.spans(sorted(lines)) or "–") for length, lines in pieces]


def _numbers(line: str) -> set[int]:
    """The lines of `3` or `3–5, 7`."""
    numbers: set[int] = set()
    for part in filter(None, line.split(", ")):
        first, _, last = part.partition("–")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _fitting(piece: tuple[float, str]) -> tuple[float, str]:
    """A piece without its name where there is no room for it."""
    share, name = piece
    return share, name if share * _LANE_WIDTH > 7 * len(name) + 4 else ""


def _picture(intervals: Sequence[Interval], wall: int, colour: tuple[int, int, int], name: str) -> str:
    """A lane as a small picture: the more of a column's time is covered, the higher it is."""
    from .. import _kernel

    # What is there at all is seen; few heights make a small picture.
    heights = [
        math.ceil(part * _ROWS - 0.25) if part > 0.25 / _ROWS else part > 0
        for part in coverage(intervals, wall, _COLUMNS)
    ]
    share = round(100 * total(intervals) / max(1, wall))
    address = tensors.data_uri(_kernel.png_columns(bytes(heights), _ROWS, colour))
    return lanes.stretch(address, f"{name}: {share} % of the time")


def _text_bar(intervals: Sequence[Interval], wall: int) -> str:
    return "".join(
        _SHADES[0 if part == 0 else max(1, round(part * 4))]
        for part in coverage(intervals, wall, _TEXT_COLUMNS)
    )


def _text_parts(pieces: Sequence[tuple[float, str]]) -> str:
    """Pieces as wide as the bars below; names that do not fit are cut."""
    line, edge = "", 0.0
    for share, name in pieces:
        edge += share
        width = round(edge * _TEXT_COLUMNS) - len(line)
        line += ("|" + name).ljust(width)[:width] if width > 0 else ""
    return line + "|"


def _rounded(times: Sequence[int]) -> list[int]:
    """Percent of their sum, which add up to 100."""
    whole = sum(times) or 1
    exact = [100 * time / whole for time in times]
    shares = [int(value) for value in exact]
    missing = 100 - sum(shares) if sum(times) else 0
    for index in sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])[:missing]:
        shares[index] += 1
    return shares


def _time(nanoseconds: float) -> str:
    """A time in three digits."""
    if nanoseconds < 999_500:
        return f"{nanoseconds / 1e3:.3g} µs" if nanoseconds else "0"
    if nanoseconds < 999_500_000:
        return f"{nanoseconds / 1e6:.3g} ms"
    return f"{nanoseconds / 1e9:.3g} s"


def _short(row: Sequence[str]) -> tuple[str, ...]:
    name, *others = row
    return (name if len(name) <= 28 else f"{name[:27]}…", *others)


def _near(path: str) -> str:
    """A path as one types it here."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
