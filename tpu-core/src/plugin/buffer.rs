//! Buffers on the device, each counted from its making to its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::client::Client;
use super::device::Device;
use super::event;
use super::failure::{Answer, Failure};
use super::handle::{Handle, forward, give, own, present, take};
use super::memory::Memory;
use super::wrapped;
use crate::pjrt::{
    Arguments, BufferBitcast, BufferDecreaseExternalReferenceCount, BufferDelete, BufferDestroy,
    BufferDevice, BufferDonateWithControlDependency, BufferIncreaseExternalReferenceCount,
    BufferIsDeleted, BufferMemory, BufferOnDeviceSizeInBytes, BufferReadyEvent, Raw,
};
use crate::session::{Hold, Place, Share};

/// A buffer on the device.
pub struct Buffer {
    inner: Raw,
    pub client: &'static Client,
    /// Its part in the device's memory.
    hold: Hold,
    /// Parts of those outside who keep the memory whatever becomes of the buffer.
    outside: Mutex<Vec<Share>>,
}

impl Handle for Buffer {
    const NAME: &'static str = "buffer";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Buffer {
    /// A handle for `inner`, which has `hold` of the device's memory.
    pub fn adopt(client: &'static Client, inner: Raw, hold: Hold) -> Result<Raw, Failure> {
        Ok(give(Self {
            inner: present(inner, Self::NAME)?,
            client,
            hold,
            outside: Mutex::new(Vec::new()),
        }))
    }

    /// As [`Self::adopt`] for memory that is new, as large and where the plug-in says.
    pub fn adopt_new(client: &'static Client, inner: Raw) -> Result<Raw, Failure> {
        let inner = present(inner, Self::NAME)?;
        let share = Share::new(locate(client, inner), measure(inner));
        Self::adopt(client, inner, Hold::of(share))
    }

    /// A handle for `inner`, which has the same memory as this buffer.
    pub fn share(&self, inner: Raw) -> Result<Raw, Failure> {
        let hold = self.hold.another().map_or_else(Hold::nothing, Hold::of);
        Self::adopt(self.client, inner, hold)
    }

    /// A part in the memory for somebody else; `None` when it has none.
    pub fn another_share(&self) -> Option<Share> {
        self.hold.another()
    }

    /// A program may have taken it over: uncount it if so.
    pub fn settle_donation(&self) {
        if !self.hold.is_over()
            && is_gone(self.inner)
            && let Some(share) = self.hold.end()
        {
            share.donate();
        }
    }

    /// What it takes on the device.
    pub fn bytes(&self) -> u64 {
        self.hold.bytes()
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

/// Where a buffer of the plug-in is; on the first device when it cannot say.
pub fn locate(client: &Client, inner: Raw) -> Place {
    let memory = || {
        let mut arguments = BufferMemory::new();
        arguments.buffer = inner;
        wrapped::get()?.call(&mut arguments)?;
        Ok::<_, Failure>(own::<Memory>(client.memory(arguments.memory)?)?.place())
    };
    let device = |_| {
        let mut arguments = BufferDevice::new();
        arguments.buffer = inner;
        wrapped::get()?.call(&mut arguments)?;
        Ok::<_, Failure>(own::<Device>(client.device(arguments.device)?)?.place)
    };
    memory().or_else(device).unwrap_or(Place::Device(0))
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
    destroy_inner(buffer.inner)
}

fn destroy_inner(inner: Raw) -> Answer {
    let mut arguments = BufferDestroy::new();
    arguments.buffer = inner;
    wrapped::get()?.call(&mut arguments)
}

/// Free a buffer of the wrapped plug-in that nobody gets.
pub fn discard(inner: Raw) {
    if !inner.is_null() {
        let _ = destroy_inner(inner);
    }
}

pub fn delete(arguments: &mut BufferDelete) -> Answer {
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    drop(own::<Buffer>(arguments.buffer)?.hold.end());
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
    arguments.out_buffer = buffer.share(arguments.out_buffer)?;
    buffer.settle_donation();
    Ok(())
}

/// The result is the same memory under another type or shape.
pub fn bitcast(arguments: &mut BufferBitcast) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    arguments.out_buffer = buffer.share(arguments.out_buffer)?;
    Ok(())
}

/// Somebody outside keeps the memory, even when the buffer is deleted meanwhile.
pub fn keep(arguments: &mut BufferIncreaseExternalReferenceCount) -> Answer {
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    let buffer = own::<Buffer>(arguments.buffer)?;
    let mut outside = lock(&buffer.outside);
    let share = outside.last().map(Share::another);
    outside.extend(share.or_else(|| buffer.another_share()));
    Ok(())
}

pub fn let_go(arguments: &mut BufferDecreaseExternalReferenceCount) -> Answer {
    forward::<_, Buffer>(arguments, |arguments| &mut arguments.buffer)?;
    drop(lock(&own::<Buffer>(arguments.buffer)?.outside).pop());
    Ok(())
}

fn lock(shares: &Mutex<Vec<Share>>) -> MutexGuard<'_, Vec<Share>> {
    shares.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client of a handle, for as long as the process lives.
pub fn client_of(raw: Raw) -> Result<&'static Client, Failure> {
    own::<Client>(raw)
}
