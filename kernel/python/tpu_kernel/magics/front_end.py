"""Magics that talk to the front end or about the kernel: loaded when first used."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from IPython.core import page
from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from .. import _kernel
from ..parent import PARENT


@magics_class
class KernelMagics(Magics):
    """Magics of a notebook kernel."""

    @line_magic
    def edit(self, parameter_s: str = "", last_call: list[str] | None = None) -> None:
        """Ask the front end to open an editor on a file, a variable, a macro or history lines.

        Usage: %edit [-n line] [-p] [-r] [target]

        The file is not run when the editor closes: the kernel cannot see that it did.
        """
        from IPython.core.magics.code import CodeMagics, MacroToEdit

        options, arguments = self.parse_options(parameter_s, "prn:")
        try:
            name, line, _ = CodeMagics._find_edit_target(
                self.shell, arguments, options, last_call or ["", ""]
            )
        except MacroToEdit as found:
            raise UsageError(f"%edit: `{found}` is a macro; use `%macro` to define it anew") from None
        payload = {"source": "edit_magic", "filename": os.path.realpath(name), "line_number": line}
        self.shell.payload_manager.write_payload(payload)

    @line_magic
    def clear(self, line: str) -> None:
        """Clear the output of this cell."""
        from IPython.display import clear_output

        clear_output()

    @line_magic
    def less(self, line: str) -> None:
        """Show a file in the pager; Python files in colour."""
        if not line:
            raise UsageError("%less needs the name of a file")
        text = Path(line).expanduser().read_text(encoding="utf-8", errors="replace")
        page.page(self.shell.pycolorize(text) if line.endswith(".py") else text)

    @line_magic
    def more(self, line: str) -> None:
        """Show a file in the pager; Python files in colour."""
        self.less(line)

    @line_magic
    def man(self, line: str) -> None:
        """Show the manual page of a command in the pager."""
        page.page(self.shell.getoutput(f"man {line} | col -b", split=False))

    @line_magic
    def autoawait(self, parameter_s: str = "") -> Any:
        """Say, or choose, whether and with what `await` outside functions is run.

        Usage: %autoawait [on|off|asyncio|trio|curio|sync|name of a runner]

        asyncio is the notebook's own event loop, in which tasks go on between cells.
        """
        from IPython.core.magics.basic import AsyncMagics

        runner = parameter_s.strip()
        if runner in ("trio", "curio") and importlib.util.find_spec(runner) is None:
            raise UsageError(
                f"%autoawait {runner}: `{runner}` is not installed; `%pip install {runner}` first"
            )
        return AsyncMagics(self.shell).autoawait(parameter_s)

    @line_magic
    def notebook(self, line: str) -> None:
        """Write the cells of this session and what they showed to a notebook file.

        Usage: %notebook FILE

        Of printed text the first 64 KiB of each cell are kept.
        """
        from .notebook_export import export

        path = line.strip().strip("'\"")
        if not path:
            raise UsageError("%notebook needs the name of a file, such as `%notebook lesson.ipynb`")
        export(self.shell, Path(path).expanduser())

    @line_magic
    def whos(self, parameter_s: str = "") -> None:
        """List the variables with their types and what is in them; `%whos str int` only those of these types.

        Tensors are listed with shape, type and device; their values are not read.
        """
        from IPython.core.magics.namespace import NamespaceMagics

        from ..introspection.description import form, is_tensor

        def shown(value: Any) -> Any:
            if not is_tensor(value):
                return value
            text = form(value)
            return type(type(value).__name__, (), {"__str__": lambda _: text})()

        names = {name: shown(value) for name, value in self.shell.user_ns.items()}
        view = SimpleNamespace(user_ns=names, user_ns_hidden=self.shell.user_ns_hidden)
        NamespaceMagics(view).whos(parameter_s)

    @line_magic
    def connect_info(self, line: str) -> None:
        """Print what another client needs to connect to this kernel."""
        path = _kernel.connection_file()
        with open(path, encoding="utf-8") as file:
            print(json.dumps(json.load(file), indent=2))
        print(f"\nConnect from this machine with:\n    jupyter console --existing {path}")

    @line_magic
    def qtconsole(self, line: str) -> None:
        """Open a Qt console on this kernel."""
        if importlib.util.find_spec("qtconsole") is None:
            raise UsageError("%qtconsole: `qtconsole` is not installed; `%pip install qtconsole` first")
        from ipykernel.connect import connect_qtconsole

        connect_qtconsole(argv=line.split())

    @line_magic
    def autosave(self, line: str) -> None:
        """Set the autosave interval of the classic notebook, in seconds; 0 turns it off."""
        from IPython.display import Javascript, display

        try:
            seconds = int(line)
        except ValueError:
            raise UsageError(f"%autosave needs a whole number of seconds, not `{line}`") from None
        script = Javascript(f"IPython.notebook.set_autosave_interval({1000 * seconds})")
        display(script, include=["application/javascript"])
        print(f"Autosaving every {seconds} seconds" if seconds else "Autosave disabled")

    @line_magic
    def subshell(self, line: str) -> None:
        """Say which subshell runs this cell."""
        parent = PARENT.get()
        state: dict[str, Any] = {
            "subshell id": parent.subshell_id if parent is not None else None,
            "thread id": threading.get_ident(),
            "main thread id": threading.main_thread().ident,
            "pid": os.getpid(),
            "thread count": threading.active_count(),
            "subshell list": _kernel.subshell_ids(),
        }
        for name, value in state.items():
            print(f"{name}: {value}")
