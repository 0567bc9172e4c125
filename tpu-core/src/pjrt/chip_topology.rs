//! The TPU topology extension: how many chips and cores there are, and where. Its structs have no
//! place for further extensions.

use super::{ExtensionBase, Function, Raw};

/// Type number of the extension in the chain.
pub const CHIP_TOPOLOGY_EXTENSION: u32 = 16;

/// Functions in the extension of libtpu 0.0.52; what is asked here is where it was in earlier ones.
pub const CHIP_TOPOLOGY_FUNCTIONS: usize = 32;

#[repr(C)]
pub struct ChipTopologyExtension {
    pub base: ExtensionBase,
    pub functions: [Option<Function>; CHIP_TOPOLOGY_FUNCTIONS],
}

// SAFETY: never written once the table is given out; points to functions only.
unsafe impl Sync for ChipTopologyExtension {}
// SAFETY: see above.
unsafe impl Send for ChipTopologyExtension {}

const _: () = assert!(size_of::<ChipTopologyExtension>() == 280);

macro_rules! questions {
    ($( $(#[$meta:meta])* $name:ident, $size:literal { $($field:ident : $type:ty),* $(,)? } )*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            pub struct_size: usize,
            pub topology: Raw,
            $(pub $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $size);
    )* };
}

questions! {
    /// Any question about one topology.
    ChipQuestion, 16 {}
    ChipFlag, 24 { flag: bool }
    ChipCount, 24 { count: i32 }
    /// Numbers of all processes.
    ProcessNumbers, 40 { room: i32, numbers: *mut i32, count: usize }
    /// Numbers of all devices of a process.
    DeviceNumbers, 40 { process: i32, room: i32, numbers: *mut i32, count: usize }
    /// Which process a chip or a device belongs to, and its number there.
    PlaceOfNumber, 32 { number: i32, process: i32, index: i32 }
    ProcessPlace, 48 { process: i32, room: usize, numbers: *mut i32, count: usize }
    ChipAt, 40 { place: *const i32, dimensions: usize, chip: i32 }
    DeviceAt, 40 { place: *const i32, dimensions: usize, index: i32, device: i32 }
    DevicePlace, 56 { device: i32, room: usize, numbers: *mut i32, count: usize, index: i32 }
    Bounds, 40 { room: usize, numbers: *mut i32, count: usize }
}
