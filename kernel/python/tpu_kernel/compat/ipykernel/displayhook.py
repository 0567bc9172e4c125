"""The display hook, under the name libraries know it by."""

from __future__ import annotations

from tpu_kernel.output.displayhook import NotebookDisplayHook as ZMQShellDisplayHook

__all__ = ["ZMQShellDisplayHook"]
