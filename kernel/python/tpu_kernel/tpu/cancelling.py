"""What waited for the device is cancelled by a second interrupt: when that is over, and what is lost by it.

tpu-core then refuses every launch, until here all that TorchTPU had queued has been refused and what
the device had begun has ended. A tensor that was to be computed is lost: reading it raises.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from types import TracebackType

from .. import _kernel
from ..parent import PARENT
from . import device

#: What tpu-core answers to a launch it refuses.
REFUSED = "cancelled by an interrupt before it ran on the device"
#: A further interrupt is obeyed when what the device has begun goes on for longer.
_PATIENCE = 2.0
_TICK = 0.05
_finishing = threading.Lock()


def tell() -> None:
    """Wait for the end of a cancellation, launch again, and say on stderr, under the last cell, what is lost.

    A cell that begins meanwhile waits for it: what it computes is not refused, and names are as they were.
    """
    with _finishing:
        if not _kernel.tpu_cancelling():
            return
        _settle()
        if _kernel.tpu_resume():
            token = PARENT.set(device.ended_cell())
            try:
                print(_report(), file=sys.stderr)
            finally:
                PARENT.reset(token)


def as_interrupt(
    error: BaseException, trace: TracebackType | None
) -> tuple[BaseException, TracebackType | None]:
    """The error itself; or the interrupt it is, where TorchTPU raised it for a launch that was cancelled.

    The signal is felt a moment later, by whoever deals with that error: the place is the error's.
    """
    felt = isinstance(error, KeyboardInterrupt)
    refusal: BaseException | None = error.__context__ if felt else error
    while felt and isinstance(refusal, KeyboardInterrupt):  # felt twice
        refusal = refusal.__context__
    cancelling = _kernel.tpu_cancelling()
    said = str(refusal) if isinstance(refusal, RuntimeError) else ""
    # later reads of what was lost stay errors; what depends on it says only that an input was lost
    if not (REFUSED[1:] in said and (felt or cancelling)) and not (device.DERIVED in said and cancelling):
        return error, trace
    interrupt = error if felt else KeyboardInterrupt()
    interrupt.__context__ = None
    if not felt:
        error._tpu_explained = interrupt  # type: ignore[attr-defined]
    return interrupt, refusal.__traceback__ if refusal is not None else trace


def _settle() -> None:
    begun = time.monotonic()
    job = device.wait_apart()
    for is_over in (partial(job.done.acquire, timeout=_TICK), partial(_kernel.tpu_drain, _TICK)):
        over = False
        while not over:
            try:
                over = is_over()
            except KeyboardInterrupt:
                # the one that began this, or an impatient further one
                if time.monotonic() - begun > _PATIENCE:
                    raise


def _report() -> str:
    from ..memory import holders, lost, shortage

    counters = device.snapshot()
    live = counters["live_bytes"] if counters else 0
    names = lost.words(holders.table(shortage.namespace(), live, failures=True).lost)
    what = f"{names}: compute them again" if names else "nothing the notebook has a name for"
    return f"The interrupt cancelled what waited for the device. Lost: {what}."
