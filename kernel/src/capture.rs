//! File descriptors 1 and 2: what C code, subprocesses and forked children write. Owns the pipes
//! behind them and the originals; any thread may drain them, so that a cell's output is complete
//! and in order before its reply.
//!
//! A child keeps the pipes it inherited. So a cell that begins when an earlier one may have left a
//! child gets new pipes, and what still comes through the old ones belongs to the earlier cell.

mod children;
mod log;
mod pair;
mod watch;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use crate::lock::lock;
use crate::outbox::StreamName;
use crate::parent::Parent;
pub use pair::{Owner, Pair};
pub use watch::watch;

use children::Children;
use log::Log;

/// Pairs of pipes that children of earlier cells hold open. When there are this many, new cells
/// share pipes with the cell before.
const RETIRED_PAIRS: usize = 64;

/// The pipes and what stood in their place.
#[derive(Debug)]
pub struct Capture {
    /// Behind fd 1 and 2 now.
    current: Mutex<Arc<Pair>>,
    /// Held open by children of earlier cells.
    retired: Mutex<Vec<Arc<Pair>>>,
    originals: [Log; 2],
    children: Mutex<Children>,
    /// Something came through the pipes since this cell began.
    used: AtomicBool,
    /// Pairs the io thread is to watch.
    made: mpsc::UnboundedSender<Arc<Pair>>,
    unwatched: Mutex<Option<mpsc::UnboundedReceiver<Arc<Pair>>>>,
}

impl Capture {
    /// Put pipes in the place of fd 1 and 2 of this process.
    pub fn install() -> io::Result<Self> {
        let originals = [duplicate(1)?, duplicate(2)?];
        let (pair, writers) = Pair::new(Owner::Running)?;
        for (fd, writer) in (1..).zip(&writers) {
            put(writer, fd)?;
        }
        let (made, unwatched) = mpsc::unbounded_channel();
        let _ = made.send(Arc::clone(&pair));
        Ok(Self {
            current: Mutex::new(pair),
            retired: Mutex::default(),
            originals: originals.map(Log::new),
            children: Mutex::default(),
            used: AtomicBool::new(false),
            made,
            unwatched: Mutex::new(Some(unwatched)),
        })
    }

    /// Pairs to be watched, as they come. For the io thread, once.
    pub fn to_watch(&self) -> Option<mpsc::UnboundedReceiver<Arc<Pair>>> {
        lock(&self.unwatched).take()
    }

    /// What fd 1 or 2 was before: the log of the Jupyter server.
    pub fn original(&self, name: StreamName) -> BorrowedFd<'_> {
        self.originals[name.index()].as_fd()
    }

    /// Write to the server's log what it takes.
    pub fn log(&self, name: StreamName, text: &str) {
        self.originals[name.index()].write(text);
    }

    /// Hand what stands in the pipes of the running cell to `sink`; see [`Pair::drain`].
    pub fn drain(&self, complete: bool, sink: impl FnMut(StreamName, &Owner, &str)) -> usize {
        let pair = Arc::clone(&lock(&self.current));
        let taken = pair.drain(complete, sink);
        self.saw(taken);
        taken
    }

    /// So many bytes came through the pipes.
    fn saw(&self, taken: usize) {
        if taken > 0 {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Has the cell written below Python? Then it may do so again between any two prints.
    pub fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// As [`drain`](Self::drain), from the pipes kept for this request, if there are any.
    pub fn drain_of(
        &self,
        parent: &Parent,
        complete: bool,
        mut sink: impl FnMut(StreamName, &Owner, &str),
    ) {
        let of = |pair: &&Arc<Pair>| pair.is_of(parent);
        let pairs: Vec<_> = lock(&self.retired).iter().filter(of).cloned().collect();
        for pair in pairs {
            pair.drain(complete, &mut sink);
        }
    }

    /// As [`drain`](Self::drain), from the pipes of earlier cells too.
    pub fn drain_all(&self, mut sink: impl FnMut(StreamName, &Owner, &str)) {
        let retired = lock(&self.retired).clone();
        for pair in retired {
            pair.drain(true, &mut sink);
        }
        self.drain(true, sink);
    }

    /// A cell begins, after `last`. New pipes, if a child of an earlier cell may hold the present ones.
    pub fn begin_cell(
        &self,
        last: Option<&Arc<Parent>>,
        sink: impl FnMut(StreamName, &Owner, &str),
    ) {
        self.used.store(false, Ordering::Relaxed);
        if lock(&self.children).may_hold_pipes() && lock(&self.retired).len() < RETIRED_PAIRS {
            // Without new pipes the cell shares those there are.
            let _ = self.replace(last, sink);
        }
    }

    fn replace(
        &self,
        last: Option<&Arc<Parent>>,
        sink: impl FnMut(StreamName, &Owner, &str),
    ) -> io::Result<()> {
        let (fresh, writers) = Pair::new(Owner::Running)?;
        let mut current = lock(&self.current);
        let ours: Vec<_> = std::iter::once(&*current)
            .chain(lock(&self.retired).iter())
            .flat_map(|pair| pair.inodes)
            .collect();
        for (fd, writer) in (1..).zip(&writers) {
            // The notebook may have put a file there: it stays.
            if pair::inode(fd).is_ok_and(|inode| ours.contains(&inode)) {
                put(writer, fd)?;
            }
        }
        drop(writers);
        let old = std::mem::replace(&mut *current, Arc::clone(&fresh));
        if old.retire(Owner::Cell(last.cloned()), sink) {
            lock(&self.retired).push(old);
        }
        drop(current);
        let _ = self.made.send(fresh);
        Ok(())
    }

    /// Writing ends for a child that is started for `parent` while another cell runs.
    pub fn writers_for(&self, parent: &Arc<Parent>) -> io::Result<[OwnedFd; 2]> {
        let known = lock(&self.retired)
            .iter()
            .filter(|pair| pair.is_of(parent))
            .find_map(|pair| pair.writers());
        if let Some(writers) = known {
            return Ok(writers);
        }
        let (pair, writers) = Pair::new(Owner::Cell(Some(Arc::clone(parent))))?;
        lock(&self.retired).push(Arc::clone(&pair));
        let _ = self.made.send(pair);
        Ok(writers)
    }

    /// Nobody can write to this pair any more.
    pub fn forget(&self, ended: &Arc<Pair>) {
        lock(&self.retired).retain(|pair| !Arc::ptr_eq(pair, ended));
    }
}

/// Make `fd` another number for `writer`.
fn put(writer: &OwnedFd, fd: RawFd) -> io::Result<()> {
    // SAFETY: a plain call on a descriptor we own.
    pair::check(unsafe { libc::dup2(writer.as_raw_fd(), fd) }).map(drop)
}

/// What `fd` is now, under another number.
fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl on a number; the result is checked.
    let saved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if saved >= 0 {
        // SAFETY: a descriptor that was made just now and belongs to no one else.
        return Ok(unsafe { OwnedFd::from_raw_fd(saved) });
    }
    // It was closed: its log goes nowhere.
    Ok(File::options().write(true).open("/dev/null")?.into())
}
