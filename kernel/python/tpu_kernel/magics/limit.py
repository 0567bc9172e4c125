"""`%tpu_limit`: how much HBM the emulated chip has."""

from __future__ import annotations

import os
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from ..cards import blocks
from . import options

_MAGIC = "%tpu_limit"


@magics_class
class LimitMagics(Magics):
    """Changes the size of the emulated chip's memory."""

    @line_magic
    def tpu_limit(self, line: str) -> None:
        """Say, or choose, how much HBM the emulated chip has.

        Usage:

          %tpu_limit [SIZE|off]

        SIZE is as 8GiB, 512MB or a number of bytes. `off` goes back to what the chip has, or to what
        the variable `TPU_KERNEL_HBM` said when the kernel started. What is in use stays; what needs
        more than is free fails with `torch.OutOfMemoryError`, and the kernel goes on. Code that
        catches it gets TorchTPU's `RuntimeError`. A real chip's HBM is what it is.
        """
        from .. import _kernel
        from ..tpu import device

        words = options.read(_MAGIC, "".join(line.split())).get("")  # `128 MB` is one size
        identity = device.identity()
        if identity is None:
            raise UsageError(
                f'{_MAGIC}: no device is in use yet: make a tensor on it first, e.g. torch.ones(3, device="tpu")'
            )
        if words:
            if not identity["emulated"]:
                raise UsageError(f"{_MAGIC}: this is a real {identity['device_name']}: its HBM is what it is")
            _kernel.tpu_set_limit(0 if words == "off" else _size(words))
        print(describe(identity))


def _size(text: str) -> int:
    from .. import _kernel

    size = _kernel.tpu_parse_size(text)
    if size is None:
        raise UsageError(f"{_MAGIC}: `{text}` is no size: give one such as 8GiB, or `off`")
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > host:
        raise UsageError(
            f"{_MAGIC}: {blocks.size(size)} is more than this machine has ({blocks.size(host)}), and the emulated "
            f"chip's memory is the machine's"
        )
    return size


def describe(identity: dict[str, Any]) -> str:
    """The limit in force and where it comes from, in one line."""
    from ..tpu import device

    counters = device.snapshot() or {}
    limit, live = counters.get("limit_bytes", 0), counters.get("live_bytes", 0)
    free = blocks.size(max(0, limit - live))
    return f"HBM limit {blocks.size(limit)}{why(identity, limit)}, {blocks.size(live)} in use, {free} free"


def why(identity: dict[str, Any], limit: int) -> str:
    """What a limit is when it is not the HBM of the chip: in brackets, else nothing."""
    chip = identity["chip_hbm_bytes"]
    if not identity["emulated"] or limit == chip:
        return ""
    if limit == identity["hbm_bytes"] and not os.environ.get("TPU_KERNEL_HBM"):
        return f" (all this machine has; a {identity['device_name']} has {blocks.size(chip)})"
    return f" (chosen; a {identity['device_name']} has {blocks.size(chip)})"
