"""The context variable that says which request the current code runs for."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._kernel import Parent

PARENT: ContextVar[Parent | None] = ContextVar("tpu_kernel.parent", default=None)
