"""tpu-core under the real torch_tpu, in plain Python processes: what is counted, refused and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MIB = 1 << 20
V5E_BYTES = 16_909_336_064


def run(scenario: str, folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """The result of a scenario and all it printed."""
    result = folder / "result.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))}
    env |= {"TPU_CORE_RESULT": str(result), "TPU_KERNEL_CACHE": str(folder / "cache"), **environment}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, str(HERE / "tpu_core_scenarios.py"), scenario],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return json.loads(result.read_text()), done.stdout


def test_the_first_tensor_needs_no_call_and_prints_nothing(tmp_path: Path) -> None:
    seen, printed = run("first_tensor", tmp_path)
    assert printed == ""
    assert seen["before"] is None
    assert seen["values"] == [1.0, 1.0, 1.0]
    assert (seen["emulated"], seen["name"], seen["total"]) == (1, "TPU v5e", 16 << 30)
    assert seen["identity"]["kind"] == "TPU v5 lite"
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert seen["limit"] == V5E_BYTES or seen["limit"] <= host
    free, limit = seen["info"]
    assert limit == seen["limit"] and 0 < limit - free < 4096


def test_live_bytes_are_those_of_the_tensors_python_can_reach(tmp_path: Path) -> None:
    seen, printed = run("accounting", tmp_path)
    assert printed == ""
    assert seen["created"]["walked"] == 100 * MIB
    assert seen["moved"]["walked"] == 108 * MIB
    assert seen["deleted"]["walked"] == 8 * MIB
    assert seen["upload_bytes"] >= 8 * MIB
    assert seen["loss_fell"]
    for name, slack in (("created", 64), ("moved", 64), ("deleted", 64), ("trained", 1280), ("raised", 1280)):
        assert 0 <= seen[name]["over"] <= slack, (name, seen[name])
    assert seen["left"] <= 1280


def test_work_in_place_donates_its_input_and_the_peak_knows(tmp_path: Path) -> None:
    seen, _ = run("donation_and_peak", tmp_path)
    assert seen["value"] == 10.0 * MIB
    assert seen["donated"] >= 9
    assert seen["start"] - 4 * MIB <= 64 and seen["live"] - 4 * MIB <= 128
    assert 4 * MIB <= seen["peak_in_place"] < 9 * MIB
    assert 8 * MIB <= seen["peak_out_of_place"] < 9 * MIB
    assert 4 * MIB <= seen["peak_after_reset"] <= 4 * MIB + 128
    assert seen["allocated"] == seen["counted"]


def test_over_the_limit_there_is_an_error_and_the_process_goes_on(tmp_path: Path) -> None:
    seen, _ = run("limit", tmp_path)
    assert seen["info"] == 64 * MIB
    assert "100" in seen["transfer"]
    assert seen["execution"]
    assert ["RESOURCE_EXHAUSTED", False] in seen["errors"] or ["RESOURCE_EXHAUSTED", True] in seen["errors"]
    assert seen["count"] == len(seen["errors"]) == 2
    assert seen["fits"] == 3.0 * 10 * MIB
    assert seen["old"] == 1.0 * MIB
    assert seen["raised"] == 3.0 * 25 * MIB


def test_programs_are_counted_once_and_a_second_process_takes_them_from_the_cache(tmp_path: Path) -> None:
    first, _ = run("programs", tmp_path)
    assert first["total"][0] == first["total"][1]
    assert first["first"]["compiles"] == 2 and first["first"]["cache_hits"] == 0
    assert first["first"]["executions"] == 2 and first["first"]["uploads"] == 1
    assert first["second"] == {"compiles": 0, "cache_hits": 0, "executions": 2}
    assert first["time_counted"] and first["named"] and first["pending"] == 0
    assert first["kinds"] == {
        "cell-a": ["compile", "download", "execute", "upload"],
        "cell-b": ["download", "execute"],
    }
    again, _ = run("programs", tmp_path)
    assert again["total"] == first["total"]
    assert again["first"]["compiles"] == 0 and again["first"]["cache_hits"] == 2


def test_a_program_from_one_cache_can_be_saved_in_another_and_still_runs(tmp_path: Path) -> None:
    """PyTorch's own cache saves what TorchTPU's cache has loaded; that program once had no code."""
    caches = [{"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name)} for name in ("first", "second")]
    compiled, _ = run("saved_again", tmp_path, **caches[0])
    loaded, _ = run("saved_again", tmp_path, **caches[1])
    again, printed = run("saved_again", tmp_path, **caches[1])
    assert compiled["compiles"] >= 1
    assert loaded["compiles"] == again["compiles"] == 0
    assert loaded["cache_hits"] >= 1 and again["cache_hits"] >= 1
    assert compiled["value"] == loaded["value"] == again["value"]
    assert printed == ""


def test_a_compiled_function_compiles_nothing_once_it_is_warm(tmp_path: Path) -> None:
    seen, _ = run("compiled_step", tmp_path)
    # Forward, backward and two updates: `%%tpu_compile` makes one program of such a step.
    assert seen == {"falls": True, "compiles": 0, "executions": 4}


def test_attention_runs_without_a_tpu_kernel(tmp_path: Path) -> None:
    seen, _ = run("attention", tmp_path)
    assert seen["error"] < 1e-5


@pytest.mark.parametrize("file", ["fastatomstruct_xla_cpu/libpjrt_cpu.so"])
def test_a_plugin_is_chosen_by_its_path(tmp_path: Path, file: str) -> None:
    path = next(Path(folder, file) for folder in sys.path if Path(folder, file).is_file())
    seen, printed = run("matmul", tmp_path, TPU_KERNEL_PJRT_PLUGIN=str(path))
    assert printed == ""
    assert seen["product"] == [[5.0, 14.0], [14.0, 50.0]] == seen["compiled"]
    assert seen["plugin"] == str(path) and seen["live"]


def test_without_a_plugin_the_device_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    seen, printed = run("no_plugin", tmp_path, TPU_KERNEL_PJRT_PLUGIN=str(tmp_path / "nothing.so"))
    assert printed == ""
    assert seen["cpu"] == 3.0
    assert str(tmp_path / "nothing.so") in seen["message"]
    assert "\n" not in seen["message"].strip()


def test_with_nothing_to_emulate_a_chip_the_package_to_install_is_named(tmp_path: Path) -> None:
    seen, printed = run("no_plugin", tmp_path, TPU_KERNEL_CPU_PLUGIN=str(tmp_path / "nothing.so"))
    assert printed == ""
    assert seen["cpu"] == 3.0
    assert seen["message"] == (
        "this machine has no TPU, and no XLA CPU plug-in to emulate one: pip install fastatomstruct-xla-cpu"
    )


def test_libtpu_without_a_chip_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    path = next(Path(folder, "libtpu/libtpu.so") for folder in sys.path if Path(folder, "libtpu").is_dir())
    seen, _ = run("no_plugin", tmp_path, TPU_KERNEL_PJRT_PLUGIN=str(path))
    assert "TPU initialization failed" in seen["message"]
    assert seen["cpu"] == 3.0


def test_data_loader_workers_need_no_device(tmp_path: Path) -> None:
    seen, _ = run("workers", tmp_path)
    assert seen["total"] == 2 * 4 * sum(n * n for n in range(64))


def test_a_child_python_finds_the_device_as_quietly(tmp_path: Path) -> None:
    code = "from tpu_kernel import bootstrap; bootstrap.install()\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import torch; print(torch.ones(2, device=\"tpu\").sum().item())'], check=True)"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TPU_", "TORCH"))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2.0\n", "", 0)
