"""Where compiled programs stay between kernels: set up before torch_tpu is loaded, which reads it once.

Two caches lie in one folder: that of TorchTPU, of the programs, and PyTorch's own, of what
`torch.compile` made of the Python code. tpu-core keeps the folder below its size.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Where TorchTPU 0.2 has its caches in shared memory, and its word for having none.
_MEMORY = Path("/dev/shm/torch_tpu_cache")
_NO_MEMORY = "disabled"
_TAG = "CACHEDIR.TAG"
_TAG_TEXT = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled programs of the Jupyter kernel PyTorch (TPU). It may be deleted at any time.\n"
)


def prepare(plugin: Path, core: Path) -> None:
    """Set the variables that say where the caches are, unless they are set or caching is off."""
    root = _root()
    if root is None:
        # PyTorch would keep compiled functions, and programs in them, in a folder of its own.
        os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")
    if root is None or (folder := _folder(root, plugin, core)) is None:
        return
    environ = os.environ
    environ["TPU_KERNEL_CACHE_FOLDER"] = str(root)
    environ.setdefault("TORCH_TPU_TIER3_COMPILATION_CACHE_ROOT", str(folder))
    # PyTorch's cache holds programs too, and its names do not tell plug-ins apart.
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torchinductor"))
    environ.setdefault("TORCH_TPU_TIER2_COMPILATION_CACHE", _shared_memory_name(folder))
    # TorchTPU compiles while it reads, for the case that a cache far away is slow. This one is near.
    environ.setdefault("TORCH_TPU_INTERNAL_TIER3_COMPILATION_CACHE_LOCAL_BACKUP_TASK", "0")
    if shared := environ.get("TPU_KERNEL_SHARED_CACHE"):
        _offer(Path(shared).expanduser() / folder.name, folder)


def _root() -> Path | None:
    """The folder of all caches: `TPU_KERNEL_CACHE`, which may be `off`, else the user's own."""
    chosen = os.environ.get("TPU_KERNEL_CACHE")
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "tpu-kernel"
    return None if chosen.lower() in ("", "0", "off") else Path(chosen).expanduser()


def _folder(root: Path, plugin: Path, core: Path) -> Path | None:
    """The caches' folder for what compiles here; None where none can be made.

    Programs of the emulation are machine code for this CPU made by one plug-in, so both are in the
    name; TorchTPU adds its own version below.
    """
    import hashlib

    try:
        sizes = [file.stat().st_size for file in (plugin, core)]
        made_by = hashlib.sha256(f"{plugin.name} {sizes} {_cpu_features()}".encode()).hexdigest()[:12]
        folder = root / f"{plugin.parent.name}-{made_by}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _TAG).exists():
            (folder / _TAG).write_text(_TAG_TEXT)
    except OSError:
        return None
    return folder


def _cpu_features() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return line
    return ""


def _shared_memory_name(cache: Path) -> str:
    """Name of TorchTPU's cache in shared memory, which is on whenever there is one on disk.

    Its own name is everybody's on this machine, and machine code is not taken from anybody: so a folder
    that belongs to this user, one for each cache on disk. Where there can be none, as where another user
    made the folder of all, TorchTPU is told so, and then has none on disk either: else it would end the
    process.
    """
    import hashlib
    import stat

    name = f"tpu-kernel-{os.getuid()}-{hashlib.sha256(str(cache).encode()).hexdigest()[:12]}"
    folder = _MEMORY / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        # who owns the folder of all can put another in the place of ours
        safe = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        safe = safe and _MEMORY.stat().st_uid in (0, os.getuid())
    except OSError:
        safe = False
    return name if safe else _NO_MEMORY


def _offer(shared: Path, folder: Path) -> None:
    """Link what a read-only cache has into our own, where it is not there yet.

    The shared one is a copy of somebody's cache, such as a teacher's after a lesson, and holds
    machine code: whoever sets `TPU_KERNEL_SHARED_CACHE` trusts who can write there.
    """
    for place, _, names in os.walk(shared):
        ours = folder / Path(place).relative_to(shared)
        try:
            ours.mkdir(exist_ok=True)
            present = set(os.listdir(ours))
        except OSError:
            continue
        for name in names:
            if name not in present:
                try:
                    os.symlink(os.path.join(place, name), ours / name)
                except OSError:
                    continue
