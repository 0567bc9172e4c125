"""Each program: where it came from, what it costs, and why it was not there already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_tpu_caches import compiled


def one(programs: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(programs) == 1, programs
    return programs[0]


def test_a_compile_says_what_differs_from_the_nearest_program(tmp_path: Path) -> None:
    seen = compiled(tmp_path, "why")
    first, second = one(seen["mm 60"]), one(seen["mm 61"])
    assert (first["stage"], first["why"], first["cell"], first["name"]) == (
        "compiled",
        "first",
        "cell-60",
        "tt_jit_mm",
    )
    assert first["arguments"] == ["float32[60, 128]", "float32[128, 128]"]
    assert first["argument_bytes"] == (60 + 128) * 128 * 4 and first["output_bytes"] == 60 * 128 * 4
    assert first["duration_ns"] > 0 and first["bytes"] > 100 and first["loaded"]
    assert (second["why"], second["nearest"], second["cell"]) == ("differs", first["number"], "cell-61")
    assert second["family"] == first["family"]
    assert second["differences"] == [
        {
            "differs": "size",
            "part": "argument",
            "index": 0,
            "dimension": 0,
            "was": 60,
            "is": 61,
            "tensor": "float32[61, 128]",
        }
    ]
    # the same again is found in memory: no program comes, the one there ran twice more
    assert seen["again"] == []
    assert seen["ran"] == [1, 3]
    half = seen["bfloat16"][-1]
    assert {
        "differs": "type",
        "part": "argument",
        "index": 0,
        "was": "float32[61, 128]",
        "is": "bfloat16[61, 128]",
    } in half["differences"]
    assert one(seen["factor 0.5"])["why"] == "first"
    factor = one(seen["factor 1.5"])
    assert factor["differences"] == [{"differs": "number", "was": "0.5", "is": "1.5"}]
    dropout = seen["dropout 0.75"][-1]
    assert {"differs": "number", "was": "0.25", "is": "0.75"} in dropout["differences"]


def test_the_next_process_takes_each_program_from_disk_and_knows_it(tmp_path: Path) -> None:
    first = compiled(tmp_path, "why")
    again = compiled(tmp_path, "why")
    assert first["counters"]["compiles"] > 6 and first["counters"]["cache_hits"] == 0
    assert again["counters"]["compiles"] == 0
    assert again["counters"]["cache_hits"] == first["counters"]["compiles"]
    for name in ("executions", "programs_run", "loaded_programs"):
        assert again["counters"][name] == first["counters"][name]
    before, after = one(first["mm 61"]), one(again["mm 61"])
    assert after["stage"] == "cached"
    for key in ("program", "family", "arguments", "differences", "bytes", "temporary_bytes"):
        assert after[key] == before[key], key
