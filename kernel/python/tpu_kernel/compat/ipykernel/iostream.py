"""The streams, under the name libraries know them by."""

from __future__ import annotations

from tpu_kernel.output.stdio import OutStream

__all__ = ["OutStream"]
