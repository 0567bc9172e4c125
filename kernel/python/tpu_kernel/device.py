"""The device as the kernel sees it around a cell: whether it is used, when it is done, what failed.

Work on a TPU is queued; a failure is known only when the work ends, and TorchTPU tells it only to
who reads the failed value. `before_cell` before a cell, `drain` after it and `take_errors` give each
cell its own time and its own failures. Nothing here imports torch: a kernel that never uses the
device pays a few microseconds a cell.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import bootstrap
from .parent import PARENT
from .threads import own

if TYPE_CHECKING:
    from ._kernel import Parent

#: Seconds between two looks for a signal while the device works.
_TICK = 0.05


@dataclass(frozen=True)
class DeviceError:
    """A failure on the device that no exception in the cell has told."""

    code: str
    message: str
    cell_id: str
    #: Name of the program that failed, or "".
    program: str

    def exception(self) -> RuntimeError:
        """As PyTorch would raise it: `torch.OutOfMemoryError` where memory ran out."""
        if self.code == "RESOURCE_EXHAUSTED" and (torch := sys.modules.get("torch")):
            from .shortage import explained

            return explained(torch.OutOfMemoryError(self.message))  # type: ignore[return-value]
        return RuntimeError(self.message)


class _State:
    """What is remembered from the start of a cell."""

    kernel: ModuleType | None = None
    attached = False
    cursor = 0
    errors = 0
    #: The request of the last cell that has ended.
    ended: Parent | None = None


def _kernel() -> ModuleType | None:
    """The Rust half, attached to tpu-core; None where either is missing."""
    if not _State.attached:
        _State.attached = True
        try:
            from . import _kernel as kernel
        except ImportError:
            return None
        if kernel.tpu_attach(str(bootstrap.library())):
            _State.kernel = kernel
    return _State.kernel


def used() -> bool:
    """Whether this process has a device: TorchTPU is loaded and has made its client."""
    return snapshot() is not None


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
    if kernel.tpu_cancelling():
        from . import cancelling

        cancelling.tell()
    kernel.tpu_set_cell(cell_id)
    if counters := kernel.tpu_snapshot():
        _State.cursor = counters["next_sequence"]
        _State.errors = counters["errors"]


def drain() -> None:
    """Wait for what the cell queued on the device, without the GIL.

    KeyboardInterrupt is honoured at once: the wait goes on in a helper thread, whose work the
    next drain finds done or waits for. In fused mode this is a barrier, and it raises what the
    flush of the recorded operations raises. `TPU_KERNEL_DRAIN=0` turns it off.
    """
    kernel = _kernel()
    if kernel is None or os.environ.get("TPU_KERNEL_DRAIN") == "0" or kernel.tpu_snapshot() is None:
        return
    # TorchTPU hands operations to a thread of its own, so even with nothing pending in tpu-core
    # there may be some on their way: only its own wait sees those.
    job = wait_apart()
    try:
        while not job.done.acquire(timeout=_TICK):
            pass
        if job.error is not None and not kernel.tpu_cancelling():
            raise job.error
        # Interrupted work of an earlier cell may still run: each wait is short and looks for signals.
        while not kernel.tpu_drain(_TICK):
            pass
    except KeyboardInterrupt:
        if not kernel.tpu_cancelling():
            raise KeyboardInterrupt("while waiting for the device; what was queued goes on there") from None


def after_cell(told: BaseException | None = None) -> None:
    """The end of a cell: `drain`, then raise the first failure that nobody was told.

    `told` is the exception the cell raised, if any. Further failures are notes of the first. A second
    interrupt cancels what still waits for the device: what that cost is said, and the cell is interrupted.
    """
    _State.ended = PARENT.get()
    drain()
    if _State.kernel is not None and _State.kernel.tpu_cancelling():
        from . import cancelling

        cancelling.tell()
        if told is None:
            raise KeyboardInterrupt("while waiting for the device; what waited there was cancelled")
    errors = take_errors(told)
    if errors:
        failure = errors[0].exception()
        for error in errors[1:]:
            failure.add_note(f"and then: {error.message}")
        raise failure


def take_errors(told: BaseException | None = None) -> list[DeviceError]:
    """Failures since `before_cell` that nobody was told, each once.

    `told` is the exception the cell raised, if any: what its text contains is not said again.
    """
    kernel = _kernel()
    counters = kernel.tpu_snapshot() if kernel else None
    if kernel is None or counters is None or counters["errors"] == _State.errors:
        return []
    cursor, events = kernel.tpu_events(_State.cursor)
    _State.cursor, _State.errors = cursor, counters["errors"]
    said = _texts(told)
    errors: list[DeviceError] = []
    for event in events:
        if event["kind"] != "error" or not event["deferred"]:
            continue
        message = event["message"]
        if any(message[1:] in text for text in said):
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


def live_storages() -> int:
    """Bytes of the distinct device storages Python objects reach, for comparison with tpu-core.

    Walks every tensor the garbage collector knows, and the gradients behind them.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    storages: dict[int, int] = {}
    for found in gc.get_objects():
        if type(found) not in (torch.Tensor, torch.nn.Parameter):
            continue
        tensor: Any = found
        for each in (tensor, tensor.grad if tensor.is_leaf else None):
            if each is not None and each.device.type == "tpu":
                storage = each.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())
