"""The colours and the shape of cards: read in every theme, in a narrow window, on paper."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from tpu_kernel.cards import blocks

LAB = Path(sys.prefix, "share/jupyter/lab/themes/@jupyterlab")
#: What VS Code gives its notebooks' outputs, in the themes it comes with. The second high contrast theme
#: has no colour for quotations.
VSCODE = {
    "Light Modern": ("#ffffff", "#3b3b3b", "#3b3b3b", "#f8f8f8"),
    "Light": ("#ffffff", "#616161", "#717171", "#f2f2f2"),
    "Dark Modern": ("#1f1f1f", "#cccccc", "#9d9d9d", "#2b2b2b"),
    "Dark": ("#1e1e1e", "#cccccc", "rgba(204,204,204,.7)", "#222222"),
    "High Contrast Light": ("#ffffff", "#292929", "rgba(41,41,41,.7)", "#f2f2f2"),
    "High Contrast": ("#000000", "#ffffff", "rgba(255,255,255,.7)", None),
}

Theme = tuple[str, dict[str, str]]


def lab(name: str) -> Theme:
    """The background of outputs and all variables of one of JupyterLab's themes."""
    styles = (LAB / name / "index.css").read_text()
    found = dict(re.findall(r"(--jp-[\w-]+):([^;}]+)", styles))
    return found["--jp-layout-color0"], found


def vscode(name: str) -> Theme:
    background, text, muted, soft = VSCODE[name]
    variables = {"--vscode-foreground": text, "--vscode-descriptionForeground": muted}
    return background, variables | ({"--vscode-textBlockQuote-background": soft} if soft else {})


THEMES = {
    **{f"JupyterLab {name}": ("lab", f"theme-{name}-extension") for name in ("light", "dark", "dark-high-contrast")},
    **{f"VS Code {name}": ("vscode", name) for name in VSCODE},
    "no theme, light": ("system", "#ffffff #000000"),
    "no theme, dark": ("system", "#121212 #ffffff"),
}  # fmt: skip


def theme(kind: str, name: str) -> Theme:
    if kind == "system":
        background, text = name.split()
        return background, {"CanvasText": text}
    return lab(name) if kind == "lab" else vscode(name)


def resolved(colour: str, variables: dict[str, str]) -> str:
    """A colour without `var(…)`."""
    while found := re.fullmatch(r"var\(([\w-]+)(?:,(.*))?\)", colour.strip()):
        colour = variables.get(found[1], found[2])
    return variables.get(colour, colour)


def channels(colour: str, behind: tuple[float, ...] = (255, 255, 255)) -> tuple[float, ...]:
    """Red, green and blue of a colour over what is behind it."""
    names = {"white": "#fff", "black": "#000"}
    colour = names.get(colour, colour).strip()
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
        return tuple(int(digits[at : at + 2], 16) for at in (0, 2, 4))
    *solid, alpha = map(float, re.findall(r"[\d.]+", colour))
    assert len(solid) == 3, colour
    return tuple(front * alpha + back * (1 - alpha) for front, back in zip(solid, behind, strict=True))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """As WCAG 2 measures it: 1 to 21."""

    def light(colour: tuple[float, ...]) -> float:
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_as_the_standard_does() -> None:
    assert round(contrast(channels("#000"), channels("white")), 1) == 21
    assert round(contrast(channels("#777777"), channels("#ffffff")), 2) == 4.48


@pytest.mark.parametrize("which", THEMES.values(), ids=THEMES.keys())
def test_text_stands_out_in_every_theme(which: tuple[str, str]) -> None:
    background, variables = theme(*which)
    back = channels(resolved(background, variables))
    soft = channels(resolved(blocks.COLOURS["soft"], variables), back)
    for name, behind in (("text", back), ("text", soft), ("muted", back)):
        front = channels(resolved(blocks.COLOURS[name], variables), behind)
        assert contrast(front, behind) >= 4.5, name


def test_only_tokens_of_a_theme_colour_a_card() -> None:
    html = blocks.card(
        blocks.headline("pill", "warn", "title", "fact", ("broken", "bad")),
        blocks.tiles([("name", "value", "detail")]),
        blocks.table(("a", "b"), [("1", "2")], numbers=(1,), shares=[0.5], alarm=True),
        blocks.bars([("name", 0.5, "value")]),
        blocks.histogram([1, 2, 3]),
        blocks.paragraph("quiet", muted=True),
        edge="bad",
    )
    style, _, body = html.partition("</style>")
    rules = style
    for name, colour in blocks.COLOURS.items():
        rules = rules.replace(f"--{name}:{colour};", "")
    assert re.findall(r"#[0-9a-f]{3,8}|rgba?\(|\b(?:white(?!-)|black|gray|grey)\b", rules) == []
    # where a notebook is not trusted there is no style: bars have a colour of their own, which the style outweighs
    assert set(re.findall(r"#[0-9a-f]{6}", body)) == {"#1976d2", "#d32f2f"}
    assert "background:var(--blue)!important" in rules and "background:var(--bad)!important" in rules
    # nothing is wider than a telephone
    assert [px for px in re.findall(r"(?<!max-)width:(\d+)px", html) if int(px) > 330] == []
    assert "overflow-x:auto" in rules and "print-color-adjust:exact" in rules
