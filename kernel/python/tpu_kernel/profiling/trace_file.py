"""A timeline as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open: Chrome's trace format.

Complete events (`X`), in microseconds with three decimals, so that nothing is rounded. What overlaps
goes on tracks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .timeline import Segment, Timeline, Work

_PYTHON, _DEVICE, _COMPILING, _UPLOADS, _DOWNLOADS, _WAITING = 1, 2, 100, 200, 300, 3
_KINDS = {"compile": "compile", "cache_hit": "load from cache", "upload": "upload", "download": "download"}

Row = dict[str, Any]


def write(timeline: Timeline, path: Path, facts: Row) -> None:
    """Write the file; `facts` are said in it."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit": "ms", "otherData": ')
        json.dump(facts, file)
        file.write(', "traceEvents": [\n')
        for index, row in enumerate(rows(timeline)):
            file.write(",\n" if index else "")
            json.dump({"pid": 1, **row}, file, separators=(",", ":"))
        file.write("\n]}\n")


def rows(timeline: Timeline) -> Iterator[Row]:
    """All events."""
    yield _name("process_name", 0, f"PyTorch (TPU): {timeline.label}")
    yield _name("thread_name", _PYTHON, "Python: lines of the notebook (sampled)")
    yield from _python(timeline.segments)
    yield _name("thread_name", _DEVICE, "device: programs (to the measured end)")
    for one in timeline.launches:
        arguments = {
            "hash": one.program,
            "queued_us": _us(one.queued),
            "launched_us": _us(one.launched),
            "ended_us": _us(one.ended),
            "result_bytes": one.bytes,
        }
        title = timeline.title(one.program, one.name)
        if title not in one.name:
            arguments["program"] = one.name
        yield _slice(title, "execute", _DEVICE, one.began, one.ended, arguments)
    yield _name("thread_name", _WAITING, "device: waits for Python")
    for start, end in timeline.waiting:
        place = timeline.place_during(start, end)
        yield _slice("waits for Python", "wait", _WAITING, start, end, {"python": place})
    compiles = timeline.of("compile", "cache_hit")
    yield from _tracks(timeline, compiles, _COMPILING, "compiling and loading programs")
    yield from _tracks(timeline, timeline.of("upload"), _UPLOADS, "to the device")
    yield from _tracks(timeline, timeline.of("download"), _DOWNLOADS, "from the device")
    for at, message in timeline.failures:
        failure = {"name": "failure", "cat": "error", "ph": "i", "s": "p", "tid": _DEVICE, "ts": _us(at)}
        yield failure | {"args": {"message": message}}


def _python(segments: list[Segment]) -> Iterator[Row]:
    """Slices in slices: the cell's line outside, the notebook's functions it called within."""
    # Of each depth what is open: the place, its start.
    open_places: list[tuple[str, int]] = []
    slices: list[tuple[int, int, int, str]] = []
    at = 0

    def close(depth: int) -> None:
        while len(open_places) > depth:
            place, start = open_places.pop()
            slices.append((start, -at, len(open_places), place))

    for segment in segments:
        places = [*segment.places, *(["PyTorch's compiler traces"] if segment.tracing else [])]
        same = 0
        while same < min(len(places), len(open_places)) and open_places[same][0] == places[same]:
            same += 1
        close(same)
        open_places += [(place, segment.start) for place in places[same:]]
        at = segment.end
    close(0)
    # Of slices that begin and end together, the first is the outer one.
    for start, end, _, place in sorted(slices):
        yield _slice(place, "sampled", _PYTHON, start, -end, {})


def _tracks(timeline: Timeline, works: list[Work], first: int, name: str) -> Iterator[Row]:
    """Work that may overlap: each piece on the first track that is free."""
    ends: list[int] = []
    for work in works:
        track = next((index for index, end in enumerate(ends) if end <= work.start), len(ends))
        if track == len(ends):
            ends.append(0)
            yield _name("thread_name", first + track, name if track == 0 else f"{name} ({track + 1})")
        ends[track] = work.end
        title = _KINDS.get(work.kind, work.kind)
        if work.program:
            title += f" {timeline.title(work.program, work.name)}"
        arguments: Row = {"bytes": work.bytes}
        if work.program:
            place = timeline.programs.get(work.program, {}).get("place") or ""
            arguments |= {"program": work.name, "hash": work.program, "place": place}
        yield _slice(title, work.kind, first + track, work.start, work.end, arguments)


def _slice(name: str, kind: str, track: int, start: int, end: int, arguments: Row) -> Row:
    row: Row = {"name": name, "cat": kind, "ph": "X", "tid": track, "ts": _us(start), "dur": _us(end - start)}
    return row | {"args": arguments} if arguments else row


def _name(kind: str, track: int, name: str) -> Row:
    return {"name": kind, "ph": "M", "tid": track, "args": {"name": name}}


def _us(nanoseconds: int) -> float:
    return nanoseconds / 1000
