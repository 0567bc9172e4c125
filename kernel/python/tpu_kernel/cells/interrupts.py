"""What SIGINT does: nothing between cells, KeyboardInterrupt in a cell, cancelling an awaiting one.

A Python function is the handler between cells rather than SIG_IGN, so that children started
in the meantime do not inherit deafness.

It notes the signal: one that comes after a cell was taken from the queue and before its code runs must
still stop it.

Signals are the main thread's. A cell of a subshell is interrupted by raising KeyboardInterrupt in
its thread, which Python does between two of its instructions: a call that waits in C ends first.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
import types
from _signal import getsignal  # of `signal` it is a Python function, in which a debugger would step
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _kernel

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
#: What takes longer than this while interrupts are held is left by an interrupt.
PATIENCE_SECONDS = 2.0
_came = False
#: What was the handler of SIGINT before interrupts were held.
_of_cell: object = signal.default_int_handler
_handler: Callable[[int, FrameType | None], object] = signal.default_int_handler


def raise_with(handler: Callable[[int, FrameType | None], object]) -> None:
    """Let `handler` raise KeyboardInterrupt in the cells to come, in place of Python's own."""
    global _handler
    _handler = handler


def note(signum: int, frame: object) -> None:
    """The handler of SIGINT where none may be raised."""
    global _came
    _came = True


def _here() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def idle() -> None:
    """No cell runs: SIGINT is only noted, and nothing is raised in a subshell's thread."""
    if _here():
        _kernel.swap_sigint(note)
    else:
        _leave()


def forget() -> None:
    """What came so far was meant for something that is over."""
    global _came
    if _here():
        _came = False
    else:
        _came_beside.discard(threading.get_ident())


def keep() -> None:
    """What came was not meant for what it ended: it is still to be felt."""
    global _came
    if _here():
        _came = True
    else:
        _came_beside.add(threading.get_ident())


def _take() -> bool:
    """Whether one came; it is felt now."""
    came = _came if _here() else threading.get_ident() in _came_beside
    forget()
    return came


def _raise_if_came() -> None:
    if _take():
        raise KeyboardInterrupt


# How to interrupt what each subshell's thread runs, and the threads in which it was done.
_beside: dict[int, Callable[[], None]] = {}
_raised: set[int] = set()
# The same while they are held, and where one came meanwhile.
_held_beside: dict[int, Callable[[], None]] = {}
_came_beside: set[int] = set()
_beside_lock = threading.Lock()


@contextmanager
def _enter(interrupt: Callable[[], None]) -> Generator[None, None, None]:
    _beside[threading.get_ident()] = interrupt
    try:
        yield
    finally:
        _leave()


def _raise_in(ident: int) -> None:
    """Raise KeyboardInterrupt in the thread of a subshell."""
    _raised.add(ident)
    _kernel.raise_in_thread(ident)


def _leave() -> None:
    """Nothing is to be interrupted in this thread any more; what was raised and not felt yet ends here."""
    ident = threading.get_ident()
    while True:
        try:
            with _beside_lock:
                _beside.pop(ident, None)
            if ident in _raised:
                _raised.discard(ident)
                settle()
            return
        except KeyboardInterrupt:  # felt just now
            pass


def settle() -> None:
    """Nothing that was raised in a thread from outside is waited for any more: not for the main thread.

    While one that no thread has felt is left (the thread ended before), Python 3.11 looks for it at every
    call in every thread, and a call that a debugger traces never begins. Feeling one here clears that.
    """
    try:
        _kernel.raise_in_thread(threading.get_ident())  # in place of one not felt yet
        while True:
            pass
    except KeyboardInterrupt:
        pass


def interrupt_subshells() -> None:
    """Interrupt the cells that subshells run; called on the service thread."""
    with _beside_lock:
        for interrupt in list(_beside.values()):
            interrupt()


def is_ours() -> bool:
    """SIGINT still does what it should: the cell has put no handler of its own."""
    handler = signal.getsignal(signal.SIGINT)
    return handler in (signal.default_int_handler, _handler, note) or isinstance(
        getattr(handler, "__self__", None), Cancellation
    )


@contextmanager
def raising() -> Generator[None, None, None]:
    """SIGINT raises KeyboardInterrupt, as anywhere in Python."""
    if not _here():
        ident = threading.get_ident()
        with _enter(partial(_raise_in, ident)):
            yield
        return
    signal.signal(signal.SIGINT, _handler)
    try:
        _raise_if_came()
        yield
    finally:
        idle()


def _in_cell(frame: FrameType | None) -> bool:
    """The code of a cell is running, not what steps it or what asyncio does between its steps.

    Raised there an interrupt would leave the cell behind, as a task that nobody goes on with.
    """
    code = Cancellation._step.__code__
    if frame is not None and frame.f_code is code:
        return False
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


@contextmanager
def held() -> Generator[None, None, None]:
    """Something is done that an interrupt must not cut in two: it is felt at the end, or where `felt`.

    Between a cell's own code and its reply IPython cannot be left anywhere: an error would be shown twice
    or not at all, and results of later cells not shown.
    """
    global _of_cell
    ident = threading.get_ident()
    if _is_held():
        yield
        return
    if not _here():
        interrupt = _beside.get(ident)
        if interrupt is None:
            yield
            return
        _leave()
        before = _held_beside.get(ident)  # of the cell whose code asks for this
        _held_beside[ident], _beside[ident] = interrupt, partial(_came_beside.add, ident)
        try:
            yield
        finally:
            _beside[ident] = interrupt
            if before is None:
                del _held_beside[ident]
            _raise_if_came()
        return
    _of_cell = _kernel.swap_sigint(note)
    try:
        yield
    finally:
        _kernel.swap_sigint(_of_cell)
        if _take():
            signal.raise_signal(signal.SIGINT)


@contextmanager
def felt() -> Generator[None, None, None]:
    """The code of a cell, inside of what is `held`: interrupts reach it, also one that was held before."""
    global _of_cell
    ident = threading.get_ident()
    if not _is_held():
        yield
    elif _here():
        _kernel.swap_sigint(_of_cell)
        try:
            if _take():
                signal.raise_signal(signal.SIGINT)
            yield
        finally:
            # the cell may have put a handler of its own
            _of_cell = _kernel.swap_sigint(note)
    else:
        held_back, _beside[ident] = _beside[ident], _held_beside[ident]
        try:
            _raise_if_came()
            yield
        finally:
            _leave()
            _beside[ident] = held_back


def _is_held() -> bool:
    if _here():
        return getsignal(signal.SIGINT) is note
    return getattr(_beside.get(threading.get_ident()), "func", None) == _came_beside.add


def impatiently(make: Callable[[], T], instead: Callable[[], T]) -> T:
    """What `make` gives, where interrupts are held. One that comes when it has taken long ends it: then what
    `instead` gives."""
    if not (_here() and _is_held()):
        return make()
    begun = time.monotonic()

    def leave(signum: int, frame: object) -> None:
        if time.monotonic() - begun > PATIENCE_SECONDS:
            raise KeyboardInterrupt
        note(signum, frame)

    try:
        _kernel.swap_sigint(leave)
        made = make()
        _kernel.swap_sigint(note)
        return made
    except KeyboardInterrupt:
        _kernel.swap_sigint(note)
        return instead()
    except BaseException:
        _kernel.swap_sigint(note)
        raise


class Cancellation:
    """SIGINT while a cell awaits: KeyboardInterrupt at the place where it waits.

    While the cell's own code is on the stack the signal raises there; while the loop waits,
    or runs another task, it cancels the cell's task and `drive` turns that into
    KeyboardInterrupt inside the cell.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._requested = False
        #: The task was cancelled for it.
        self._cancelled = False
        self._begun = False
        self.task: asyncio.Task[Any] | None = None

    def install(self) -> None:
        """From now on SIGINT is for this cell."""
        if not _here():
            _beside[threading.get_ident()] = partial(self._interrupt_beside, threading.get_ident())
        else:
            signal.signal(signal.SIGINT, self._on_signal)
        if _take():
            self.cancel()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        import asyncio

        try:
            current = asyncio.current_task(self._loop)
        except RuntimeError:
            current = None
        if current is not None and (_in_cell(frame) if current is self.task else self._requested):
            # the cell's own code, or another task that has not let go since the last signal
            _handler(signum, frame)
        self.cancel()

    def _interrupt_beside(self, ident: int) -> None:
        import asyncio

        if asyncio.current_task(self._loop) is self.task and _in_cell(sys._current_frames().get(ident)):
            _raise_in(ident)
        else:
            self.cancel()

    def cancel(self) -> None:
        """Let KeyboardInterrupt be raised where the cell waits."""
        self._requested = True
        if self._begun and self.task is not None:
            self._loop.call_soon_threadsafe(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._requested and not self._cancelled and self.task is not None:  # not raised meanwhile
            self._cancelled = self.task.cancel()

    async def drive(self, cell: Coroutine[Any, Any, Any]) -> Any:
        """Step `cell`; a cancellation that a signal caused reaches it as KeyboardInterrupt."""
        self._begun = True
        return await self._step(cell)

    @types.coroutine
    def _step(self, cell: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        import asyncio

        send, argument = cell.send, None
        while True:
            try:
                waited_for = send(argument)
            except StopIteration as end:
                return end.value
            try:
                if self._requested:  # before the cell had begun
                    raise asyncio.CancelledError
                argument = yield waited_for
                send = cell.send
            except asyncio.CancelledError as cancelled:
                send, argument = cell.throw, cancelled
                if self._requested:
                    self._requested = False
                    argument = KeyboardInterrupt()
                    if self._cancelled and self.task is not None:
                        self._cancelled = False
                        self.task.uncancel()
            except BaseException as failure:  # noqa: BLE001
                send, argument = cell.throw, failure
