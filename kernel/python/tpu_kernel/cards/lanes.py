"""Things on one axis of time, below each other: pieces with names, and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Twice the class outweighs what JupyterLab says of any table.
_STYLE = (
    ".tpuk .lanes td:first-child{width:15%}.tpuk .lanes td:last-child{padding-right:0}"
    ".tpuk .lanes~table{margin-top:10px}"
    ".tpuk .parts{table-layout:fixed}.tpuk .parts td{padding:0 2px;overflow:hidden;font-size:11px;"
    "white-space:nowrap;border-left:1px solid #8888!important}.tpuk .lane{display:block;box-sizing:border-box;"
    "margin-top:4px;image-rendering:pixelated;border:solid #8888;border-width:0 1px 1px}"
).replace(".tpuk", ".tpuk.tpuk")


def lanes(rows: Iterable[tuple[str, str]]) -> str:
    """Name, and what `stretch` or `parts` made."""
    lines = "".join(f"<tr><td>{escape(name)}</td><td>{lane}</td></tr>" for name, lane in rows)
    return f'<style>{_STYLE}</style><table class="lanes">{lines}</table>'


def stretch(address: str, words: str) -> str:
    """A picture as wide as there is room and one line high. `words` say the same."""
    return f'<img class="lane" src="{address}" alt="{escape(words)}" style="width:100%;height:12px">'


def parts(pieces: Sequence[tuple[float, str]]) -> str:
    """A row cut into pieces: share of the whole (0 to 1), name."""
    cells = "".join(f'<td style="width:{share * 100:.1f}%">{escape(name)}</td>' for share, name in pieces)
    return f'<table class="parts" style="width:100%"><tr>{cells}</tr></table>'
