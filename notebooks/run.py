"""Runs a lesson without a browser and shows it in the terminal as it goes.

    python notebooks/run.py notebooks/01-first-steps.ipynb [--kernel NAME] [--timeout SECONDS]

Ends with exit code 1 at the first cell that fails. The notebook file is not changed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import nbformat
from jupyter_client.kernelspec import NoSuchKernel
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

ANSI_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Writes text, in colours where somebody looks."""

    STYLES: ClassVar[dict[str, str]] = {"heading": "1", "code": "36", "quiet": "2"}

    def __init__(self) -> None:
        self.coloured = sys.stdout.isatty()
        self.at_line_start = True

    def write(self, text: str) -> None:
        """Output of a cell: as it is, but for colours where nobody looks."""
        if not self.coloured:
            text = ANSI_COLOUR.sub("", text)
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self.at_line_start = text.endswith("\n")

    def lines(self, text: str, style: str = "", indent: str = "") -> None:
        """Whole lines of our own, below whatever a cell printed last."""
        self.new_line()
        for line in text.splitlines():
            code = self.STYLES.get(style, "") if self.coloured else ""
            self.write(indent + (f"\x1b[{code}m{line}\x1b[0m" if code and line else line) + "\n")

    def new_line(self) -> None:
        """End the line that a cell left open."""
        if not self.at_line_start:
            self.write("\n")


class Show(NotebookClient):
    """nbclient, but what comes from the kernel is printed on arrival."""

    def __init__(self, notebook: nbformat.NotebookNode, terminal: Terminal, **options: Any) -> None:
        super().__init__(notebook, **options)
        self.terminal = terminal

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        """Called by nbclient for each iopub message of the running cell."""
        content = msg["content"]
        match msg["msg_type"]:
            case "stream":
                self.terminal.write(content["text"])
            case "display_data" | "execute_result" | "update_display_data":
                self.terminal.lines(as_text(content["data"]))
            case "error":
                self.terminal.lines("\n".join(content["traceback"]))
        return super().process_message(msg, cell, cell_index)


def as_text(data: dict[str, Any]) -> str:
    """What a terminal can show of a rich output."""
    text = data.get("text/plain", "")
    pictures = [kind for kind in data if kind.startswith("image/")]
    if pictures:
        return f"[a picture, {pictures[0]}] {text}"
    return text or f"[{', '.join(data)}]"


def run(path: Path, kernel: str | None, timeout: int) -> int:
    """Run the notebook; returns the exit code."""
    notebook = nbformat.read(path, as_version=4)
    terminal = Terminal()
    name = kernel or notebook.metadata.get("kernelspec", {}).get("name", "pytorch-tpu")

    def cell_start(cell: Any, cell_index: int) -> None:
        """nbclient calls this before every cell, those of text included."""
        terminal.lines("\n")
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                terminal.lines(line or "\n", "heading" if line.startswith("#") else "")
        elif cell.cell_type == "code":
            terminal.lines(cell.source, "code", indent="    ")
            terminal.lines("\n")

    client = Show(
        notebook,
        terminal,
        kernel_name=name,
        timeout=timeout,
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=cell_start,
    )
    started = time.monotonic()
    terminal.lines(f"{path.name} with the kernel {name}", "quiet")
    try:
        client.execute()
    except CellExecutionError as error:
        terminal.lines(f"\n{path.name}: a cell failed: {error.ename}: {error.evalue}")
        return 1
    except (CellTimeoutError, DeadKernelError) as error:
        terminal.lines(f"\n{path.name}: {str(error).splitlines()[0]}")
        return 1
    cells = sum(cell.cell_type == "code" for cell in notebook.cells)
    terminal.lines(f"\n{path.name}: {cells} cells ran in {time.monotonic() - started:.1f} s")
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--kernel", help="the kernel to use instead of the notebook's own")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that one cell may take")
    options = parser.parse_args()
    try:
        return run(options.notebook, options.kernel, options.timeout)
    except FileNotFoundError:
        print(f"there is no notebook `{options.notebook}`", file=sys.stderr)
        return 1
    except NoSuchKernel as error:
        print(f"there is no kernel `{error.name}` here: `make setup` installs it", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
