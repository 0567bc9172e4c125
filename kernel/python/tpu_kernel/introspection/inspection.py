"""What an object is (`inspect_request`), and whether a cell is complete.

Runs beside a running cell and only looks: see `live` and `inspector`.
"""

from __future__ import annotations

import re
from typing import Any

from IPython.core.oinspect import HOOK_NAME, OInfo

from . import live
from .description import LOOKING
from .patience import TooSlow, within

MAX_CODE = 200_000
MAX_TEXT = 500_000
SECONDS = 3.0

_MAGIC = re.compile(r"\s*(%{1,2}\w+)")

Content = dict[str, Any]


def inspect(shell: Any, code: str, cursor: int | None, detail_level: int = 0) -> Content:
    """The content of an `inspect_reply`."""
    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    missing: Content = {"status": "ok", "found": False, "data": {}, "metadata": {}}
    if len(code) > MAX_CODE:
        return missing
    try:
        data = within(SECONDS, _describe, shell, code, cursor, detail_level)
    except TooSlow:
        return missing
    if data is None:
        return missing
    for kind, text in data.items():
        if len(text) > MAX_TEXT:
            data[kind] = text[:MAX_TEXT] + "\n..."
    return {"status": "ok", "found": True, "data": data, "metadata": {}}


def _describe(shell: Any, code: str, cursor: int, detail_level: int) -> dict[str, Any] | None:
    from IPython.utils.tokenutil import token_at_cursor

    LOOKING.set(True)
    line = code[code.rfind("\n", 0, cursor) + 1 :]
    magic = _MAGIC.match(line)
    if magic is not None and cursor - (len(code) - len(line)) <= magic.end():
        name = magic[1]
    else:
        name = token_at_cursor(code, cursor)
    found = find(shell, name) if name else None
    if found is None:
        return None
    data = shell.inspector._get_info(found.obj, name, info=found, detail_level=detail_level)
    if not shell.enable_html_pager:
        data.pop("text/html", None)
    return data


def find(shell: Any, name: str) -> OInfo | None:
    """What a dotted name stands for, or a magic; no attribute is evaluated."""
    names = live.Namespace(shell.user_ns, shell.user_global_ns)
    owner, _, last = name.rpartition(".")
    parent: Any = None
    try:
        if owner:
            parent = names.resolve(owner)
            member = live.static_space(parent).get(last)
            value = member if type(member) is property else names.resolve(name)
        else:
            value = names.resolve(name)
    except live.Unknown:
        if owner:
            return None
        found = shell._object_find(name)
        return found if found.found and (found.ismagic or found.isalias) else None
    if type(value) is live.Instance:
        value = value.type
    hooked = parent if HOOK_NAME in live.static_space(parent) else None
    space = "Interactive" if name.split(".")[0] in shell.user_ns else "Python builtin"
    return OInfo(ismagic=False, isalias=False, found=True, obj=value, namespace=space, parent=hooked)


def is_complete(shell: Any, code: str) -> Content:
    """The content of an `is_complete_reply`."""
    status, indent = shell.check_complete(code)
    reply = {"status": status}
    if status == "incomplete":
        reply["indent"] = indent
    return reply
