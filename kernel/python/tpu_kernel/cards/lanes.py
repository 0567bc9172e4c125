"""Things on one axis of time, below each other: pieces with names, and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def lanes(rows: Iterable[tuple[str, str]]) -> str:
    """Name, and what `stretch` or `parts` made."""
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{lane}</td></tr>" for name, lane in rows)
    return f'<table class="lanes">{lines}</table>'


def stretch(address: str, words: str) -> str:
    """A picture as wide as there is room and one line high. `words` say the same."""
    return f'<img class="lane" src="{address}" alt="{escape(words)}" style="width:100%;height:12px">'


def parts(pieces: Sequence[tuple[float, str]]) -> str:
    """A row cut into pieces: share of the whole (0 to 1), name."""
    cells = "".join(f'<td style="width:{share * 100:.3g}%">{escape(name)}</td>' for share, name in pieces)
    return f'<table class="parts" style="width:100%"><tr>{cells}</tr></table>'
