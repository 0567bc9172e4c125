//! The one kernel of this process.

use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tpu_kernel::{Kernel, StartError, process};

static KERNEL: OnceLock<Arc<Kernel>> = OnceLock::new();

/// Bind the sockets and start the io thread, once in a process.
pub fn start_kernel(connection_file: &Path) -> Result<(), StartError> {
    if KERNEL.get().is_none() {
        // SAFETY: called once. A child that is forked while another thread allocates can allocate too.
        unsafe { dlmalloc::enable_alloc_after_fork() };
        let kernel = tpu_kernel::start(connection_file, &python_version())?;
        let _ = KERNEL.set(kernel);
    }
    Ok(())
}

/// Version of the interpreter that is loaded, running or not.
fn python_version() -> String {
    // SAFETY: may be called before Python is initialised; a static string.
    let text = unsafe { CStr::from_ptr(pyo3::ffi::Py_GetVersion()) }.to_string_lossy();
    text.split_whitespace().next().unwrap_or("3").to_owned()
}

/// The kernel, once started.
pub fn kernel() -> PyResult<&'static Arc<Kernel>> {
    KERNEL.get().ok_or_else(|| {
        PyRuntimeError::new_err("no kernel runs in this process: `_kernel.start` comes first")
    })
}

#[pyfunction]
pub fn start(py: Python<'_>, connection_file: &str) -> PyResult<()> {
    py.detach(|| start_kernel(Path::new(connection_file)))
        .map_err(|error| match error {
            StartError::Connection(_) => PyValueError::new_err(error.to_string()),
            _ => PyOSError::new_err(error.to_string()),
        })
}

#[pyfunction]
pub fn connection_file() -> PyResult<String> {
    Ok(kernel()?.connection.path.to_string_lossy().into_owned())
}

#[pyfunction]
pub fn owner() -> PyResult<(&'static str, String)> {
    let path = kernel()?.owner().to_string_lossy().into_owned();
    Ok((process::OWNER, path))
}

#[pyfunction]
pub fn session_id() -> PyResult<String> {
    Ok(kernel()?.session_id.clone())
}
