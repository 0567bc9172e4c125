"""Options of the magics: read strictly, with errors of one line that name what is valid."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache

from IPython.core.error import UsageError

from . import MAGICS, Magic


def magic_named(name: str) -> Magic:
    """The entry of a magic in the table; `name` with or without its percent signs."""
    return next(magic for magic in MAGICS if magic.name == name.lstrip("%"))


@lru_cache(64)
def read(magic: str, line: str) -> Mapping[str, str]:
    """Options on a magic's line by name without dashes; a flag's value is its own name.

    What stands by itself is found under `""`; several words, where they are allowed, with blanks
    between them. What comes after a `#` is a comment.
    """
    entry = magic_named(magic)
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise UsageError(f"{magic}: cannot read `{line}`: {error}") from None
    found: dict[str, str] = {}
    while words:
        word = words.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in entry.flags and not equals:
            found[name] = name
        elif word.startswith("--") and name in entry.values:
            if not equals:
                value = words.pop(0) if words else ""
            if not value or not _fits(value, entry.values[name]):
                said = f"not `{value}`" if value else "and none is given"
                raise UsageError(f"{magic}: `--{name}` takes {_either(entry.values[name])}, {said}")
            found[name] = value
        elif word.startswith("-"):
            known = [f"`--{flag}`" for flag in entry.flags]
            known += [f"`--{name} {'|'.join(words)}`" for name, words in entry.values.items()]
            raise UsageError(f"{magic}: no option `{word}`; valid: {', '.join(known) or 'none'}")
        elif _fits(word, entry.argument) and ("" not in found or _repeats(entry.argument)):
            found[""] = f"{found['']} {word}" if "" in found else word
        elif entry.argument:
            wrong = f"`{word}` is one too many: it takes" if "" in found else f"`{word}` is none of"
            raise UsageError(f"{magic}: {wrong} {_either(entry.argument)}")
        else:
            raise UsageError(f"{magic} takes no argument, only options: `{word}` is none")
    return found


def is_placeholder(word: str) -> bool:
    """A word of the table that stands for any text."""
    return word.isupper()


def _fits(word: str, allowed: Sequence[str]) -> bool:
    return word in allowed or any(map(is_placeholder, allowed))


def _repeats(allowed: Sequence[str]) -> bool:
    return any(word.endswith("...") for word in allowed)


def _either(words: Sequence[str]) -> str:
    return ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else words[0]
