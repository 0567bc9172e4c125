"""The shell, under the name libraries know it by."""

from __future__ import annotations

from tpu_kernel.publisher import NotebookDisplayPublisher as ZMQDisplayPublisher
from tpu_kernel.shell import NotebookShell as ZMQInteractiveShell

__all__ = ["ZMQDisplayPublisher", "ZMQInteractiveShell"]
