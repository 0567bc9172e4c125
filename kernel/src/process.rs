//! This process and its children as the system sees them: signals, forks, descendants, the parent.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::request::Signal;

static FORKED: AtomicBool = AtomicBool::new(false);
static TERMINATED: OnceLock<Signal> = OnceLock::new();
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

extern "C" fn after_fork_in_child() {
    FORKED.store(true, Ordering::Relaxed);
    // A worker ended by its parent must die, not shut the kernel down.
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
    }
}

extern "C" fn on_sigterm(_: libc::c_int) {
    if !is_kernel() {
        // SAFETY: async-signal-safe; ends the child only.
        unsafe { libc::_exit(128 + libc::SIGTERM) }
    }
    if let Some(signal) = TERMINATED.get() {
        signal.set();
    }
}

/// Tell forks apart, and turn SIGTERM into a readable signal. Called once, before other threads.
pub fn install_handlers() -> io::Result<&'static Signal> {
    let signal = Signal::new()?;
    let terminated = TERMINATED.get_or_init(|| signal);
    // SAFETY: `getpid` cannot fail.
    KERNEL_PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    // SAFETY: handlers that are async-signal-safe and live for the whole process.
    unsafe {
        libc::pthread_atfork(None, None, Some(after_fork_in_child));
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigterm as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        if libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
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

/// Every process below this one, children before their own children.
pub fn descendants() -> Vec<i32> {
    // SAFETY: cannot fail.
    let mut found = children_of(unsafe { libc::getpid() });
    let mut next = 0;
    while next < found.len() {
        let below = children_of(found[next]);
        found.extend(below);
        next += 1;
    }
    found
}

fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Descendants, and processes that left the tree but not our session (`sleep 600 &`), which is
/// ours alone when the server started us as its leader.
pub fn own_processes() -> Vec<i32> {
    let mut found = descendants();
    // SAFETY: plain calls that cannot fail for the calling process.
    let (pid, session) = unsafe { (libc::getpid(), libc::getsid(0)) };
    if pid == session
        && let Ok(all) = fs::read_dir("/proc")
    {
        for other in all
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        {
            // SAFETY: asks about a number; a process that is gone gives -1.
            if other != pid && !found.contains(&other) && unsafe { libc::getsid(other) } == session
            {
                found.push(other);
            }
        }
    }
    found
}

/// Send `signal` to each of `processes`. One that is gone is no error.
pub fn send(processes: &[i32], signal: libc::c_int) {
    for &pid in processes {
        // SAFETY: a plain call; `pid` is positive, so it never means a group.
        unsafe {
            libc::kill(pid, signal);
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
