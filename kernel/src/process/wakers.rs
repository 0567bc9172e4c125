//! Signals that do nothing but end the system call a thread is in.
//!
//! SIGURG tells of urgent data on a socket, which a process asks for with `F_SETOWN` and hardly any
//! does; SIGWINCH that a terminal has another size, and a kernel has none. Neither the C library nor
//! Python uses them, and who does has to bear one without a cause. By default both are ignored: a
//! program that puts the default back is not ended by one, and a child that `exec` makes has it so.

use super::Thread;

const WAKERS: [libc::c_int; 2] = [libc::SIGURG, libc::SIGWINCH];

extern "C" fn nothing(_: libc::c_int) {}

/// What is done at `signal`; None where that cannot be told.
fn action(signal: libc::c_int) -> Option<libc::sighandler_t> {
    // SAFETY: only reads, into a local.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let known = libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0;
        known.then_some(now.sa_sigaction)
    }
}

/// Take those that nobody handles. On the thread that sets handlers, and once Python has begun: what
/// it found then is what it calls the default, and gives back to who had set another.
pub fn install_wakers() {
    for signal in WAKERS {
        if action(signal) != Some(libc::SIG_DFL) {
            continue;
        }
        // SAFETY: a handler that is async-signal-safe and lives for the whole process. No SA_RESTART:
        // the system call is to return.
        unsafe {
            let mut wake: libc::sigaction = std::mem::zeroed();
            wake.sa_sigaction = nothing as *const () as usize;
            libc::sigemptyset(&raw mut wake.sa_mask);
            libc::sigaction(signal, &raw const wake, std::ptr::null_mut());
        }
    }
}

impl Thread {
    /// End the system call it is in, with EINTR. Not where somebody else handles both signals.
    pub fn wake(self) {
        let ours = nothing as *const () as usize;
        if let Some(signal) = WAKERS.into_iter().find(|it| action(*it) == Some(ours)) {
            // SAFETY: the thread lives as long as the process.
            unsafe {
                libc::pthread_kill(self.0, signal);
            }
        }
    }
}
