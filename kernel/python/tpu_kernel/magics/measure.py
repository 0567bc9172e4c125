"""Numbers from tpu-core for the magics: counters now, and what changed in between.

Without a device there are none.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ..tpu import device

#: What a magic says that needs a device.
NO_DEVICE = 'No device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu").'


class Counters(NamedTuple):
    """Counters of the session since its start. Bytes and seconds."""

    live_bytes: int = 0
    peak_bytes: int = 0
    limit_bytes: int = 0
    compiles: int = 0
    compile_seconds: float = 0.0
    cache_hits: int = 0
    executions: int = 0
    #: Executions that found their program in memory.
    memory_hits: int = 0
    busy_seconds: float = 0.0
    uploads: int = 0
    upload_bytes: int = 0
    downloads: int = 0
    download_bytes: int = 0
    emulated: bool = False

    def since(self, earlier: Counters | None) -> Counters:
        """What was added since `earlier`; bytes of HBM stay as they are."""
        earlier = earlier or Counters()
        return Counters(
            self.live_bytes,
            self.peak_bytes,
            self.limit_bytes,
            self.compiles - earlier.compiles,
            self.compile_seconds - earlier.compile_seconds,
            self.cache_hits - earlier.cache_hits,
            self.executions - earlier.executions,
            self.memory_hits - earlier.memory_hits,
            self.busy_seconds - earlier.busy_seconds,
            self.uploads - earlier.uploads,
            self.upload_bytes - earlier.upload_bytes,
            self.downloads - earlier.downloads,
            self.download_bytes - earlier.download_bytes,
            self.emulated,
        )


def counters(settle: bool = False) -> Counters | None:
    """Counters now, or None while there is no device. `settle`: let queued work be counted."""
    if settle and "torch_tpu" in sys.modules and device.used():
        # TorchTPU hands work to a thread of its own: only its own wait sees all of it.
        sys.modules["torch"].accelerator.synchronize()
    raw = _raw()
    if raw is None:
        return None
    return Counters(
        live_bytes=raw["live_bytes"],
        peak_bytes=raw["peak_bytes"],
        limit_bytes=raw["limit_bytes"],
        compiles=raw["compiles"],
        compile_seconds=raw["compile_ns"] / 1e9,
        cache_hits=raw["cache_hits"],
        executions=raw["executions"],
        memory_hits=raw["executions"] - raw["programs_run"],
        busy_seconds=raw["busy_ns"] / 1e9,
        uploads=raw["uploads"],
        upload_bytes=raw["upload_bytes"],
        downloads=raw["downloads"],
        download_bytes=raw["download_bytes"],
        emulated=bool(raw["emulated"]),
    )


def programs() -> list[dict[str, Any]]:
    """All programs (see `tpu_core::Program`)."""
    if _raw() is None:
        return []
    from .. import _kernel

    return _kernel.tpu_programs(0)[1]


def device_name() -> str:
    """What PyTorch calls the device, e.g. `TPU v5e`."""
    from .eagermode import quietly

    torch = sys.modules.get("torch")
    if torch is None:
        return "no device"
    with quietly():
        return torch.tpu.get_device_name() if hasattr(torch, "tpu") else "no TPU"


def _raw() -> dict[str, Any] | None:
    return device.snapshot() if "torch_tpu" in sys.modules else None
