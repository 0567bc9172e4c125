//! The binary parts of messages, both ways, without copying where nobody can change them.

use std::os::raw::c_int;

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// Smaller ones are copied: that costs less than keeping their owner.
const SMALL: usize = 4 << 10;

/// Memory of a message that arrived, for Python to read.
#[pyclass(frozen, module = "tpu_kernel._kernel")]
struct Arrived(Bytes);

#[pymethods]
impl Arrived {
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no buffer is given to fill"));
        }
        let bytes = &slf.get().0;
        let (start, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as isize);
        // SAFETY: Python's own record, which keeps `slf` and so the memory alive; filled as read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled < 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }
}

/// What arrived, as Python's clients of messages see it.
pub fn view<'py>(py: Python<'py>, bytes: &Bytes) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, Arrived(bytes.clone()))?.as_any())
}

/// An immutable Python object and the part of it that is sent. Dropped on the io thread, which
/// has no GIL: Python takes the reference back when it next calls us.
struct Held {
    _owner: Py<PyBytes>,
    start: *const u8,
    length: usize,
}

// SAFETY: the memory of a `bytes` object does not change and lives as long as its owner.
unsafe impl Send for Held {}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// The bytes of anything with a buffer interface, to be sent.
pub fn take(data: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let owner = match data.cast::<PyMemoryView>() {
        Ok(view) => view.getattr("obj")?,
        Err(_) => data.clone(),
    };
    let large = |buffer: &PyBuffer<u8>| buffer.len_bytes() > SMALL && buffer.is_c_contiguous();
    if let Ok(bytes) = owner.cast_exact::<PyBytes>()
        && let Ok(buffer) = PyBuffer::<u8>::get(data)
        && large(&buffer)
    {
        return Ok(Bytes::from_owner(Held {
            _owner: bytes.clone().unbind(),
            start: buffer.buf_ptr().cast(),
            length: buffer.len_bytes(),
        }));
    }
    if let Ok(arrived) = owner.cast::<Arrived>()
        && let Ok(buffer) = PyBuffer::<u8>::get(data)
        && large(&buffer)
    {
        // SAFETY: part of the memory of `arrived`, which lives.
        let part = unsafe {
            std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
        };
        return Ok(arrived.get().0.slice_ref(part));
    }
    copy(data).map(Bytes::from)
}

/// A copy of the bytes of anything with a buffer interface.
pub fn copy(data: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(buffer) = PyBuffer::<u8>::get(data) {
        return buffer.to_vec(data.py());
    }
    // Other element types (a numpy array of floats): its bytes.
    data.py()
        .import("builtins")?
        .getattr("memoryview")?
        .call1((data,))?
        .call_method0("tobytes")?
        .extract()
}
