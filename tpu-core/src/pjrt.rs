//! The PJRT C interface as this crate speaks it: table, argument structs, codes.
//!
//! Layouts are those of interface versions 0.114 to 0.117, in which all 138 slots agree in size;
//! older plug-ins know a prefix of the table and of each struct. Every size is asserted at compile
//! time. Nothing here has behaviour beyond finding a function in a table.

mod api;
mod arguments;
mod chip_topology;
mod host_memory;
mod layouts;
mod slots;
mod value;

pub use api::{Api, ApiVersion, ExtensionBase, Function, SLOT_COUNT, TABLE_OFFSET};
pub use arguments::*;
pub use chip_topology::*;
pub use host_memory::*;
pub use layouts::*;
pub use slots::{LAYOUT_NAMES, SLOT_NAMES};
pub use value::{Code, ExecuteOptions, NamedValue, Program, ShapeSpec, Value, element_bytes};

use std::ffi::c_void;

/// A handle or pointer whose type only its owner knows.
pub type Raw = *mut c_void;
