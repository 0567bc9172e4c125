//! The runtime session of tpu-core, as Python sees it: numbers and texts in dicts.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tpu_core::hlo::Detail;
use tpu_kernel::Service;
use tpu_kernel::device::{self, AttachError, Session};

use crate::shared::kernel;

fn session() -> PyResult<&'static Session> {
    device::session().ok_or_else(|| {
        PyRuntimeError::new_err("no tpu-core library is loaded: `tpu_attach` comes first")
    })
}

#[pyfunction]
pub fn tpu_attach(library: &str) -> PyResult<bool> {
    match device::attach(Path::new(library)) {
        Ok(_) => Ok(true),
        // A kernel without a device is still a kernel.
        Err(AttachError::Load { .. }) => Ok(false),
        Err(error) => Err(PyRuntimeError::new_err(error.to_string())),
    }
}

#[pyfunction]
pub fn tpu_snapshot(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    device::session()
        .and_then(Session::snapshot)
        .map(|snapshot| to_python(py, &snapshot))
        .transpose()
}

#[pyfunction]
pub fn tpu_used() -> bool {
    device::session().and_then(Session::snapshot).is_some()
}

#[pyfunction]
pub fn tpu_events(py: Python<'_>, cursor: u64) -> PyResult<(u64, Bound<'_, PyAny>)> {
    let session = session()?;
    let (next, text) = py.detach(|| session.events_json(cursor));
    Ok((next, from_json(py, &text)?))
}

#[pyfunction]
pub fn tpu_keep_events(bytes: u64) -> PyResult<u64> {
    Ok(session()?.keep_events(bytes))
}

/// A compile began since Python last read the programs: once is enough to be told.
static TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn compile_begins(_number: u64) {
    if !TOLD.swap(true, Ordering::Relaxed)
        && let Ok(kernel) = kernel()
    {
        kernel.service.push(Service::Compiling);
    }
}

#[pyfunction]
pub fn tpu_watch_compiles() -> PyResult<()> {
    session()?.watch_compiles(Some(compile_begins));
    Ok(())
}

#[pyfunction]
pub fn tpu_programs(py: Python<'_>, cursor: u64) -> PyResult<(u64, Bound<'_, PyAny>)> {
    let session = session()?;
    TOLD.store(false, Ordering::Relaxed);
    let (next, text) = py.detach(|| session.programs_json(cursor));
    Ok((next, from_json(py, &text)?))
}

#[pyfunction]
pub fn tpu_optimized<'py>(py: Python<'py>, fingerprint: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let session = session()?;
    let found = py.detach(|| session.optimized(fingerprint));
    let program = found.map_err(PyRuntimeError::new_err)?;
    Ok(PyBytes::new(py, &program))
}

#[pyfunction]
pub fn hlo_text(py: Python<'_>, program: &[u8], all: bool) -> PyResult<String> {
    let detail = if all { Detail::All } else { Detail::Computed };
    py.detach(|| tpu_core::hlo::text(program, detail))
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
pub fn tpu_set_place(number: u64, place: &str) -> PyResult<()> {
    session()?.set_place(number, place);
    Ok(())
}

#[pyfunction]
pub fn tpu_identity(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    device::session()
        .and_then(Session::identity)
        .map(|identity| to_python(py, &identity))
        .transpose()
}

#[pyfunction]
pub fn tpu_ongoing(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let ongoing = device::session().map(Session::ongoing).unwrap_or_default();
    to_python(py, &ongoing)
}

#[pyfunction]
pub fn tpu_holdings(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let holdings = device::session().map(Session::holdings).unwrap_or_default();
    to_python(py, &holdings)
}

#[pyfunction]
pub fn tpu_set_limit(bytes: u64) -> PyResult<()> {
    session()?.set_limit(bytes);
    let limit = match bytes {
        0 => "HBM limit: the chip's own".to_owned(),
        bytes => format!("HBM limit: {:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    };
    kernel()?.feed.note("limit", &limit);
    Ok(())
}

#[pyfunction]
pub fn tpu_parse_size(text: &str) -> Option<u64> {
    tpu_core::parse_size(text)
}

#[pyfunction]
pub fn tpu_set_cell(cell_id: &str) -> PyResult<()> {
    session()?.set_cell(cell_id);
    Ok(())
}

#[pyfunction]
pub fn tpu_cancelling() -> bool {
    device::session().is_some_and(Session::is_cancelling)
}

#[pyfunction]
pub fn tpu_resume() -> u64 {
    device::session().map_or(0, Session::resume)
}

#[pyfunction]
pub fn tpu_drain(py: Python<'_>, timeout: f64) -> PyResult<bool> {
    let session = session()?;
    let timeout = Duration::try_from_secs_f64(timeout).unwrap_or_default();
    Ok(py.detach(|| session.wait_idle(timeout)))
}

fn to_python<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize::pythonize(py, value)?)
}

fn from_json<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?
        .call_method1("loads", (PyBytes::new(py, text),))
}
