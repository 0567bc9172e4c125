"""Writes the cells of a session, and what they showed, to a notebook file (`%notebook`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..kernel import LANGUAGE_INFO
from ..output import jsontext

KERNELSPEC = {"display_name": "PyTorch (TPU)", "language": "python", "name": "pytorch-tpu"}


def export(shell: Any, path: Path) -> None:
    """Write all cells of this session but the last, which asks for it."""
    from nbformat import v4, write

    cells = [
        v4.new_code_cell(execution_count=count, source=source, outputs=_outputs(shell, count))
        for _, count, source in list(shell.history_manager.get_range())[:-1]
    ]
    metadata = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}
    with path.open("w", encoding="utf-8") as file:
        write(v4.new_notebook(cells=cells, metadata=metadata), file, version=4)


def _outputs(shell: Any, count: int) -> list[Any]:
    """What a cell printed, then what it showed, then how it failed."""
    from nbformat import v4

    history = shell.history_manager
    parent = shell.cell_parents.get(count)
    printed = parent.printed if parent is not None else []
    found = [v4.new_output("stream", name=name, text=text) for name, text in printed]
    for output in history.outputs.get(count, []):
        if output.output_type in ("execute_result", "display_data"):
            more = {"execution_count": count} if output.output_type == "execute_result" else {}
            data = jsontext.loads(jsontext.dumps(output.bundle))
            found.append(v4.new_output(output.output_type, data=data, **more))
    if count in history.exceptions:
        found.append(v4.new_output("error", **history.exceptions[count]))
    return found
