//! The host memory allocator extension: memory of the host that a device can read at full speed.

use super::{ExtensionBase, Function, Raw};

/// Type number of the extension in the chain.
pub const HOST_MEMORY_EXTENSION: u32 = 23;

/// The extension: one function.
#[repr(C)]
pub struct HostMemoryExtension {
    pub base: ExtensionBase,
    pub allocate: Option<Function>,
}

// SAFETY: never written once the table is given out; points to functions only.
unsafe impl Sync for HostMemoryExtension {}
// SAFETY: see above.
unsafe impl Send for HostMemoryExtension {}

/// New memory and what frees it. To callers an error is a reason to end the process: no memory is a
/// null pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct HostMemoryAllocate {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub client: Raw,
    pub size: usize,
    pub numa_node: i32,
    pub pointer: Raw,
    pub deleter: Option<unsafe extern "C" fn(Raw, Raw)>,
    pub deleter_argument: Raw,
}

const _: () = assert!(size_of::<HostMemoryExtension>() == 32);
const _: () = assert!(size_of::<HostMemoryAllocate>() == 64);
