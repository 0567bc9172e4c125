//! The helper in which tpu-core compiles a program that could end its process: loads the library
//! that the kernel uses and hands over to it. Not for people.

use std::process::ExitCode;

use libloading::os::unix::{Library, Symbol};

use crate::error::Error;

/// Tells tpu-core which program this is.
pub const VARIABLE: &str = "TPU_KERNEL_COMPILER";
/// Path of `libtpu_core.so`, set by the bootstrap.
const LIBRARY_VARIABLE: &str = "TPU_KERNEL_CORE_LIBRARY";
const ENTRY: &[u8] = b"tpu_core_compile\0";

pub fn serve() -> Result<ExitCode, Error> {
    let path = std::env::var_os(LIBRARY_VARIABLE).unwrap_or_default();
    // SAFETY: the library the kernel itself runs on; its initialisers do nothing of note.
    let Ok(library) = (unsafe { Library::new(&path) }) else {
        return Ok(ExitCode::FAILURE);
    };
    // SAFETY: the library exports this symbol as a function without arguments or result.
    let entry: Result<Symbol<unsafe extern "C" fn()>, _> = unsafe { library.get(ENTRY) };
    let Ok(entry) = entry else {
        return Ok(ExitCode::FAILURE);
    };
    // SAFETY: see above. The library stays loaded until the process ends.
    unsafe { entry() };
    // At once: the plug-in's threads are not waited for.
    // SAFETY: ends the process, with nothing of ours left to write.
    unsafe { libc::_exit(0) }
}
