//! When the main thread has looked for an interrupt that was sent to it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use tpu_kernel::{Kernel, process};

use crate::shared::kernel;

/// The question waits for the main thread: there is never more than one.
static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on what is interrupted is woken until it has felt it. Main thread.
pub fn install(kernel: &Kernel) {
    process::install_wakers();
    kernel.felt.ask_with(ask);
}

fn ask() {
    if ASKED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: needs neither the GIL nor a thread that Python knows; the function lives as long as the
    // process.
    let full = unsafe { pyo3::ffi::Py_AddPendingCall(Some(look), std::ptr::null_mut()) } < 0;
    if full {
        ASKED.store(false, Ordering::SeqCst);
    }
}

/// Python calls this on the main thread between two instructions, whatever SIGINT does there.
extern "C" fn look(_: *mut c_void) -> c_int {
    ASKED.store(false, Ordering::SeqCst);
    let Ok(kernel) = kernel() else {
        return 0;
    };
    let sent = kernel.felt.sent();
    // SAFETY: a signal that was sent to this thread is delivered at the latest when a system call
    // returns; then Python's flag is set, and its handler, which may raise, is called here.
    let raised = unsafe {
        libc::syscall(libc::SYS_getpid);
        pyo3::ffi::PyErr_CheckSignals()
    };
    kernel.felt.looked_for(sent);
    raised
}
