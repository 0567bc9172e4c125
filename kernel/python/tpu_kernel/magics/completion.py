"""What may come next on the line of one of our magics, from the table of options."""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import MAGICS, Magic
from .options import is_placeholder

_LINE = re.compile(r"\s*(%{1,2})(\w+)\s+(.*)")


def complete(line: str) -> tuple[str, list[str]] | None:
    """For a line up to the cursor: the word begun, and the words it may become; None for other lines."""
    magic, rest = _split(line)
    if magic is None:
        return None
    *before, begun = re.split(r"\s+", rest)
    last = before[-1] if before else ""
    option, equals, value = begun.partition("=")
    if equals and option.removeprefix("--") in magic.values:
        return value, _beginning(value, magic.values[option.removeprefix("--")])
    if last.removeprefix("--") in magic.values and last.startswith("--"):
        return begun, _beginning(begun, magic.values[last.removeprefix("--")])
    used = {word.partition("=")[0] for word in before}
    options = [f"--{name}" for name in (*magic.flags, *magic.values) if f"--{name}" not in used]
    words = [] if used & {*magic.argument} else magic.argument
    return begun, _beginning(begun, (*words, *options))


def takes_python(line: str) -> bool:
    """Whether names of the notebook may stand on the line: where the magic asks for a NAME."""
    magic, _ = _split(line)
    return magic is not None and any(word.startswith("NAME") for word in magic.argument)


def _split(line: str) -> tuple[Magic | None, str]:
    found = _LINE.fullmatch(line)
    if found is None:
        return None, ""
    kinds = ("line", "line_cell") if found[1] == "%" else ("cell", "line_cell")
    magic = next((each for each in MAGICS if each.name == found[2] and each.kind in kinds), None)
    return magic, found[3]


def _beginning(begun: str, words: Sequence[str]) -> list[str]:
    found = [word for word in words if word.startswith(begun) and not is_placeholder(word)]
    if "OLD_NAME" in words:
        from ..explain.lookup import old_names

        found += [name for name in old_names() if name.startswith(begun)]
    return found
