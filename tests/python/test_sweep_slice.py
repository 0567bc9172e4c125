"""A slice of `make sweep`: operators of every kind against the CPU, in workers of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).parents[1] / "sweep" / "sweep.py"
SLICE = [
    "cumsum:float32",
    "cumsum:bfloat16",
    "cumsum:int64",
    "cumprod:float32",
    "logcumsumexp:float32",
    "cummax:float32",
    "cummin:int64",
    "masked_scatter:float32",
    "masked_select:float32",
    "nn.functional.embedding_bag:float32",
    "_segment_reduce.lengths:float32",
    "linalg.lu_factor:float32",
    "linalg.inv:float32",
    "sort:float32",
    "topk:int64",
    "nn.functional.scaled_dot_product_attention:float32",
    "nn.functional.layer_norm:float32",
    "nn.functional.conv2d:float32",
    "softmax:bfloat16",
    "nn.functional.dropout:float32",
]


@pytest.mark.timeout(400)
def test_operators_do_on_the_emulated_chip_what_they_do_on_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, str(SWEEP), "--jobs", "1", *SLICE],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.stdout == "20 run, 20 as on the CPU, 0 aborted or hung, 0 not as known\n"
    assert done.returncode == 0


@pytest.mark.timeout(400)
def test_wrong_arguments_end_no_process() -> None:
    done = subprocess.run(
        [sys.executable, str(SWEEP), "--jobs", "1", "--wrong", "dot", "grid_sampler_2d", "index_select"],
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.stdout == "57 wrong calls, 55 an error, 2 a value, 0 aborted or hung\n"
    assert done.returncode == 0
