//! Data a program exchanges with the host while it runs: the caller's functions, called with
//! handles of ours.

use std::ffi::c_char;

use super::event;
use super::failure::{Answer, Failure, caught, take_back};
use super::handle::{Handle, forward, give, take};
use super::wrapped::{self, slice};
use crate::pjrt::{
    Arguments, Code, CopyToDeviceStreamAddChunk, CopyToDeviceStreamDestroy, ExecuteOptions, Raw,
};

/// Makes an error of the plug-in, which it gets back from a function that sends.
type MakeError = unsafe extern "C" fn(code: u32, message: *const c_char, size: usize) -> Raw;
type Send = unsafe extern "C" fn(
    chunk: Raw,
    make_error: *const MakeError,
    total: usize,
    done: bool,
    user: Raw,
) -> Raw;
type Receive = unsafe extern "C" fn(stream: Raw, user: Raw);

/// A function for one channel of a program.
#[repr(C)]
#[derive(Clone, Copy)]
struct Channel<F> {
    id: i64,
    user: Raw,
    function: Option<F>,
}

const _: () = assert!(size_of::<Channel<Send>>() == 24);

/// Functions of one launch, in the form the plug-in takes; to be kept until the launch has ended.
pub struct Callbacks {
    send: Lists<Send>,
    receive: Lists<Receive>,
}

/// One list a device. The relays point at the caller's own entries, which are kept beside them.
struct Lists<F> {
    starts: Vec<Raw>,
    _relays: Vec<Channel<F>>,
    _callers: Box<[Channel<F>]>,
}

// SAFETY: what the caller gave may be used from any thread, by the interface's contract.
unsafe impl std::marker::Send for Callbacks {}
// SAFETY: see above; nothing is written once it is made.
unsafe impl Sync for Callbacks {}

impl<F: Copy> Lists<F> {
    /// Lists with `relay` in the place of each function, its user argument the caller's entry.
    fn new(given: Raw, devices: usize, channels: usize, relay: F) -> Self {
        let callers: Box<[Channel<F>]> = slice::<Raw>(given, devices)
            .iter()
            .flat_map(|list| slice::<Channel<F>>(*list, channels))
            .copied()
            .collect();
        let relays: Vec<Channel<F>> = callers
            .iter()
            .map(|caller| Channel {
                id: caller.id,
                user: std::ptr::from_ref(caller).cast_mut().cast(),
                function: Some(relay),
            })
            .collect();
        let starts = relays
            .chunks(channels.max(1))
            .map(|list| list.as_ptr().cast_mut().cast())
            .collect();
        Self {
            starts,
            _relays: relays,
            _callers: callers,
        }
    }
}

impl Callbacks {
    /// The functions in `options`, for `devices`.
    pub fn new(options: &ExecuteOptions, devices: usize) -> Self {
        Self {
            send: Lists::new(options.send_callbacks, devices, options.num_send_ops, send),
            receive: Lists::new(
                options.recv_callbacks,
                devices,
                options.num_recv_ops,
                receive,
            ),
        }
    }

    /// Put ours in the place of the caller's.
    pub fn fill(&self, options: &mut ExecuteOptions) {
        options.send_callbacks = self.send.starts.as_ptr().cast_mut().cast();
        options.recv_callbacks = self.receive.starts.as_ptr().cast_mut().cast();
    }
}

/// An error of ours for the caller's function, as the plug-in's `MakeError` would make one.
unsafe extern "C" fn make_error(code: u32, message: *const c_char, size: usize) -> Raw {
    let failure = caught("a callback", || {
        let message = wrapped::text(message.cast_mut().cast(), size);
        Failure::new(Code(code), message)
    });
    failure.unwrap_or_else(|failure| failure).into_raw()
}

unsafe extern "C" fn send(
    chunk: Raw,
    of_plugin: *const MakeError,
    total: usize,
    done: bool,
    user: Raw,
) -> Raw {
    static OURS: MakeError = make_error;
    // SAFETY: the entry of `Lists`, kept until the launch has ended.
    let caller = unsafe { &*user.cast::<Channel<Send>>() };
    let Some(function) = caller.function else {
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's own function and argument; the chunk holds no handle.
    let error = unsafe { function(chunk, &raw const OURS, total, done, caller.user) };
    // SAFETY: the plug-in gives a function, or null.
    let of_plugin = unsafe { of_plugin.as_ref() };
    let failure = caught("a callback", || take_back(error)).unwrap_or_else(Some);
    let (Some(failure), Some(of_plugin)) = (failure, of_plugin) else {
        return std::ptr::null_mut();
    };
    // SAFETY: code and text of the failure; the plug-in copies the text.
    unsafe {
        of_plugin(
            failure.code.0,
            failure.message.as_ptr().cast(),
            failure.message.len(),
        )
    }
}

/// Where the host writes what a program receives.
struct Stream {
    inner: Raw,
}

impl Handle for Stream {
    const NAME: &'static str = "stream to the device";

    fn inner(&self) -> Raw {
        self.inner
    }
}

unsafe extern "C" fn receive(stream: Raw, user: Raw) {
    // SAFETY: the entry of `Lists`, kept until the launch has ended.
    let caller = unsafe { &*user.cast::<Channel<Receive>>() };
    if let Some(function) = caller.function {
        // SAFETY: the caller's own function and argument; the stream is the callee's to free.
        unsafe { function(give(Stream { inner: stream }), caller.user) };
    }
}

pub fn destroy_stream(arguments: &mut CopyToDeviceStreamDestroy) -> Answer {
    let Some(stream) = take::<Stream>(arguments.stream) else {
        return Ok(());
    };
    let mut inner = CopyToDeviceStreamDestroy::new();
    inner.stream = stream.inner;
    wrapped::get()?.call(&mut inner)
}

pub fn add_chunk(arguments: &mut CopyToDeviceStreamAddChunk) -> Answer {
    pass_stream(arguments, |arguments| &mut arguments.stream)?;
    arguments.transfer_complete = event::wrap(arguments.transfer_complete);
    Ok(())
}

/// Pass a call on whose handle is a stream.
pub fn pass_stream<A: Arguments>(arguments: &mut A, field: fn(&mut A) -> &mut Raw) -> Answer {
    forward::<A, Stream>(arguments, field)
}
