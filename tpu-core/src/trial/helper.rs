//! The helper's side: compiles what stands on standard input and writes the machine code.

use std::io::{Read, Write};

use super::SURVIVED;
use crate::plugin;

/// Entry point of the helper for the program that loads this library.
#[unsafe(no_mangle)]
pub extern "C" fn tpu_core_compile() {
    let _ = std::panic::catch_unwind(|| {
        outlive_nobody();
        serve()
    });
}

/// The thread that started this process waits for it: when that ends, with the kernel, so does this
/// one, and it leaves no memory dump. An interrupt is for the cell.
fn outlive_nobody() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain calls that change only this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
    }
}

/// A program that the compiler refuses is no failure here: whoever asked gets that from it again.
fn serve() -> Option<()> {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).ok()?;
    let (size, rest) = input.split_first_chunk::<8>()?;
    let (code, options) =
        rest.split_at_checked(usize::try_from(u64::from_le_bytes(*size)).ok()?)?;
    let machine_code = plugin::machine_code(code, options).unwrap_or_default();
    let mut output = std::io::stdout().lock();
    output.write_all(&[SURVIVED]).ok()?;
    output.write_all(&machine_code).ok()?;
    output.flush().ok()
}
