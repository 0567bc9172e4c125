"""The emulated chip computes what PyTorch computes on the CPU, in every mode, and aborts on nothing."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
#: One process does it all, in the first test; half a minute on an idle machine.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each scenario found, all in one process: what comes after an abort is missing."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))}
    env["TPU_KERNEL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, str(HERE / "ops_scenarios.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    found = {name: result for line in done.stdout.splitlines() for name, result in json.loads(line).items()}
    return found | {"stderr": done.stderr, "code": done.returncode}


def test_nothing_aborts_and_nothing_is_printed(seen: dict[str, Any]) -> None:
    assert (seen["code"], seen["stderr"]) == (0, "")


def test_every_scan_has_the_right_values_in_every_type(seen: dict[str, Any]) -> None:
    found = seen["scans"]
    assert found["cumsum"] == [
        [[3, 1, 2], [4, 6, 6]],
        [[3, 4, 6], [1, 6, 10]],
        [[3, 1, 2], [4, 6, 6]],
    ]
    assert found["cumprod"] == [[[3, 1, 2], [3, 5, 8]], [[3, 3, 6], [1, 5, 20]]]
    assert found["cummax"] == [[[3, 3, 3], [1, 5, 5]], [[0, 0, 0], [0, 1, 1]]]
    assert found["cummin"] == [[[3, 1, 1], [1, 1, 1]], [[0, 1, 1], [0, 0, 0]]]
    assert found["logcumsumexp"] == pytest.approx([0.0, math.log(2), math.log(2)], abs=1e-6)
    for kind in ("bfloat16", "float16", "float64", "int64", "int32", "int32_kept", "inplace"):
        assert found[kind] == [[3, 4, 6], [1, 6, 10]], kind
    assert found["bfloat16_type"] == "torch.bfloat16"
    assert found["uint8"] == [[203, 404, 606], [201, 406, 610]]
    assert found["bool"] == [[1, 1, 2], [1, 2, 2]]
    assert found["complex"] == ["(1+2j)", "(4+1j)"]
    assert (found["one"], found["scalar"]) == ([7], 7)
    assert (found["empty"], found["empty_across"]) == ([0, 3], [3, 0])
    # The sum of 1 to 100,000 is 5,000,050,000; float32 has nothing nearer.
    assert found["long"] == [[1, 4096, 100_000], 5_000_050_176]
    assert found["nan"] == [False, True, True]
    assert found["infinite"] == [1, math.inf, math.inf]


def test_scans_are_the_same_in_every_eager_mode(seen: dict[str, Any]) -> None:
    found = seen["modes"]
    right = [[7, 9, 13], [13, 97, 241]]
    assert found == {
        "DEFER_NEVER": right,
        "DEFER_NEVER_AND_LAUNCH_BLOCKING": right,
        "DEFER_AND_FUSE": right,
    }


def test_gradients_flow_through_scans(seen: dict[str, Any]) -> None:
    found = seen["gradients"]
    assert found == {
        "cumsum": [6, 5, 3],
        "cumprod": [9, 24, 9],
        "cumprod_zero": [1, 24, 0],
        "cummax": [6, 0, 0],
        "logcumsumexp": pytest.approx([3, 2, 1], rel=1e-5),
        "masked_select": [6, 0, 6],
        "masked_scatter": [1, 3, 0],
    }


def test_what_is_built_on_scans_works(seen: dict[str, Any]) -> None:
    found = seen["built_on_scans"]
    assert found == {
        "masked_scatter": [1, 10, 3, 20, 30],
        "embedding_bag": {
            "sum": [[0, 1, 2], [18, 21, 24]],
            "mean": [[0, 1, 2], [6, 7, 8]],
            "max": [[0, 1, 2], [9, 10, 11]],
        },
        "embedding_bag_gradient": [[1, 1, 1]] * 4,
        "segment_reduce": {"sum": [3, 12], "mean": [1.5, 4], "max": [2, 5], "min": [1, 3]},
        "cumulative_trapezoid": [1.5, 4, 7.5, 12],
        "vander": [[1, 1, 1], [4, 2, 1], [9, 3, 1]],
        "masked_cumsum": [0, 2, 2, 6, 11],
    }


def test_scans_compile_with_their_gradients(seen: dict[str, Any]) -> None:
    found = seen["compiled"]
    assert found["values"] == [[3, 4, 6], [3, 24, 60]]
    assert found["gradient"] == [[20, 18, 11], [13, 10, 6]]
    assert found["sampled"] == [1, 3, -1, -1]


def test_scans_with_an_operation_of_the_users_own_work(seen: dict[str, Any]) -> None:
    found = seen["own_scans"]
    assert found == {
        "product": [[3, 3, 6], [1, 5, 20]],
        "reverse": [[6, 3, 2], [10, 9, 4]],
        "matrices": [[1, 5], [0, 1]],
        "recurrence": [1, 1.5, 1.75, 1.875],
        "state": [[4, 6, 6], [[0, 0, 0], [1.5, 0.5, 1]]],
    }


def test_lu_and_what_solves_with_it_work(seen: dict[str, Any]) -> None:
    found = seen["linear_algebra"]
    assert found["lu"] == [[[4, 2], [0, 2]], [2, 2]]
    assert found["tall"] == [
        [[0, 0, 1], [0, 1, 0], [1, 0, 0]],
        [[1, 0], [0.5, 1], [0.25, 0]],
        [[4, 8], [0, -2]],
    ]
    assert found["inv"] == found["inv_float64"] == [[-0.25, 0.25], [0.5, 0]]
    assert found["inv_batch"] == [[[-0.25, 0.25], [0.5, 0]], [[-0.125, 0.125], [0.25, 0]]]
    assert found["inv_complex"] == ["-0.5j"]
    assert found["inv_gradient"] == [[0, -0.125], [0, -0.125]]
    assert found["solve"] == [[1], [1]]
    assert "the input matrix is singular" in found["singular"]


def test_attention_of_every_kind_works(seen: dict[str, Any]) -> None:
    found = seen["attention"]
    mean, rising = [[3, 4]] * 4, [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert found["plain"] == found["grouped"] == found["math"] == mean
    assert found["causal"] == found["bfloat16"] == rising
    assert found["bool_mask"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert found["float_mask"] == [[0, 1]] * 4
    assert found["gradient"] == pytest.approx([25 / 12, 13 / 12, 7 / 12, 1 / 4])
    assert found["long"] == pytest.approx([0, 0.5, 255], rel=1e-5)
    assert found["compiled"] == [rising, pytest.approx([25 / 12, 13 / 12, 7 / 12, 1 / 4])]
    assert found["off"] < 1e-5
    assert "cannot run kernels written for a TPU" in found["flash"]


def test_pinned_memory_works_and_too_much_of_it_is_an_error(seen: dict[str, Any]) -> None:
    found = seen["pinned_memory"]
    assert found["pinned"] == [True, False, True]
    assert found["moved"] == [0, 2, 4, 6]
    assert found["batches"] == [[0, 1], [2, 3]]
    assert found["back"] == [1, 1]
    assert "Failed to allocate" in found["refused"]
