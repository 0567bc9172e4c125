"""The kernel object, under the name libraries know it by."""

from __future__ import annotations

from tpu_kernel.kernel import Kernel as IPythonKernel

Kernel = IPythonKernel

__all__ = ["IPythonKernel", "Kernel"]
