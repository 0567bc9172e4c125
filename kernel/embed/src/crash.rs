//! Python's faulthandler writes the stack for the report of a crash.

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use tpu_kernel::crash;

#[pyfunction]
pub fn crash_stack_fd() -> PyResult<i32> {
    crash::stack_fd().ok_or_else(|| PyOSError::new_err("crashes are not caught in this process"))
}

#[pyfunction]
pub fn crash_handlers_on_top() -> PyResult<()> {
    crash::install_on_top().map_err(PyOSError::new_err)
}

#[pyfunction]
pub fn crash_copy(fd: i32) {
    crash::copy_to(fd);
}
