//! What Python prints, shows and asks.

use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde_json::Value;
use tpu_kernel::{Kernel, StreamName, Utf8Tail, process};

use crate::buffers;
use crate::requests::Parent;
use crate::shared::kernel;

/// A writer that paused this long may have let a child or C code write in between.
const LOOK_AT_PIPES_AFTER: Duration = Duration::from_micros(1);
/// How often a wait looks for a signal.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

fn stream_name(name: &str) -> PyResult<StreamName> {
    match name {
        "stdout" => Ok(StreamName::Stdout),
        "stderr" => Ok(StreamName::Stderr),
        other => Err(PyValueError::new_err(format!(
            "no stream is called `{other}`: `stdout` or `stderr`"
        ))),
    }
}

#[pyclass(frozen, module = "tpu_kernel._kernel")]
pub struct Stream {
    name: StreamName,
    parent_getter: Py<PyAny>,
    /// Nanoseconds since `EPOCH` of the last write; 0 asks the next write to look at the pipes.
    last_write: AtomicU64,
    tail: Mutex<Utf8Tail>,
}

#[pymethods]
impl Stream {
    #[new]
    fn new(name: &str, parent_getter: Py<PyAny>) -> PyResult<Self> {
        Ok(Self {
            name: stream_name(name)?,
            parent_getter,
            last_write: AtomicU64::new(0),
            tail: Mutex::default(),
        })
    }

    fn write(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<usize> {
        let Ok(text) = text.cast::<PyString>() else {
            let name = text.get_type().name()?;
            return Err(PyTypeError::new_err(format!(
                "write() argument must be str, not {name}"
            )));
        };
        if let Ok(text) = text.to_str() {
            self.put(py, text)?;
        } else {
            // A lone surrogate has no UTF-8.
            let encoded = text.call_method1("encode", ("utf-8", "backslashreplace"))?;
            let encoded: Vec<u8> = encoded.extract()?;
            self.put(py, &String::from_utf8_lossy(&encoded))?;
        }
        text.len()
    }

    fn write_bytes(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let bytes = buffers::copy(data)?;
        let mut whole = String::new();
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.push(&bytes, |text| whole.push_str(text));
        drop(tail);
        self.put(py, &whole)?;
        Ok(bytes.len())
    }

    fn flush(&self) -> PyResult<()> {
        if !process::is_forked_child() {
            self.last_write.store(0, Ordering::Relaxed);
            kernel()?.outbox.hurry();
        }
        Ok(())
    }

    fn fileno(&self) -> i32 {
        self.fd()
    }
}

impl Stream {
    fn fd(&self) -> i32 {
        match self.name {
            StreamName::Stdout => 1,
            StreamName::Stderr => 2,
        }
    }

    fn put(&self, py: Python<'_>, text: &str) -> PyResult<()> {
        if process::is_forked_child() {
            return write_all(py, self.fd(), text.as_bytes());
        }
        let kernel = kernel()?;
        let parent = self.parent_getter.bind(py).call0()?;
        let parent = parent.cast::<Parent>().ok().map(|parent| &parent.get().0);
        let now = EPOCH.elapsed().as_nanos() as u64;
        let before = self.last_write.swap(now, Ordering::Relaxed);
        let paused = now.saturating_sub(before) > LOOK_AT_PIPES_AFTER.as_nanos() as u64;
        if paused || kernel.writes_below_python() {
            kernel.drain_capture_for(parent.map(|parent| &**parent), false);
        }
        if !kernel.write(self.name, parent, text) {
            wait_for_space(py, kernel)?;
        }
        Ok(())
    }
}

/// Wait until front ends have taken what is unsent. An interrupt ends the wait.
fn wait_for_space(py: Python<'_>, kernel: &Kernel) -> PyResult<()> {
    while !py.detach(|| kernel.outbox.wait_for_space(SIGNAL_CHECK)) {
        py.check_signals()?;
    }
    Ok(())
}

fn write_all(py: Python<'_>, fd: i32, mut bytes: &[u8]) -> PyResult<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length are those of a living slice.
        let written = py.detach(|| unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) });
        if written < 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error.into());
            }
            py.check_signals()?;
        } else {
            bytes = &bytes[written as usize..];
        }
    }
    Ok(())
}

#[pyfunction]
#[pyo3(signature = (msg_type, content, metadata=None, *, parent=None, buffers=None))]
pub fn publish(
    py: Python<'_>,
    msg_type: &str,
    content: &[u8],
    metadata: Option<&[u8]>,
    parent: Option<&Bound<'_, Parent>>,
    buffers: Option<Vec<Bound<'_, PyAny>>>,
) -> PyResult<()> {
    if process::is_forked_child() {
        return show_as_text(py, msg_type, content);
    }
    let kernel = kernel()?;
    let parent = match parent {
        Some(parent) => Some(Arc::clone(&parent.get().0)),
        None => kernel.output_parent(),
    };
    let buffers = buffers.unwrap_or_default();
    let buffers = buffers
        .iter()
        .map(buffers::take)
        .collect::<PyResult<Vec<_>>>()?;
    let content = Bytes::copy_from_slice(content);
    let metadata = Bytes::copy_from_slice(metadata.unwrap_or(b"{}"));
    kernel.drain_capture_for(parent.as_deref(), false);
    let room = kernel.publish(msg_type, parent.as_deref(), metadata, content, buffers);
    if !room {
        wait_for_space(py, kernel)?;
    }
    Ok(())
}

/// A forked child has only the streams: what has a text form goes there, anything else nowhere.
fn show_as_text(py: Python<'_>, msg_type: &str, content: &[u8]) -> PyResult<()> {
    let content: Value = serde_json::from_slice(content)
        .map_err(|error| PyValueError::new_err(format!("the content is not JSON: {error}")))?;
    let (fd, text) = match msg_type {
        "error" => {
            let lines = content["traceback"].as_array().map(Vec::as_slice);
            let lines = lines.unwrap_or_default().iter().filter_map(Value::as_str);
            (2, Some(lines.collect::<Vec<_>>().join("\n")))
        }
        "display_data" | "update_display_data" | "execute_result" => {
            let text = content["data"]["text/plain"].as_str();
            (1, text.map(ToOwned::to_owned))
        }
        _ => return Ok(()),
    };
    // What it printed before stands in Python's buffers.
    let sys = py.import("sys")?;
    sys.getattr("stdout")?.call_method0("flush")?;
    sys.getattr("stderr")?.call_method0("flush")?;
    text.map_or(Ok(()), |text| {
        write_all(py, fd, format!("{text}\n").as_bytes())
    })
}

/// Where a child that is started now is to write, when the code that starts it belongs to another
/// cell than the one that runs: two descriptors, which the caller closes.
#[pyfunction]
pub fn output_fds(parent: Option<&Bound<'_, Parent>>) -> PyResult<Option<(i32, i32)>> {
    let Some(parent) = parent.filter(|_| !process::is_forked_child()) else {
        return Ok(None);
    };
    let fds = kernel()?.output_fds(&parent.get().0);
    Ok(fds.map(|[stdout, stderr]| (stdout.into_raw_fd(), stderr.into_raw_fd())))
}

#[pyfunction]
pub fn running() -> PyResult<Option<Parent>> {
    Ok(kernel()?.running().map(Parent))
}

#[pyfunction]
pub fn original_fd(fd: i32) -> PyResult<i32> {
    let name = match fd {
        1 => StreamName::Stdout,
        2 => StreamName::Stderr,
        other => {
            return Err(PyValueError::new_err(format!(
                "fd {other} is not captured: 1 or 2"
            )));
        }
    };
    kernel()?
        .original_fd(name)
        .map(IntoRawFd::into_raw_fd)
        .map_err(PyOSError::new_err)
}

#[pyfunction]
#[pyo3(signature = (prompt, password, parent=None))]
pub fn input_request(
    py: Python<'_>,
    prompt: &str,
    password: bool,
    parent: Option<&Bound<'_, Parent>>,
) -> PyResult<String> {
    let refused = |reason: &'static str| PyRuntimeError::new_err(reason);
    if process::is_forked_child() {
        return Err(refused(
            "a forked process does not reach the notebook; ask before it is forked",
        ));
    }
    let kernel = kernel()?;
    // One made from a header does not say whom to ask.
    let parent = match parent.filter(|parent| !parent.get().0.identities.is_empty()) {
        Some(parent) => Some(Arc::clone(&parent.get().0)),
        None => kernel.running(),
    };
    let Some(parent) = parent.filter(|parent| parent.allow_stdin) else {
        return Err(refused("the front end that runs this cell takes no input"));
    };
    let asked = kernel.ask(&parent, prompt, password)?;
    loop {
        if let Some(answer) = py.detach(|| asked.answer(SIGNAL_CHECK)) {
            return Ok(answer);
        }
        py.check_signals()?;
    }
}
