"""The manager of all comms of this kernel."""

from __future__ import annotations

from tpu_kernel.output.comm_objects import CommManager

__all__ = ["CommManager"]
