//! The main shell and the subshells as their Python threads see them.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tpu_kernel::{Service, Subshell};

use crate::requests::Request;
use crate::shared::kernel;

/// `None` is the main shell.
#[pyclass(frozen, module = "tpu_kernel._kernel")]
pub struct Shell(pub Option<Arc<Subshell>>);

#[pymethods]
impl Shell {
    #[getter]
    fn subshell_id(&self) -> Option<&str> {
        self.0.as_ref().map(|subshell| subshell.id.as_str())
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(match &self.0 {
            Some(subshell) => subshell.queue.fd(),
            None => kernel()?.main.fd(),
        })
    }

    fn next(&self) -> PyResult<Option<Request>> {
        let kernel = kernel()?;
        let request = match &self.0 {
            Some(subshell) => kernel.next_of(subshell),
            None => kernel.next_main(),
        };
        Ok(request.map(|request| Request(Service::Answer(request))))
    }

    #[pyo3(signature = (*, rest=false))]
    fn next_comm(&self, rest: bool) -> PyResult<Option<Request>> {
        let request = kernel()?.next_comm(self.0.as_deref(), rest);
        Ok(request.map(|request| Request(Service::Answer(request))))
    }

    fn wake(&self) -> PyResult<()> {
        match &self.0 {
            Some(subshell) => subshell.queue.wake(),
            None => kernel()?.main.wake(),
        }
        Ok(())
    }

    fn ended(&self) -> PyResult<bool> {
        let over = self.0.as_ref().is_some_and(|subshell| subshell.is_over());
        Ok(over || kernel()?.is_stopping())
    }
}

#[pyfunction]
pub fn main_shell() -> Shell {
    Shell(None)
}

#[pyfunction]
pub fn subshell_ids() -> PyResult<Vec<String>> {
    Ok(kernel()?.subshells.ids())
}

#[pyfunction]
pub fn raise_in_thread(_py: Python<'_>, ident: std::ffi::c_ulong) {
    // SAFETY: attached; a thread that does not exist is no error, and the exception lives as long as
    // the interpreter.
    unsafe {
        let failure = pyo3::ffi::PyExc_KeyboardInterrupt;
        pyo3::ffi::PyThreadState_SetAsyncExc(ident.cast_signed(), failure);
    }
}

/// How often a handler may raise while it is being replaced.
const MOST_RAISED: usize = 100;

#[pyfunction]
pub fn swap_sigint(py: Python<'_>, handler: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    static SIGNAL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let set = SIGNAL.import(py, "_signal", "signal")?;
    for raised in 0..MOST_RAISED {
        match set.call1((libc::SIGINT, handler)) {
            Ok(before) => {
                // What the handler before raised here was an interrupt: it is the new one's.
                if raised > 0 && handler.is_callable() {
                    handler.call1((libc::SIGINT, py.None()))?;
                }
                return Ok(before.unbind());
            }
            // Not the main thread: its handlers are none of this one's business.
            Err(fault) if fault.is_instance_of::<PyValueError>(py) => break,
            Err(_) => {}
        }
    }
    Ok(py.None())
}
