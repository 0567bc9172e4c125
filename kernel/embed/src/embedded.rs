//! The launcher's door: the launcher has loaded libpython and this library; Python starts here.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::shared::start_kernel;

/// Bind the sockets, then be `python -m tpu_kernel -f CONNECTION`.
///
/// `arguments` holds the environment's Python, the connection file, and settings for IPython.
/// Returns the process's exit code. Reasons for failure go to stderr in one line.
///
/// # Safety
///
/// `arguments` points to `count` pointers to NUL-terminated strings, and libpython is loaded with global
/// symbols.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpu_kernel_embedded_main(
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let run = std::panic::catch_unwind(|| {
        if count < 2 || arguments.is_null() {
            return fail(
                "it takes two arguments: the environment's Python and the connection file",
            );
        }
        // SAFETY: the caller's promise.
        let words: Vec<&CStr> = unsafe {
            std::slice::from_raw_parts(arguments, count as usize)
                .iter()
                .map(|word| CStr::from_ptr(*word))
                .collect()
        };
        main(words[0], words[1], &words[2..])
    });
    run.unwrap_or(70)
}

fn main(python: &CStr, connection: &CStr, settings: &[&CStr]) -> c_int {
    let path = Path::new(OsStr::from_bytes(connection.to_bytes()));
    if let Err(error) = start_kernel(path) {
        return fail(&error.to_string());
    }
    let words = [python, c"-m", c"tpu_kernel", c"-f", connection];
    let words: Vec<CString> = words
        .iter()
        .chain(settings)
        .map(|word| CString::from(*word))
        .collect();
    let mut pointers: Vec<*mut c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    // SAFETY: what `python`'s own `main` does: a NULL-terminated array that outlives the call.
    unsafe { pyo3::ffi::Py_BytesMain(words.len() as c_int, pointers.as_mut_ptr()) }
}

fn fail(reason: &str) -> c_int {
    let _ = writeln!(std::io::stderr(), "tpu-kernel: {reason}");
    1
}
