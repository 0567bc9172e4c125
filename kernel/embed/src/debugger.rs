//! What Python's half of the debugger asks and tells.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tpu_kernel::debugger;

use crate::shared::kernel;

#[pyfunction]
pub fn cell_file(source: &str) -> PyResult<String> {
    Ok(kernel()?.debugger.cell_file(source))
}

#[pyfunction]
pub fn debugging() -> PyResult<bool> {
    Ok(kernel()?.debugger.is_active())
}

#[pyfunction]
pub fn debugger_started(rules: &[u8]) -> PyResult<()> {
    let rules = serde_json::from_slice(rules)
        .map_err(|error| PyValueError::new_err(format!("the rules are not JSON: {error}")))?;
    kernel()?.debugger.started(Ok(rules));
    Ok(())
}

#[pyfunction]
pub fn debugger_failed(reason: String) -> PyResult<()> {
    kernel()?.debugger.started(Err(reason));
    Ok(())
}

#[pyfunction]
pub fn hidden_variable(name: &str) -> bool {
    debugger::is_hidden(name)
}
