"""The comm class of this kernel."""

from __future__ import annotations

import comm  # noqa: F401  first: what we replace in it
from tpu_kernel.output.comm_objects import Comm

BaseComm = Comm

__all__ = ["BaseComm", "Comm"]
