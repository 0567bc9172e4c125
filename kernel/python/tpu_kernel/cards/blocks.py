"""What cards are built of. All text that comes from outside is escaped here, once.

Colours come from the front end's theme (JupyterLab, VS Code, Colab), else from the system's. A
notebook that is not trusted loses `<style>`: so tables are real tables, bars carry their colour
inline, and separators that the style hides keep words apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from html import escape

_TEXT = "var(--jp-ui-font-color1,var(--vscode-foreground,var(--colab-primary-text-color,CanvasText)))"
_MUTED = (
    "var(--jp-ui-font-color2,var(--vscode-descriptionForeground,var(--colab-primary-text-color,CanvasText)))"
)
_SOFT = "var(--jp-layout-color2,var(--vscode-textBlockQuote-background,rgba(128,128,128,.15)))"
_LINE = "var(--jp-border-color2,var(--vscode-panel-border,rgba(128,128,128,.4)))"
_BLUE = "var(--jp-brand-color1,var(--vscode-charts-blue,#1976d2))"
_EDGES = {
    "good": "var(--jp-success-color1,var(--vscode-charts-green,#388e3c))",
    "bad": "var(--jp-error-color1,var(--vscode-charts-red,#d32f2f))",
    "warn": "var(--jp-warn-color1,var(--vscode-charts-orange,#e65100))",
}
#: Letters that fit into a first column.
_SHORT = 30
_MONO = "var(--jp-code-font-family,var(--vscode-editor-font-family,monospace))"

_STYLE = (
    f".tpuk{{color:{_TEXT};font:13px/1.45 var(--jp-ui-font-family,system-ui,sans-serif);max-width:700px;"
    f"border:1px solid {_LINE};border-radius:4px;padding:10px 12px}}"
    ".tpuk table{border-collapse:separate;border-spacing:0;margin:0;width:100%;font-size:inherit;color:inherit}"
    ".tpuk td,.tpuk th{background:none;border:0;padding:2px 8px 2px 0;text-align:left;vertical-align:top}"
    ".tpuk tr{background:none!important}"
    f".tpuk th{{color:{_MUTED};font-weight:normal;border-bottom:1px solid {_LINE}}}"
    f".tpuk .pill{{background:{_SOFT};border-radius:3px;border-left:4px solid {_LINE};padding:1px 8px;"
    "white-space:nowrap;margin-right:6px}"
    + "".join(f".tpuk .{name}{{border-left-color:{colour}}}" for name, colour in _EDGES.items())
    + f".tpuk .muted{{color:{_MUTED}}}.tpuk .muted code{{color:{_TEXT}}}.tpuk .gap{{display:none}}"
    ".tpuk .tiles{table-layout:fixed;border-spacing:6px 0;margin:8px -6px;width:calc(100% + 12px)}"
    f".tpuk .tiles td{{background:{_SOFT};border-radius:3px;padding:5px 8px}}"
    f".tpuk .tiles small{{color:{_TEXT};display:block;font-size:11px}}.tpuk .tiles b{{font-size:15px;font-weight:500}}"
    f".tpuk code{{font-family:{_MONO};font-size:12px;background:none;color:inherit;padding:0;overflow-wrap:anywhere}}"
    ".tpuk p{margin:6px 0 0}.tpuk div+table,.tpuk table+table{margin-top:8px}"
    f".tpuk .bar{{background:{_SOFT};height:11px;margin-top:4px}}"
    ".tpuk .bars td:first-child{width:17%}.tpuk .bars td:last-child{width:1%;white-space:nowrap;text-align:right;padding-right:0}"
    ".tpuk .n{text-align:right;white-space:nowrap}"
    # JupyterLab gives all columns of a table the same width.
    ".tpuk .bars,.tpuk .keys{table-layout:auto}"
    ".tpuk .keys td:first-child,.tpuk .keys td:first-child code{white-space:nowrap}"
    ".tpuk .histogram{table-layout:fixed;margin-top:8px}.tpuk details{margin-top:6px}.tpuk summary{cursor:pointer}"
    # Twice the class outweighs what JupyterLab says of any table and any code.
).replace(".tpuk", ".tpuk.tpuk")


def card(*parts: str, edge: str = "") -> str:
    """A whole card; `edge` colours its border."""
    colour = f' style="border-color:{_EDGES[edge]}"' if edge else ""
    return f'<style>{_STYLE}</style><div class="tpuk"{colour}>{"".join(parts)}</div>'


def line(parts: Sequence[str]) -> str:
    """Facts in one quiet line, the first of them in front; no frame and no style sheet."""
    first, *others = map(escape, parts)
    more = "".join(f' <span style="opacity:.5">·</span> {part}' for part in others)
    return f'<div style="color:{_TEXT};font:12px/1.4 var(--jp-ui-font-family,system-ui,sans-serif)"><b>{first}</b>{more}</div>'


def headline(pill: str, edge: str, title: str, *facts: str | tuple[str, str]) -> str:
    """One line: a pill whose edge is coloured (the word says the same), a title, more facts, of
    which those with an edge are given with it."""
    more = ""
    for fact in facts:
        words, kind = (fact, "pill") if isinstance(fact, str) else (fact[0], f"pill {fact[1]}")
        more += f'<span class="gap"> · </span><span class="{kind}">{escape(words)}</span>'
    return (
        f'<div><span class="pill {edge}">{escape(pill)}</span><span class="gap"> · </span>'
        f"<b>{escape(title)}</b> {more}</div>"
    )


def tiles(numbers: Sequence[tuple[str, str, str]]) -> str:
    """Numbers side by side: name above, detail (may be empty) below."""
    cells = "".join(
        f"<td><small>{escape(name)}</small> <b>{escape(value)}</b>"
        + (f" <small>{escape(detail)}</small>" if detail else "")
        + "</td>"
        for name, value, detail in numbers
    )
    return f'<table class="tiles"><tr>{cells}</tr></table>'


def bars(rows: Iterable[tuple[str, float, str]]) -> str:
    """Name, share of the whole (0 to 1) as a bar, value in words."""
    lines = []
    for name, share, value in rows:
        lines.append(f"<tr><td>{escape(name)}</td><td>{_bar(share)}</td><td>{escape(value)}</td></tr>")
    return f'<table class="bars">{"".join(lines)}</table>'


def _bar(share: float, colour: str = _BLUE) -> str:
    width = max(0.0, min(1.0, share)) * 100
    return f'<div class="bar"><div style="background:{colour};height:11px;width:{width:.1f}%"></div></div>'


def histogram(counts: Sequence[int]) -> str:
    """How many values lie in each part of their range, as columns; nothing for none."""
    if not counts:
        return ""
    most = max(counts)
    columns = "".join(
        f'<td style="vertical-align:bottom;padding:0 1px;height:48px" title="{count:,}">'
        f'<div style="background:{_BLUE};height:{max(1, round(46 * count / most)) if count else 0}px"></div></td>'
        for count in counts
    )
    name = "how the values are spread between min and max"
    return (
        f'<table class="histogram" role="img" aria-label="{name}" title="{name}"><tr>{columns}</tr></table>'
    )


def folded(name: str, text: str, unfolded: bool = False) -> str:
    """Text that can be shown and hidden."""
    return (
        f"<details{' open' if unfolded else ''}><summary>{escape(name)}</summary>"
        f'<pre style="margin:6px 0 0;overflow:auto;background:none;color:inherit;font-size:12px">{escape(text)}</pre></details>'
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Collection[int] = (),
    shares: Sequence[float] = (),
    alarm: bool = False,
    width: str = "15%",
) -> str:
    """A plain table; text between backticks is shown as code, the columns `numbers` stand to the right.

    `shares` (0 to 1) end each row with a bar; `alarm` makes the first one red. `width` is the first column's.
    """
    first, *others = head
    right = ["" if index not in numbers else ' class="n"' for index in range(len(head))]
    top = f'<th style="width:{width}">{escape(first)}</th>' + "".join(
        f"<th{right[index]}>{escape(name)}</th>" for index, name in enumerate(others, 1)
    )
    top += '<th style="width:22%"></th>' if shares else ""
    rows = list(rows)
    # Short names stay in one line.
    kind = ' class="keys"' if all(len(row[0]) <= _SHORT for row in rows) else ""
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(f"<td{right[index]}>{marked(cell)}</td>" for index, cell in enumerate(row))
        if number < len(shares):
            colour = _EDGES["bad"] if alarm and number == 0 else _BLUE
            cells += f"<td>{_bar(shares[number], colour)}</td>"
        body += f"<tr>{cells}</tr>"
    return f"<table{kind}><tr>{top}</tr>{body}</table>"


def paragraph(text: str, muted: bool = False) -> str:
    return f'<p class="muted">{marked(text)}</p>' if muted else f"<p>{marked(text)}</p>"


def marked(text: str) -> str:
    """Escaped text with `code` between backticks."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as aligned lines of text; the last column is left as long as it is."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        (
            indent + "  ".join([cell.ljust(w) for cell, w in zip(row, widths, strict=False)] + [row[-1]])
        ).rstrip()
        for row in rows
    ]


def wrapped(sentences: Iterable[str], width: int = 80, indent: str = "  ") -> list[str]:
    """Sentences as lines of a terminal."""
    return [
        line
        for sentence in sentences
        for line in textwrap.wrap(
            sentence, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
    ]


def size(count: int) -> str:
    """Bytes for people, in three digits or four."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B" or value >= 100:
        return f"{value:.0f} {unit}"
    return f"{value:.2f} {unit}"


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 or seconds == 0 else f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s"


def spans(lines: Sequence[int]) -> str:
    """Line numbers as `1–3, 5`."""
    groups: list[list[int]] = []
    for line in lines:
        if groups and line == groups[-1][1] + 1:
            groups[-1][1] = line
        else:
            groups.append([line, line])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in groups)
