"""What cards are built of. All text that comes from outside is escaped here, once.

Colours come from the front end's theme (JupyterLab, VS Code, Colab), else from the system's. A
notebook that is not trusted loses `<style>`: so tables are real tables, bars carry their colour
inline, and separators that the style hides keep words apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from html import escape

#: What the parts of a card are coloured with: names of their own, so that each theme is asked once.
#: JupyterLab's variables, VS Code's, Colab's, else the system's colours.
COLOURS = {
    "text": "var(--jp-ui-font-color1,var(--vscode-foreground,var(--colab-primary-text-color,CanvasText)))",
    "muted": "var(--jp-ui-font-color2,var(--vscode-descriptionForeground,var(--colab-primary-text-color,CanvasText)))",
    "soft": "var(--jp-layout-color2,var(--vscode-textBlockQuote-background,rgba(128,128,128,.15)))",
    "line": "var(--jp-border-color2,var(--vscode-panel-border,rgba(128,128,128,.4)))",
    "blue": "var(--jp-brand-color1,var(--vscode-charts-blue,#1976d2))",
    "good": "var(--jp-success-color1,var(--vscode-charts-green,#388e3c))",
    "bad": "var(--jp-error-color1,var(--vscode-charts-red,#d32f2f))",
    "warn": "var(--jp-warn-color1,var(--vscode-charts-orange,#e65100))",
}
_EDGES = ("good", "bad", "warn")
#: Of bars where there is no style.
_BLUE, _RED = "#1976d2", "#d32f2f"
#: Letters that fit into a first column.
_SHORT = 30
_FONT = "var(--jp-ui-font-family,var(--vscode-font-family,system-ui,sans-serif))"
_MONO = "var(--jp-code-font-family,var(--vscode-editor-font-family,monospace))"

_NARROW = "@media(max-width:480px)"
#: Rules of the style, and what a card must have to need them: a card is kept in the notebook's file. The
#: styles of all cards of a page hold for each: no rule may rest on standing behind one of another part.
_RULES = (
    # Bars are printed too. What is too wide for a narrow window is scrolled to.
    ("", "-webkit-print-color-adjust:exact;print-color-adjust:exact;overflow-x:auto;"),
    (
        "<table",
        (
            "& table{border-collapse:separate;border-spacing:0;margin:0;width:100%;font-size:inherit;color:inherit}"
            "& td,& th{background:none;border:0;padding:2px 8px 2px 0;text-align:left;vertical-align:top}"
            "& tr{background:none!important;padding:0;break-inside:avoid}"
            "& th{color:var(--muted);font-weight:normal;border-bottom:1px solid var(--line)!important}"
            "& div+table,& p+table,& table+table{margin-top:8px}"
            f"{_NARROW}{{& td,& th{{font-size:11px;padding-right:4px}}}}"
        ),
    ),
    (
        '"pill',
        (
            "& .pill{background:var(--soft);border-radius:3px;border-left:4px solid var(--line);padding:1px 8px;"
            "display:inline-block;margin:0 6px 2px 0}& div>b{margin-right:6px}& .gap{display:none}"
        ),
    ),
    *((f'"pill {name}"', f"& .pill.{name}{{border-left-color:var(--{name})}}") for name in _EDGES),
    ('"muted"', "& .muted{color:var(--muted)}& .muted code{color:var(--text)}"),
    (
        '"tiles"',
        (
            "& .tiles{margin:8px 0}& .tiles tr{display:flex;flex-wrap:wrap;gap:6px}"
            "& .tiles td{background:var(--soft);border-radius:3px;padding:5px 8px;flex:1 1 76px}"
            "& .tiles small{display:block;font-size:11px}& .tiles b{font-size:15px;font-weight:500}"
        ),
    ),
    (
        "<code",
        f"& code{{font-family:{_MONO};font-size:12px;background:none;color:inherit;padding:0;overflow-wrap:anywhere}}",
    ),
    ("</p>", "& p{margin:6px 0 0}"),
    # Windows shows no background of its own choice where the system's colours are forced.
    (
        '"bar"',
        (
            "& .bar{background:var(--soft);height:11px;margin-top:4px}"
            "& .bar div{background:var(--blue)!important;forced-color-adjust:none}"
            "& .bar .bad{background:var(--bad)!important}"
        ),
    ),
    # JupyterLab gives all columns of a table the same width.
    (
        '"bars"',
        (
            "& .bars{table-layout:auto}& .bars td{white-space:nowrap}& .bars td:nth-child(2){width:99%!important}"
            "& .bars td:last-child{text-align:right;padding-right:0}"
        ),
    ),
    (
        '"keys',
        (
            "& .keys{table-layout:auto}& .keys td:first-child,& .keys td:first-child code{white-space:pre}"
            f"{_NARROW}{{& .keys td:first-child,& .keys td:first-child code{{white-space:pre-wrap}}}}"
        ),
    ),
    *(
        (
            needs,
            (
                f"& {numbers}{{text-align:right!important;white-space:nowrap}}"
                f"{_NARROW}{{& {numbers}{{white-space:pre-wrap}}}}"
            ),
        )
        for needs, numbers in (
            ('"n"', ".n"),
            ('n2"', ".n2 :is(td,th):nth-child(n+2)"),
            ('n3"', ".n3 :is(td,th):nth-child(n+3)"),
        )
    ),
    (
        '"histogram"',
        (
            "& .histogram{table-layout:fixed;margin-top:8px}"
            "& .histogram div{background:var(--blue)!important;forced-color-adjust:none}"
        ),
    ),
    (
        '"lanes"',
        (
            "& .lanes td:first-child{width:15%}& .lanes td:last-child{padding-right:0}& .lanes~table{margin-top:10px}"
            "& .parts{table-layout:fixed}& .parts td{padding:0 2px;overflow:hidden;font-size:11px;white-space:nowrap;"
            "border-left:1px solid #8888!important}& .lane{display:block;box-sizing:border-box;margin-top:4px;"
            "image-rendering:pixelated;border:solid #8888;border-width:0 1px 1px}"
        ),
    ),
    ("<details", "& details{margin-top:6px}& summary{cursor:pointer}"),
)


def _style(body: str, edge: str) -> str:
    """The rules a card needs.

    Twice the class outweighs what front ends say of any table and any code, and VS Code says it with
    `!important`.
    """
    rules = "".join(rule for needs, rule in _RULES if needs in body)
    if edge:
        rules += f"&.{edge}{{border-color:var(--{edge})}}"
    head = f"color:var(--text);font:13px/1.45 {_FONT};max-width:700px;border:1px solid var(--line);border-radius:4px;"
    colours = "".join(
        f"--{name}:{colour};" for name, colour in COLOURS.items() if f"var(--{name})" in head + rules
    )
    return f".tpuk.tpuk{{{colours}{head}padding:10px 12px;{rules}}}"


def card(*parts: str, edge: str = "") -> str:
    """A whole card; `edge` colours its border."""
    kind = f"tpuk {edge}" if edge else "tpuk"
    body = "".join(parts)
    return f'<style>{_style(body, edge)}</style><div class="{kind}">{body}</div>'


def line(parts: Sequence[str]) -> str:
    """Facts in one quiet line, the first of them in front; no frame and no style sheet."""
    first, *others = map(escape, parts)
    more = "".join(f' <span style="opacity:.5">·</span> {part}' for part in others)
    return f'<div style="color:{COLOURS["text"]};font:12px/1.4 {_FONT}"><b>{first}</b>{more}</div>'


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
        bar = f'<td style="width:60%">{_bar(share)}</td>'
        lines.append(f"<tr><td>{escape(name)}</td>{bar}<td>{escape(value)}</td></tr>")
    return f'<table class="bars" style="width:100%">{"".join(lines)}</table>'


def _bar(share: float, alarm: bool = False) -> str:
    width = max(0.0, min(1.0, share)) * 100
    kind, colour = (' class="bad"', _RED) if alarm else ("", _BLUE)
    return (
        f'<div class="bar"><div{kind} style="background:{colour};height:11px;width:{width:.1f}%"></div></div>'
    )


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
    return f'<table class="histogram" style="width:100%" role="img" aria-label="{name}" title="{name}"><tr>{columns}</tr></table>'


def folded(name: str, text: str, unfolded: bool = False, wrap: bool = True) -> str:
    """Text that can be shown and hidden. What is not to `wrap` is scrolled to."""
    style = "margin:6px 0 0;overflow:auto;background:none;color:inherit;font-size:12px"
    style += "" if wrap else ";white-space:pre"
    return (
        f"<details{' open' if unfolded else ''}><summary>{escape(name)}</summary>"
        f'<pre style="{style}">{escape(text)}</pre></details>'
    )


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: Collection[int] = (),
    shares: Sequence[float] = (),
    alarm: bool = False,
    widths: Sequence[str] = ("15%",),
) -> str:
    """A plain table; text between backticks is shown as code, the columns `numbers` stand to the right.

    `shares` (0 to 1) end each row with a bar; `alarm` makes the first one red. `widths` are those of
    the first columns.
    """
    # Where all columns from one on are numbers, the table says so once.
    spans = [] if shares else [k for k in (1, 2) if set(numbers) == set(range(k, len(head)))]
    following = spans[0] if spans else 0
    right = ["" if following or index not in numbers else ' class="n"' for index in range(len(head))]
    wide = [f' style="width:{width}"' for width in widths] + [""] * len(head)
    top = "".join(f"<th{right[index]}{wide[index]}>{escape(name)}</th>" for index, name in enumerate(head))
    top += '<th style="width:22%"></th>' if shares else ""
    rows = list(rows)
    # Short names stay in one line.
    kinds = ["keys"] if all(len(row[0]) <= _SHORT for row in rows) else []
    kinds += [f"n{following + 1}"] if following else []
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(f"<td{right[index]}>{marked(cell)}</td>" for index, cell in enumerate(row))
        if number < len(shares):
            cells += f"<td>{_bar(shares[number], alarm and number == 0)}</td>"
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


def joined(parts: Iterable[str], width: int = 80) -> str:
    """Facts in one line of a terminal, or in as many as they need."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


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
