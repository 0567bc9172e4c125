"""The PJRT C API between TorchTPU, tpu-core and libtpu: what is called, what is there, what works without a chip."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pjrt_calls
from test_tpu_identity import HERE, environment, libtpu
from tpu_kernel import bootstrap

ROOT = HERE.parents[1]
#: `tpu-core` around libtpu, with no TPU in the machine.
WRAPPED = {
    "TPU_KERNEL_PJRT_PLUGIN": libtpu(),
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def answer(*command: str) -> Any:
    """The last line a Python program prints, as JSON."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=HERE,
        env=environment(**WRAPPED),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_torchtpu_calls_what_was_recorded_and_nothing_new() -> None:
    recorded = json.loads(pjrt_calls.RECORDED.read_text())
    called = pjrt_calls.run()
    new = sorted(called.keys() - recorded.keys())
    missing = sorted(recorded.keys() - called.keys())
    assert (new, missing) == ([], []), "look at what changed, then run `python pjrt_calls.py --record`"
    assert called == recorded, "an argument struct has another size now"


def test_libtpu_has_every_function_and_reports_its_versions_and_extensions() -> None:
    found = answer("-c", "import json, pjrt_calls; print(json.dumps(pjrt_calls.plugin()))")
    assert found["path"] == libtpu() and found["emulated"] is False
    assert found["interface"] == "0.117"
    assert found["missing"] == []
    assert found["attributes"]["stablehlo_current_version"] >= [1, 20, 0]
    assert found["attributes"]["xla_version"] == 2
    kinds = {extension["kind"] for extension in found["extensions"]}
    # Custom calls, profiler, layouts, raw buffers, cross-host transfers, topology, host memory.
    assert {1, 4, 5, 8, 12, 16, 23} <= kinds
    assert {extension["kind"] for extension in found["extensions"] if extension["offered"]} == {4, 16, 23}


def test_a_program_is_compiled_for_a_chip_that_is_not_there_and_the_client_says_so() -> None:
    program = str(ROOT / "tpu-core/programs/compiled.mlirbc")
    direct = answer("pjrt_compile.py", libtpu(), "v5e:1x1", program)
    through = answer("pjrt_compile.py", str(bootstrap.library()), "v5e:1x1", program)
    assert through.pop("client") == "TPU initialization failed: No jellyfish device found."
    assert through == direct
    assert direct["outputs"] == 1
    assert direct["memory"]["arguments"] == direct["memory"]["outputs"] == 2048
    assert direct["costs"]["bytes accessed"] > 0 and direct["costs"]["flops"] > 0
    form, head, *lines = direct["optimized"]
    assert (form, head.partition(", frontend_attributes")[0]) == (
        "hlo_with_config",
        (
            "HloModule tt_jit_p1_L35C0_f_cumprod, is_scheduled=true, "
            "entry_computation_layout={(f32[3,4]{1,0:T(4,128)})->f32[3,4]{1,0:T(4,128)}}"
        ),
    )
    entered = lines[lines.index("ENTRY %main.3 (Arg_0.3: f32[3,4]) -> f32[3,4] {") :]
    assert "  %Arg_0.3 = f32[3,4]{1,0:T(4,128)} parameter(0)" in entered
    scans = [line.partition(" scan(")[2] for line in entered if " scan(" in line]
    assert [scan.partition("), ")[2].partition(", to_apply")[0] for scan in scans] == [
        "dimensions={1}, num_carries=1, is_associative=true",
        "dimensions={0}, num_carries=1, is_associative=true",
    ]
