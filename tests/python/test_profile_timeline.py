"""What a profile makes of events and samples: sums that add up, lines, and a file that loses nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tpu_kernel.profiling import trace_file
from tpu_kernel.profiling.sampling import Sample
from tpu_kernel.profiling.timeline import Timeline, build, coverage, total, without

MM, ADD, STEP = "tt_jit_mm", "tt_jit_add", "tt_jit_export_L5C0_fx_to_mlir_traverse_and_compile"


def event(kind: str, start: int, duration: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "started_unix_ns": 5_000 + start,
        "duration_ns": duration,
        "bytes": 4,
        "program": "",
        "cell": "c",
        **more,
    }


EVENTS = [
    event("compile", 100, 200, name=MM, program="a1"),
    event("upload", 90, 30),
    event("execute", 300, 100, name=MM, program="a1", ran_ns=100),
    # queued behind the first: of its 150 ns it ran 50
    event("execute", 300, 150, name=ADD, program="b2", ran_ns=50, held_ns=40),
    event("download", 320, 180),
    event("execute", 700, 100, name=STEP, program="c3", ran_ns=100),
    event("error", 720, 0, message="it broke"),
]
SAMPLES = [
    Sample(10_000, "2", ("line 2",)),
    Sample(10_200, "2", ("line 2", "In[1], line 7 (f)")),
    Sample(10_400, "3", ("line 3",)),
    Sample(10_600, "3", ("line 3",)),
    Sample(10_650, "4–5", ("lines 4–5",), True),
    # the cell was over
    Sample(10_950, "1", ("line 1",)),
]
PROGRAMS = [{"program": "c3", "name": STEP, "place": "In[3], lines 4–5"}]


def timeline() -> Timeline:
    return build(
        "In[3]",
        EVENTS,
        SAMPLES,
        [dict(each) for each in PROGRAMS],
        started_unix_ns=5_000,
        started_ns=10_000,
        wall=1_000,
        ended=900,
    )


def test_each_moment_of_the_device_is_counted_once_and_the_four_add_up() -> None:
    it = timeline()
    assert it.busy == [(300, 450), (700, 800)]
    assert it.compiling == [(100, 300)]
    # the upload before the compile; of the download what came after the programs
    assert it.moving == [(90, 100), (450, 500)]
    assert it.waiting == [(0, 90), (500, 700), (800, 1000)]
    assert sum(map(total, (it.busy, it.compiling, it.moving, it.waiting))) == 1000


def test_programs_are_charged_what_they_added_and_named_by_their_lines() -> None:
    rows = [(one.name, one.line, one.runs, one.total) for one in timeline().ran()]
    assert rows == [
        ("mm", "In[1]:7", 1, 100),
        ("compiled lines 4–5", "4–5", 1, 100),
        ("add", "In[1]:7", 1, 50),
    ]


def test_lines_say_what_the_device_did_meanwhile() -> None:
    rows = [(one.place, one.time, one.busy, one.compiling, one.waiting) for one in timeline().lines()]
    assert rows == [
        ("line 3", 250, 50, 0, 150),
        ("lines 4–5", 250, 100, 0, 150),
        ("line 2", 200, 0, 100, 90),
        ("In[1], line 7 (f)", 200, 100, 100, 0),
    ]
    assert timeline().tracing() == 250
    assert timeline().longest_wait() == (200, "line 3")


def test_work_from_before_the_cell_is_counted_from_its_start() -> None:
    it = build(
        "In[3]",
        [event("execute", -50, 100, name=MM, program="a1", ran_ns=100)],
        [],
        [],
        started_unix_ns=5_000,
        started_ns=10_000,
        wall=100,
        ended=100,
    )
    assert (it.busy, it.waiting) == ([(0, 50)], [(50, 100)])
    assert it.ran()[0].line == ""


def test_a_compiled_function_of_another_cell_is_not_given_lines_of_this_one() -> None:
    it = timeline()
    it.programs["c3"]["place"] = "In[2], lines 4–5"
    assert it.title("c3", STEP) == "compiled function"
    it.programs["c3"]["place"] = "In[3], line 4 or before"
    assert it.title("c3", STEP) == "compiled function"
    it.programs["c3"]["place"] = "In[3], line 4"
    assert it.title("c3", STEP) == "compiled line 4"


def test_compiled_functions_that_came_from_a_cache_have_their_lines_by_the_order_of_the_calls() -> None:
    names = [("c3", STEP), ("a1", MM), ("d4", STEP), ("c3", STEP)]
    launches = [
        event("execute", 100 * index, 50, name=name, program=program, ran_ns=50)
        for index, (program, name) in enumerate(names)
    ]

    def titles(*calls: str) -> set[str]:
        it = build(
            "In[3]",
            launches,
            [],
            [],
            started_unix_ns=5_000,
            started_ns=10_000,
            wall=400,
            ended=400,
            calls=calls,
        )
        return {one.name for one in it.ran()}

    assert titles("4–5", "7", "4–5") == {"compiled lines 4–5", "compiled line 7", "mm"}
    launches[2]["name"] = "tt_jit_export_L207C0_run_node_sum"
    assert titles("4–5", "7", "4–5") == {"compiled lines 4–5", "compiled line 7", "mm"}
    # more programs than calls: which is whose is not known
    assert titles("4–5", "7") == {"compiled function", "mm"}


def test_what_is_left_of_time_is_cut_out_and_shares_of_columns_are_exact() -> None:
    assert without([(0, 10), (20, 30)], [(2, 4), (8, 22), (29, 40)]) == [(0, 2), (4, 8), (22, 29)]
    assert coverage([(0, 25), (75, 100)], 100, 2) == [0.5, 0.5]
    assert coverage([(10, 60)], 100, 4) == [0.6, 1.0, 0.4, 0.0]
    assert coverage([], 0, 2) == [0.0, 0.0]


def test_the_file_holds_every_event_to_the_nanosecond(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace_file.write(timeline(), path, {"wall_us": 1.0})
    trace = json.loads(path.read_text())
    assert (trace["displayTimeUnit"], trace["otherData"]) == ("ms", {"wall_us": 1.0})
    slices = [one for one in trace["traceEvents"] if one["ph"] == "X"]

    def of(kind: str) -> list[tuple[Any, ...]]:
        return [(one["name"], one["ts"], one["dur"]) for one in slices if one["cat"] == kind]

    assert of("execute") == [("mm", 0.3, 0.1), ("add", 0.4, 0.05), ("compiled lines 4–5", 0.7, 0.1)]
    add = next(one for one in slices if one["name"] == "add")
    assert add["args"] == {
        "hash": "b2",
        "queued_us": 0.26,
        "launched_us": 0.3,
        "ended_us": 0.45,
        "result_bytes": 4,
    }
    assert of("compile") == [("compile mm", 0.1, 0.2)]
    assert (of("upload"), of("download")) == ([("upload", 0.09, 0.03)], [("download", 0.32, 0.18)])
    assert of("wait") == [
        (("waits for Python"), ts, dur) for ts, dur in ((0.0, 0.09), (0.5, 0.2), (0.8, 0.2))
    ]
    # what the cell called lies within its line
    assert of("sampled") == [
        ("line 2", 0.0, 0.4),
        ("In[1], line 7 (f)", 0.2, 0.2),
        ("line 3", 0.4, 0.25),
        ("lines 4–5", 0.65, 0.25),
        ("PyTorch's compiler traces", 0.65, 0.25),
    ]
    assert [one["args"] for one in trace["traceEvents"] if one["ph"] == "i"] == [{"message": "it broke"}]
    tracks = {one["args"]["name"] for one in trace["traceEvents"] if one["ph"] == "M"}
    assert "device: programs (to the measured end)" in tracks
    assert {one["pid"] for one in trace["traceEvents"]} == {1}


def test_compiles_at_the_same_time_get_tracks_of_their_own() -> None:
    overlapping = [event("compile", start, 100, name=MM, program=str(start)) for start in (0, 50, 100)]
    it = build("In[3]", overlapping, [], [], started_unix_ns=5_000, started_ns=10_000, wall=300, ended=300)
    tracks = [row["tid"] for row in trace_file.rows(it) if row.get("cat") == "compile"]
    assert tracks == [100, 101, 100]
