//! Ways a buffer comes to be without a program, and ways its bytes reach the host.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use super::buffer::{self, Buffer, client_of};
use super::device::Device;
use super::event;
use super::failure::{Answer, Failure};
use super::handle::{Handle, own, present};
use super::memory::Memory;
use super::wrapped::{self, slice};
use crate::pjrt::{
    BufferCopyRawToHost, BufferCopyRawToHostFuture, BufferCopyToDevice, BufferCopyToMemory,
    BufferToHostBuffer, ClientBufferFromHostBuffer, ClientCreateErrorBuffer,
    ClientCreateUninitializedBuffer, ClientCreateViewOfDeviceBuffer, Code, Raw, element_bytes,
};
use crate::session::{EventKind, Hold, Place, SESSION, Share, Shortage};
use crate::size::readable;

/// Bytes of a dense array.
pub fn dense_bytes(dimensions: &[i64], buffer_type: u32) -> u64 {
    dimensions
        .iter()
        .map(|dimension| u64::try_from(*dimension).unwrap_or(0))
        .fold(element_bytes(buffer_type), u64::saturating_mul)
}

/// Refuse what does not fit on the device, naming what was wanted and what there is.
pub fn admit(place: Place, bytes: u64, what: impl Display) -> Answer {
    SESSION
        .residency
        .admit(place, bytes)
        .map_err(|shortage| Failure::new(Code::RESOURCE_EXHAUSTED, explain(shortage, what)))
}

fn explain(
    Shortage {
        wanted,
        live,
        limit,
    }: Shortage,
    what: impl Display,
) -> String {
    let free = limit.saturating_sub(live);
    // what is missing may be too little to show in three digits
    let in_full = readable(wanted) == readable(free);
    let [wanted, free] = [wanted, free].map(|bytes| {
        if in_full {
            format!("{bytes} bytes")
        } else {
            readable(bytes)
        }
    });
    format!(
        "out of device memory: {what} needs {wanted} more, {free} of {} are free ({} in use). Delete tensors that \
         are no longer needed, or use smaller ones.",
        readable(limit),
        readable(live),
    )
}

/// Count a failed call, and hand the failure on.
pub fn record_failure(failure: Failure) -> Failure {
    let cell = SESSION.cells.current();
    SESSION.fail(
        cell,
        failure.code.0,
        &failure.message,
        None,
        !on_main_thread(),
    );
    failure
}

/// Whether the caller is the thread the process began with, on which a cell runs: what it is told
/// by a return value, its user sees.
fn on_main_thread() -> bool {
    // SAFETY: these calls cannot fail and touch no memory.
    unsafe { libc::gettid() == libc::getpid() }
}

/// The plug-in's handle for an optional device.
fn inner_device(raw: Raw) -> Result<Raw, Failure> {
    if raw.is_null() {
        Ok(raw)
    } else {
        own::<Device>(raw).map(Handle::inner)
    }
}

/// The plug-in's handle for an optional memory.
pub fn inner_memory(raw: Raw) -> Result<Raw, Failure> {
    if raw.is_null() {
        Ok(raw)
    } else {
        own::<Memory>(raw).map(Handle::inner)
    }
}

/// Where a new buffer will be, by the optional device and memory a caller gives.
pub fn destination(device: Raw, memory: Raw) -> Result<Place, Failure> {
    if !memory.is_null() {
        return own::<Memory>(memory).map(Memory::place);
    }
    if !device.is_null() {
        return own::<Device>(device).map(|device| device.place);
    }
    Ok(Place::Device(0))
}

pub fn from_host(arguments: &mut ClientBufferFromHostBuffer) -> Answer {
    upload(arguments).map_err(record_failure)
}

fn upload(arguments: &mut ClientBufferFromHostBuffer) -> Answer {
    let wrapped = wrapped::get()?;
    let (client, device, memory) = (arguments.client, arguments.device, arguments.memory);
    let owner = client_of(client)?;
    let bytes = dense_bytes(
        slice::<i64>(arguments.dims, arguments.num_dims),
        arguments.kind,
    );
    let place = destination(device, memory)?;
    admit(place, bytes, "a tensor copied from the host")?;
    arguments.client = owner.inner();
    arguments.device = inner_device(device)?;
    arguments.memory = inner_memory(memory)?;
    let work = SESSION.start(EventKind::Upload, bytes, 0, None);
    let answer = wrapped.call(arguments);
    (arguments.client, arguments.device, arguments.memory) = (client, device, memory);
    let inner = answer.and_then(|()| present(arguments.buffer, Buffer::NAME));
    let inner = match inner {
        Ok(inner) => inner,
        Err(failure) => {
            SESSION.abandon(&work);
            return Err(failure);
        }
    };
    SESSION.activity.uploads.fetch_add(1, Ordering::Relaxed);
    SESSION
        .activity
        .upload_bytes
        .fetch_add(bytes, Ordering::Relaxed);
    event::watch(buffer::ready(inner), false, work);
    arguments.done_with_host_buffer = event::wrap(arguments.done_with_host_buffer);
    let share = Share::new(place, buffer::measure(inner));
    arguments.buffer = Buffer::adopt(owner, inner, Hold::of(share))?;
    Ok(())
}

pub fn to_host(arguments: &mut BufferToHostBuffer) -> Answer {
    let buffer = own::<Buffer>(arguments.src)?;
    let raw = arguments.src;
    // Without a destination the caller only asks how large it must be.
    let asks = arguments.dst.is_null();
    let bytes = if asks { 0 } else { arguments.dst_size as u64 };
    arguments.src = buffer.inner();
    let work = (!asks).then(|| SESSION.start(EventKind::Download, bytes, 0, None));
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    arguments.src = raw;
    let Some(work) = work else { return answer };
    downloaded(answer, bytes, work, &mut arguments.event)
}

pub fn raw_to_host(arguments: &mut BufferCopyRawToHost) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    let raw = arguments.buffer;
    let bytes = arguments.transfer_size.max(0) as u64;
    arguments.buffer = buffer.inner();
    let work = SESSION.start(EventKind::Download, bytes, 0, None);
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    arguments.buffer = raw;
    downloaded(answer, bytes, work, &mut arguments.event)
}

pub fn raw_to_host_future(arguments: &mut BufferCopyRawToHostFuture) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    let raw = arguments.buffer;
    let bytes = arguments.transfer_size.max(0) as u64;
    arguments.buffer = buffer.inner();
    let work = SESSION.start(EventKind::Download, bytes, 0, None);
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    arguments.buffer = raw;
    downloaded(answer, bytes, work, &mut arguments.event)
}

fn downloaded(answer: Answer, bytes: u64, work: crate::session::Work, event: &mut Raw) -> Answer {
    if let Err(failure) = answer {
        SESSION.abandon(&work);
        return Err(record_failure(failure));
    }
    SESSION.activity.downloads.fetch_add(1, Ordering::Relaxed);
    SESSION
        .activity
        .download_bytes
        .fetch_add(bytes, Ordering::Relaxed);
    event::watch(*event, true, work);
    *event = event::wrap(*event);
    Ok(())
}

pub fn copy_to_device(arguments: &mut BufferCopyToDevice) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    let (raw, device) = (arguments.buffer, arguments.dst_device);
    let target = own::<Device>(device)?;
    admit(target.place, buffer.bytes(), "a copy of a tensor").map_err(record_failure)?;
    arguments.dst_device = target.inner();
    arguments.buffer = buffer.inner();
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    (arguments.buffer, arguments.dst_device) = (raw, device);
    answer.map_err(record_failure)?;
    arguments.dst_buffer = Buffer::adopt_new(buffer.client, arguments.dst_buffer)?;
    Ok(())
}

pub fn copy_to_memory(arguments: &mut BufferCopyToMemory) -> Answer {
    let buffer = own::<Buffer>(arguments.buffer)?;
    let (raw, memory) = (arguments.buffer, arguments.dst_memory);
    let target = own::<Memory>(memory)?;
    admit(target.place(), buffer.bytes(), "a copy of a tensor").map_err(record_failure)?;
    arguments.dst_memory = target.inner();
    arguments.buffer = buffer.inner();
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    (arguments.buffer, arguments.dst_memory) = (raw, memory);
    answer.map_err(record_failure)?;
    arguments.dst_buffer = Buffer::adopt_new(buffer.client, arguments.dst_buffer)?;
    Ok(())
}

pub fn uninitialized(arguments: &mut ClientCreateUninitializedBuffer) -> Answer {
    let (client, device, memory) = (arguments.client, arguments.device, arguments.memory);
    let owner = client_of(client)?;
    let dimensions = slice::<i64>(arguments.shape_dims, arguments.shape_num_dims);
    admit(
        destination(device, memory)?,
        dense_bytes(dimensions, arguments.shape_element_type),
        "a new tensor",
    )
    .map_err(record_failure)?;
    arguments.client = owner.inner();
    arguments.device = inner_device(device)?;
    arguments.memory = inner_memory(memory)?;
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    (arguments.client, arguments.device, arguments.memory) = (client, device, memory);
    answer.map_err(record_failure)?;
    arguments.buffer = Buffer::adopt_new(owner, arguments.buffer)?;
    Ok(())
}

/// A view of memory somebody else owns and counts: no bytes of its own.
pub fn view(arguments: &mut ClientCreateViewOfDeviceBuffer) -> Answer {
    let (client, device, memory) = (arguments.client, arguments.device, arguments.memory);
    let owner = client_of(client)?;
    arguments.client = owner.inner();
    arguments.device = inner_device(device)?;
    arguments.memory = inner_memory(memory)?;
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    (arguments.client, arguments.device, arguments.memory) = (client, device, memory);
    answer?;
    arguments.buffer = Buffer::adopt(owner, arguments.buffer, Hold::nothing())?;
    Ok(())
}

/// A buffer that only carries an error has no memory.
pub fn error_buffer(arguments: &mut ClientCreateErrorBuffer) -> Answer {
    let (client, memory) = (arguments.client, arguments.memory);
    let owner = client_of(client)?;
    arguments.client = owner.inner();
    arguments.memory = inner_memory(memory)?;
    let answer = wrapped::get().and_then(|wrapped| wrapped.call(arguments));
    (arguments.client, arguments.memory) = (client, memory);
    answer?;
    arguments.buffer = Buffer::adopt(owner, arguments.buffer, Hold::nothing())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_arrays_saturate_instead_of_wrapping() {
        assert_eq!(dense_bytes(&[2, 3], 11), 24);
        assert_eq!(dense_bytes(&[], 12), 8);
        assert_eq!(dense_bytes(&[0, 9], 11), 0);
        assert_eq!(dense_bytes(&[i64::MAX, i64::MAX], 12), u64::MAX);
    }

    #[test]
    fn out_of_memory_names_what_was_wanted_and_what_is_free() {
        let shortage = Shortage {
            wanted: 400 << 20,
            live: 900 << 20,
            limit: 1 << 30,
        };
        assert_eq!(
            explain(shortage, "a new tensor"),
            "out of device memory: a new tensor needs 400.00 MiB more, 124.00 MiB of 1.00 GiB are free (900.00 MiB \
             in use). Delete tensors that are no longer needed, or use smaller ones."
        );
    }

    #[test]
    fn a_few_bytes_too_few_are_told_in_full() {
        let shortage = Shortage {
            wanted: 64 << 20,
            live: (32 << 20) + 8,
            limit: 96 << 20,
        };
        assert_eq!(
            explain(shortage, "a new tensor"),
            "out of device memory: a new tensor needs 67108864 bytes more, 67108856 bytes of 96.00 MiB are free \
             (32.00 MiB in use). Delete tensors that are no longer needed, or use smaller ones."
        );
    }
}
