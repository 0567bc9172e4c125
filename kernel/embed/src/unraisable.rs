//! An interrupt that lands in a destructor or another callback nobody can raise out of: Python
//! would print it and go on with the cell. It is sent again, for the code around.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyType;
use tpu_kernel::process;

use crate::shared::kernel;

/// `sys.unraisablehook`. Not a Python function: its own next instruction would feel the interrupt.
#[pyfunction]
pub fn unraisable(py: Python<'_>, failure: &Bound<'_, PyAny>) -> PyResult<()> {
    let kind = failure.getattr("exc_type")?;
    let interrupted = kind.cast::<PyType>().is_ok_and(|kind| {
        kind.is_subclass_of::<PyKeyboardInterrupt>()
            .unwrap_or(false)
    });
    if interrupted && on_main_thread() {
        // SAFETY: the interpreter runs and is attached.
        unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        if !process::is_forked_child() {
            kernel()?.felt.begin();
        }
        return Ok(());
    }
    py.import("sys")?
        .call_method1("__unraisablehook__", (failure,))?;
    Ok(())
}

/// Signals are that thread's.
fn on_main_thread() -> bool {
    // SAFETY: plain system calls.
    unsafe { libc::gettid() == libc::getpid() }
}
