//! The launcher's door: the launcher has loaded libpython and this library; Python starts here.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write;
use std::path::Path;

use crate::shared::start_kernel;

/// Bind the sockets, then be `python -m tpu_kernel -f CONNECTION`.
///
/// `arguments` holds two strings: the environment's Python and the connection file. Returns the
/// process's exit code. Reasons for failure go to stderr in one line.
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
        let (python, connection) = unsafe {
            (
                CStr::from_ptr(*arguments),
                CStr::from_ptr(*arguments.add(1)),
            )
        };
        main(python, connection)
    });
    run.unwrap_or(70)
}

fn main(python: &CStr, connection: &CStr) -> c_int {
    let path = connection.to_string_lossy();
    if let Err(error) = start_kernel(Path::new(path.as_ref())) {
        return fail(&error.to_string());
    }
    let arguments = [python, c"-m", c"tpu_kernel", c"-f", connection].map(CString::from);
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    // SAFETY: what `python`'s own `main` does: a NULL-terminated array that outlives the call.
    unsafe { pyo3::ffi::Py_BytesMain(arguments.len() as c_int, pointers.as_mut_ptr()) }
}

fn fail(reason: &str) -> c_int {
    let _ = writeln!(std::io::stderr(), "tpu-kernel: {reason}");
    1
}
