"""The manager of all comms of this kernel."""

from __future__ import annotations

from comm.base_comm import CommManager

__all__ = ["CommManager"]
