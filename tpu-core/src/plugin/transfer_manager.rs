//! Buffers that are filled from the host piece by piece. Their memory is there from the start, and
//! is the manager's until each is retrieved.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use super::buffer::{Buffer, client_of};
use super::client::Client;
use super::event;
use super::failure::Answer;
use super::handle::{Handle, forward, give, own, present, take};
use super::memory::Memory;
use super::transfer::{admit, dense_bytes, record_failure};
use super::wrapped::{self, slice};
use crate::pjrt::{
    Arguments, ClientCreateBuffersForAsyncHostToDevice, Raw, ShapeSpec, TransferManagerBufferSize,
    TransferManagerDestroy, TransferManagerDevice, TransferManagerRetrieveBuffer,
    TransferManagerTransferData, TransferManagerTransferLiteral,
};
use crate::session::{EventKind, Hold, Place, SESSION, Share, Work};

/// A manager and the memory of its buffers that nobody has retrieved.
pub struct TransferManager {
    inner: Raw,
    client: &'static Client,
    shares: Mutex<Vec<Option<Share>>>,
}

impl Handle for TransferManager {
    const NAME: &'static str = "transfer manager";

    fn inner(&self) -> Raw {
        self.inner
    }
}

pub fn create(arguments: &mut ClientCreateBuffersForAsyncHostToDevice) -> Answer {
    create_and_count(arguments).map_err(record_failure)
}

fn create_and_count(arguments: &mut ClientCreateBuffersForAsyncHostToDevice) -> Answer {
    let client = client_of(arguments.client)?;
    let place = if arguments.memory.is_null() {
        Place::Device(0)
    } else {
        own::<Memory>(arguments.memory)?.place()
    };
    let sizes = dense_sizes(arguments);
    let total = sizes.iter().copied().fold(0, u64::saturating_add);
    admit(place, total, "tensors copied from the host")?;
    let mut inner = arguments.copied();
    inner.client = client.inner();
    inner.memory = super::transfer::inner_memory(arguments.memory)?;
    wrapped::get()?.call(&mut inner)?;
    let manager = present(inner.transfer_manager, TransferManager::NAME)?;
    let shares = (0..).zip(sizes).map(|(index, dense)| {
        let bytes = measure(manager, index).unwrap_or(dense);
        Some(Share::new(place, bytes))
    });
    arguments.transfer_manager = give(TransferManager {
        inner: manager,
        client,
        shares: Mutex::new(shares.collect()),
    });
    Ok(())
}

/// Bytes of each buffer asked for, as a dense array.
fn dense_sizes(arguments: &ClientCreateBuffersForAsyncHostToDevice) -> Vec<u64> {
    slice::<ShapeSpec>(arguments.shape_specs, arguments.num_shape_specs)
        .iter()
        .map(|shape| {
            let dimensions = slice::<i64>(shape.dims.cast_mut().cast(), shape.num_dims);
            dense_bytes(dimensions, shape.element_type)
        })
        .collect()
}

/// Bytes of a buffer as the plug-in allocated it.
fn measure(manager: Raw, index: i32) -> Option<u64> {
    let mut arguments = TransferManagerBufferSize::new();
    arguments.transfer_manager = manager;
    arguments.buffer_index = index;
    wrapped::get().ok()?.call(&mut arguments).ok()?;
    Some(arguments.buffer_size as u64)
}

/// What was not retrieved goes with the manager.
pub fn destroy(arguments: &mut TransferManagerDestroy) -> Answer {
    let Some(manager) = take::<TransferManager>(arguments.transfer_manager) else {
        return Ok(());
    };
    let mut inner = TransferManagerDestroy::new();
    inner.transfer_manager = manager.inner;
    wrapped::get()?.call(&mut inner)
}

pub fn retrieve(arguments: &mut TransferManagerRetrieveBuffer) -> Answer {
    let manager = own::<TransferManager>(arguments.transfer_manager)?;
    forward::<_, TransferManager>(arguments, |arguments| &mut arguments.transfer_manager)?;
    let share = usize::try_from(arguments.buffer_index)
        .ok()
        .and_then(|index| {
            let mut shares = manager
                .shares
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            shares.get_mut(index)?.take()
        });
    let hold = share.map_or_else(Hold::nothing, Hold::of);
    arguments.buffer_out = Buffer::adopt(manager.client, arguments.buffer_out, hold)?;
    Ok(())
}

pub fn device(arguments: &mut TransferManagerDevice) -> Answer {
    let client = own::<TransferManager>(arguments.transfer_manager)?.client;
    forward::<_, TransferManager>(arguments, |arguments| &mut arguments.transfer_manager)?;
    arguments.device_out = client.device(arguments.device_out)?;
    Ok(())
}

pub fn transfer(arguments: &mut TransferManagerTransferData) -> Answer {
    let bytes = arguments.transfer_size.max(0) as u64;
    let work = SESSION.start(EventKind::Upload, bytes, 0, None);
    let answer =
        forward::<_, TransferManager>(arguments, |arguments| &mut arguments.transfer_manager);
    uploaded(answer, bytes, work, &mut arguments.done_with_h2d_transfer)
}

pub fn transfer_literal(arguments: &mut TransferManagerTransferLiteral) -> Answer {
    let dimensions = slice::<i64>(arguments.shape_dims, arguments.shape_num_dims);
    let bytes = dense_bytes(dimensions, arguments.shape_element_type);
    let work = SESSION.start(EventKind::Upload, bytes, 0, None);
    let answer =
        forward::<_, TransferManager>(arguments, |arguments| &mut arguments.transfer_manager);
    uploaded(answer, bytes, work, &mut arguments.done_with_h2d_transfer)
}

fn uploaded(answer: Answer, bytes: u64, work: Work, done: &mut Raw) -> Answer {
    if let Err(failure) = answer {
        SESSION.abandon(&work);
        return Err(record_failure(failure));
    }
    SESSION.activity.uploads.fetch_add(1, Ordering::Relaxed);
    SESSION
        .activity
        .upload_bytes
        .fetch_add(bytes, Ordering::Relaxed);
    event::watch(*done, true, work);
    *done = event::wrap(*done);
    Ok(())
}
