"""IPython's history in SQLite, opened and written by its own thread.

No start and no cell waits for the file system: the database is opened while the shell is being
made, and inputs are written in batches. A home directory where locking stalls costs the history
of this session, not the kernel.
"""

from __future__ import annotations

import threading
from typing import Any

from IPython.core.history import HistoryManager, HistorySavingThread
from traitlets import observe

BATCH_SECONDS = 0.5
OPEN_SECONDS = 1.0


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


class OpeningThread(HistorySavingThread):
    """Opens the database, then writes what comes."""

    def run(self) -> None:
        manager = self.history_manager()
        if manager is not None:
            manager.open()  # type: ignore[attr-defined]
        del manager
        super().run()

    def stop(self) -> None:
        """End the thread; what it was gathering is written at once."""
        if isinstance(self.save_flag, BatchedFlag):
            self.save_flag.hurry()
        super().stop()


class BatchedHistoryManager(HistoryManager):
    """IPython's manager; what differs is which thread touches the file, and when."""

    def __init__(self, shell: Any, config: Any = None, **traits: Any) -> None:
        self._opened = threading.Event()
        self._opens_later = False
        self._given_up = False
        self._storing = threading.Lock()
        super().__init__(shell=shell, config=config, **traits)
        if self._opens_later:
            self.enabled = True
            self.using_thread = True
            self.save_thread = OpeningThread(self)
            self.save_thread.start()
        else:
            self._opened.set()

    def init_db(self) -> Any:
        """The first time: nothing yet, the thread does it."""
        if not self._opens_later and self.enabled and str(self.hist_file) != ":memory:":
            self._opens_later = True
            self.enabled = False
        return super().init_db()

    def open(self) -> None:
        """Open the database and begin a session in it. Runs on the saving thread."""
        try:
            self.init_db()
            self.new_session()
        except Exception as failure:  # noqa: BLE001  SQLite, the file system, a full disk
            self.log.warning("history is not saved: %s (%s)", failure, self.hist_file)
            self._switch_to_memory_history()
        finally:
            self._opened.set()
        if self.db_input_cache and self.save_flag is not None:
            self.save_flag.set()

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """As IPython's, and `In[n]` is the cell with number n also when shells run at once."""
        with self._storing:
            lists = (self.input_hist_parsed, self.input_hist_raw)
            before = len(lists[0])
            super().store_inputs(line_num, source, source_raw)
            if len(lists[0]) == before or line_num == before:
                return
            for inputs in lists:
                if line_num > before:
                    inputs[before:] = [""] * (line_num - before) + inputs[before:]
                elif not inputs[line_num]:
                    inputs[line_num] = inputs.pop()

    def _ready(self) -> bool:
        """Wait a moment for the database, once."""
        if not self._opened.is_set() and not self._given_up and not self._opened.wait(OPEN_SECONDS):
            self._given_up = True
            self.log.warning("history is not there yet: %s cannot be opened or locked", self.hist_file)
        return self._opened.is_set()

    @observe("save_thread")
    def _use_batches(self, change: Any) -> None:
        thread = change["new"]
        if thread is not None:
            thread.save_flag = BatchedFlag()

    def _stop_save_thread(self) -> None:
        if self.save_thread is not None and not self._opened.is_set():
            return  # it cannot be waited for
        super()._stop_save_thread()

    # -- what needs the database --------------------------------------------------

    def get_tail(self, *args: Any, **kwargs: Any) -> Any:
        self._ready()
        return super().get_tail(*args, **kwargs)

    def search(self, *args: Any, **kwargs: Any) -> Any:
        self._ready()
        return super().search(*args, **kwargs)

    def get_range(self, *args: Any, **kwargs: Any) -> Any:
        self._ready()
        return super().get_range(*args, **kwargs)

    def get_session_info(self, *args: Any, **kwargs: Any) -> Any:
        self._ready()
        return super().get_session_info(*args, **kwargs)

    def writeout_cache(self, conn: Any = None) -> Any:
        return super().writeout_cache(conn) if self._ready() else None

    def end_session(self) -> None:
        if self._ready():
            super().end_session()


BatchedHistoryManager.__name__ = BatchedHistoryManager.__qualname__ = "HistoryManager"
