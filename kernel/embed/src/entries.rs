//! A look at the arguments of functions written in C, where Python calls them.
//!
//! PyTorch's dispatcher can be given checks in Python, but then every argument becomes an object of
//! Python and back, which takes microseconds. Here the function's own entry is changed: what fits costs one
//! small call of Python, and the function stays the object that torch.compile and others know it by.

use std::ffi::CStr;
use std::mem::size_of;
use std::ptr;
use std::sync::OnceLock;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::ffi::{self, PyMethodDef, PyObject};
use pyo3::prelude::*;

type Call = ffi::PyCFunctionWithKeywords;

/// A function that is looked at.
struct Entry {
    call: Call,
    /// `self` comes beside the arguments, and is looked at as the first of them.
    method: bool,
    fits: Py<PyAny>,
    arm: Py<PyAny>,
}

/// `CPython` tells an entry nothing by which it could know its function, so each has one of its own.
macro_rules! calls {
    ($($number:literal)*) => { [$(called::<$number>),*] };
}

const CALLS: [Call; 48] = calls!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
    24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47
);

static ENTRIES: [OnceLock<Entry>; CALLS.len()] = [const { OnceLock::new() }; CALLS.len()];

#[pyfunction]
pub fn look_before(function: &Bound<'_, PyAny>, fits: Py<PyAny>, arm: Py<PyAny>) -> PyResult<()> {
    let unknown =
        || PyValueError::new_err(format!("{function} is not a function of the kind known"));
    let (definition, method) = definition(function).ok_or_else(unknown)?;
    // SAFETY: whoever registers functions with CPython keeps their definitions for good.
    let found = unsafe { *definition };
    // SAFETY: as above; names are C strings.
    let name = unsafe { CStr::from_ptr(found.ml_name) };
    let kind = found.ml_flags & !ffi::METH_STATIC;
    if function.getattr("__name__")?.extract::<&str>()?.as_bytes() != name.to_bytes()
        || kind != ffi::METH_VARARGS | ffi::METH_KEYWORDS
    {
        return Err(unknown());
    }
    let mut entry = Entry {
        // SAFETY: the flags say which kind it is.
        call: unsafe { found.ml_meth.PyCFunctionWithKeywords },
        method,
        fits,
        arm,
    };
    for (place, call) in ENTRIES.iter().zip(CALLS) {
        match place.set(entry) {
            Ok(()) => {
                // SAFETY: the interpreter is attached, so nobody reads it meanwhile, and the new entry
                // takes what the old one took. CPython's interface has definitions as not constant.
                unsafe { (*definition).ml_meth.PyCFunctionWithKeywords = call };
                return Ok(());
            }
            Err(back) => entry = back,
        }
    }
    Err(PyRuntimeError::new_err(
        "no room to look at one more function",
    ))
}

/// What `CPython` was told of a function, and whether it is a method. It offers no way to it, but where it
/// lies has been the same in every version with the stable ABI.
fn definition(function: &Bound<'_, PyAny>) -> Option<(*mut PyMethodDef, bool)> {
    let object = function.as_ptr();
    // SAFETY: `object` is alive; the address of a type is only compared.
    let (builtin, method) = unsafe {
        (
            ffi::Py_IS_TYPE(object, &raw mut ffi::PyCFunction_Type) != 0,
            ffi::Py_IS_TYPE(object, &raw mut ffi::PyMethodDescr_Type) != 0,
        )
    };
    // `PyCFunctionObject` has it first, `PyMethodDescrObject` after its type, name and qualified name.
    let before = match (builtin, method) {
        (true, _) => 0,
        (_, true) => 3,
        _ => return None,
    };
    let at = size_of::<PyObject>() + before * size_of::<*mut PyObject>();
    // SAFETY: an object of this type is that large, and has the pointer there.
    let definition = unsafe { *object.byte_add(at).cast::<*mut PyMethodDef>() };
    (!definition.is_null()).then_some((definition, method))
}

unsafe extern "C" fn called<const AT: usize>(
    this: *mut PyObject,
    arguments: *mut PyObject,
    named: *mut PyObject,
) -> *mut PyObject {
    let Some(entry) = ENTRIES[AT].get() else {
        return ptr::null_mut(); // never: an entry is written before it is called
    };
    // SAFETY: CPython calls with the interpreter attached and objects that live as long as the call.
    unsafe {
        match fits(entry, this, arguments, named) {
            Some(true) => (entry.call)(this, arguments, named),
            Some(false) => armed(entry, this, arguments, named),
            None => ptr::null_mut(),
        }
    }
}

/// Whether the arguments fit for sure; None with an error that is not theirs (an interrupt).
///
/// # Safety
///
/// As for any call from `CPython`: attached, and with live objects.
unsafe fn fits(
    entry: &Entry,
    this: *mut PyObject,
    arguments: *mut PyObject,
    named: *mut PyObject,
) -> Option<bool> {
    // SAFETY: as the caller promises; what is made here is given back here.
    unsafe {
        let verdict = if entry.method {
            let all = with_first(this, arguments)?;
            let verdict = ffi::PyObject_Call(entry.fits.as_ptr(), all, named);
            ffi::Py_DECREF(all);
            verdict
        } else {
            ffi::PyObject_Call(entry.fits.as_ptr(), arguments, named)
        };
        if verdict.is_null() {
            // Arguments that cannot even be looked at: the function has words of its own for them.
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
                return None;
            }
            ffi::PyErr_Clear();
            return Some(false);
        }
        ffi::Py_DECREF(verdict);
        Some(verdict == ffi::Py_True())
    }
}

/// # Safety
///
/// As for any call from `CPython`: attached, and with live objects.
unsafe fn with_first(this: *mut PyObject, arguments: *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: as the caller promises; `all` is new, and each item given to it is owned.
    unsafe {
        let count = ffi::PyTuple_Size(arguments);
        let all = ffi::PyTuple_New(count + 1);
        if all.is_null() {
            return None;
        }
        ffi::Py_INCREF(this);
        ffi::PyTuple_SetItem(all, 0, this);
        for index in 0..count {
            let item = ffi::PyTuple_GetItem(arguments, index);
            ffi::Py_INCREF(item);
            ffi::PyTuple_SetItem(all, index + 1, item);
        }
        Some(all)
    }
}

/// The call with the checks in the dispatcher.
///
/// # Safety
///
/// As for any call from `CPython`: attached, and with live objects.
unsafe fn armed(
    entry: &Entry,
    this: *mut PyObject,
    arguments: *mut PyObject,
    named: *mut PyObject,
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
    let result = unsafe { (entry.call)(this, arguments, named) };
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
