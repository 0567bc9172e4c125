"""What an object is (`inspect_request`), and whether a cell is complete."""

from __future__ import annotations

import sys
from typing import Any

MAX_CODE = 200_000


def inspect(shell: Any, code: str, cursor: int | None, detail_level: int = 0) -> dict[str, Any]:
    """The content of an `inspect_reply`."""
    from IPython.utils.tokenutil import token_at_cursor

    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    missing: dict[str, Any] = {"status": "ok", "found": False, "data": {}, "metadata": {}}
    if len(code) > MAX_CODE:
        return missing
    name = token_at_cursor(code, cursor)
    if not name:
        return missing
    found = shell._object_find(name)
    if not found.found:
        return missing
    if (text := describe_tensor(found.obj)) is not None:
        data = {"text/plain": text}
    else:
        try:
            data = shell.object_inspect_mime(name, detail_level=detail_level)
        except KeyError:
            return missing
    if not shell.enable_html_pager:
        data.pop("text/html", None)
    return {"status": "ok", "found": True, "data": data, "metadata": {}}


def describe_tensor(value: Any) -> str | None:
    """A tensor on a device without its values: reading them would wait for the device."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is None or not isinstance(value, tensor):
        return None
    device = value.device
    if device.type == "cpu":
        return None
    return (
        f"Type:     {type(value).__name__}\n"
        f"Shape:    {tuple(value.shape)}\n"
        f"Dtype:    {value.dtype}\n"
        f"Device:   {device}\n"
        f"Gradient: {'required' if value.requires_grad else 'not required'}\n"
        "The values stay on the device; print the tensor to see them."
    )


def is_complete(shell: Any, code: str) -> dict[str, Any]:
    """The content of an `is_complete_reply`."""
    status, indent = shell.check_complete(code)
    reply = {"status": status}
    if status == "incomplete":
        reply["indent"] = indent
    return reply
