"""Tab completion: live objects first, and jedi only where they have nothing to say.

Runs on the service thread while a cell may be running. It never calls `repr` on a value, and
never waits for jedi longer than a moment.
"""

from __future__ import annotations

import importlib.util
import inspect
import keyword
import re
import sys
import threading
from typing import Any

MAX_LINE = 2_000
MAX_JEDI_CODE = 50_000
JEDI_SECONDS = 0.8
MAX_MATCHES = 5_000
_ATTRIBUTE = re.compile(r"(?<![\w.)\]])([^\W\d]\w*(?:\.[^\W\d]\w*)*)\.\w*$")
VAGUE_KINDS = ("", "<unknown>", "attribute", "variable")
TYPES_KEY = "_jupyter_types_experimental"


def complete(shell: Any, code: str, cursor: int | None) -> dict[str, Any]:
    """The content of a `complete_reply`."""
    cursor = len(code) if cursor is None else max(0, min(cursor, len(code)))
    start, found = _introspect(shell, code, cursor)
    if not found:
        start, found = _jedi(shell, code, cursor)
    types = [
        {"start": start, "end": cursor, "text": text, "type": kind, "signature": ""}
        for text, kind in _typed(shell, code[max(0, cursor - MAX_LINE) : cursor], found)
    ]
    return {
        "status": "ok",
        "matches": [text for text, _ in found],
        "cursor_start": start,
        "cursor_end": cursor,
        "metadata": {TYPES_KEY: types},
    }


Found = list[tuple[str, str]]


def _introspect(shell: Any, code: str, cursor: int) -> tuple[int, Found]:
    """What IPython's completer finds in live objects; the offset where a match begins."""
    before = code[:cursor]
    line_number = before.count("\n")
    column = cursor - (before.rfind("\n") + 1)
    end = code.find("\n", cursor)
    if column + ((len(code) if end < 0 else end) - cursor) > MAX_LINE:
        return cursor, []
    completer = shell.Completer
    results = completer._complete(full_text=code, cursor_line=line_number, cursor_pos=column)
    ordered: Found = []
    sortable: Found = []
    groups = []
    for name, result in results.items():
        matches = list(result["completions"])
        if name.endswith("_jedi_matcher") or not matches:
            continue
        groups.append((cursor - len(result["matched_fragment"]), result, matches))
    if not groups:
        return cursor, []
    start = min(group[0] for group in groups)
    for own_start, result, matches in groups:
        target = ordered if result.get("ordered", False) else sortable
        lead = code[start:own_start]
        target.extend((lead + match.text, match.type or "") for match in matches)
    sortable.sort(key=lambda match: _rank(match[0]))
    unique: dict[str, str] = {}
    for text, kind in ordered + sortable:
        if not unique.get(text):
            unique[text] = kind
    return start, list(unique.items())[:MAX_MATCHES]


def _rank(text: str) -> tuple[int, str, str]:
    """Public names first, then `_private`, then `__special__`; magics after names; else by letter."""
    name = text.rsplit(".", 1)[-1]
    private = 2 if name.startswith("__") else 1 if name.startswith("_") else 0
    if text.startswith("%"):
        private = 1
    return private, name.lower(), text


# -- types ---------------------------------------------------------------------


def _typed(shell: Any, before: str, found: Found) -> Found:
    """`found` with a type for each name, as far as it is known without running code."""
    root: Any = None
    dot = _ATTRIBUTE.search(before)
    if dot:
        try:
            root = _lookup(shell, dot[1])
        except LookupError:
            return [(text, kind or "<unknown>") for text, kind in found]
    known: Found = []
    for text, kind in found:
        if kind in VAGUE_KINDS:
            kind = _kind_of(shell, root if dot else None, text, attribute=bool(dot)) or kind or "<unknown>"
        known.append((text, kind))
    return known


def _lookup(shell: Any, path: str) -> Any:
    """The object a dotted path of names stands for, without calling a property."""
    first, *rest = path.split(".")
    for space in (shell.user_ns, shell.user_global_ns, vars(sys.modules["builtins"])):
        if first in space:
            found = space[first]
            break
    else:
        raise LookupError(path)
    for name in rest:
        try:
            found = inspect.getattr_static(found, name)
        except AttributeError:
            raise LookupError(path) from None
    return found


def _kind_of(shell: Any, root: Any, text: str, *, attribute: bool) -> str:
    name = text.rsplit(".", 1)[-1]
    if name.endswith("="):
        return "param"
    if text.startswith("%"):
        return "magic"
    if keyword.iskeyword(name):
        return "keyword"
    try:
        value = inspect.getattr_static(root, name) if attribute else _lookup(shell, name)
    except (LookupError, AttributeError, TypeError):
        return ""
    if inspect.isclass(value):
        return "class"
    if inspect.ismodule(value):
        return "module"
    if isinstance(value, property):
        return "property"
    if inspect.isroutine(value) or isinstance(value, (staticmethod, classmethod)):
        return "function"
    return "instance"


# -- jedi ------------------------------------------------------------------------

_jedi_running = threading.Lock()


def _jedi(shell: Any, code: str, cursor: int) -> tuple[int, Found]:
    """What jedi makes of the code, unless it takes too long or is still busy with an older question."""
    last = code[cursor - 1 : cursor]
    if not (last.isidentifier() or last == ".") or len(code) > MAX_JEDI_CODE or not shell.kernel.use_jedi:
        return cursor, []
    line = code[:cursor].rsplit("\n", 1)[-1]
    if len(line) > MAX_LINE or line.lstrip().startswith(("%", "!")):
        return cursor, []
    if importlib.util.find_spec("jedi") is None or not _jedi_running.acquire(blocking=False):
        return cursor, []
    answer: list[tuple[int, Found]] = []

    def work() -> None:
        try:
            answer.append(_ask_jedi(shell, code, cursor))
        except Exception:  # noqa: BLE001, S110  jedi fails on code it cannot follow
            pass
        finally:
            _jedi_running.release()

    thread = threading.Thread(target=work, name="jedi", daemon=True)
    thread.start()
    thread.join(JEDI_SECONDS)
    return answer[0] if answer else (cursor, [])


def _ask_jedi(shell: Any, code: str, cursor: int) -> tuple[int, Found]:
    import jedi

    before = code[:cursor]
    line, column = before.count("\n") + 1, cursor - (before.rfind("\n") + 1)
    matches = jedi.Interpreter(code, [shell.user_ns]).complete(line, column)
    if not matches:
        return cursor, []
    length = matches[0].get_completion_prefix_length()
    return cursor - length, [(match.name_with_symbols, match.type) for match in matches[:MAX_MATCHES]]
