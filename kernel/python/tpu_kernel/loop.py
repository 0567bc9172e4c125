"""The main thread: takes requests from the Rust half, one at a time, and runs asyncio between them.

It begins as a plain wait on the eventfd, because importing asyncio costs a fifth of the
start-up time. The first cell that imports asyncio finds a running event loop all the same; from
then on the loop is asyncio's, and tasks that a cell left go on between cells.
"""

from __future__ import annotations

import contextvars
import select
import sys
import threading
import time
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _kernel, execute, interrupts
from .imports import when_imported
from .parent import PARENT
from .shell import NotebookShell

if TYPE_CHECKING:
    import asyncio


FAULT_PAUSE_SECONDS = 0.05


class MainLoop:
    """Hands each request to what runs it."""

    def __init__(self, shell: NotebookShell) -> None:
        self._shell = shell
        self._fd = _kernel.main_fd()
        # one context for all cells: a context variable set in one is there in the next
        self._context = contextvars.copy_context()
        self._asyncio: asyncio.AbstractEventLoop | None = None
        self._busy = False
        self._listening = False

    # -- the loops ----------------------------------------------------------------

    def run(self) -> None:
        """Until the kernel is to stop."""
        interrupts.idle()
        when_imported("asyncio", self._asyncio_imported)
        while not _kernel.stopping():
            try:
                if "asyncio" in sys.modules:
                    self._run_asyncio()
                else:
                    self._run_plain()
            except (KeyboardInterrupt, SystemExit):  # a task raised it: no cell is concerned
                interrupts.idle()
            except Exception:  # noqa: BLE001
                report_fault()
                time.sleep(FAULT_PAUSE_SECONDS)

    def _run_plain(self) -> None:
        """Wait for requests without asyncio."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while "asyncio" not in sys.modules:
            interrupts.forget()
            request = _kernel.next_main()
            if request is not None:
                coroutine = self._start(request)
                if coroutine is not None:
                    self._run_awaiting(coroutine)
            elif _kernel.stopping():
                return
            else:
                poll.poll()

    def _run_asyncio(self) -> None:
        """Let asyncio wait for requests."""
        import asyncio

        if not self._busy:
            self._listen()
        asyncio._set_running_loop(None)  # see _asyncio_imported
        self.event_loop().run_forever()

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the main thread, made when first asked for."""
        if self._asyncio is None:
            import asyncio

            self._asyncio = asyncio.new_event_loop()
            asyncio.set_event_loop(self._asyncio)
        return self._asyncio

    def _asyncio_imported(self, asyncio: ModuleType) -> None:
        """A cell imported asyncio: give the rest of this cell a running loop."""
        if self._busy and threading.current_thread() is threading.main_thread():
            asyncio._set_running_loop(self.event_loop())

    # -- requests -------------------------------------------------------------------

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self.event_loop().add_reader(self._fd, self._readable)

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            self.event_loop().remove_reader(self._fd)

    def _readable(self) -> None:
        """One request; the loop comes back for the next, so that tasks have their turn."""
        if self._busy:  # a cell runs the loop inside itself
            self._stop_listening()
            return
        interrupts.forget()
        request = _kernel.next_main()
        if request is not None:
            coroutine = self._start(request)
            if coroutine is not None:
                self._run_awaiting(coroutine)
            else:
                self._listen()
        elif _kernel.stopping():
            self.event_loop().stop()

    def _start(self, request: _kernel.Request) -> Any:
        """Run a request; the coroutine of a cell that awaits."""
        self._busy = True
        coroutine = None
        try:
            if request.msg_type == "execute_request":
                coroutine = self._context.run(execute.start, self._shell, request)
            else:
                self._context.run(self._run_comm, request)
        finally:
            self._busy = coroutine is not None
        return coroutine

    def _run_comm(self, request: _kernel.Request) -> None:
        from . import comms

        PARENT.set(request.parent)
        self._shell.kernel.parents.begin(request)
        try:
            with interrupts.raising():
                comms.dispatch(self._shell.kernel, request)
        except KeyboardInterrupt:
            interrupts.idle()
            self._shell.showtraceback()
        finally:
            self._shell.kernel.parents.end()
            _kernel.finish(request)

    def _run_awaiting(self, coroutine: Any) -> None:
        """Let the loop run a cell that awaits; nothing else is taken from the queue meanwhile."""
        loop = self.event_loop()
        self._stop_listening()
        cancellation = interrupts.Cancellation(loop)
        cancellation.task = loop.create_task(cancellation.drive(coroutine), context=self._context)
        cancellation.task.add_done_callback(self._awaited)
        cancellation.install()

    def _awaited(self, task: asyncio.Task[Any]) -> None:
        interrupts.idle()
        self._busy = False
        if not task.cancelled() and (failure := task.exception()) is not None:
            report_fault(failure)
        self._listen()

    # -- the end ----------------------------------------------------------------------

    def cancel_tasks(self) -> None:
        """Cancel what cells left running, and let it clean up."""
        loop = self._asyncio
        if loop is None or loop.is_closed():
            return
        import asyncio

        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=0.2))


def report_fault(failure: BaseException | None = None) -> None:
    """Something of ours failed outside a cell: say so in the server's log, and go on."""
    lines = traceback.format_exception(failure) if failure is not None else [traceback.format_exc()]
    with open(_kernel.original_fd(2), "w", encoding="utf-8", errors="replace") as log:
        log.write("tpu_kernel: a request failed inside the kernel:\n" + "".join(lines))


MAIN: MainLoop | None = None


def event_loop() -> Any:
    """The event loop of the main thread."""
    return MAIN.event_loop() if MAIN is not None else None
