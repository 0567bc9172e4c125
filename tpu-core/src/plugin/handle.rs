//! Handles: objects of ours that stand for an object of the wrapped plug-in.

use super::failure::{Answer, Failure};
use super::wrapped;
use crate::pjrt::{Arguments, Raw};

/// An object callers hold by pointer.
pub trait Handle: Sized + 'static {
    /// Word for it in messages.
    const NAME: &'static str;

    /// The wrapped plug-in's object.
    fn inner(&self) -> Raw;
}

/// Give a handle to the caller, who frees it through the table.
pub fn give<H: Handle>(handle: H) -> Raw {
    Box::into_raw(Box::new(handle)).cast()
}

/// The handle behind a caller's pointer.
pub fn own<'a, H: Handle>(raw: Raw) -> Result<&'a H, Failure> {
    // SAFETY: by the interface's contract a caller passes a live handle it got from `give`.
    unsafe { raw.cast::<H>().as_ref() }
        .ok_or_else(|| Failure::invalid(format!("no {} was given", H::NAME)))
}

/// An object the plug-in has just given, or an error where it gave none in spite of its success.
pub fn present(raw: Raw, name: &str) -> Result<Raw, Failure> {
    if raw.is_null() {
        return Err(Failure::internal(format!("the plug-in gave no {name}")));
    }
    Ok(raw)
}

/// Take a handle back to free it; `None` for null.
pub fn take<H: Handle>(raw: Raw) -> Option<Box<H>> {
    // SAFETY: made by `give`, freed once by contract.
    (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast::<H>()) })
}

/// Pass a call on whose only handle is in `field`; the caller's struct keeps the caller's handle.
pub fn forward<A: Arguments, H: Handle>(
    arguments: &mut A,
    field: fn(&mut A) -> &mut Raw,
) -> Answer {
    let raw = *field(arguments);
    let inner = own::<H>(raw)?.inner();
    *field(arguments) = inner;
    let answer = wrapped::get()?.call(arguments);
    *field(arguments) = raw;
    answer
}

/// Frees an object of the wrapped plug-in.
type Deleter = unsafe extern "C" fn(Raw);

/// Bytes of the wrapped plug-in that a caller frees through a function: object and function.
struct Holder {
    inner: Raw,
    deleter: Option<Deleter>,
    /// Bytes of ours that the caller reads instead; kept for as long.
    _bytes: Vec<u8>,
}

impl Handle for Holder {
    const NAME: &'static str = "holder";

    fn inner(&self) -> Raw {
        self.inner
    }
}

/// Replace an object and its deleter, as a function of the table gave them, by ours.
pub fn hold(object: &mut Raw, deleter: &mut Raw) {
    if object.is_null() {
        return;
    }
    // SAFETY: the field is a function pointer of this type, or null.
    let function = unsafe { std::mem::transmute::<Raw, Option<Deleter>>(*deleter) };
    *object = give(Holder {
        inner: *object,
        deleter: function,
        _bytes: Vec::new(),
    });
    *deleter = release as *mut _;
}

/// Keep `bytes` until the caller frees the object that [`hold`] put there; what the plug-in gave is
/// freed now. Returns where the bytes are.
pub fn keep_bytes(bytes: Vec<u8>, object: &mut Raw, deleter: &mut Raw) -> (Raw, usize) {
    if let Some(old) = take::<Holder>(*object)
        && let Some(deleter) = old.deleter
    {
        // SAFETY: the plug-in gave both together, and this is the only call.
        unsafe { deleter(old.inner) };
    }
    let place = (bytes.as_ptr().cast_mut().cast(), bytes.len());
    *object = give(Holder {
        inner: std::ptr::null_mut(),
        deleter: None,
        _bytes: bytes,
    });
    *deleter = release as *mut _;
    place
}

unsafe extern "C" fn release(raw: Raw) {
    if let Some(holder) = take::<Holder>(raw)
        && let Some(deleter) = holder.deleter
    {
        // SAFETY: the plug-in gave both together, and this is the only call.
        unsafe { deleter(holder.inner) };
    }
}
