"""The class of the kernel object."""

from __future__ import annotations

from ipykernel.ipkernel import Kernel

__all__ = ["Kernel"]
