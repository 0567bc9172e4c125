//! This process as the system sees it: signals, forks, the main thread, the parent, the end. Its
//! children are in `family`, what wakes a thread in `wakers`.

mod family;
mod wakers;

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::request::Signal;
pub use family::{
    OWNER, adopt_orphans, alive, descendants, end_left_over, own_processes, reap, send,
};
pub use wakers::install_wakers;

static FORKED: AtomicBool = AtomicBool::new(false);
static TERMINATED: OnceLock<Signal> = OnceLock::new();
static TERMINATED_BY: AtomicI32 = AtomicI32::new(0);
/// One for each of the five sockets; -1 where there is none.
static CLOSED_IN_CHILDREN: [AtomicI32; 5] = [const { AtomicI32::new(-1) }; 5];
static KERNEL_PID: AtomicI32 = AtomicI32::new(0);

/// Is this a forked child, which has our memory but none of our threads?
pub fn is_forked_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Is this the kernel's own process, not a child that was forked or is about to `exec`?
/// Async-signal-safe.
pub fn is_kernel() -> bool {
    // SAFETY: `getpid` cannot fail.
    unsafe { libc::getpid() == KERNEL_PID.load(Ordering::Relaxed) }
}

/// A forked child must not hold this open: a port it listens on could not be bound again after the
/// kernel was killed. For descriptors that stay open as long as the process.
pub fn close_in_children(fd: RawFd) {
    if let Some(slot) = CLOSED_IN_CHILDREN
        .iter()
        .find(|slot| slot.load(Ordering::Relaxed) < 0)
    {
        slot.store(fd, Ordering::Relaxed);
    }
}

extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::Relaxed);
    for slot in &CLOSED_IN_CHILDREN {
        // Once: the child's own children fork too, and by then the number may be a file of its own.
        let fd = slot.swap(-1, Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: async-signal-safe; the child has none of the threads that use it.
            unsafe { libc::close(fd) };
        }
    }
    // A worker ended by its parent must die, not shut the kernel down.
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::signal(libc::SIGHUP, libc::SIG_DFL);
    }
}

extern "C" fn on_termination(signal: libc::c_int) {
    if !is_kernel() {
        // SAFETY: async-signal-safe; ends the child only.
        unsafe { libc::_exit(128 + signal) }
    }
    TERMINATED_BY.store(signal, Ordering::Release);
    if let Some(signal) = TERMINATED.get() {
        signal.set();
    }
}

/// The signal that asked this process to end; 0 when none did.
pub fn terminated_by() -> libc::c_int {
    TERMINATED_BY.load(Ordering::Acquire)
}

/// Tell forks apart, and make SIGTERM and SIGHUP readable. Called once, before other threads.
pub fn install_handlers() -> io::Result<&'static Signal> {
    let signal = Signal::new()?;
    let terminated = TERMINATED.get_or_init(|| signal);
    // SAFETY: `getpid` cannot fail.
    KERNEL_PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    // SAFETY: handlers that are async-signal-safe and live for the whole process.
    unsafe {
        libc::pthread_atfork(None, None, Some(after_fork_in_child));
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_termination as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut before) == 0
                && before.sa_sigaction == libc::SIG_IGN
            {
                continue; // `nohup`
            }
            if libc::sigaction(signal, &raw const action, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(terminated)
}

/// Block every signal on the calling thread; what it starts inherits that.
pub fn block_signals() {
    // SAFETY: plain calls on a local set.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// A thread that can be interrupted.
#[derive(Debug, Clone, Copy)]
pub struct Thread(libc::pthread_t);

impl Thread {
    pub fn current() -> Self {
        // SAFETY: cannot fail.
        Self(unsafe { libc::pthread_self() })
    }

    /// As the system's C library and faulthandler name it.
    pub fn id(self) -> u64 {
        self.0
    }

    /// Send SIGINT to exactly this thread, so that it is the one whose system call returns.
    ///
    /// The thread must still run; the kernel's main thread does until the process ends.
    pub fn interrupt(self) {
        // SAFETY: the thread lives as long as the process.
        unsafe {
            libc::pthread_kill(self.0, libc::SIGINT);
        }
    }
}

/// A descriptor that becomes readable when the process that started this kernel ends.
///
/// None when `JPY_PARENT_PID` is not set or is not our parent (another container, a wrapper).
/// An error when the parent is already gone.
pub fn watch_parent() -> io::Result<Option<OwnedFd>> {
    let Some(expected) = std::env::var("JPY_PARENT_PID")
        .ok()
        .and_then(|v| v.parse::<i32>().ok())
    else {
        return Ok(None);
    };
    // SAFETY: cannot fail.
    let parent = unsafe { libc::getppid() };
    if parent != expected {
        let orphaned = parent == 1 && !fs::exists(format!("/proc/{expected}"))?;
        return if orphaned {
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the process that started this kernel has ended",
            ))
        } else {
            Ok(None)
        };
    }
    // SAFETY: a plain system call; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made just now, belongs to no one else.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
}

/// End the process at once, without destructors or exit handlers.
pub fn end(code: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(code) }
}
