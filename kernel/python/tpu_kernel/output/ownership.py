"""Whose output it is: threads, pooled work and child processes write for the cell that started them.

Tasks and callbacks of asyncio need nothing: they run in a copy of the context that made them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .. import _kernel
from ..imports import when_imported
from ..parent import PARENT
from .children import Output


def owner_of(thread: threading.Thread | None) -> Any:
    """The request of the cell that started a thread, or None."""
    return getattr(thread, "_tpu_kernel_owner", None)


def own_threads() -> None:
    """A thread's output belongs to the cell that started it."""
    start, bootstrap = threading.Thread.start, threading.Thread._bootstrap  # type: ignore[attr-defined]

    @functools.wraps(start)
    def start_with_parent(self: threading.Thread) -> None:
        self._tpu_kernel_owner = PARENT.get()  # type: ignore[attr-defined]
        start(self)

    def bootstrap_with_parent(self: threading.Thread) -> None:
        parent = owner_of(self)
        if parent is not None:
            PARENT.set(parent)
        bootstrap(self)
        if parent is not None and (device := sys.modules.get("tpu_kernel.tpu.device")) is not None:
            device.thread_ended(parent)

    hook = threading.excepthook

    def told(failure: Any) -> None:
        """What ends a thread of an earlier cell is said there, and need not be said again."""
        hook(failure)
        owner = owner_of(failure.thread)
        if (device := sys.modules.get("tpu_kernel.tpu.device")) is not None and owner != _kernel.running():
            device.note(failure.exc_value)

    threading.excepthook = told
    threading.Thread.start = start_with_parent  # type: ignore[method-assign]
    # A debugger must not look at a thread before Python knows it: it passes over frames of this name.
    code = bootstrap_with_parent.__code__
    bootstrap_with_parent.__code__ = code.replace(co_name="_bootstrap", co_filename=threading.__file__)
    threading.Thread._bootstrap = bootstrap_with_parent  # type: ignore[attr-defined]


def own_pooled_work(pools: ModuleType) -> None:
    """What a pool of threads does belongs to the cell that submitted it, not to the pool's first user."""
    submit = pools.ThreadPoolExecutor.submit

    @functools.wraps(submit)
    def submit_with_parent(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        parent = PARENT.get()

        @functools.wraps(fn, updated=())
        def work(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            token = PARENT.set(parent)
            try:
                return fn(*args, **kwargs)
            finally:
                PARENT.reset(token)

        return submit(self, work, *args, **kwargs)

    pools.ThreadPoolExecutor.submit = submit_with_parent


def own_commands(subprocess: ModuleType) -> None:
    """A program started by a thread of an earlier cell writes there, not into the cell that runs."""
    init = subprocess.Popen.__init__

    @functools.wraps(init)
    def init_with_parent(
        self: Any,
        args: Any,
        bufsize: int = -1,
        executable: Any = None,
        stdin: Any = None,
        stdout: Any = None,
        stderr: Any = None,
        *rest: Any,
        **options: Any,
    ) -> None:
        fds = _kernel.output_fds(PARENT.get()) if stdout is None or stderr is None else None
        try:
            if fds is not None:
                stdout = fds[0] if stdout is None else stdout
                stderr = fds[1] if stderr is None else stderr
            init(self, args, bufsize, executable, stdin, stdout, stderr, *rest, **options)
        finally:
            for fd in fds or ():
                os.close(fd)

    subprocess.Popen.__init__ = init_with_parent


class _Forks(threading.local):
    """As `own_commands`, for `os.fork` and what uses it."""

    fds: tuple[int, int] | None = None

    def before(self) -> None:
        self.fds = _kernel.output_fds(PARENT.get())

    def in_parent(self) -> None:
        for fd in self.fds or ():
            os.close(fd)
        self.fds = None

    def in_child(self) -> None:
        for place, fd in enumerate(self.fds or (), start=1):
            os.dup2(fd, place)
        self.in_parent()


def own_workers(popen: ModuleType) -> None:
    """As `own_commands`, for processes of `multiprocessing` that are spawned or forked by its server.

    The server was started by some cell; what it forks for another one gets that one's output.
    """
    launch = popen.Popen._launch
    served = popen.Popen.method == "forkserver"

    @functools.wraps(launch)
    def launch_with_parent(self: Any, process: Any) -> None:
        fds = _kernel.output_fds(PARENT.get())
        if fds is None and served:
            with contextlib.suppress(OSError):  # one of them is closed
                fds = (os.dup(1), os.dup(2))
        if fds is None:
            launch(self, process)
            return
        process._tpu_kernel_output = Output(fds)
        try:
            launch(self, process)
        finally:
            del process._tpu_kernel_output
            for fd in fds:
                os.close(fd)

    popen.Popen._launch = launch_with_parent


def install() -> None:
    """Once, at start."""
    own_threads()
    when_imported("concurrent.futures.thread", own_pooled_work)
    when_imported("subprocess", own_commands)
    when_imported("multiprocessing.popen_forkserver", own_workers)
    when_imported("multiprocessing.popen_spawn_posix", own_workers)
    forks = _Forks()
    os.register_at_fork(before=forks.before, after_in_parent=forks.in_parent, after_in_child=forks.in_child)
