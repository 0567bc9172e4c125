"""The notebook's formatter: a tensor on the device is read once, however many forms of it are made."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.formatters import DisplayFormatter


class NotebookDisplayFormatter(DisplayFormatter):
    """What `shell.display_formatter` is: IPython's, and a card for each tensor on the device."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.formatters["text/html"].for_type_by_name("torch", "Tensor", tensor_card)

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        """As IPython's: a bundle of MIME types, and their metadata."""
        if "torch_tpu" not in sys.modules:
            return super().format(obj, include, exclude)
        from . import tensors

        with tensors.read_once():
            return super().format(obj, include, exclude)


def tensor_card(tensor: Any) -> str | None:
    """How a notebook shows a tensor; imported when it does."""
    from . import tensors

    return tensors.html(tensor)


NotebookDisplayFormatter.__name__ = NotebookDisplayFormatter.__qualname__ = "DisplayFormatter"
