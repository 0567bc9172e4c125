//! Pictures for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyfunction]
pub fn png<'py>(
    py: Python<'py>,
    pixels: &[u8],
    width: u32,
    height: u32,
    channels: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let encoded = py.detach(|| tpu_kernel::picture::png(pixels, width, height, channels));
    let bytes = encoded.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}

#[pyfunction]
pub fn png_columns<'py>(
    py: Python<'py>,
    heights: &[u8],
    rows: u8,
    colour: [u8; 3],
) -> PyResult<Bound<'py, PyBytes>> {
    let encoded = tpu_kernel::picture::columns(heights, rows, colour);
    let bytes = encoded.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &bytes))
}
