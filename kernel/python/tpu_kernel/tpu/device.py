"""The device as the kernel sees it around a cell: whether it is used, when it is done, what failed.

Work on a TPU is queued; a failure is known only when the work ends, and TorchTPU tells it only to
who reads the failed value. `before_cell` before a cell, `drain` after it and `take_errors` give each
cell its own time and its own failures. Nothing here imports torch: a kernel that never uses the
device pays a few microseconds a cell.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import deque
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from .. import bootstrap
from ..parent import PARENT
from ..threads import own

if TYPE_CHECKING:
    from .._kernel import Parent

#: Seconds between two looks for a signal while the device works.
_TICK = 0.05
#: Further failures of a cell that are told one by one.
_MOST_TOLD = 5
#: Exceptions of a cell that are remembered as told: a loop may catch a million.
_MOST_SAID = 1_000
#: TorchTPU's about a value whose input was lost, without why.
DERIVED = "in a failed state"


@dataclass(frozen=True)
class DeviceError:
    """A failure on the device that no exception in the cell has told."""

    code: str
    message: str
    cell_id: str
    #: Name of the program that failed, or "".
    program: str

    def exception(self) -> RuntimeError:
        """As PyTorch would raise it: `torch.OutOfMemoryError` where memory ran out. Who holds it is said of the
        one that is shown: to find out takes time, and a loop may have failed a thousand times."""
        if self.code == "RESOURCE_EXHAUSTED" and (torch := sys.modules.get("torch")):
            from ..memory.shortage import refusal

            said = refusal(self.message)
            return torch.OutOfMemoryError(f"{said}." if said else self.message)
        return RuntimeError(self.message)


class _State:
    """What is remembered from the start of a cell."""

    kernel: ModuleType | None = None
    attached = False
    cursor = 0
    errors = 0
    errors_before = 0  # as of the start of the cell
    #: The request of the last cell that has ended.
    ended: Parent | None = None
    #: What else may use the device while the cell runs, as of its start.
    suspects: ClassVar[dict[threading.Thread, Any]] = {}
    #: An interrupt left work of an ended cell on the device.
    leftover = False
    #: Text of exceptions that were told otherwise, as those the cell caught.
    said: ClassVar[deque[str]] = deque(maxlen=_MOST_SAID)
    #: Failures of events before this one were told too, by an exception that does not say which.
    told_until = 0


def _kernel() -> ModuleType | None:
    """The Rust half, attached to tpu-core; None where either is missing."""
    if not _State.attached:
        _State.attached = True
        try:
            from .. import _kernel as kernel
        except ImportError:
            return None
        if kernel.tpu_attach(str(bootstrap.library())):
            _State.kernel = kernel
            kernel.tpu_watch_compiles()
    return _State.kernel


def used() -> bool:
    """Whether this process has a device: TorchTPU is loaded and has made its client."""
    return (kernel := _kernel()) is not None and kernel.tpu_used()


def snapshot() -> dict[str, Any] | None:
    """Counters of the session (see `tpu_core::Snapshot`), or None while there is no device."""
    kernel = _kernel()
    return kernel.tpu_snapshot() if kernel else None


def identity() -> dict[str, Any] | None:
    """Who the device is (see `tpu_core::Identity`), or None while there is no device."""
    kernel = _kernel()
    return kernel.tpu_identity() if kernel else None


def holdings() -> dict[str, Any]:
    """Memory by device and by the cell that made it (see `tpu_core::client::Holdings`)."""
    kernel = _kernel()
    return kernel.tpu_holdings() if kernel else {"places": [], "cells": []}


def ended_cell() -> Parent | None:
    """The request of the last cell that has ended: what is found out late is said there."""
    return _State.ended


def before_cell(cell_id: str) -> None:
    """A cell starts: device events are its own from here on."""
    kernel = _kernel()
    if kernel is None:
        return
    if kernel.tpu_cancelling() or "tpu_kernel.tpu.cancelling" in sys.modules:
        from . import cancelling

        cancelling.tell()
    late = take_errors()
    if late:
        from . import failures

        failures.tell_late([error.message for error in late])
    if failed_here():
        from ..memory import lost

        lost.remember(_State.ended)
    _State.errors_before = (kernel.tpu_snapshot() or {"errors": 0})["errors"]
    kernel.tpu_set_cell(cell_id)
    _State.said.clear()
    _State.suspects = _others()
    if (compiles := _compiles()) is not None:
        compiles.begin(kernel.tpu_snapshot() or {"compiles": 0, "compile_ns": 0})


def failed_here() -> bool:
    """Something failed on the device since the cell began, read or not."""
    counters = snapshot()
    return counters is not None and counters["errors"] > _State.errors_before


def _compiles() -> ModuleType | None:
    """The module that follows what is compiled, where there is a kernel with cells."""
    if "tpu_kernel.cells.shell" not in sys.modules:
        return None
    from . import compiles

    return compiles


def _others() -> dict[threading.Thread, Any]:
    """Threads of earlier cells that may use the device."""
    if not used():
        return {}
    from . import failures

    return failures.others()


def drains() -> bool:
    """Whether a cell ends only when the device is done; `TPU_KERNEL_DRAIN=0` turns that off."""
    return os.environ.get("TPU_KERNEL_DRAIN") != "0"


def drain() -> BaseException | None:
    """Wait for what the cell queued on the device, without the GIL.

    KeyboardInterrupt is honoured at once: the wait goes on in a helper thread, whose work the
    next drain finds done or waits for. In fused mode this is a barrier, and what the flush of the
    recorded operations raised is returned.
    """
    kernel = _kernel()
    if kernel is None or not drains() or not kernel.tpu_used():
        return None
    # TorchTPU hands operations to a thread of its own, so even with nothing pending in tpu-core
    # there may be some on their way: only its own wait sees those.
    job = wait_apart()
    try:
        while not job.done.acquire(timeout=_TICK):
            pass
        # Interrupted work of an earlier cell may still run: each wait is short and looks for signals.
        while not kernel.tpu_drain(_TICK):
            pass
        return job.error
    except KeyboardInterrupt:
        if kernel.tpu_cancelling():
            return None
        _State.leftover = True
        raise KeyboardInterrupt("while waiting for the device; what was queued goes on there") from None


def after_cell(told: BaseException | None = None, code: str = "") -> None:
    """The end of a cell: `drain`, then raise the first failure that nobody was told.

    `told` is the exception the cell raised, if any; `code` the cell's text. Further failures are notes of
    the first. A second interrupt cancels what still waits for the device: what that cost is said, and the
    cell is interrupted. A failure that may be another cell's is said and not raised.
    """
    _State.ended = PARENT.get()
    leftover, _State.leftover = _State.leftover, False
    try:
        flushed = drain()
    finally:
        if (compiles := _compiles()) is not None:
            compiles.end()
    if _State.kernel is not None and _State.kernel.tpu_cancelling():
        from . import cancelling

        flushed = None
        cancelling.tell()
        if told is None:
            raise KeyboardInterrupt("while waiting for the device; what waited there was cancelled")
    errors = take_errors(told, flushed)
    found = [error.exception() for error in errors]
    if flushed is not None and not is_told(flushed, told):
        found.insert(0, flushed)  # type: ignore[arg-type]
    if not found:
        lost = sys.modules.get("tpu_kernel.memory.lost")
        if lost is not None and told is None and drains() and not leftover:
            lost.tell_derived(code)
        return None
    suspects = _State.suspects | _others()
    messages = [_first_line(error) for error in found]
    if suspects or leftover or not drains():
        from . import failures

        if not drains():
            return failures.tell_unknown(messages)
        if failures.tell(messages, suspects, code):
            return None
    raise _with_notes(found)


def _with_notes(found: list[RuntimeError]) -> RuntimeError:
    """The first failure, with the others as notes."""
    for other in found[1 : _MOST_TOLD + 1]:
        found[0].add_note(f"and then: {_first_line(other)}")
    if (more := len(found) - _MOST_TOLD - 1) > 0:
        found[0].add_note(f"and then {more:,} more")
    return found[0]


def cause_of(error: BaseException) -> BaseException:
    """The error itself; or, where TorchTPU only says that an input was lost, what failed in this cell."""
    told = getattr(error, "_tpu_explained", None)
    if told is not None or DERIVED not in str(error) or _State.suspects or _State.leftover:
        return told or error
    errors = take_errors(error)
    if not errors:
        return error
    from ..memory.shortage import explained

    cause = _with_notes([each.exception() for each in errors])
    cause.__traceback__ = error.__traceback__
    told = error._tpu_explained = explained(cause)  # type: ignore[attr-defined]
    return told


def thread_ended(owner: Parent | None) -> None:
    """A thread of the notebook ends. With no cell running, nobody else would tell what failed in it."""
    kernel = _State.kernel
    if kernel is None or kernel.running() is not None or kernel.stopping() or not drains() or not used():
        return
    drain()
    errors = take_errors()
    if errors:
        from . import failures

        failures.tell_late([error.message for error in errors], owner)


def caught() -> None:
    """An `except` of a cell holds an exception."""
    note(sys.exc_info()[1])


def note(error: BaseException | None) -> None:
    """An exception told somebody what failed: it is not said again."""
    if not isinstance(error, RuntimeError) or _State.kernel is None:
        return
    if DERIVED in str(error):
        counters = _State.kernel.tpu_snapshot()
        _State.told_until = counters["next_sequence"] if counters else 0
    else:
        _State.said.append(str(error))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def is_told(flushed: BaseException, told: BaseException | None) -> bool:
    """What the flush at the end of a cell raised is what the cell was told already."""
    from ..memory.shortage import refusal

    text = refusal(str(flushed)) or str(flushed)
    return any(text in said for said in [*_texts(told), *_State.said])


def take_errors(told: BaseException | None = None, flushed: BaseException | None = None) -> list[DeviceError]:
    """Failures since the last call that nobody was told, each once.

    `told` is the exception the cell raised, if any, `flushed` one that will be raised: what they contain
    is not said again, nor what the cell caught.
    """
    kernel = _kernel()
    counters = kernel.tpu_snapshot() if kernel else None
    if kernel is None or counters is None:
        return []
    if counters["errors"] == _State.errors:
        # an error is counted before its event is there, and the sequence was read before the count
        _State.cursor = counters["next_sequence"]
        return []
    _State.cursor, events = kernel.tpu_events(_State.cursor)
    said = [*_texts(told), *_texts(flushed), *_State.said]
    errors: list[DeviceError] = []
    for event in events:
        if event["kind"] != "error":
            continue
        _State.errors += 1
        if not event["deferred"]:
            continue
        message = event["message"]
        # TorchTPU writes the first letter small and leaves the full stop out
        if event["sequence"] < _State.told_until or any(message[1:].rstrip(".") in text for text in said):
            continue
        errors.append(DeviceError(event["code"], message, event["cell"], event.get("name", "")))
    return errors


def _texts(error: BaseException | None) -> list[str]:
    """Messages of an exception and of what caused it."""
    texts: list[str] = []
    while error is not None and len(texts) < 16:
        texts.append(str(error))
        error = error.__cause__ or error.__context__
    return texts


class _Job:
    """One wait for the device."""

    def __init__(self) -> None:
        self.done = threading.Lock()
        self.done.acquire()
        self.error: BaseException | None = None


class _Waiter(threading.Thread):
    """Waits for the device so that the main thread can be interrupted meanwhile."""

    def __init__(self) -> None:
        super().__init__(name="tpu-drain", daemon=True)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.process = os.getpid()
        own(self)
        self.start()

    def submit(self) -> _Job:
        job = _Job()
        self._jobs.put(job)
        return job

    def run(self) -> None:
        import torch

        while True:
            job = self._jobs.get()
            try:
                torch.accelerator.synchronize()
            except BaseException as error:  # noqa: BLE001  it is raised on the main thread
                job.error = error.with_traceback(None)
            job.done.release()
            # A kept exception would hold tensors, and with them HBM, until the next cell.
            del job


_current: _Waiter | None = None


def wait_apart() -> _Job:
    """Have another thread wait until TorchTPU has nothing left to do."""
    return _waiter().submit()


def _waiter() -> _Waiter:
    global _current
    if _current is None or not _current.is_alive() or _current.process != os.getpid():
        _current = _Waiter()
    return _current
