"""IPython's history in SQLite, written in batches so that no cell waits behind a commit."""

from __future__ import annotations

import threading
from typing import Any

from IPython.core.history import HistoryManager
from traitlets import observe

BATCH_SECONDS = 0.5


class BatchedFlag(threading.Event):
    """Wakes the saving thread half a second after the first input of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self._hurry = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        signaled = super().wait(timeout)
        self._hurry.wait(BATCH_SECONDS)
        return signaled

    def hurry(self) -> None:
        """Do not wait for the batch any more: the thread is to end."""
        self._hurry.set()


class BatchedHistoryManager(HistoryManager):
    """IPython's manager; only the moment of writing differs."""

    @observe("save_thread")
    def _use_batches(self, change: Any) -> None:
        thread = change["new"]
        if thread is not None:
            thread.save_flag = BatchedFlag()

    def _stop_save_thread(self) -> None:
        thread = self.save_thread
        if thread is not None and isinstance(thread.save_flag, BatchedFlag):
            thread.save_flag.hurry()
        super()._stop_save_thread()


BatchedHistoryManager.__name__ = BatchedHistoryManager.__qualname__ = "HistoryManager"
