"""Writes docs/magics.md from the table of the magics and their docstrings (`make docs`).

Reads sources only: no kernel, no torch, a tenth of a second. With `--check` it writes nothing, and
fails where the file is not what it would write.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "magics.md"
sys.path.insert(0, str(ROOT / "kernel" / "python"))

from tpu_kernel.magics import MAGICS, Magic

HEAD = """\
<!-- Made by `make docs` from the docstrings in kernel/python/tpu_kernel/magics: change those. -->

# Magics

Magics of the kernel **PyTorch (TPU)**. Each has this help inside a notebook too: `%%tpu_compile?`, or Shift-Tab on its name. Tab completes names, options and their values. A wrong option is refused with one line that names the valid ones. [compiling.md](compiling.md) says what of a training step is compiled, and what makes a loop compile at every step.
"""
#: In an indented block: a word or more, two blanks or more, what it means.
ENTRY = re.compile(r"(\S+(?: \S+)*) {2,}(\S.*)")


class Wrong(Exception):
    """A docstring that is no help yet, in one line."""


def docstring(magic: Magic) -> str:
    """The docstring of a magic's function, read from its file."""
    file = magic.place.partition(":")[0]
    path = ROOT / "kernel" / "python" / "tpu_kernel" / "magics" / f"{file}.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.FunctionDef)
            and node.name == magic.name
            and (text := ast.get_docstring(node))
        ):
            return text
    raise Wrong(f"{path.name}: no function `{magic.name}` with a docstring")


def parts(magic: Magic) -> tuple[str, list[str]]:
    """The first sentence, and the paragraphs after the usage."""
    paragraphs = docstring(magic).split("\n\n")
    usage = textwrap.indent(magic.usage, "  ")
    if paragraphs[1:3] != ["Usage:", usage]:
        raise Wrong(
            f"`{magic.title}`: after its first line the docstring must say `Usage:` and `{magic.usage}`"
        )
    body = paragraphs[3:]
    for option in [*magic.flags, *magic.values]:
        if not re.search(rf"^  --{option}(?: {{2,}}| [A-Z|]+ {{2,}})\S", "\n".join(body), re.MULTILINE):
            raise Wrong(
                f"`{magic.title}`: under `Options:` the docstring must say `  --{option}  what it does`"
            )
    return paragraphs[0], body


def markdown(paragraph: str) -> str:
    """A paragraph of a docstring: lines joined, indented entries as a list, other indented text as code."""
    lines = paragraph.split("\n")
    if lines[0].startswith("  "):
        lines = textwrap.dedent(paragraph).split("\n")
        if not ENTRY.fullmatch(lines[0]):
            return "\n".join(["```python", *lines, "```"])
        entries: list[str] = []
        for line in lines:
            entry = None if line.startswith(" ") else ENTRY.fullmatch(line)
            if entry:
                entries.append(f"- `{entry[1]}`: {entry[2]}")
            else:
                entries[-1] += f" {line.strip()}"
        return "\n".join(entries)
    joined: list[str] = []
    for line in lines:
        if line.startswith("- ") or not joined:
            joined.append(line)
        else:
            joined[-1] += f" {line.strip()}"
    return "\n".join(joined)


def page() -> str:
    """All of docs/magics.md."""
    rows, sections = [], []
    for magic in MAGICS:
        first, body = parts(magic)
        cell = magic.usage.replace("|", "\\|")
        rows.append(f"| `{cell}` | {' '.join(first.split())} |")
        sections.append("\n\n".join([f"## `{magic.usage}`", *map(markdown, [first, *body])]))
    table = "\n".join(["| magic | what it does |", "|---|---|", *rows])
    return "\n\n".join([HEAD.rstrip(), table, *sections]) + "\n"


def main() -> int:
    try:
        text = page()
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        return 1
    if "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print("docs/magics.md is not what the docstrings of the magics say: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
