//! A look at the arguments of functions written in C, where Python calls them.
//!
//! PyTorch's dispatcher can be given checks in Python, but then every argument becomes an object of
//! Python and back, which takes microseconds. Here the pointer is changed by which Python calls the function:
//! what fits costs one small call of Python. The function stays the object that torch.compile and others know,
//! with its hash, which its definition (`PyMethodDef`) is part of.

use std::mem::size_of;
use std::ptr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

/// A call with `arguments` one after the other, the named ones last; `keywords` is a tuple or null.
type Vectorcall = unsafe extern "C" fn(
    function: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    keywords: *mut PyObject,
) -> *mut PyObject;

// Of the stable ABI from 3.12 on, and in 3.11 already.
unsafe extern "C" {
    fn PyObject_Vectorcall(
        function: *mut PyObject,
        arguments: *const *mut PyObject,
        count: usize,
        keywords: *mut PyObject,
    ) -> *mut PyObject;
    fn PyVectorcall_Function(function: *mut PyObject) -> Option<Vectorcall>;
}

/// A function that is looked at.
struct Entry {
    function: Py<PyAny>,
    call: Call,
    fits: Py<PyAny>,
    arm: Py<PyAny>,
}

/// How Python called it before.
enum Call {
    Vector(Vectorcall),
    Tuple(ffi::ternaryfunc),
}

/// Found by the function, one after the other: they are few.
static ENTRIES: [OnceLock<Entry>; 48] = [const { OnceLock::new() }; 48];

#[pyfunction]
pub fn look_before(function: Bound<'_, PyAny>, fits: Py<PyAny>, arm: Py<PyAny>) -> PyResult<()> {
    let unknown = || PyValueError::new_err("only functions and methods in C can be looked at");
    let object = function.as_ptr();
    // SAFETY: `object` is alive; the addresses of types are only compared.
    let (builtin, method) = unsafe {
        (
            ffi::Py_IS_TYPE(object, &raw mut ffi::PyCFunction_Type) != 0,
            ffi::Py_IS_TYPE(object, &raw mut ffi::PyMethodDescr_Type) != 0,
        )
    };
    if !builtin && !method {
        return Err(unknown());
    }
    // Both kinds of object have four pointers before it. CPython offers no way to it, so what is there is
    // compared with what CPython says.
    let at = size_of::<PyObject>() + 4 * size_of::<*mut PyObject>();
    // SAFETY: objects of these types are that large.
    let place = unsafe { object.byte_add(at).cast::<Option<Vectorcall>>() };
    // SAFETY: as above; the function is alive.
    let (there, said) = unsafe { (*place, PyVectorcall_Function(object)) };
    if there.map(|call| call as usize) != said.map(|call| call as usize) {
        return Err(unknown());
    }
    let call = if let Some(call) = there {
        Call::Vector(call)
    } else {
        // SAFETY: the slot of a type that has one holds a function of this kind.
        let slot = unsafe { ffi::PyType_GetSlot(ffi::Py_TYPE(object), ffi::Py_tp_call) };
        if slot.is_null() {
            return Err(unknown());
        }
        // SAFETY: as above.
        Call::Tuple(unsafe { std::mem::transmute::<*mut std::ffi::c_void, ffi::ternaryfunc>(slot) })
    };
    let mut entry = Entry {
        function: function.unbind(),
        call,
        fits,
        arm,
    };
    for room in &ENTRIES {
        match room.set(entry) {
            Ok(()) => {
                // SAFETY: the interpreter is attached, so nobody reads it meanwhile; kept in the entry, the
                // function lives for good.
                unsafe { *place = Some(looked) };
                return Ok(());
            }
            Err(back) => entry = back,
        }
    }
    Err(PyRuntimeError::new_err(
        "no room to look at one more function",
    ))
}

unsafe extern "C" fn looked(
    function: *mut PyObject,
    arguments: *const *mut PyObject,
    count: usize,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let entry = ENTRIES
        .iter()
        .map_while(OnceLock::get)
        .find(|entry| entry.function.as_ptr() == function);
    let Some(entry) = entry else {
        return ptr::null_mut(); // never: the entry is there before the function leads here
    };
    // SAFETY: Python calls attached, with objects that live as long as the call.
    unsafe {
        let verdict = PyObject_Vectorcall(entry.fits.as_ptr(), arguments, count, keywords);
        if verdict.is_null() {
            // Arguments that cannot even be looked at: the function has words of its own for them. But an
            // interrupt is none of it.
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
                return ptr::null_mut();
            }
            ffi::PyErr_Clear();
        } else {
            ffi::Py_DECREF(verdict);
        }
        if verdict == ffi::Py_True() {
            call(entry, arguments, count, keywords)
        } else {
            armed(entry, arguments, count, keywords)
        }
    }
}

/// The call as it would have been.
///
/// # Safety
///
/// Attached, with live arguments.
unsafe fn call(
    entry: &Entry,
    arguments: *const *mut PyObject,
    count: usize,
    keywords: *mut PyObject,
) -> *mut PyObject {
    let function = entry.function.as_ptr();
    // SAFETY: as the caller promises; what is made here is given back here.
    unsafe {
        let tuple_call = match entry.call {
            Call::Vector(call) => return call(function, arguments, count, keywords),
            Call::Tuple(call) => call,
        };
        // The highest bit says that the place before the first may be written.
        let count = count & (usize::MAX >> 1);
        let tuple = ffi::PyTuple_New(count as isize);
        if tuple.is_null() {
            return tuple;
        }
        for index in 0..count {
            let item = *arguments.add(index);
            ffi::Py_INCREF(item);
            ffi::PyTuple_SetItem(tuple, index as isize, item);
        }
        let result = match named(arguments.add(count), keywords) {
            Ok(named) => {
                let result = tuple_call(function, tuple, named);
                ffi::Py_XDECREF(named);
                result
            }
            Err(()) => ptr::null_mut(),
        };
        ffi::Py_DECREF(tuple);
        result
    }
}

/// A dictionary of named arguments, null for none.
///
/// # Safety
///
/// Attached, with as many live arguments as keywords.
unsafe fn named(
    arguments: *const *mut PyObject,
    keywords: *mut PyObject,
) -> Result<*mut PyObject, ()> {
    // SAFETY: as the caller promises.
    unsafe {
        if keywords.is_null() || ffi::PyTuple_Size(keywords) == 0 {
            return Ok(ptr::null_mut());
        }
        let named = ffi::PyDict_New();
        if named.is_null() {
            return Err(());
        }
        for index in 0..ffi::PyTuple_Size(keywords) {
            let name = ffi::PyTuple_GetItem(keywords, index);
            if ffi::PyDict_SetItem(named, name, *arguments.add(index as usize)) != 0 {
                ffi::Py_DECREF(named);
                return Err(());
            }
        }
        Ok(named)
    }
}

/// The call with the checks in the dispatcher.
///
/// # Safety
///
/// Attached, with live arguments.
unsafe fn armed(
    entry: &Entry,
    arguments: *const *mut PyObject,
    count: usize,
    keywords: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let disarm = match entry.arm.bind(py).call0() {
        Ok(disarm) => disarm,
        Err(error) => {
            error.restore(py);
            return ptr::null_mut();
        }
    };
    // SAFETY: as the caller promises.
    let result = unsafe { call(entry, arguments, count, keywords) };
    let failure = PyErr::take(py);
    let disarmed = disarm.call0();
    if let Some(failure) = failure {
        failure.restore(py);
        return ptr::null_mut();
    }
    if let Err(error) = disarmed {
        // SAFETY: without a failure the call returned an object, which is ours.
        unsafe { ffi::Py_DECREF(result) };
        error.restore(py);
        return ptr::null_mut();
    }
    result
}
