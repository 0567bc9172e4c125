//! What runs in the thread that crashed. Everything here is async-signal-safe: atomics and system
//! calls, no allocation, no lock.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::process;
use crate::request::Signal;

const SIGNALS: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
];

/// How long the thread that crashed waits for the report to be sent: where all processors are taken,
/// the io thread may begin late.
const WAIT_MILLISECONDS: libc::c_int = 5_000;
/// Where the handler runs on the main thread: its own stack may be what overflowed.
const STACK_BYTES: usize = 128 << 10;
/// A fault so near the stack pointer is an overflow of the stack.
const NEAR_STACK: u64 = 256 << 10;

/// A crash that waits to be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    pub signal: libc::c_int,
    /// Of the access that failed.
    pub address: Option<u64>,
    /// The process that sent the signal, where one did.
    pub sender: Option<i32>,
    /// The stack was full.
    pub overflow: bool,
    /// Name of the thread; empty when it is the process's own.
    pub thread: String,
}

struct Events {
    crashed: Signal,
    reported: Signal,
}

static EVENTS: OnceLock<Events> = OnceLock::new();
static CRASHED_FD: AtomicI32 = AtomicI32::new(-1);
static REPORTED_FD: AtomicI32 = AtomicI32::new(-1);
static IO_THREAD: AtomicI32 = AtomicI32::new(0);

static THREAD: AtomicI32 = AtomicI32::new(0);
static ENTRIES: AtomicI32 = AtomicI32::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static HAS_ADDRESS: AtomicBool = AtomicBool::new(false);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);
static STACK_POINTER: AtomicU64 = AtomicU64::new(0);

/// Handlers that were there when ours were put on top, in the order of `SIGNALS`.
static BELOW: [AtomicUsize; SIGNALS.len()] = [const { AtomicUsize::new(0) }; SIGNALS.len()];
static BELOW_TAKES_INFO: [AtomicBool; SIGNALS.len()] =
    [const { AtomicBool::new(false) }; SIGNALS.len()];

/// Install the handlers for the first time.
pub fn install() -> io::Result<()> {
    let events = Events {
        crashed: Signal::new()?,
        reported: Signal::new()?,
    };
    let events = EVENTS.get_or_init(|| events);
    CRASHED_FD.store(events.crashed.fd(), Ordering::Release);
    REPORTED_FD.store(events.reported.fd(), Ordering::Release);
    install_on_top()
}

/// Put our handlers above those that are there (faulthandler's), which are then called by ours. On
/// the main thread.
pub fn install_on_top() -> io::Result<()> {
    use_own_stack()?;
    for (index, &number) in SIGNALS.iter().enumerate() {
        // SAFETY: all zeros are a valid record; the handler lives as long as the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_crash as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(number, &raw const action, &raw mut before) < 0 {
                return Err(io::Error::last_os_error());
            }
            let ours = before.sa_sigaction == action.sa_sigaction;
            let is_none = matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
            if !ours {
                let takes_info = before.sa_flags & libc::SA_SIGINFO != 0;
                BELOW_TAKES_INFO[index].store(takes_info, Ordering::Release);
                let below = if is_none { 0 } else { before.sa_sigaction };
                BELOW[index].store(below, Ordering::Release);
            }
        }
    }
    Ok(())
}

/// Give the calling thread a stack for its signal handlers. Never freed.
fn use_own_stack() -> io::Result<()> {
    // SAFETY: a new anonymous mapping; the result is checked.
    let stack = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let stack = libc::stack_t {
        ss_sp: stack,
        ss_flags: 0,
        ss_size: STACK_BYTES,
    };
    // SAFETY: memory that stays mapped.
    if unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The calling thread is the one that reports. Gives what becomes readable at a crash.
pub fn on_this_thread() -> Option<&'static Signal> {
    IO_THREAD.store(thread_id(), Ordering::Release);
    EVENTS.get().map(|events| &events.crashed)
}

/// The crash that was signalled.
pub fn crash() -> Option<Crash> {
    let signal = SIGNAL.load(Ordering::Acquire);
    if signal == 0 {
        return None;
    }
    let address = HAS_ADDRESS
        .load(Ordering::Acquire)
        .then(|| ADDRESS.load(Ordering::Acquire));
    let sender = SENDER.load(Ordering::Acquire);
    let stack_pointer = STACK_POINTER.load(Ordering::Acquire);
    let thread = THREAD.load(Ordering::Acquire);
    let name = |of: &str| std::fs::read_to_string(format!("/proc/self/{of}comm")).ok();
    let own = name(&format!("task/{thread}/")).filter(|own| Some(own) != name("").as_ref());
    Some(Crash {
        signal,
        address,
        sender: (sender > 0).then_some(sender),
        overflow: signal == libc::SIGSEGV
            && stack_pointer != 0
            && address.is_some_and(|address| address.abs_diff(stack_pointer) < NEAR_STACK),
        thread: own.map_or_else(String::new, |name| name.trim().to_owned()),
    })
}

/// The report is sent: let the thread that crashed go on, to its end.
pub fn release() {
    if let Some(events) = EVENTS.get() {
        events.reported.set();
    }
}

fn thread_id() -> libc::c_int {
    // SAFETY: cannot fail.
    unsafe { libc::syscall(libc::SYS_gettid) as libc::c_int }
}

extern "C" fn on_crash(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let thread = thread_id();
    let in_kernel = process::is_kernel();
    if (!in_kernel && !process::is_forked_child()) || thread == IO_THREAD.load(Ordering::Acquire) {
        die(signal); // between `vfork` and `exec`, or the thread that would report
    }
    if THREAD
        .compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire)
        .is_err_and(|other| other != thread)
    {
        wait(WAIT_MILLISECONDS * 2); // another thread is at it, and ends the process
        die(signal);
    }
    match ENTRIES.fetch_add(1, Ordering::AcqRel) {
        0 => {
            describe(signal, info, context);
            // faulthandler writes the stack, then raises the signal again, which comes here.
            call_below(signal, info, context);
            report(signal, in_kernel);
        }
        1 => report(signal, in_kernel),
        _ => {}
    }
    die(signal);
}

/// Wake the io thread and wait until it has sent the report.
fn report(signal: libc::c_int, in_kernel: bool) {
    if !in_kernel {
        return;
    }
    SIGNAL.store(signal, Ordering::Release);
    let one = 1_u64;
    // SAFETY: eight bytes from a local.
    unsafe {
        let fd: RawFd = CRASHED_FD.load(Ordering::Acquire);
        libc::write(fd, (&raw const one).cast(), 8);
    }
    wait(WAIT_MILLISECONDS);
}

/// Keep what the first handler knows: a signal raised again knows it no more.
fn describe(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system gave both.
    unsafe {
        if let Some(info) = info.as_ref() {
            if info.si_code > 0 {
                if matches!(signal, libc::SIGSEGV | libc::SIGBUS) {
                    ADDRESS.store(info.si_addr() as u64, Ordering::Release);
                    HAS_ADDRESS.store(true, Ordering::Release);
                }
            } else if info.si_code == libc::SI_USER && info.si_pid() != libc::getpid() {
                SENDER.store(info.si_pid(), Ordering::Release);
            }
        }
        if let Some(context) = context.cast::<libc::ucontext_t>().as_ref() {
            STACK_POINTER.store(stack_pointer(context), Ordering::Release);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.sp
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn stack_pointer(_: &libc::ucontext_t) -> u64 {
    0
}

fn call_below(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(index) = SIGNALS.iter().position(|known| *known == signal) else {
        return;
    };
    let below = BELOW[index].load(Ordering::Acquire);
    if below == 0 {
        return;
    }
    // SAFETY: a handler that `sigaction` gave, called with what its flags say it takes.
    unsafe {
        if BELOW_TAKES_INFO[index].load(Ordering::Acquire) {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(below);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(below);
            handler(signal);
        }
    }
}

/// Wait until the report is sent, at most this long.
fn wait(milliseconds: libc::c_int) {
    let mut polled = libc::pollfd {
        fd: REPORTED_FD.load(Ordering::Acquire),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one initialised record.
    while unsafe { libc::poll(&raw mut polled, 1, milliseconds) } < 0 {
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return;
        }
    }
}

/// Die of `signal`, as if nobody had caught it.
fn die(signal: libc::c_int) -> ! {
    // SAFETY: async-signal-safe calls on locals; the last one does not return.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        let mut only: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id(), signal);
        libc::_exit(128 + signal)
    }
}
