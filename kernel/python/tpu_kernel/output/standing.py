"""An output under a cell that is shown once and then brought up to date, from any thread.

For what Python knows. What must change while something else holds the GIL is shown by the io thread
(`kernel/src/standing.rs`) in the same way. Whoever has one decides when it changes, twice a second
at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _kernel
from . import jsontext

if TYPE_CHECKING:
    from .._kernel import Parent


class Standing:
    """One such output of one cell. `kind` tells it from others of the same cell."""

    def __init__(self, kind: str, parent: Parent | None) -> None:
        self.shown = False
        self._parent = parent
        self._id = f"{kind}-{parent.msg_id if parent is not None else ''}"

    def show(self, data: dict[str, Any]) -> None:
        """Show a bundle of MIME types in place of what was shown before."""
        content = {"data": data, "metadata": {}, "transient": {"display_id": self._id}}
        kind = "update_display_data" if self.shown else "display_data"
        self.shown = True
        _kernel.publish(kind, jsontext.dumps(content), parent=self._parent)
