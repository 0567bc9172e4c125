//! Requests on their way to Python: one queue for each shell, one for the service thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::lock::lock;
use crate::parent::{Channel, Parent};
use crate::subshells::Subshell;
use crate::wire::Message;

/// A request that Python answers.
#[derive(Debug)]
pub struct Request {
    pub channel: Channel,
    pub parent: Arc<Parent>,
    pub content: Bytes,
    pub metadata: Bytes,
    pub buffers: Vec<Bytes>,
    /// Where it runs; `None` is the main shell.
    pub subshell: Option<Arc<Subshell>>,
}

impl Request {
    /// A message, with what the session found out about it.
    pub fn of(
        message: Message,
        channel: Channel,
        allow_stdin: bool,
        subshell: Option<Arc<Subshell>>,
    ) -> Self {
        let subshell_id = subshell.as_ref().map(|subshell| subshell.id.clone());
        Self {
            channel,
            parent: Parent::of(&message, allow_stdin, subshell_id),
            content: message.content,
            metadata: message.metadata,
            buffers: message.buffers,
            subshell,
        }
    }
}

/// A counter that makes a file descriptor readable: how the io thread wakes an event loop.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain call; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: made just now, belongs to no one else.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// A duplicate for another poller.
    pub fn duplicate(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    pub fn set(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes from a local; a full counter is already readable.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), 8) };
    }

    pub fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes into a local.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), 8) };
    }

    /// Wait until it is set or a signal arrives, at most `patience`. True when it is set.
    pub fn wait(&self, patience: Duration) -> bool {
        let mut polled = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = patience.as_millis().min(60_000) as libc::c_int;
        // SAFETY: one initialised pollfd record.
        unsafe { libc::poll(&raw mut polled, 1, milliseconds) > 0 }
    }
}

/// What waits for the main shell or a subshell, in order of arrival.
#[derive(Debug)]
pub struct ShellQueue {
    waiting: Mutex<VecDeque<Request>>,
    signal: Signal,
}

impl ShellQueue {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::default(),
            signal: Signal::new()?,
        })
    }

    pub fn fd(&self) -> RawFd {
        self.signal.fd()
    }

    pub fn push(&self, request: Request) {
        lock(&self.waiting).push_back(request);
        self.signal.set();
    }

    /// Wake the shell's thread though nothing waits.
    pub fn wake(&self) {
        self.signal.set();
    }

    /// Something waits.
    pub fn has_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// The next request; an empty queue is not readable any more.
    pub fn pop(&self) -> Option<Request> {
        let mut waiting = lock(&self.waiting);
        let next = waiting.pop_front();
        if next.is_none() {
            self.signal.clear();
        }
        next
    }

    /// The first comm message that waits, whatever else waits before it. With none and `rest` the
    /// queue is not readable until something comes.
    pub fn pop_comm(&self, rest: bool) -> Option<Request> {
        let mut waiting = lock(&self.waiting);
        let comm = |request: &Request| {
            matches!(
                request.parent.msg_type.as_str(),
                "comm_open" | "comm_msg" | "comm_close"
            )
        };
        let index = waiting.iter().position(comm);
        if index.is_none() && rest {
            self.signal.clear();
        }
        waiting.remove(index?)
    }

    /// Take out every `execute_request`; others stay.
    pub fn take_executes(&self) -> Vec<Request> {
        let mut waiting = lock(&self.waiting);
        let (taken, kept) = waiting
            .drain(..)
            .partition(|r| r.parent.msg_type == "execute_request");
        *waiting = kept;
        Vec::from_iter::<VecDeque<Request>>(taken)
    }
}

/// What the service thread is asked to do.
#[derive(Debug)]
pub enum Service {
    Answer(Request),
    /// The main thread does not come back: run the exit handlers.
    Exit,
    /// An interrupt waits: say where the main thread is.
    Locate,
    /// Interrupt what the subshells run.
    Interrupt,
    /// What waited for the device was cancelled with no cell running: say what was lost.
    Cancelled,
    /// A program is being compiled for the device.
    Compiling,
    /// Start the thread of a new subshell.
    Start(Arc<Subshell>),
    /// A front end wants to debug: start the debugger, which connects to this port with this token.
    StartDebugger {
        port: u16,
        token: String,
    },
}

/// What waits for the service thread.
#[derive(Debug, Default)]
pub struct ServiceQueue {
    waiting: Mutex<VecDeque<Service>>,
    arrived: Condvar,
}

impl ServiceQueue {
    pub fn push(&self, service: Service) {
        lock(&self.waiting).push_back(service);
        self.arrived.notify_one();
    }

    /// Wait for the next, at most `patience`.
    pub fn pop(&self, patience: Duration) -> Option<Service> {
        let (mut waiting, _) = self
            .arrived
            .wait_timeout_while(lock(&self.waiting), patience, |waiting| waiting.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    }
}
