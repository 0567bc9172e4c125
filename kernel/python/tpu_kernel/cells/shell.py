"""IPython's shell inside this kernel.

It is named and placed as ipykernel's, because that is how libraries recognise a notebook.
What differs from a terminal: output, pages and errors are messages, commands run on a
pseudo-terminal whose output is shown live, and running a cell skips what only costs time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any

from IPython.core import page
from IPython.core.autocall import ZMQExitAutocall
from IPython.core.interactiveshell import InteractiveShell, InteractiveShellABC
from traitlets import Any as AnyTrait
from traitlets import CBool, Instance, Type, default, observe

from .. import _kernel
from ..output.displayhook import NotebookDisplayHook
from ..output.formatting import NotebookDisplayFormatter
from ..output.publisher import NotebookDisplayPublisher
from . import interrupts
from .compiler import NotebookCompiler
from .errors import ErrorShell
from .history import BatchedHistoryManager
from .nested import RUNNER
from .turn import CellNumber, OfThread, Payloads, SharedDisplayTrap, Turn

# What `!ls`, `!git log`, `!pytest` and the like look at.
ENVIRONMENT = {
    "TERM": "xterm-color",
    "CLICOLOR": "1",
    "FORCE_COLOR": "1",
    "CLICOLOR_FORCE": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
}

# What `%gui` and `%matplotlib` may name: drawn by the front end, or not at all.
WITHOUT_WINDOWS = (
    None,
    "",
    "none",
    "inline",
    "agg",
    "asyncio",
    "widget",
    "ipympl",
    "notebook",
    "nbagg",
    "webagg",
)
KEPT_CELLS = 2_000


class NotebookShell(ErrorShell):
    """The shell that runs the cells."""

    compiler_class = Type(NotebookCompiler)

    displayhook_class = Type(NotebookDisplayHook)
    display_pub_class = Type(NotebookDisplayPublisher)
    inspector_class = Type(
        default_value="tpu_kernel.introspection.inspector.NotebookInspector",
        klass="IPython.core.oinspect.Inspector",
    ).tag(config=True)
    kernel = AnyTrait()
    exiter = Instance(ZMQExitAutocall)
    autoindent = CBool(False)
    readline_use = CBool(False)
    keepkernel_on_exit: bool | None = None
    execution_count = CellNumber(1)
    _transformed = OfThread()
    #: What is shown when the device is done with the cell; None where nobody waits for that.
    _when_done = OfThread()
    loop_runner_map = InteractiveShell.loop_runner_map | {"asyncio": (RUNNER, True)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.turn = Turn()
        self.cell_parents: dict[int, _kernel.Parent] = {}
        super().__init__(*args, **kwargs)

    @default("exiter")
    def _exiter_default(self) -> ZMQExitAutocall:
        return ZMQExitAutocall(self)

    @default("loop_runner")
    def _default_loop_runner(self) -> Any:
        return RUNNER

    def init_environment(self) -> None:
        os.environ.update(ENVIRONMENT)

    def init_virtualenv(self) -> None:
        """The kernel runs in the environment it was installed into; there is none to look for."""

    def init_history(self) -> None:
        self.history_manager = BatchedHistoryManager(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_completer(self) -> None:
        from IPython.core.completerlib import cd_completer, magic_run_completer, reset_completer
        from IPython.utils.strdispatch import StrDispatch

        from ..introspection.completer import NotebookCompleter

        self.Completer = NotebookCompleter(
            shell=self, namespace=self.user_ns, global_namespace=self.user_global_ns, parent=self
        )
        self.configurables.append(self.Completer)
        custom = self.strdispatchers.setdefault("complete_command", StrDispatch())
        self.Completer.custom_completers = custom
        self.set_hook("complete_command", magic_run_completer, str_key="%run")
        self.set_hook("complete_command", cd_completer, str_key="%cd")
        self.set_hook("complete_command", reset_completer, str_key="%reset")

    def init_payload(self) -> None:
        self.payload_manager = Payloads(parent=self)
        self.configurables.append(self.payload_manager)

    def init_display_formatter(self) -> None:
        self.display_formatter = NotebookDisplayFormatter(parent=self)
        self.configurables.append(self.display_formatter)

    def init_displayhook(self) -> None:
        super().init_displayhook()
        self.display_trap = SharedDisplayTrap(hook=self.displayhook)

    def init_hooks(self) -> None:
        super().init_hooks()
        self.set_hook("show_in_pager", page.as_hook(self.show_page), 99)

    def init_magics(self) -> None:
        super().init_magics()
        for name in (
            "autoawait",
            "autosave",
            "clear",
            "connect_info",
            "edit",
            "less",
            "man",
            "more",
            "notebook",
            "qtconsole",
            "subshell",
            "whos",
        ):
            self.magics_manager.register_lazy(name, "tpu_kernel.magics.front_end:KernelMagics", "line")
        self.magics_manager.register_alias("ed", "edit")

    def _find_with_lazy_load(self, type_: str, magic_name: str) -> Any:
        """As IPython's, which never again loads a magic whose loading was interrupted: that is felt after it."""
        found = self.magics_manager.magics[type_].get(magic_name)
        if isinstance(found, MethodType):  # it is there
            return found
        with interrupts.held():
            return super()._find_with_lazy_load(type_, magic_name)

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        super().init_traceback_handlers(custom_exceptions)
        self.compile.show_source_of_cells()

    def begin_cell(self, counts: bool, waits: bool) -> int:
        """A cell of this thread begins: its number, which no other has when it `counts`. Whether it `waits` for
        the device at its end."""
        self.forget_errors(outermost=True)
        self._when_done = [] if waits else None
        return type(self).execution_count.begin(self, counts)

    def end_cell(self) -> None:
        """The cell of this thread is over."""
        self.ended_by = None
        type(self).execution_count.end(self)

    def when_done(self, show: Callable[[], None]) -> bool:
        """Let `show` run when the device is done with the cell, and all else of it is shown. False, and nothing
        is kept, in what the cell's code runs as a cell of its own, and where nobody waits for the device."""
        if self._when_done is None or self._depth != 1:
            return False
        self._when_done.append(show)
        return True

    def device_is_done(self) -> None:
        """Show what waited for the device."""
        waiting, self._when_done = self._when_done or (), None
        for show in waiting:
            show()

    def remember(self, number: int, parent: _kernel.Parent) -> None:
        """Whose output that of a stored cell is, for `%notebook`."""
        self.cell_parents[number] = parent
        if len(self.cell_parents) > KEPT_CELLS:
            del self.cell_parents[next(iter(self.cell_parents))]

    def transform_cell(self, raw_cell: str) -> str:
        """As IPython's; what `prepare` already made is used once."""
        transformed, self._transformed = self._transformed, None
        if transformed is not None and transformed[0] is raw_cell:
            return transformed[1]
        return self._transform(raw_cell)

    def _transform(self, raw_cell: str) -> str:
        """As IPython's, save that lines keep their numbers when the cell begins with empty ones."""
        blank = len(raw_cell) - len(raw_cell.lstrip())
        return "\n" * raw_cell.count("\n", 0, blank) + super().transform_cell(raw_cell)

    def var_expand(self, cmd: str, depth: int = 0, *formatter: Any) -> str:
        """As IPython's, which copies the notebook's names also where there is nothing to put in."""
        if "$" not in cmd and "{" not in cmd and "}" not in cmd:
            return cmd
        return super().var_expand(cmd, depth + 1, *formatter)

    def prepare(self, raw_cell: str) -> bool:
        """Transform a cell that runs next; True when it needs the event loop."""
        self._transformed = None
        try:
            cell = self._transform(raw_cell)
        except Exception:  # noqa: BLE001
            return False  # reported when the cell is run
        self._transformed = (raw_cell, cell)
        return self.should_run_async(raw_cell, transformed_cell=cell) and self.loop_runner is RUNNER

    def should_run_async(
        self, raw_cell: str, *, transformed_cell: str | None = None, preprocessing_exc_tuple: Any = None
    ) -> bool:
        """As IPython's, which compiles the whole cell, but only for cells with one of the words."""
        cell = transformed_cell or ""
        if "await" not in cell and "async" not in cell:
            return False
        return super().should_run_async(
            raw_cell, transformed_cell=cell, preprocessing_exc_tuple=preprocessing_exc_tuple
        )

    def run_cell(
        self,
        raw_cell: str,
        store_history: bool = False,
        silent: bool = False,
        shell_futures: bool = True,
        cell_id: str | None = None,
        cell_meta: dict[str, Any] | None = None,
    ) -> Any:
        """Run a cell. IPython's own also copies all printed text into the history; ours does not."""
        self.forget_errors()
        result = None
        try:
            with interrupts.held():
                result = self._run_cell(raw_cell, store_history, silent, shell_futures, cell_id, cell_meta)
        finally:
            self.events.trigger("post_execute")
            if not silent:
                self.events.trigger("post_run_cell", result)
        return result

    async def run_prepared_async(
        self, raw_cell: str, *, store_history: bool, silent: bool, cell_id: str, cell_meta: dict[str, Any]
    ) -> Any:
        """Run a cell that awaits, on the running event loop."""
        self.forget_errors()
        result = None
        try:
            with interrupts.held():
                result = await self.run_cell_async(
                    raw_cell,
                    store_history=store_history,
                    silent=silent,
                    transformed_cell=self.transform_cell(raw_cell),
                    cell_id=cell_id,
                    cell_meta=cell_meta,
                )
        finally:
            self.events.trigger("post_execute")
            if not silent:
                self.events.trigger("post_run_cell", result)
        return result

    async def run_ast_nodes(self, *args: Any, **kwargs: Any) -> bool:
        """As IPython's; a debugger follows the cell's own code and nothing else."""
        debugger = sys.modules.get("tpu_kernel.debugging.debugger")
        if debugger is None:
            return await super().run_ast_nodes(*args, **kwargs)
        debugger.trace(True)
        try:
            return await super().run_ast_nodes(*args, **kwargs)
        finally:
            debugger.end_stepping()
            debugger.trace(False)

    def system_piped(self, cmd: str) -> None:
        """Run `!cmd`; its exit status goes to `_exit_code`."""
        from . import system

        status = system.run(self.var_expand(cmd, depth=1))
        self.user_ns["_exit_code"] = status
        if status != 0 and getattr(self, "system_raise_on_error", False):
            from subprocess import CalledProcessError

            raise CalledProcessError(status, cmd)

    system = system_piped

    def show_page(self, strg: Any, start: int = 0, screen_lines: int = 0, pager_cmd: Any = None) -> None:
        """Ask the front end to show a text, or a bundle of MIME types, in its pager."""
        data = strg if isinstance(strg, dict) else {"text/plain": strg}
        self.payload_manager.write_payload({"source": "page", "data": data, "start": max(0, start)})

    payloadpage_page = show_page

    def set_next_input(self, s: str, replace: bool = False) -> None:
        """Ask the front end for a cell with this text, or (`replace`) to put it into this one."""
        self.payload_manager.write_payload({"source": "set_next_input", "text": s, "replace": replace})

    def ask_exit(self) -> None:
        """`exit`, `quit`: end the kernel once this cell is answered, unless it is to be kept."""
        self.exit_now = not self.keepkernel_on_exit
        self.payload_manager.write_payload(
            {"source": "ask_exit", "keepkernel": bool(self.keepkernel_on_exit)}
        )

    @observe("exit_now")
    def _end_kernel(self, change: Any) -> None:
        if change["new"]:
            _kernel.request_exit()

    def enable_gui(self, gui: str | None = None) -> None:
        """`%gui`: asyncio is always on; windows of tk and qt are served where they can be opened."""
        if gui not in WITHOUT_WINDOWS:
            from . import gui as windows

            windows.enable(str(gui))
        elif "tpu_kernel.cells.gui" in sys.modules:
            sys.modules["tpu_kernel.cells.gui"].SERVICE.stop()
        self.active_eventloop = gui

    @property
    def parent_header(self) -> dict[str, Any]:
        """The request that the running code belongs to."""
        return self.get_parent()

    @parent_header.setter
    def parent_header(self, parent: dict[str, Any]) -> None:
        self.set_parent(parent)

    def get_parent(self) -> dict[str, Any]:
        """The request that the running code belongs to, as a message."""
        return self.kernel.get_parent() if self.kernel is not None else {}

    def set_parent(self, parent: dict[str, Any]) -> None:
        """Let what this context writes from now on belong to the request `parent`."""
        if self.kernel is not None:
            self.kernel.set_parent(None, parent)


NotebookShell.__module__ = "ipykernel.zmqshell"
NotebookShell.__name__ = NotebookShell.__qualname__ = "ZMQInteractiveShell"
InteractiveShellABC.register(NotebookShell)
