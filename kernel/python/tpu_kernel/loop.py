"""The thread of a shell: takes requests from the Rust half, one at a time, and runs asyncio between them.

The main shell has the main thread; each subshell (JEP 91) has one of its own, and works the same way.

It begins as a plain wait on the eventfd, because importing asyncio costs a fifth of the
start-up time. The first cell that imports asyncio finds a running event loop all the same; from
then on the loop is asyncio's, and tasks that a cell left go on between cells.
"""

from __future__ import annotations

import contextlib
import contextvars
import select
import sys
import threading
import time
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import _kernel, service
from .cells import execute, interrupts
from .cells.shell import NotebookShell

if TYPE_CHECKING:
    import asyncio


FAULT_PAUSE_SECONDS = 0.05


class ShellLoop:
    """Hands each request of one shell to what runs it. Made and run by the shell's own thread."""

    def __init__(self, shell: NotebookShell, queue: _kernel.Shell) -> None:
        self._shell = shell
        self.queue = queue
        # one context for all cells: a context variable set in one is there in the next
        self._context = contextvars.copy_context()
        self._asyncio: asyncio.AbstractEventLoop | None = None
        self._busy = False
        self._listening = False
        self._cancellation: interrupts.Cancellation | None = None

    def run(self) -> None:
        """Until the kernel is to stop, or the subshell is deleted."""
        OF_THREAD.loop = self
        interrupts.idle()
        while not self.queue.ended():
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
        while self.queue.subshell_id is not None and self._take():
            pass  # what waits in a deleted subshell is answered

    def _run_plain(self) -> None:
        """Wait for requests without asyncio."""
        poll = select.poll()
        poll.register(self.queue, select.POLLIN)
        while "asyncio" not in sys.modules:
            if not self._take():
                if self.queue.ended():
                    return
                poll.poll()

    def _run_asyncio(self) -> None:
        """Let asyncio wait for requests."""
        import asyncio

        if not self._busy:
            self._listen()
        asyncio._set_running_loop(None)  # see asyncio_imported
        self.event_loop().run_forever()

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of this thread, made when first asked for."""
        if self._asyncio is None:
            import asyncio

            self._asyncio = asyncio.new_event_loop()
            # with a handler of its own the loop reports in the context of the task (Python 3.12)
            self._asyncio.set_exception_handler(lambda loop, context: loop.default_exception_handler(context))
            asyncio.set_event_loop(self._asyncio)
        return self._asyncio

    def provide_event_loop(self, asyncio: ModuleType) -> None:
        """A cell imported asyncio: give the rest of this cell a running loop."""
        if self._busy:
            asyncio._set_running_loop(self.event_loop())

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self.event_loop().add_reader(self.queue, self._readable)

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            self.event_loop().remove_reader(self.queue)

    def _readable(self) -> None:
        """One request; the loop comes back for the next, so that tasks have their turn."""
        # not while a cell runs: it may turn the loop inside itself, and this cannot run in itself
        self._stop_listening()
        if self._busy:
            return
        try:
            if not self._take() and self.queue.ended():
                self.event_loop().stop()
        except Exception:  # noqa: BLE001
            report_fault()
        finally:
            if not self._busy:
                self._listen()

    def _take(self) -> bool:
        """Run the next request, or begin a cell that awaits; False when nothing waits."""
        interrupts.forget()
        self._obey_feed()
        request = self.queue.next()
        if request is None:
            # What was ordered meanwhile: its wake went with those of the requests.
            self._obey_feed()
            return False
        coroutine = self._start(request)
        if coroutine is not None:
            self._run_awaiting(coroutine)
        return True

    def _obey_feed(self) -> None:
        """Do what a panel ordered, and find the names it asked for."""
        while self.queue.subshell_id is None and (order := _kernel.feed_order()) is not None:
            from .tpu import feed

            feed.obey(self._shell, order)

    def _start(self, request: _kernel.Request) -> Any:
        """Run a request; the coroutine of a cell that awaits."""
        self._busy = True
        coroutine = None
        try:
            if request.msg_type == "execute_request":
                coroutine = self._context.run(execute.start, self._shell, request)
            elif request.msg_type in service.ANSWERS:
                self._context.run(service.answer, self._shell, request)
            else:
                self._context.run(self._run_comm, request)
        finally:
            self._busy = coroutine is not None
        return coroutine

    def _run_comm(self, request: _kernel.Request) -> None:
        from .output import comms

        try:
            with interrupts.raising():
                comms.run(self._shell.kernel, request)
        except KeyboardInterrupt as interrupt:
            interrupts.idle()
            if not hasattr(interrupt, "_tpu_shown"):  # the message was over: a cell that awaits is meant
                interrupts.keep()

    def _heard(self) -> None:
        """A comm message while a cell awaits: it may be what the cell waits for."""
        request = self.queue.next_comm(rest=True)
        if request is not None:
            self._context.run(self._run_comm, request)
            if self._cancellation is not None:
                self._cancellation.install()

    def _run_awaiting(self, coroutine: Any) -> None:
        """Let the loop run a cell that awaits; only comm messages are taken from the queue meanwhile."""
        loop = self.event_loop()
        self._stop_listening()
        cancellation = interrupts.Cancellation(loop)
        cancellation.task = loop.create_task(cancellation.drive(coroutine), context=self._context)
        cancellation.task.add_done_callback(self._awaited)
        cancellation.install()
        self._cancellation = cancellation
        loop.add_reader(self.queue, self._heard)

    def _awaited(self, task: asyncio.Task[Any]) -> None:
        self._cancellation = None
        interrupts.idle()
        self._busy = False
        self.queue.wake()
        if not task.cancelled() and (failure := task.exception()) is not None:
            report_fault(failure)
        self._listening = False  # for comm messages only until now
        self._listen()

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

    def close(self) -> None:
        """The shell is gone: its event loop too."""
        self.cancel_tasks()
        if self._asyncio is not None:
            self._asyncio.close()


def report_fault(failure: BaseException | None = None) -> None:
    """Something of ours failed outside a cell: say so in the server's log, and go on."""
    lines = traceback.format_exception(failure) if failure is not None else [traceback.format_exc()]
    # a full disk or a log that nobody reads any more is no reason to stop
    with (
        contextlib.suppress(OSError),
        open(_kernel.original_fd(2), "w", encoding="utf-8", errors="replace") as log,
    ):
        log.write("tpu_kernel: a request failed inside the kernel:\n" + "".join(lines))


class _OfThread(threading.local):
    loop: ShellLoop | None = None


OF_THREAD = _OfThread()
MAIN: ShellLoop | None = None


def own_loop() -> ShellLoop | None:
    """The shell whose thread this is; in a thread that is no shell's, the main shell."""
    return OF_THREAD.loop or MAIN


def asyncio_imported(asyncio: ModuleType) -> None:
    """Somebody imported asyncio: a cell, or a thread that is no shell's."""
    if OF_THREAD.loop is not None:
        OF_THREAD.loop.provide_event_loop(asyncio)


def start_subshell(shell: NotebookShell, queue: _kernel.Shell) -> None:
    """Start the thread of a new subshell."""

    def run() -> None:
        own = ShellLoop(shell, queue)
        own.run()
        own.close()

    name = f"subshell-{queue.subshell_id}"
    threading.Thread(target=run, name=name, daemon=True).start()
