"""Comms of this kernel."""

from __future__ import annotations

from ipykernel.comm.comm import Comm
from ipykernel.comm.manager import CommManager

__all__ = ["Comm", "CommManager"]
