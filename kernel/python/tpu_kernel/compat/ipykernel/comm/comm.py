"""The comm class of this kernel."""

from __future__ import annotations

import comm

Comm = BaseComm = comm.Comm  # type: ignore[attr-defined]

__all__ = ["BaseComm", "Comm"]
