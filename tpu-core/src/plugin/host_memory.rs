//! Pinned memory (`pin_memory`): libtpu's own where it is wrapped and has some. To an emulated chip
//! all memory of the host is as near, so that ordinary memory serves.

use super::client::Client;
use super::failure::Answer;
use super::handle::{Handle, own};
use super::wrapped;
use crate::pjrt::{HostMemoryAllocate, Raw};

/// A page: no transfer shares one with other data.
const ALIGNMENT: usize = 4096;

pub fn allocate(arguments: &mut HostMemoryAllocate) -> Answer {
    let wrapped = wrapped::get()?;
    if let Some(function) = wrapped.host_memory() {
        let mut inner = *arguments;
        inner.struct_size = size_of::<HostMemoryAllocate>();
        inner.pointer = std::ptr::null_mut();
        inner.deleter = None;
        inner.client = own::<Client>(arguments.client)?.inner();
        wrapped.call_function(function, &mut inner)?;
        inner.client = arguments.client;
        *arguments = HostMemoryAllocate {
            struct_size: arguments.struct_size,
            ..inner
        };
        return Ok(());
    }
    arguments.pointer = std::ptr::null_mut();
    arguments.deleter = Some(free);
    arguments.deleter_argument = std::ptr::null_mut();
    // SAFETY: the place for the result is ours; on failure the null in it stays.
    unsafe { libc::posix_memalign(&raw mut arguments.pointer, ALIGNMENT, arguments.size.max(1)) };
    Ok(())
}

unsafe extern "C" fn free(pointer: Raw, _argument: Raw) {
    // SAFETY: the caller gives back what `allocate` gave it, once.
    unsafe { libc::free(pointer) };
}
