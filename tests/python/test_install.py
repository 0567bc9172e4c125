"""What the wheel and `tpu-kernel install` put where, and that Jupyter finds and starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from installed import LAUNCHER, PREFIX, launcher, started
from jupyter_client.kernelspec import KernelSpecManager
from notebook import PATIENCE

LOGOS = ["logo-32x32.png", "logo-64x64.png", "logo-svg.svg"]


def test_the_wheel_brings_a_kernelspec_that_names_everything() -> None:
    spec = KernelSpecManager().get_kernel_spec("pytorch-tpu")
    assert Path(spec.resource_dir) == PREFIX / "share/jupyter/kernels/pytorch-tpu"
    assert spec.to_dict() == {
        "argv": ["{resource_dir}/../../../../bin/tpu-kernel", "start", "-f", "{connection_file}"],
        "env": {},
        "display_name": "PyTorch (TPU)",
        "language": "python",
        "interrupt_mode": "message",
        "kernel_protocol_version": "5.5",
        "metadata": {"debugger": True, "supported_encryption": ["curve"], "tpu_stats": 1},
    }
    assert sorted(file.name for file in Path(spec.resource_dir).iterdir()) == ["kernel.json", *LOGOS]


def test_the_wheel_brings_library_and_start_up_file() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    assert (packages / "tpu_kernel_boot.pth").is_file()
    for library in ["tpu_kernel/_kernel.abi3.so", "tpu_kernel/lib/libtpu_core.so"]:
        assert (packages / library).read_bytes().startswith(b"\x7fELF")


def test_the_kernel_starts_from_an_environment_that_is_not_on_path() -> None:
    with started(PATH="/usr/bin:/bin") as kernel:
        assert kernel.value("sys.executable", "import sys") == sys.executable


def test_install_writes_a_kernelspec_with_absolute_paths_for_another_jupyter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = launcher(
        "install", "--prefix", str(tmp_path), "--name", "tpu-b", "--display-name", "TPU of env B"
    )
    folder = tmp_path / "share/jupyter/kernels/tpu-b"
    assert (outcome.returncode, outcome.stdout) == (0, f"installed kernel `tpu-b` in {folder}\n")
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"] == [str(LAUNCHER), "start", "-f", "{connection_file}"]
    assert spec["display_name"] == "TPU of env B"
    assert spec["metadata"]["tpu_stats"] == 1
    assert sorted(file.name for file in folder.iterdir()) == ["kernel.json", *LOGOS]

    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    with started("tpu-b") as kernel:
        assert kernel.value("(6 * 7, sys.prefix)", "import sys") == (42, sys.prefix)


def test_install_for_the_user_follows_jupyter_and_replaces_what_was_there(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    where = subprocess.run(
        [sys.executable, "-m", "jupyter_core", "--data-dir"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    for name in ["First", "Second"]:
        assert launcher("install", "--user", "--display-name", name, env=environment).returncode == 0
    spec = Path(where.stdout.strip()) / "kernels/pytorch-tpu/kernel.json"
    assert json.loads(spec.read_text())["display_name"] == "Second"


def test_install_refuses_a_place_it_may_not_write_to() -> None:
    outcome = launcher("install", "--prefix", "/proc/nowhere")
    assert outcome.returncode == 1
    assert outcome.stderr == (
        "tpu-kernel: cannot write `/proc/nowhere/share/jupyter/kernels/pytorch-tpu` "
        "(No such file or directory): choose a place you may write to with --user or --prefix\n"
    )
