//! When this process is about to die of a signal: the notebook is told first, with the Python
//! stack and the last lines of the log, and then the process dies of that same signal.
//!
//! Three parts, in the order of a crash: `handler` runs in the thread that crashed and does only
//! what is safe there; the stack is written by Python's own faulthandler into a file in memory,
//! which `stack` reads; the io thread makes the report and sends it while the handler waits.
//!
//! Not reported, because nothing of ours runs then: SIGKILL (the system is out of memory), `_exit`
//! from C code, a crash of the io thread, and an overflow of the stack of a thread other than main.

mod handler;
mod log_tail;
mod report;
mod stack;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

use crate::kernel::Kernel;
use crate::process;
pub use handler::{Crash, install_on_top};
pub use log_tail::LogTail;

/// What the last messages may take. The crashed thread waits longer, from a little earlier on.
const FLUSH: Duration = Duration::from_millis(1_500);
/// What has reached our sockets by the crash is read and answered in this time.
const LISTEN: Duration = Duration::from_millis(100);
/// faulthandler writes less than this.
const STACK_BYTES: usize = 256 << 10;

/// Where faulthandler writes.
static STACK: OnceLock<File> = OnceLock::new();
/// Where the notebook's own `faulthandler.enable` wants it; -1 when it was not called.
static COPY: AtomicI32 = AtomicI32::new(-1);

/// Catch the signals of a crash. Called once, on the main thread, before Python starts.
pub fn install() -> io::Result<()> {
    // SAFETY: a name that ends with a zero byte; the result is checked.
    let fd = unsafe { libc::memfd_create(c"tpu-kernel-stack".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made just now, belongs to no one else.
    let _ = STACK.set(File::from(unsafe { OwnedFd::from_raw_fd(fd) }));
    handler::install()
}

/// The descriptor that faulthandler is to write to.
pub fn stack_fd() -> Option<RawFd> {
    STACK.get().map(AsRawFd::as_raw_fd)
}

/// The notebook wants the stack in this descriptor too; -1 for no more.
pub fn copy_to(fd: RawFd) {
    COPY.store(fd, Ordering::Release);
}

/// Report a crash, if there is one. Runs on the io thread.
pub async fn watch<F: Future<Output = ()>>(kernel: Arc<Kernel>, flush: impl FnOnce(Instant) -> F) {
    let Some(event) = handler::on_this_thread().and_then(|event| event.duplicate().ok()) else {
        return;
    };
    // SAFETY: the descriptor is owned and open until the watcher is dropped.
    let watched = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) };
    let Ok(watched) = watched else {
        return;
    };
    if watched.readable().await.is_err() {
        return;
    }
    let Some(crash) = handler::crash() else {
        return;
    };
    let deadline = Instant::now() + FLUSH;
    kernel.drain_capture(true);
    let dump = read_stack();
    let cell = kernel.running_cell();
    let log = kernel.log_tail.lines();
    let lines = report::lines(&crash, cell, &dump, kernel.main_thread.id(), &log);
    kernel.announce_crash(report::name(crash.signal), &lines);
    let listen = Instant::now() + LISTEN;
    while Instant::now() < listen || (!kernel.outbox.is_empty() && Instant::now() < deadline) {
        kernel.outbox.hurry();
        sleep(Duration::from_millis(1)).await;
    }
    flush(deadline).await;
    process::send(&process::own_processes(kernel.owner()), libc::SIGTERM);
    handler::release();
}

/// What faulthandler wrote, also copied to where the notebook wants it.
fn read_stack() -> String {
    let Some(file) = STACK.get() else {
        return String::new();
    };
    let mut bytes = vec![0; STACK_BYTES];
    let mut size = 0;
    while size < bytes.len() {
        match file.read_at(&mut bytes[size..], size as u64) {
            Ok(0) | Err(_) => break,
            Ok(count) => size += count,
        }
    }
    bytes.truncate(size);
    let copy = COPY.load(Ordering::Acquire);
    if copy >= 0 {
        // SAFETY: a number the notebook gave; if it is closed by now, the call fails.
        let duplicate = unsafe { libc::fcntl(copy, libc::F_DUPFD_CLOEXEC, 3) };
        if duplicate >= 0 {
            // SAFETY: made just now, belongs to no one else.
            let _ = File::from(unsafe { OwnedFd::from_raw_fd(duplicate) }).write_all(&bytes);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
