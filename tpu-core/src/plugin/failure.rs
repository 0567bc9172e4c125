//! Errors: what functions here return, and the object a caller gets for it.

use std::ffi::c_char;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::calls;
use crate::pjrt::{
    Arguments, Code, ErrorDestroy, ErrorForEachPayload, ErrorGetCode, ErrorMessage, Raw,
};

/// Why a call failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

/// Result of every function of the table.
pub type Answer = Result<(), Failure>;

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::INVALID_ARGUMENT, message)
    }

    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self::new(Code::UNIMPLEMENTED, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::INTERNAL, message)
    }

    /// The object for the caller, who frees it through the table.
    pub fn into_raw(self) -> Raw {
        let error = ErrorObject {
            table: &raw const ERROR_TABLE,
            failure: self,
        };
        Box::into_raw(Box::new(error)).cast()
    }
}

/// Do `work`, and make a panic in it a failure: for functions the plug-in or a caller calls, which
/// must not unwind. `name` is for the message.
pub fn caught<T>(name: &str, work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| Failure::internal(format!("tpu-core panicked in {name}: please report this")))
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.name(), self.message)
    }
}

/// An error as callers of interface 0.112 and later expect it: its function table comes first.
#[repr(C)]
struct ErrorObject {
    table: *const ErrorTable,
    failure: Failure,
}

#[repr(C)]
struct ErrorTable {
    struct_size: usize,
    instance_size: usize,
    extension_start: Raw,
    destroy: unsafe extern "C" fn(Raw),
    message: unsafe extern "C" fn(Raw, *mut *const c_char, *mut usize),
    code: unsafe extern "C" fn(Raw) -> u32,
    for_each_payload: unsafe extern "C" fn(Raw, Raw, Raw),
}

// SAFETY: constant; its one data pointer is null.
unsafe impl Sync for ErrorTable {}

const _: () = assert!(size_of::<ErrorTable>() == 56);

static ERROR_TABLE: ErrorTable = ErrorTable {
    struct_size: size_of::<ErrorTable>(),
    instance_size: size_of::<ErrorObject>(),
    extension_start: std::ptr::null_mut(),
    destroy,
    message,
    code,
    for_each_payload,
};

/// The error behind a pointer that this module gave out.
fn object<'a>(raw: Raw) -> Option<&'a ErrorObject> {
    // SAFETY: by the interface's contract a caller passes back what it was given, or null.
    unsafe { raw.cast::<ErrorObject>().as_ref() }
}

/// Take an error that this module gave out: what it says, and free it. `None` for null.
pub fn take_back(raw: Raw) -> Option<Failure> {
    let failure = object(raw)?.failure.clone();
    // SAFETY: made by `into_raw`; the caller gives it back.
    unsafe { destroy(raw) };
    Some(failure)
}

unsafe extern "C" fn destroy(raw: Raw) {
    if !raw.is_null() {
        // SAFETY: made by `into_raw`, destroyed once by contract.
        drop(unsafe { Box::from_raw(raw.cast::<ErrorObject>()) });
    }
}

unsafe extern "C" fn message(raw: Raw, text: *mut *const c_char, size: *mut usize) {
    let message = object(raw).map_or("", |error| error.failure.message.as_str());
    // SAFETY: the caller gives two places to write to.
    unsafe {
        *text = message.as_ptr().cast();
        *size = message.len();
    }
}

unsafe extern "C" fn code(raw: Raw) -> u32 {
    object(raw).map_or(0, |error| error.failure.code.0)
}

/// Payloads of a wrapped plug-in's errors are not kept: `TorchTPU` reads code and message.
unsafe extern "C" fn for_each_payload(_error: Raw, _visitor: Raw, _user: Raw) {}

/// Free an error; null is none.
pub unsafe extern "C" fn error_destroy(arguments: Raw) -> Raw {
    calls::note(ErrorDestroy::SLOT, arguments);
    // SAFETY: the caller gives the argument struct of this slot, or null.
    if let Some(arguments) = unsafe { arguments.cast::<ErrorDestroy>().as_ref() } {
        // SAFETY: `destroy` accepts what this module gave out, and null.
        unsafe { destroy(arguments.error) };
    }
    std::ptr::null_mut()
}

/// Text of an error; none for null.
pub unsafe extern "C" fn error_message(arguments: Raw) -> Raw {
    calls::note(ErrorMessage::SLOT, arguments);
    // SAFETY: the caller gives the argument struct of this slot, or null.
    if let Some(arguments) = unsafe { arguments.cast::<ErrorMessage>().as_mut() } {
        let text = object(arguments.error).map_or("", |error| error.failure.message.as_str());
        arguments.message = text.as_ptr().cast_mut().cast();
        arguments.message_size = text.len();
    }
    std::ptr::null_mut()
}

#[allow(clippy::unnecessary_wraps, reason = "the table wants this signature")]
pub fn error_code(arguments: &mut ErrorGetCode) -> Answer {
    arguments.code = object(arguments.error).map_or(0, |error| error.failure.code.0);
    Ok(())
}

#[allow(clippy::unnecessary_wraps, reason = "the table wants this signature")]
pub fn error_payloads(_arguments: &mut ErrorForEachPayload) -> Answer {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pjrt::Arguments;

    #[test]
    fn an_error_says_code_and_message_both_ways_and_null_is_none() {
        let raw = Failure::new(Code::RESOURCE_EXHAUSTED, "full").into_raw();
        let mut asked = ErrorGetCode::new();
        asked.error = raw;
        assert!(error_code(&mut asked).is_ok());
        assert_eq!(asked.code, 8);
        // SAFETY: an error begins with its table, as the interface defines.
        let table = unsafe { &**raw.cast::<*const ErrorTable>() };
        let (mut text, mut size) = (std::ptr::null(), 0);
        // SAFETY: `raw` is alive.
        unsafe { (table.message)(raw, &raw mut text, &raw mut size) };
        // SAFETY: the message lives as long as the error.
        let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), size) };
        assert_eq!(text, b"full");
        for error in [raw, std::ptr::null_mut()] {
            let mut gone = ErrorDestroy::new();
            gone.error = error;
            // SAFETY: destroyed once each.
            unsafe { error_destroy((&raw mut gone).cast()) };
        }
    }
}
