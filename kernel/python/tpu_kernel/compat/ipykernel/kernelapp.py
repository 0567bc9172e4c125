"""The application that started this kernel."""

from __future__ import annotations

from tpu_kernel.app import IPKernelApp

__all__ = ["IPKernelApp"]
