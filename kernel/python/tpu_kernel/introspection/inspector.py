"""The shell's `Inspector`: what `name?` and Shift-Tab show of an object.

Tensors on a device are described without their values, and an inspection that a front end asks
for beside a running cell only looks, with `description`, which is imported when first needed.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

from IPython.core.oinspect import Inspector


class NotebookInspector(Inspector):
    """What `shell.inspector` is."""

    def _get_info(self, obj: Any, oname: str = "", formatter: Any = None, *more: Any, **options: Any) -> Any:
        from html import escape

        from .description import describe_tensor

        if (text := describe_tensor(obj)) is not None:
            return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        return super()._get_info(obj, oname, formatter, *more, **options)

    def info(self, obj: Any, oname: str = "", info: Any = None, detail_level: int = 0) -> Any:
        """As IPython's; of an instance only what can be seen, where nothing may run."""
        from .description import DESCRIBED, LOOKING, holds_tensors, instance_info

        told = info is not None and (info.ismagic or info.isalias)
        if type(obj) is MethodType and not told:  # its own text would be made with its object's `repr`
            out = super().info(obj.__func__, oname, info, detail_level)
            return out | {"definition": self._getdef(obj, oname), "type_name": "method"}
        if told or issubclass(type(obj), DESCRIBED):
            return super().info(obj, oname, info, detail_level)
        if not LOOKING.get() and not holds_tensors(obj):
            return super().info(obj, oname, info, detail_level)
        return instance_info(self, obj, oname, info)

    def _getdef(self, obj: Any, oname: str = "") -> str | None:
        """The call signature; default values that must not be shown are named by their class."""
        from .description import definition

        return definition(obj, oname)


NotebookInspector.__name__ = NotebookInspector.__qualname__ = "Inspector"
