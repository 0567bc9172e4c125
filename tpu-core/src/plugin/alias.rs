//! Buffers that stand for one still to come: no memory of their own, and a part in that one's once
//! it is there.

use std::sync::Arc;

use super::buffer::{Buffer, client_of};
use super::failure::Answer;
use super::handle::{Handle, give, own, take};
use super::transfer::inner_memory;
use super::wrapped;
use crate::pjrt::{Arguments, ClientCreateAliasBuffer, ClientFulfillAliasBuffer, Raw};
use crate::session::{Hold, Promise};

/// What a caller keeps a promise with, once.
struct Fulfilment {
    inner: Raw,
    promise: Arc<Promise>,
}

impl Handle for Fulfilment {
    const NAME: &'static str = "fulfilment of an alias";

    fn inner(&self) -> Raw {
        self.inner
    }
}

pub fn create(arguments: &mut ClientCreateAliasBuffer) -> Answer {
    let client = client_of(arguments.client)?;
    let mut inner = arguments.copied();
    inner.client = client.inner();
    inner.memory = inner_memory(arguments.memory)?;
    wrapped::get()?.call(&mut inner)?;
    let promise = Promise::new();
    let hold = Hold::Later(Arc::clone(&promise));
    arguments.alias_buffer = Buffer::adopt(client, inner.alias_buffer, hold)?;
    arguments.fulfill_alias_buffer_cb = give(Fulfilment {
        inner: inner.fulfill_alias_buffer_cb,
        promise,
    });
    Ok(())
}

/// With a buffer the alias has its memory too; without one it carries an error.
pub fn fulfil(arguments: &mut ClientFulfillAliasBuffer) -> Answer {
    let client = client_of(arguments.client)?;
    let buffer = if arguments.buffer.is_null() {
        None
    } else {
        Some(own::<Buffer>(arguments.buffer)?)
    };
    let mut inner = arguments.copied();
    inner.client = client.inner();
    inner.buffer = buffer.map_or(std::ptr::null_mut(), Handle::inner);
    inner.fulfill_alias_buffer_cb = own::<Fulfilment>(arguments.fulfill_alias_buffer_cb)?.inner();
    wrapped::get()?.call(&mut inner)?;
    if let Some(fulfilment) = take::<Fulfilment>(arguments.fulfill_alias_buffer_cb) {
        let kept = buffer.filter(|_| arguments.status_code == 0);
        fulfilment
            .promise
            .settle(kept.and_then(Buffer::another_share));
    }
    Ok(())
}
