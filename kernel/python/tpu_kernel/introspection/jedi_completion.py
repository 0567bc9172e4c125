"""What jedi makes of code that is not running yet, within a time limit.

jedi gets the names of the notebook without the objects that could do something when they are
looked at: it would evaluate properties and call `repr`.
"""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

from .live import KINDS
from .patience import TooSlow, within
from .python_completion import Match

MAX_CODE = 50_000
MAX_LINE = 2_000
MAX_MATCHES = 5_000
SECONDS = 0.8
HARMLESS = (str, bytes, int, float, complex, bool, type(None))
_DEFINITIONS = tuple(kind for kinds, name in KINDS for kind in kinds if name != "property")
_one_at_a_time = threading.Lock()


def complete(shell: Any, code: str, cursor: int) -> tuple[int, list[Match]]:
    """The offset where matches begin, and the matches; none when it takes too long or is still busy."""
    line = code[:cursor].rsplit("\n", 1)[-1]
    if len(code) > MAX_CODE or len(line) > MAX_LINE or line.lstrip().startswith(("%", "!")):
        return cursor, []
    if not shell.kernel.use_jedi or importlib.util.find_spec("jedi") is None:
        return cursor, []
    if not _one_at_a_time.acquire(blocking=False):
        return cursor, []
    try:
        return within(SECONDS, _ask, shell, code, cursor, stop=False)  # it may be importing
    except TooSlow:
        return cursor, []
    except Exception:  # noqa: BLE001  jedi fails on code it cannot follow
        return cursor, []


def _ask(shell: Any, code: str, cursor: int) -> tuple[int, list[Match]]:
    try:
        import jedi

        before = code[:cursor]
        line, column = before.count("\n") + 1, cursor - (before.rfind("\n") + 1)
        interpreter = jedi.Interpreter(code, [_harmless(shell.user_ns)])
        interpreter._inference_state.allow_unsafe_executions = False
        matches = interpreter.complete(line, column)
        if not matches:
            return cursor, []
        length = matches[0].get_completion_prefix_length()
        return cursor - length, [Match(m.name_with_symbols, m.type) for m in matches[:MAX_MATCHES]]
    finally:
        _one_at_a_time.release()


def _harmless(names: dict[str, Any]) -> dict[str, Any]:
    """Definitions and plain values of the notebook."""
    return {
        name: value
        for name, value in list(names.items())
        if type(value) in HARMLESS or issubclass(type(value), _DEFINITIONS)
    }
