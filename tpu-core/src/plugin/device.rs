//! Devices: their memories, and what is on them.

use super::description::{DeviceDescription, emulated_attributes};
use super::failure::Answer;
use super::handle::{Handle, forward, hold, own};
use super::memory::Memory;
use super::wrapped;
use crate::pjrt::{
    DeviceAddressableMemories, DeviceClearMemoryStats, DeviceDefaultMemory, DeviceGetAttributes,
    DeviceGetDescription, DeviceMemoryStats, Raw,
};
use crate::session::{Place, SESSION};

/// A device of a client. Lives as long as the process, as the client does.
pub struct Device {
    pub inner: Raw,
    /// Its number.
    pub id: i32,
    /// Where what is on it is counted.
    pub place: Place,
    pub description: Raw,
    pub memories: Vec<Raw>,
    pub default_memory: Raw,
}

impl Handle for Device {
    const NAME: &'static str = "device";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Device {
    /// The wrapped plug-in's default memory of the device.
    pub fn default(&self) -> Option<Raw> {
        own::<Memory>(self.default_memory).ok().map(Handle::inner)
    }
}

pub fn description(arguments: &mut DeviceGetDescription) -> Answer {
    let device = own::<Device>(arguments.device)?;
    own::<DeviceDescription>(device.description)?;
    arguments.device_description = device.description;
    Ok(())
}

pub fn memories(arguments: &mut DeviceAddressableMemories) -> Answer {
    let device = own::<Device>(arguments.device)?;
    arguments.memories = device.memories.as_ptr().cast_mut().cast();
    arguments.num_memories = device.memories.len();
    Ok(())
}

pub fn default_memory(arguments: &mut DeviceDefaultMemory) -> Answer {
    arguments.memory = own::<Device>(arguments.device)?.default_memory;
    Ok(())
}

/// A real chip counts for itself; for the emulated one the session's count is the truth.
///
/// Callers do not clear the struct, and its last flag ends at byte 201 of 208: every field is
/// written, present or not.
pub fn memory_stats(arguments: &mut DeviceMemoryStats) -> Answer {
    if wrapped::get()?.real {
        return forward::<_, Device>(arguments, |arguments| &mut arguments.device);
    }
    let place = own::<Device>(arguments.device)?.place;
    let memory = SESSION.residency.memory(place);
    let (live, peak) = (memory.live_bytes as i64, memory.peak_bytes as i64);
    let limit = SESSION.residency.limit() as i64;
    arguments.bytes_in_use = live;
    arguments.peak_bytes_in_use = peak;
    arguments.peak_bytes_in_use_is_set = 1;
    arguments.num_allocs = memory.live_buffers as i64;
    arguments.num_allocs_is_set = 1;
    arguments.largest_alloc_size = memory.largest_bytes as i64;
    arguments.largest_alloc_size_is_set = 1;
    arguments.bytes_limit = limit;
    arguments.bytes_limit_is_set = 1;
    arguments.bytes_reserved = 0;
    arguments.bytes_reserved_is_set = 1;
    arguments.peak_bytes_reserved = 0;
    arguments.peak_bytes_reserved_is_set = 1;
    arguments.bytes_reservable_limit = limit;
    arguments.bytes_reservable_limit_is_set = 1;
    arguments.largest_free_block_bytes = (limit - live).max(0);
    arguments.largest_free_block_bytes_is_set = 1;
    arguments.pool_bytes = 0;
    arguments.pool_bytes_is_set = 0;
    arguments.peak_pool_bytes = 0;
    arguments.peak_pool_bytes_is_set = 0;
    arguments.peak_allocated_bytes = peak;
    arguments.peak_allocated_bytes_is_set = 1;
    Ok(())
}

pub fn clear_memory_stats(arguments: &mut DeviceClearMemoryStats) -> Answer {
    SESSION.residency.reset_peak();
    if wrapped::get()?.real {
        return forward::<_, Device>(arguments, |arguments| &mut arguments.device);
    }
    own::<Device>(arguments.device)?;
    Ok(())
}

pub fn attributes(arguments: &mut DeviceGetAttributes) -> Answer {
    let wrapped = wrapped::get()?;
    if wrapped.real {
        forward::<_, Device>(arguments, |arguments| &mut arguments.device)?;
        hold(
            &mut arguments.device_attributes,
            &mut arguments.attributes_deleter,
        );
        return Ok(());
    }
    own::<Device>(arguments.device)?;
    let attributes = emulated_attributes(wrapped.generation);
    arguments.attributes = attributes.as_ptr().cast_mut().cast();
    arguments.num_attributes = attributes.len();
    arguments.device_attributes = std::ptr::null_mut();
    arguments.attributes_deleter = keep as *mut _;
    Ok(())
}

/// Deleter of attributes that are static.
unsafe extern "C" fn keep(_attributes: Raw) {}
