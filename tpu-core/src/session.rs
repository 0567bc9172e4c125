//! What this process did with its chip: bytes, programs, launches, transfers, failures.
//!
//! One session a process, alive from the first PJRT client until exit. The plug-in side writes
//! here without allocating on the launch path; the C table reads. Knows nothing of PJRT handles.

mod activity;
mod allocation;
mod by_cell;
mod cells;
mod clock;
mod identity;
mod journal;
mod ongoing;
mod pending;
mod programs;
mod residency;
mod window;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

pub use activity::Activity;
pub use allocation::{Hold, Promise, Share};
pub use by_cell::CellMemory;
pub use cells::{CellId, Cells};
pub use clock::{now_ns, unix_ns};
pub use identity::{Generation, Identity};
pub use journal::{Event, EventKind, Journal, Record};
pub use ongoing::{Compiling, Ongoing};
pub use pending::{Open, Pending, Ticket};
pub use programs::{Arrival, Memory, Program, Programs, Stage, Usage, Watcher};
pub use residency::{Holdings, Place, PlaceMemory, Residency, Shortage};
pub use window::{Cancelled, Cost, Room, Window};

use crate::api::Snapshot;

/// The session of this process.
pub static SESSION: Session = Session::new();

/// Everything known about the runtime of this process.
pub struct Session {
    pub residency: Residency,
    pub activity: Activity,
    pub pending: Pending,
    pub window: Window,
    pub compiling: Compiling,
    pub journal: Journal,
    pub programs: Programs,
    pub cells: Cells,
    identity: OnceLock<Identity>,
    alive: AtomicBool,
}

/// Gives a ticket back.
struct Ended<'a>(&'a Pending, Ticket);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.complete(self.1);
    }
}

/// A piece of device work from its start to its end.
pub struct Work {
    pub kind: EventKind,
    pub cell: CellId,
    pub started_ns: u64,
    pub bytes: u64,
    pub program: u64,
    pub name: Option<std::sync::Arc<str>>,
    pub ticket: Ticket,
    /// A launch's place in the window, given back with the work.
    pub room: Option<Room>,
}

impl Session {
    const fn new() -> Self {
        Self {
            residency: Residency::new(),
            activity: Activity::new(),
            pending: Pending::new(),
            window: Window::new(),
            compiling: Compiling::new(),
            journal: Journal::new(),
            programs: Programs::new(),
            cells: Cells::new(),
            identity: OnceLock::new(),
            alive: AtomicBool::new(false),
        }
    }

    /// A client with these devices exists: from now on there is a snapshot.
    pub fn begin(&self, identity: Identity, devices: &[i32]) {
        self.residency.open(devices);
        self.residency.set_default_limit(identity.hbm_bytes);
        let _ = self.identity.set(identity);
        self.alive.store(true, Ordering::Release);
    }

    pub fn identity(&self) -> Option<&Identity> {
        self.identity.get()
    }

    /// Stamp what starts from now on with this cell, and begin its own peak.
    pub fn enter_cell(&self, name: &str) {
        self.cells.enter(name);
        self.residency.begin_cell();
    }

    /// Start of work that ends later. Stamps it with the cell that runs now.
    pub fn start(
        &self,
        kind: EventKind,
        bytes: u64,
        program: u64,
        name: Option<std::sync::Arc<str>>,
    ) -> Work {
        let started_ns = now_ns();
        let ticket = self.pending.issue(Open {
            kind,
            started_ns,
            bytes,
            name: name.clone(),
        });
        Work {
            kind,
            cell: self.cells.current(),
            started_ns,
            bytes,
            program,
            name,
            ticket,
            room: None,
        }
    }

    /// End of work, from whatever thread learnt of it.
    pub fn finish(&self, work: Work, failure: Option<(u32, &str)>) {
        // When all is written down, and should that fail, then too: who drains waits for it.
        let _ended = Ended(&self.pending, work.ticket);
        let ended_ns = now_ns();
        let mut ran_ns = 0;
        if work.kind == EventKind::Execute {
            ran_ns = self.activity.busy(work.started_ns, ended_ns);
            if let Some(room) = &work.room {
                room.learn(ran_ns);
            }
        }
        if let Some((code, message)) = failure {
            self.fail(work.cell, code, message, work.name.clone(), true);
        }
        self.journal.push(Record {
            kind: work.kind,
            cell: work.cell,
            started_ns: work.started_ns,
            duration_ns: ended_ns.saturating_sub(work.started_ns),
            held_ns: work.room.as_ref().map_or(0, Room::held_ns),
            ran_ns,
            bytes: work.bytes,
            program: work.program,
            name: work.name,
            ..Record::default()
        });
    }

    /// The work was refused before it began, or its call failed: nothing to wait for.
    pub fn abandon(&self, work: &Work) {
        self.pending.complete(work.ticket);
    }

    /// Count and keep a failure. `deferred`: whoever caused it has not been told by a return value
    /// on its own thread.
    pub fn fail(
        &self,
        cell: CellId,
        code: u32,
        message: &str,
        name: Option<std::sync::Arc<str>>,
        deferred: bool,
    ) {
        self.activity.errors.fetch_add(1, Ordering::Relaxed);
        self.journal.push(Record {
            kind: EventKind::Error,
            cell,
            started_ns: now_ns(),
            code,
            deferred,
            name,
            message: Some(message.into()),
            ..Record::default()
        });
    }

    /// Counters as of now, or `None` while no client exists.
    pub fn snapshot(&self) -> Option<Snapshot> {
        if !self.alive.load(Ordering::Acquire) {
            return None;
        }
        // Before the count of failures, so that none that is not counted here comes before it.
        let next_sequence = self.journal.next_sequence();
        let mut snapshot = Snapshot::default();
        self.residency.describe(&mut snapshot);
        self.activity.describe(&mut snapshot);
        let (issued, pending) = self.pending.counts();
        snapshot.issued = issued;
        snapshot.pending = pending;
        snapshot.next_sequence = next_sequence;
        (snapshot.loaded_programs, snapshot.programs_run) = self.programs.counts();
        snapshot.emulated = self
            .identity()
            .is_some_and(|identity| identity.emulated)
            .into();
        Some(snapshot)
    }

    /// Events from `cursor` on, and the cursor that continues after them.
    pub fn events(&self, cursor: u64) -> (u64, Vec<Event>) {
        let (next, records) = self.journal.since(cursor);
        (next, self.cells.resolve(records))
    }

    /// Who has how much memory: devices, the host, and the cells that made it.
    pub fn holdings(&self) -> Holdings {
        self.residency.holdings(|cell| self.cells.name(cell))
    }

    /// Programs from `cursor` on, and the cursor that continues after them.
    pub fn programs(&self, cursor: u64) -> (u64, Vec<Program>) {
        self.programs.since(cursor, &self.cells)
    }

    /// What goes on now: compiles, and the oldest launch or transfer that has not ended.
    pub fn ongoing(&self) -> Vec<Ongoing> {
        let now = now_ns();
        let mut ongoing = self.compiling.list(now);
        ongoing.extend(self.pending.oldest().map(|open| Ongoing::of(&open, now)));
        ongoing
    }

    /// Wait until what was issued before the call has ended; false when `timeout` passed first.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.pending.wait(timeout)
    }
}

/// Lock that survives a panic of another holder: the data are counters, always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
