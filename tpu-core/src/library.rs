//! Shared libraries: opened and never closed.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Load the library at `path`, or say why that fails in the loader's words.
pub fn open(path: &Path) -> Result<*mut c_void, String> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a valid path; initialisers of the library run, as for every library.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: `dlerror` returns a string of this thread, or null.
    let reason = unsafe { libc::dlerror() };
    if reason.is_null() {
        return Err("unknown reason".into());
    }
    // SAFETY: not null, ends with a zero byte.
    let reason = unsafe { CStr::from_ptr(reason) };
    Err(reason.to_string_lossy().into_owned())
}

/// Where a symbol of a library is. A library that is null has none.
pub fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    if library.is_null() {
        return None;
    }
    // SAFETY: an open library and a string that ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}
