//! Buffers on the device, each counted from its making to its end.

use std::sync::atomic::{AtomicBool, Ordering};

use super::client::Client;
use super::event;
use super::failure::{Answer, Failure};
use super::handle::{Handle, forward, give, own, take};
use super::wrapped;
use crate::pjrt::{
    Arguments, BufferDelete, BufferDestroy, BufferDevice, BufferDonateWithControlDependency,
    BufferIsDeleted, BufferMemory, BufferOnDeviceSizeInBytes, BufferReadyEvent, Raw,
};
use crate::session::SESSION;

/// A buffer on the device.
pub struct Buffer {
    inner: Raw,
    pub client: &'static Client,
    /// What it takes on the device.
    bytes: u64,
    /// Still counted as live.
    counted: AtomicBool,
}

impl Handle for Buffer {
    const NAME: &'static str = "buffer";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Buffer {
    /// Count `inner`, of `bytes` on the device, and give a handle for it.
    pub fn adopt(client: &'static Client, inner: Raw, bytes: u64) -> Raw {
        SESSION.residency.add(bytes);
        give(Self {
            inner,
            client,
            bytes,
            counted: AtomicBool::new(true),
        })
    }

    /// As [`Self::adopt`], asking the plug-in for the size.
    pub fn adopt_measured(client: &'static Client, inner: Raw) -> Raw {
        Self::adopt(client, inner, measure(inner))
    }

    fn end(&self) -> bool {
        self.counted.swap(false, Ordering::Relaxed)
    }

    /// A program may have taken it over: uncount it if so.
    pub fn settle_donation(&self) {
        if self.counted.load(Ordering::Relaxed) && is_gone(self.inner) && self.end() {
            SESSION.residency.donate(self.bytes);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.end() {
            SESSION.residency.release(self.bytes);
        }
    }
}

/// Bytes a buffer of the plug-in takes on the device; 0 when it cannot say.
pub fn measure(inner: Raw) -> u64 {
    let mut arguments = BufferOnDeviceSizeInBytes::new();
    arguments.buffer = inner;
    match wrapped::get().and_then(|wrapped| wrapped.call(&mut arguments)) {
        Ok(()) => arguments.on_device_size_in_bytes as u64,
        Err(_) => 0,
    }
}

fn is_gone(inner: Raw) -> bool {
    let mut arguments = BufferIsDeleted::new();
    arguments.buffer = inner;
    wrapped::get()
        .and_then(|wrapped| wrapped.call(&mut arguments))
        .is_ok()
        && arguments.is_deleted != 0
}

/// The plug-in's event for a buffer being ready; the caller frees it. Null when it cannot say.
pub fn ready(inner: Raw) -> Raw {
    let mut arguments = BufferReadyEvent::new();
    arguments.buffer = inner;
    match wrapped::get().and_then(|wrapped| wrapped.call(&mut arguments)) {
        Ok(()) => arguments.event,
        Err(_) => std::ptr::null_mut(),
    }
}

pub fn destroy(arguments: &mut BufferDestroy) -> Answer {
    let Some(buffer) = take::<Buffer>(arguments.buffer) else {
        return Ok(());
    };
    let mut inner = BufferDestroy::new();
    inner.buffer = buffer.inner;
    wrapped::get()?.call(&mut inner)
}

pub fn delete(arguments: &mut BufferDelete) -> Answer {
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    let buffer = own::<Buffer>(arguments.buffer)?;
    if buffer.end() {
        SESSION.residency.release(buffer.bytes);
    }
    Ok(())
}

pub fn device(arguments: &mut BufferDevice) -> Answer {
    let client = own::<Buffer>(arguments.buffer)?.client;
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    arguments.device = client.device(arguments.device)?;
    Ok(())
}

pub fn memory(arguments: &mut BufferMemory) -> Answer {
    let client = own::<Buffer>(arguments.buffer)?.client;
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    arguments.memory = client.memory(arguments.memory)?;
    Ok(())
}

pub fn ready_event(arguments: &mut BufferReadyEvent) -> Answer {
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    arguments.event = event::wrap(arguments.event);
    Ok(())
}

/// The result takes over the memory of the buffer, which is gone afterwards.
pub fn donate(arguments: &mut BufferDonateWithControlDependency) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    buffer.settle_donation();
    arguments.out_buffer = Buffer::adopt_measured(buffer.client, arguments.out_buffer);
    Ok(())
}

/// The client of a handle, for as long as the process lives.
pub fn client_of(raw: Raw) -> Result<&'static Client, Failure> {
    own::<Client>(raw)
}
