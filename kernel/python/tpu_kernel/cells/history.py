"""IPython's history in SQLite, touched by one thread of its own and by nobody else.

No start, no cell and no fork waits for the file system: the database is opened while the shell
is being made, inputs are written in batches, and what cannot be written is kept for the next
batch. A home directory where locking stalls or fails costs one warning in the server's log; the
history of the running session works in any case, for it is in memory.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from typing import Any

from IPython.core.history import HistoryManager, HistorySavingThread

from ..threads import own

BATCH_SECONDS = 0.5
#: What a reader, or the end of the kernel, waits for the thread.
PATIENCE_SECONDS = 0.5
#: A database that is not open by then is told of.
OPEN_SECONDS = 2.0
#: Until the next try when the file was locked or full.
RETRY_SECONDS = 3.0


class SavingThread(HistorySavingThread):
    """Opens the database, then writes what comes, as long as the shell lives."""

    def __init__(self, manager: BatchedHistoryManager) -> None:
        super().__init__(manager)
        self.hurry = threading.Event()
        self._progress = threading.Condition()
        self._asked = self._answered = 0

    def run(self) -> None:
        """Until `stop`; what was gathered by then is written first."""
        db = self._work("open", self)
        while db is not None and not self._stop_now:
            unsaved = self._work("unsaved")
            self.save_flag.wait(RETRY_SECONDS if unsaved else None)
            self.save_flag.clear()
            self.hurry.wait(BATCH_SECONDS)
            self.hurry.clear()
            asked = self._asked
            if self._work("save", db) is None:
                break
            with self._progress:
                self._answered = asked
                self._progress.notify_all()
        if db is not None:
            db.close()

    def _work(self, method: str, *args: Any) -> Any:
        """Call the manager without keeping it alive between calls; None when it is gone."""
        manager = self.history_manager()
        return getattr(manager, method)(*args) if manager is not None else None

    def flush(self, patience: float) -> bool:
        """Have everything written now; False when that takes longer."""
        with self._progress:
            self._asked += 1
            asked = self._asked
            self.hurry.set()
            self.save_flag.set()
            # one that is being written now may have begun before what the caller wants to be there
            return self._progress.wait_for(lambda: self._answered >= asked, patience)

    def stop(self) -> None:
        """End the thread, and wait for it as long as a stalled file system is worth."""
        self._stop_now = True
        self.hurry.set()
        self.save_flag.set()
        if self.is_alive() and self is not threading.current_thread():
            self.join(PATIENCE_SECONDS)


class BatchedHistoryManager(HistoryManager):
    """IPython's manager; what differs is which thread touches the file, and when."""

    def __init__(self, shell: Any, config: Any = None, **traits: Any) -> None:
        self._opened = threading.Event()
        self._opens_later = False
        self._warned = False
        self._begun = time.monotonic()
        self._storing = threading.Lock()
        self._ends: list[tuple[str, int, int]] = []
        super().__init__(shell=shell, config=config, **traits)
        if self._opens_later:
            self.enabled = self.using_thread = True
            self.save_thread = own(SavingThread(self))
            self.save_thread.start()
        else:
            self._opened.set()

    def init_db(self) -> Any:
        """The first time: nothing yet, the thread does it."""
        if not self._opens_later and self.enabled and str(self.hist_file) != ":memory:":
            self._opens_later = True
            self.enabled = False
        return super().init_db()

    def open(self, thread: SavingThread) -> Any:
        """A connection for writing, once there is one; None when there will be none."""
        import sqlite3

        while not thread._stop_now:
            try:
                with contextlib.closing(sqlite3.connect(str(self.hist_file), timeout=1.0)) as probe:
                    probe.execute("BEGIN IMMEDIATE")
                    probe.rollback()
            except sqlite3.OperationalError as failure:
                # IPython would take a lock for damage, and move the file away
                self._warn(failure)
                if "locked" not in str(failure):
                    self._turn_off()
                    return None
                thread.hurry.wait(RETRY_SECONDS)
                thread.hurry.clear()
                continue
            except sqlite3.DatabaseError:
                pass  # damaged: IPython keeps it under another name and begins a new one
            return self._open_writable()
        return None

    def _open_writable(self) -> Any:
        import sqlite3

        try:
            if not self._opened.is_set():  # else after a fork
                self.init_db()
                self.new_session()
                self._opened.set()
            if str(self.hist_file) == ":memory:":
                return None
            return sqlite3.connect(str(self.hist_file), **self.connection_options)
        except Exception as failure:  # noqa: BLE001  SQLite, the file system, a full disk
            self._warn(failure)
            self._turn_off()
            return None

    def _turn_off(self) -> None:
        self.using_thread = False
        self._switch_to_memory_history()
        self._opened.set()

    def _warn(self, failure: Exception | str) -> None:
        """Once: a warning with every cell helps nobody."""
        if not self._warned:
            self._warned = True
            self.log.warning("history is not saved: %s (%s)", failure, self.hist_file)

    def unsaved(self) -> bool:
        """Something was not written in the last batch."""
        return bool(self.db_input_cache or self.db_output_cache or self._ends)

    def save(self, db: Any) -> bool:
        """Write what has gathered; what cannot be written stays. The locks are not held meanwhile."""
        import sqlite3

        with self.db_input_cache_lock, self.db_output_cache_lock:
            inputs, self.db_input_cache = self.db_input_cache, []
            outputs, self.db_output_cache = self.db_output_cache, []
            ends, self._ends = self._ends, []
        try:
            try:
                self._insert(db, inputs, outputs)
            except sqlite3.IntegrityError:  # the session's number is another's: take a new one
                self.new_session(db)
                self._insert(db, inputs, outputs)
            inputs, outputs = [], []
            with db:
                db.executemany("UPDATE sessions SET end=?, num_cmds=? WHERE session==?", ends)
        except sqlite3.Error as failure:
            self._warn(failure)
            with self.db_input_cache_lock, self.db_output_cache_lock:
                self.db_input_cache[:0] = inputs
                self.db_output_cache[:0] = outputs
                self._ends[:0] = ends
            return False
        return True

    def _insert(self, db: Any, inputs: list[Any], outputs: list[Any]) -> None:
        number = self.session_number
        with db:
            db.executemany("INSERT INTO history VALUES (?, ?, ?, ?)", [(number, *line) for line in inputs])
            db.executemany(
                "INSERT INTO output_history VALUES (?, ?, ?)", [(number, *line) for line in outputs]
            )

    def _ready(self) -> bool:
        """The database is open, at most after a moment."""
        if self._opened.is_set() or self._opened.wait(PATIENCE_SECONDS):
            return True
        self._warn_if_late()
        return False

    def _warn_if_late(self) -> None:
        if not self._opened.is_set() and time.monotonic() - self._begun > OPEN_SECONDS:
            self._warn("the file system does not answer")

    def _stop_save_thread(self) -> None:
        """Before a fork, and at the end. One that waits for the file system cannot be waited for."""
        if self._opened.is_set():
            super()._stop_save_thread()

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """As IPython's, and `In[n]` is the cell with number n also when shells run at once."""
        self._warn_if_late()
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

    def _restart_thread_if_stopped(self) -> None:
        """A fork stops the thread."""
        if self.save_thread is None and self.using_thread:
            self.save_thread = SavingThread(self)
            self.save_thread.start()

    def writeout_cache(self, conn: Any = None) -> Any:
        """Have it written by the thread that writes."""
        if not self._ready():
            return None
        if not self.using_thread:
            return super().writeout_cache(conn)
        self._restart_thread_if_stopped()
        if isinstance(self.save_thread, SavingThread):
            self.save_thread.flush(PATIENCE_SECONDS)
        return None

    def end_session(self) -> None:
        """Note when the session ended, and write what is left."""
        if not self.using_thread:
            if self._opened.is_set():
                super().end_session()
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(" ")
        if not self._ready():  # a kernel that has just begun gets its number when the file is open
            return
        if self.session_number:
            self._ends.append((now, len(self.input_hist_parsed) - 1, self.session_number))
        self.writeout_cache()

    def get_tail(self, n: int | None = 10, raw: bool = True, output: bool = False, **options: Any) -> Any:
        if self._ready():
            return super().get_tail(n, raw, output, **options)
        return list(self._get_range_session(1, None, raw, output))[-(n or 10) :]

    def search(self, *args: Any, **kwargs: Any) -> Any:
        return super().search(*args, **kwargs) if self._ready() else []

    def get_range(self, session: int = 0, *args: Any, **kwargs: Any) -> Any:
        if session == 0:
            return self._get_range_session(*args, **kwargs)
        return super().get_range(session, *args, **kwargs) if self._ready() else []

    def get_session_info(self, *args: Any, **kwargs: Any) -> Any:
        return super().get_session_info(*args, **kwargs) if self._ready() else (0, None, None, None, "")


BatchedHistoryManager.__name__ = BatchedHistoryManager.__qualname__ = "HistoryManager"
