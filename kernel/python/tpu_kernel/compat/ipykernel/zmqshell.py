"""The shell, under the name libraries know it by."""

from __future__ import annotations

from tpu_kernel.cells.shell import NotebookShell as ZMQInteractiveShell
from tpu_kernel.output.publisher import NotebookDisplayPublisher as ZMQDisplayPublisher

__all__ = ["ZMQDisplayPublisher", "ZMQInteractiveShell"]
