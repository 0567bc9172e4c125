//! Requests that Python answers, and the end of the process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use tpu_kernel::{Service, Whereabouts, process};

use crate::buffers;
use crate::felt;
use crate::shared::kernel;
use crate::shells::Shell;

/// Types of the requests that are no messages: see `next_service`.
const EXIT: &str = "exit";
const LOCATE: &str = "locate";
const START: &str = "start";
const INTERRUPT: &str = "interrupt";
const CANCELLED: &str = "cancelled";
const START_DEBUGGER: &str = "start_debugger";
const COMPILING: &str = "compiling";

#[pyclass(frozen, module = "tpu_kernel._kernel")]
pub struct Parent(pub Arc<tpu_kernel::Parent>);

#[pymethods]
impl Parent {
    #[staticmethod]
    fn from_header(header: &[u8]) -> PyResult<Self> {
        let known = tpu_kernel::Parent::from_header(Bytes::copy_from_slice(header))
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let now = kernel()?.output_parent();
        let same = now.filter(|now| now.msg_id == known.msg_id);
        Ok(Self(same.unwrap_or(known)))
    }

    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.header)
    }

    #[getter]
    fn msg_id(&self) -> &str {
        &self.0.msg_id
    }

    #[getter]
    fn cell_id(&self) -> &str {
        &self.0.cell_id
    }

    #[getter]
    fn subshell_id(&self) -> Option<&str> {
        self.0.subshell_id.as_deref()
    }

    #[getter]
    fn printed(&self) -> Vec<(&'static str, String)> {
        let pieces = self.0.transcript.pieces().into_iter();
        pieces.map(|(name, text)| (name.as_str(), text)).collect()
    }

    #[getter]
    fn outputs(&self) -> u64 {
        self.0.tally.pieces()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0.msg_id == other.0.msg_id
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.msg_id.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<Parent {} {}>", self.0.msg_type, self.0.msg_id)
    }
}

#[pyclass(frozen, module = "tpu_kernel._kernel")]
pub struct Request(pub Service);

impl Request {
    fn inner(&self) -> PyResult<&tpu_kernel::Request> {
        match &self.0 {
            Service::Answer(request) => Ok(request),
            _ => Err(PyValueError::new_err(
                "this is no message: it asks for something inside the kernel",
            )),
        }
    }
}

#[pymethods]
impl Request {
    #[getter]
    fn msg_type(&self) -> &str {
        match &self.0 {
            Service::Answer(request) => &request.parent.msg_type,
            Service::Exit => EXIT,
            Service::Locate => LOCATE,
            Service::Start(_) => START,
            Service::Interrupt => INTERRUPT,
            Service::Cancelled => CANCELLED,
            Service::Compiling => COMPILING,
            Service::StartDebugger { .. } => START_DEBUGGER,
        }
    }

    #[getter]
    fn shell(&self) -> Option<Shell> {
        match &self.0 {
            Service::Answer(request) => Some(Shell(request.subshell.clone())),
            Service::Start(subshell) => Some(Shell(Some(Arc::clone(subshell)))),
            _ => None,
        }
    }

    #[getter]
    fn channel(&self) -> PyResult<&'static str> {
        Ok(self.inner()?.channel.name())
    }

    #[getter]
    fn parent(&self) -> PyResult<Parent> {
        Ok(Parent(Arc::clone(&self.inner()?.parent)))
    }

    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        if let Service::StartDebugger { port, token } = &self.0 {
            let content = serde_json::json!({"port": port, "token": token}).to_string();
            return Ok(PyBytes::new(py, content.as_bytes()));
        }
        Ok(PyBytes::new(py, &self.inner()?.content))
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.inner()?.metadata))
    }

    #[getter]
    fn buffers<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        let buffers = &self.inner()?.buffers;
        buffers
            .iter()
            .map(|bytes| buffers::view(py, bytes))
            .collect()
    }
}

#[pyfunction]
pub fn ready(language_info: &[u8], banner: String) -> PyResult<()> {
    let info = serde_json::from_slice(language_info)
        .map_err(|error| PyValueError::new_err(format!("language_info is not JSON: {error}")))?;
    let kernel = kernel()?;
    kernel.language.set(info, banner);
    kernel.feed.ready();
    felt::install(kernel);
    Ok(())
}

#[pyfunction]
pub fn next_service(py: Python<'_>, timeout: f64) -> PyResult<Option<Request>> {
    let kernel = kernel()?;
    let patience = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::from_secs(3600));
    Ok(py.detach(|| kernel.next_service(patience)).map(Request))
}

#[pyfunction]
pub fn located(place: String, moving: bool, handling: bool) -> PyResult<()> {
    kernel()?.watch.answer(Whereabouts {
        place,
        moving,
        handling,
    });
    Ok(())
}

#[pyfunction]
pub fn execute_input(request: &Request, code: &str, execution_count: i64) -> PyResult<()> {
    kernel()?.execute_input(request.inner()?, code, execution_count);
    Ok(())
}

#[pyfunction]
#[pyo3(signature = (request, content, metadata=None, *, abort=false))]
pub fn reply(
    py: Python<'_>,
    request: &Request,
    content: &[u8],
    metadata: Option<&[u8]>,
    abort: bool,
) -> PyResult<()> {
    let (kernel, request) = (kernel()?, request.inner()?);
    let content = Bytes::copy_from_slice(content);
    let metadata = Bytes::copy_from_slice(metadata.unwrap_or(b"{}"));
    py.detach(|| {
        flush_c_stdio();
        kernel.reply(request, metadata, content, abort);
    });
    Ok(())
}

#[pyfunction]
pub fn finish(py: Python<'_>, request: &Request) -> PyResult<()> {
    let (kernel, request) = (kernel()?, request.inner()?);
    py.detach(|| {
        flush_c_stdio();
        kernel.finish(request);
    });
    Ok(())
}

#[pyfunction]
pub fn stopping() -> PyResult<bool> {
    Ok(kernel()?.is_stopping())
}

#[pyfunction]
pub fn request_exit() -> PyResult<()> {
    kernel()?.request_exit();
    Ok(())
}

#[pyfunction]
pub fn exit(py: Python<'_>, code: i32) -> PyResult<()> {
    if process::is_forked_child() {
        process::end(code);
    }
    let kernel = kernel()?;
    py.detach(|| {
        flush_c_stdio();
        kernel.leave(code)
    })
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
}

/// What C code printed sits in its buffer, since fd 1 is a pipe. Only these two: `fflush(NULL)`
/// waits for a thread that reads from some other file.
fn flush_c_stdio() {
    // SAFETY: the C library's own streams, which live as long as the process.
    unsafe {
        libc::fflush(stdout);
        libc::fflush(stderr);
    }
}
