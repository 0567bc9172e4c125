//! Plain data that crosses the interface: codes, named values, programs, launch options.

use std::ffi::{c_char, c_void};

use super::Raw;

/// Error codes of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub u32);

impl Code {
    pub const CANCELLED: Self = Self(1);
    pub const INVALID_ARGUMENT: Self = Self(3);
    pub const NOT_FOUND: Self = Self(5);
    pub const RESOURCE_EXHAUSTED: Self = Self(8);
    pub const UNIMPLEMENTED: Self = Self(12);
    pub const INTERNAL: Self = Self(13);

    /// The name users know from error messages.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "CANCELLED",
            3 => "INVALID_ARGUMENT",
            4 => "DEADLINE_EXCEEDED",
            5 => "NOT_FOUND",
            6 => "ALREADY_EXISTS",
            7 => "PERMISSION_DENIED",
            8 => "RESOURCE_EXHAUSTED",
            9 => "FAILED_PRECONDITION",
            10 => "ABORTED",
            11 => "OUT_OF_RANGE",
            12 => "UNIMPLEMENTED",
            13 => "INTERNAL",
            14 => "UNAVAILABLE",
            15 => "DATA_LOSS",
            16 => "UNAUTHENTICATED",
            _ => "UNKNOWN",
        }
    }
}

/// A program to compile.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Program {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub code: *mut c_char,
    pub code_size: usize,
    pub format: *const c_char,
    pub format_size: usize,
}

/// Options of a launch. Callers of newer versions have more behind it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ExecuteOptions {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub send_callbacks: Raw,
    pub recv_callbacks: Raw,
    pub num_send_ops: usize,
    pub num_recv_ops: usize,
    pub launch_id: i32,
    pub non_donatable_input_indices: *const i64,
    pub num_non_donatable_input_indices: usize,
    pub context: Raw,
    pub call_location: *const c_char,
    pub num_tasks: usize,
    pub task_ids: Raw,
    pub incarnation_ids: Raw,
    pub multi_slice_config: Raw,
    pub use_major_to_minor_data_layout_for_callbacks: u8,
    pub hlo_output_callbacks: Raw,
    pub num_hlo_output_callbacks: usize,
}

/// Shape of a buffer that is to come.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ShapeSpec {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub dims: *const i64,
    pub num_dims: usize,
    pub element_type: u32,
}

/// A key with a string, integer, integer list, float or flag.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NamedValue {
    pub struct_size: usize,
    pub extension_start: Raw,
    pub name: *const c_char,
    pub name_size: usize,
    pub kind: u32,
    pub value: ValueUnion,
    pub value_size: usize,
}

/// What `NamedValue::kind` selects.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ValueUnion {
    pub text: *const c_char,
    pub integer: i64,
    pub integers: *const i64,
    pub float: f32,
    pub flag: u8,
    pub raw: *const c_void,
}

/// A value this crate hands out. Lists must outlive every reader.
#[derive(Clone, Copy)]
pub enum Value {
    Integer(i64),
    Integers(&'static [i64]),
}

impl NamedValue {
    /// A value under `name`, pointing into static memory.
    pub fn new(name: &'static str, value: Value) -> Self {
        let (kind, union, value_size) = match value {
            Value::Integer(integer) => (1, ValueUnion { integer }, 1),
            Value::Integers(list) => (
                2,
                ValueUnion {
                    integers: list.as_ptr(),
                },
                list.len(),
            ),
        };
        Self {
            struct_size: 56,
            extension_start: std::ptr::null_mut(),
            name: name.as_ptr().cast(),
            name_size: name.len(),
            kind,
            value: union,
            value_size,
        }
    }
}

// SAFETY: made by `new`, which only takes static pointers; never written afterwards.
unsafe impl Send for NamedValue {}
// SAFETY: see above.
unsafe impl Sync for NamedValue {}

const _: () = assert!(size_of::<NamedValue>() == 56);
const _: () = assert!(size_of::<Program>() == 48);
const _: () = assert!(size_of::<ShapeSpec>() == 40);
const _: () = assert!(size_of::<ExecuteOptions>() == 144);

/// Bytes of one element of a buffer type, or 0 for one that has no data. Types of less than a
/// byte count as one, which is how a CPU stores them.
pub fn element_bytes(buffer_type: u32) -> u64 {
    match buffer_type {
        0 | 23 => 0,
        3 | 7 | 10 | 13 => 2,
        4 | 8 | 11 => 4,
        5 | 9 | 12 | 14 => 8,
        15 => 16,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_sizes_follow_the_type_numbers() {
        let cases = [
            (1, 1),
            (4, 4),
            (5, 8),
            (11, 4),
            (12, 8),
            (13, 2),
            (14, 8),
            (15, 16),
            (16, 1),
            (23, 0),
        ];
        for (buffer_type, bytes) in cases {
            assert_eq!(element_bytes(buffer_type), bytes, "type {buffer_type}");
        }
    }

    #[test]
    fn named_values_carry_their_kind_and_length() {
        let coordinates = NamedValue::new("coords", Value::Integers(&[0, 0, 0]));
        assert_eq!(
            (
                coordinates.kind,
                coordinates.value_size,
                coordinates.name_size
            ),
            (2, 3, 6)
        );
        let limit = NamedValue::new("limit", Value::Integer(7));
        assert_eq!((limit.kind, limit.value_size), (1, 1));
    }
}
