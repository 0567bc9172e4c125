"""Compiled programs between kernels: found again, shared, bounded, and never trusted when damaged."""

from __future__ import annotations

import secrets
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from test_tpu_core import run
from tpu_kernel import caches

MEMORY = Path("/dev/shm/torch_tpu_cache")


def compiled(folder: Path, scenario: str = "saved_again", **environment: str) -> dict[str, Any]:
    """A process that compiles a function, with its caches in `folder` and none left in memory."""
    folder.mkdir(exist_ok=True)
    memory = f"test-{secrets.token_hex(8)}"
    try:
        seen, _ = run(scenario, folder, **{"TORCH_TPU_TIER2_COMPILATION_CACHE": memory, **environment})
    finally:
        shutil.rmtree(MEMORY / memory, ignore_errors=True)
    return seen


def programs(folder: Path) -> list[Path]:
    """Files of the caches on disk, tags aside."""
    return [file for file in (folder / "cache").rglob("*") if file.is_file() and file.name != "CACHEDIR.TAG"]


def test_a_damaged_cache_is_a_miss_not_a_crash(tmp_path: Path) -> None:
    first = compiled(tmp_path)
    files = programs(tmp_path)
    assert first["compiles"] >= 1 and len(files) >= 3
    for number, file in enumerate(sorted(files)):
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if number % 2 else b"\x00garbage" * 100)
    again = compiled(tmp_path)
    assert again["value"] == first["value"]
    assert again["compiles"] == first["compiles"]


def test_kernels_that_compile_the_same_at_once_share_one_cache(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cache = {"TPU_KERNEL_CACHE": str(tmp_path / "cache")}
    seen: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda folder=folder: seen.append(compiled(folder, **cache)))
        for folder in (tmp_path, tmp_path / "other")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2 and seen[0]["value"] == seen[1]["value"]
    again = compiled(tmp_path)
    assert (again["compiles"], again["value"]) == (0, seen[0]["value"])


def test_a_lessons_warm_cache_serves_others_read_only(tmp_path: Path) -> None:
    teacher = compiled(tmp_path / "teacher")
    shared = tmp_path / "shared"
    shutil.copytree(tmp_path / "teacher" / "cache", shared)
    before = {file: file.read_bytes() for file in shared.rglob("*") if file.is_file()}
    for path in [*shared.rglob("*"), shared]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    student = compiled(tmp_path / "student", TPU_KERNEL_SHARED_CACHE=str(shared))
    assert student["compiles"] == 0 and student["cache_hits"] >= 1
    assert student["value"] == teacher["value"]
    assert {file: file.read_bytes() for file in shared.rglob("*") if file.is_file()} == before
    # A lesson that is over and whose cache is gone costs a compile, nothing else.
    for path in [shared, *shared.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(shared)
    later = compiled(tmp_path / "student", TPU_KERNEL_SHARED_CACHE=str(shared))
    assert later["value"] == teacher["value"] and later["compiles"] >= 1


def test_the_cache_stays_below_its_size(tmp_path: Path) -> None:
    compiled(tmp_path)
    full = sum(file.stat().st_size for file in programs(tmp_path))
    # One small program is made after the old ones went.
    compiled(tmp_path, "first_tensor", TPU_KERNEL_CACHE_SIZE="8KiB")
    assert full > 40 << 10
    assert sum(file.stat().st_size for file in programs(tmp_path)) <= 16 << 10


def test_where_another_user_has_the_shared_memory_programs_are_compiled_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    # nobody can make a folder in /proc, as nobody can in that of another user
    monkeypatch.setattr(caches, "_MEMORY", Path("/proc/torch_tpu_cache"))
    assert caches._shared_memory_name(disk) == "disabled"
    monkeypatch.setattr(caches, "_MEMORY", tmp_path / "memory")
    name = caches._shared_memory_name(disk)
    assert name.startswith("tpu-kernel-") and (tmp_path / "memory" / name).stat().st_mode & 0o777 == 0o700
    (tmp_path / "memory" / name).rename(tmp_path / "elsewhere")
    (tmp_path / "memory" / name).symlink_to(tmp_path / "elsewhere")
    assert caches._shared_memory_name(disk) == "disabled", "a link may lead anywhere"
    seen = compiled(tmp_path, TORCH_TPU_TIER2_COMPILATION_CACHE="disabled")
    assert (seen["value"], seen["compiles"] >= 1) == (131626.5, True)
