"""Options of the magics: read strictly, with errors of one line that name what is valid."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from IPython.core.error import UsageError


def read(
    magic: str,
    line: str,
    flags: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] | None = None,
    argument: Sequence[str] = (),
) -> dict[str, str]:
    """Options on a magic's line by name without dashes; a flag's value is its own name.

    `flags` stand alone, `values` take one of the words given; at most one of the words in
    `argument` may stand by itself and is found under `""`.
    """
    values = values or {}
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{magic}: cannot read `{line}`: {error}") from None
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in flags and not equals:
            found[name] = name
        elif word.startswith("--") and name in values:
            if not equals:
                value = words.pop(0) if words else ""
            if value not in values[name]:
                said = f"not `{value}`" if value else "and none is given"
                raise UsageError(f"{magic}: `--{name}` takes {_either(values[name])}, {said}")
            found[name] = value
        elif word.startswith("-"):
            known = [f"`--{flag}`" for flag in flags] + [f"`--{v} {'|'.join(values[v])}`" for v in values]
            raise UsageError(f"{magic}: no option `{word}`; valid: {', '.join(known) or 'none'}")
        elif word in argument and "" not in found:
            found[""] = word
        elif argument:
            raise UsageError(f"{magic}: `{word}` is none of {_either(argument)}")
        else:
            raise UsageError(f"{magic} takes no argument, only options: `{word}` is none")
    return found


def _either(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]
