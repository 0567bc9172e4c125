//! What the live feed asks of Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::requests::Parent;
use crate::shared::kernel;

#[pyfunction]
pub fn feed_order() -> PyResult<Option<String>> {
    let kernel = kernel()?;
    Ok(kernel.feed.order(!kernel.main.has_waiting()))
}

#[pyfunction]
pub fn feed_answer(answer: &[u8]) -> PyResult<()> {
    let fault = |error: serde_json::Error| PyValueError::new_err(error.to_string());
    kernel()?.feed.answer(answer).map_err(fault)
}

#[pyfunction]
pub fn feed_comms() -> PyResult<Vec<String>> {
    Ok(kernel()?.feed.comms())
}

#[pyfunction]
pub fn feed_storm(text: &str) -> PyResult<()> {
    kernel()?.feed.note("storm", text);
    Ok(())
}

#[pyfunction]
pub fn feed_live(parent: &Parent) -> PyResult<()> {
    let kernel = kernel()?;
    kernel.feed.show_live(&parent.0, &kernel.outbox);
    Ok(())
}
