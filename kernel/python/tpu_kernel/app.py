"""Starts the shell with the configuration ipykernel would load, and runs the main loop."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from typing import Any, ClassVar

from IPython.core.application import BaseIPythonApplication, base_aliases, base_flags
from IPython.core.profiledir import ProfileDir
from IPython.core.shellapp import InteractiveShellApp, shell_aliases, shell_flags
from traitlets import Unicode

from . import _kernel, bootstrap, crash, imports, loop, service
from .cells import execute
from .cells.catching import NoteCaught
from .cells.shell import NotebookShell
from .kernel import LANGUAGE_INFO, Kernel
from .output import comms, jsontext, ownership, stdio

MAGICS = "tpu_kernel.magics"
BANNER = "PyTorch (TPU): Python {version}, IPython {ipython}\n"


class IPKernelApp(BaseIPythonApplication, InteractiveShellApp):
    """Reads `ipython_config.py`, `ipython_kernel_config.py` and the command line; named as ipykernel's."""

    name = "ipython-kernel"
    aliases: ClassVar[dict[str, str]] = {
        **base_aliases,
        **shell_aliases,
        "f": "IPKernelApp.connection_file",
        "existing": "IPKernelApp.connection_file",
    }
    flags: ClassVar[dict[str, Any]] = {**base_flags, **shell_flags}
    classes: ClassVar[list[type]] = [NotebookShell, ProfileDir]

    connection_file = Unicode("", help="The file that says how to connect to this kernel.").tag(config=True)

    kernel: Any = None

    def init_crash_handler(self) -> None:
        """A failure in the kernel goes to the server's log; IPython's handler asks to report a bug in IPython."""

    def _configure_logging(self) -> None:
        """To the server's log; IPython's way imports more and ends in the notebook."""
        if self.logging_config:
            super()._configure_logging()
            return
        if not self.log.handlers:
            log = os.fdopen(_kernel.original_fd(2), "w", buffering=1, encoding="utf-8", errors="replace")
            self.log.addHandler(logging.StreamHandler(log))
        self.log.setLevel(self.log_level)
        self._logging_configured = True

    def initialize(self, argv: list[str] | None = None) -> None:
        """Everything up to a shell that can run a cell."""
        super().initialize(argv)
        self.config.IPKernelApp.connection_file = self.connection_file
        stdio.install()
        crash.install()
        sys.unraisablehook = _kernel.unraisable
        self.init_path()
        self.init_shell()
        self.init_gui_pylab()
        collect_garbage_again()
        self.init_extensions()
        self.init_code()

    def parse_command_line(self, argv: list[str] | None = None) -> None:
        """Only when there is more on it than the connection file: the parser costs milliseconds."""
        rest = [word for word in (argv or []) if word]
        if rest:
            super().parse_command_line(rest)

    def init_shell(self) -> None:
        """Make the shell and what libraries see of the kernel."""
        self.kernel = Kernel(self.log)
        self.shell = NotebookShell.instance(
            parent=self, profile_dir=self.profile_dir, kernel=self.kernel, user_ns=self.user_ns
        )
        self.kernel.shell = self.shell
        self.shell.ast_transformers.append(NoteCaught())
        self.shell.configurables.append(self)
        # IPython asks jedi first and waits for it; `completion` asks it last
        self.kernel.use_jedi = self.shell.Completer.use_jedi
        self.shell.Completer.use_jedi = False
        # For good: threads and tasks between cells find `display` and `get_ipython` too.
        self.shell.builtin_trap.__enter__()
        if session := os.environ.get("JPY_SESSION_NAME"):
            self.shell.user_ns["__session__"] = session

    def init_gui_pylab(self) -> None:
        """Figures are shown inline unless somebody chose otherwise."""
        os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
        super().init_gui_pylab()

    def init_extensions(self) -> None:
        """Those of the configuration, then our magics."""
        super().init_extensions()
        self.shell.extension_manager.load_extension(MAGICS)
        if os.environ.get("TPU_KERNEL_WATCH", "").lower() in ("on", "1"):
            from .tpu import cell_line

            cell_line.turn(True)


IPKernelApp.__module__ = "ipykernel.kernelapp"


def collect_garbage_again() -> None:
    """Switch the collector on; everything up to now counts as old without being looked at."""
    gc.freeze()
    gc.unfreeze()
    gc.enable()


def interruptible_pdb(_: object) -> None:
    """`breakpoint()` and `pdb` use IPython's debugger, which an interrupt can leave."""
    if "IPython.core.debugger" not in sys.modules:
        import IPython.core.debugger  # noqa: F401  its own hook follows

        return
    import pdb  # noqa: T100

    debugger = sys.modules["IPython.core.debugger"]
    if hasattr(debugger, "InterruptiblePdb") and hasattr(debugger, "set_trace"):
        from .debugging.asking import interruptible

        debugger.Pdb = pdb.Pdb = interruptible(debugger)  # type: ignore[attr-defined, misc]
        pdb.set_trace = debugger.set_trace  # type: ignore[attr-defined]


def main(argv: list[str]) -> None:
    """Run the kernel; does not return. `argv` is the command line without the connection file."""
    variable, value = _kernel.owner()
    os.environ[variable] = value
    imports.install()
    imports.when_imported("comm", comms.use_ours)
    bootstrap.install()
    ownership.install()
    app = IPKernelApp.instance(connection_file=_kernel.connection_file())
    app.initialize(argv)
    import ipykernel.zmqshell  # noqa: F401  tqdm looks for it in sys.modules

    imports.when_imported("asyncio", loop.asyncio_imported)
    imports.when_imported("torch", execute.torch_imported)
    imports.when_imported("pdb", interruptible_pdb)
    imports.when_imported("IPython.core.debugger", interruptible_pdb)
    import IPython

    banner = BANNER.format(version=sys.version.split()[0], ipython=IPython.__version__)
    _kernel.ready(jsontext.dumps(LANGUAGE_INFO), banner)
    service.start(app.shell)
    loop.MAIN = loop.ShellLoop(app.shell, _kernel.main_shell())
    loop.MAIN.run()
    end(loop.MAIN)


def end(main_loop: loop.ShellLoop) -> None:
    """Clean up and leave."""
    try:
        main_loop.cancel_tasks()
        # a DataLoader raises from it when a worker is ended, in the middle of an exit function
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        service.run_exit_functions()
    except BaseException:  # noqa: BLE001
        loop.report_fault()
    finally:
        logging.shutdown()
        _kernel.exit(0)
