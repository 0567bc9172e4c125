//! The layouts extension: how the elements of a buffer lie in memory.

use super::{ExtensionBase, Function, Raw};

/// Type number of the extension in the chain.
pub const LAYOUTS_EXTENSION: u32 = 4;

/// Functions of the extension, in its order. Older plug-ins end sooner.
#[repr(C)]
pub struct LayoutsExtension {
    pub base: ExtensionBase,
    pub functions: [Option<Function>; LAYOUT_FUNCTIONS],
}

/// Functions in the extension of versions 0.93 and later.
pub const LAYOUT_FUNCTIONS: usize = 7;

// SAFETY: never written once the table is given out; points to functions only.
unsafe impl Sync for LayoutsExtension {}
// SAFETY: see above.
unsafe impl Send for LayoutsExtension {}

macro_rules! layout_arguments {
    ($( $(#[$meta:meta])* $name:ident, $index:literal { $($field:ident : $type:ty),* $(,)? } )*) => { $(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            pub struct_size: usize,
            pub extension_start: Raw,
            $(pub $field: $type,)*
        }

        impl $name {
            /// Index into [`LayoutsExtension::functions`].
            pub const INDEX: usize = $index;
        }
    )* };
}

layout_arguments! {
    /// Free a layout the caller owns.
    LayoutDestroy, 0 { layout: Raw }
    /// Bytes of a layout, freed through the deleter.
    LayoutSerialize, 1 {
        layout: Raw, serialized_bytes: Raw, serialized_bytes_size: usize, serialized_layout: Raw,
        serialized_layout_deleter: Raw,
    }
    /// Layout a client would choose for a shape.
    ClientDefaultLayout, 2 { client: Raw, kind: u32, dims: Raw, num_dims: usize, layout: Raw }
    /// Layout of a buffer.
    BufferLayout, 3 { buffer: Raw, layout: Raw }
    /// Layout a topology would choose for a shape.
    TopologyDefaultLayout, 4 {
        topology_description: Raw, kind: u32, dims: Raw, num_dims: usize, layout: Raw,
    }
    /// Layouts of a program's results; they belong to the executable.
    OutputLayouts, 5 { executable: Raw, num_outputs: usize, layouts: Raw }
    /// Layouts of a program's arguments; they belong to the executable.
    ParameterLayouts, 6 { executable: Raw, num_parameters: usize, layouts: Raw }
}

const _: () = assert!(size_of::<LayoutsExtension>() == 80);
const _: () = assert!(size_of::<LayoutDestroy>() == 24);
const _: () = assert!(size_of::<LayoutSerialize>() == 56);
const _: () = assert!(size_of::<ClientDefaultLayout>() == 56);
const _: () = assert!(size_of::<BufferLayout>() == 32);
const _: () = assert!(size_of::<TopologyDefaultLayout>() == 56);
const _: () = assert!(size_of::<OutputLayouts>() == 40);
const _: () = assert!(size_of::<ParameterLayouts>() == 40);
