"""Tab completion: live objects first, and jedi only where they have nothing to say.

Runs beside a running cell. It never calls `repr` on a value, evaluates no property, touches
nothing on a device, and waits neither for jedi nor for a slow `__dir__` longer than a moment.
"""

from __future__ import annotations

from typing import Any

from .patience import TooSlow, within
from .python_completion import Match

MAX_LINE = 2_000
MAX_MATCHES = 5_000
SECONDS = 3.0
TYPES_KEY = "_jupyter_types_experimental"

Found = list[Match]


def complete(shell: Any, code: str, cursor: int | None) -> dict[str, Any]:
    """The content of a `complete_reply`."""
    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    try:
        start, found = within(SECONDS, _introspect, shell, code, cursor)
    except TooSlow:
        start, found = cursor, []
    if not found and shell.Completer.unresolved:
        from . import jedi_completion

        start, found = jedi_completion.complete(shell, code, cursor)
    types = [
        {"start": start, "end": cursor, "text": match.text, "type": match.type, "signature": match.signature}
        for match in found
    ]
    return {
        "status": "ok",
        "matches": [match.text for match in found],
        "cursor_start": start,
        "cursor_end": cursor,
        "metadata": {TYPES_KEY: types},
    }


def _introspect(shell: Any, code: str, cursor: int) -> tuple[int, Found]:
    """What the shell's completer finds in live objects; the offset where a match begins."""
    begin = max(code.rfind("\n", 0, cursor) + 1, cursor - MAX_LINE)
    end = code.find("\n", cursor)
    end = min(len(code) if end < 0 else end, cursor + MAX_LINE)
    if cursor - begin == MAX_LINE:
        begin = _next_word(code, begin, cursor)
    if begin == cursor and cursor > 0 and code[cursor - 1] != "\n":
        shell.Completer.unresolved = False
        return cursor, []
    code = code[:begin] + ("" if code[begin - 1 : begin] in ("", "\n") else "\n") + code[begin:end]
    column = cursor - begin
    results = shell.Completer._complete(full_text=code, cursor_line=code.count("\n"), cursor_pos=column)
    ordered: Found = []
    sortable: Found = []
    groups = []
    for result in results.values():
        matches = list(result["completions"])
        if matches:
            groups.append((cursor - len(result["matched_fragment"]), result, matches))
    if not groups:
        return cursor, []
    start = min(group[0] for group in groups)
    lead_end = {group[0]: code[len(code) - (end - start) : len(code) - (end - group[0])] for group in groups}
    for own_start, result, matches in groups:
        lead = lead_end[own_start]
        target = ordered if result.get("ordered", False) else sortable
        for match in matches:
            signature = getattr(match, "signature", "")
            target.append(Match(lead + match.text, match.type or "<unknown>", signature))
    sortable.sort(key=lambda match: _rank(match.text))
    unique: dict[str, Match] = {}
    for match in ordered + sortable:
        known = unique.get(match.text)
        if known is None or known.type == "<unknown>":
            unique[match.text] = match
    return start, list(unique.values())[:MAX_MATCHES]


def _next_word(code: str, begin: int, cursor: int) -> int:
    """Where a line that is too long may be cut without cutting a name in two."""
    while begin < cursor and (code[begin].isalnum() or code[begin] in "_."):
        begin += 1
    return begin


def _rank(text: str) -> tuple[int, str, str]:
    """Arguments, public names, then `_private` and magics, then `__special__`; else by letter."""
    name = text.rsplit(".", 1)[-1]
    private = 2 if name.startswith("__") else 1 if name.startswith("_") else 0
    if text.startswith("%"):
        private = 1
    elif text.endswith("="):
        private = -1
    return private, name.lower(), text
