//! The function table a plug-in gives out, and the head of the extension chain.

use std::ffi::c_void;

use super::Raw;

/// Functions in the table of versions 0.114 to 0.117.
pub const SLOT_COUNT: usize = 138;

/// Where the functions start, in bytes.
pub const TABLE_OFFSET: usize = 40;

/// Any function of the table: takes its argument struct, returns an error or null.
pub type Function = unsafe extern "C" fn(Raw) -> Raw;

/// Version of the interface a plug-in was built with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApiVersion {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub major: i32,
    pub minor: i32,
}

/// The table. A plug-in of an older version has fewer slots: read no slot beyond `struct_size`.
#[repr(C)]
pub struct Api {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub version: ApiVersion,
    pub slots: [Option<Function>; SLOT_COUNT],
}

/// What every extension begins with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExtensionBase {
    pub struct_size: usize,
    pub kind: u32,
    pub next: *mut ExtensionBase,
}

// SAFETY: a finished table is never written again, and its pointers are to functions and statics.
unsafe impl Sync for Api {}
// SAFETY: see above; nothing in it belongs to a thread.
unsafe impl Send for Api {}

const _: () = assert!(size_of::<Api>() == 1144);
const _: () = assert!(std::mem::offset_of!(Api, slots) == TABLE_OFFSET);
const _: () = assert!(size_of::<ApiVersion>() == 24);
const _: () = assert!(size_of::<ExtensionBase>() == 24);
const _: () = assert!(size_of::<*mut c_void>() == 8);
