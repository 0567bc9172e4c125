//! How often each function was called, and how large the caller's argument struct was: what a
//! caller uses of the interface, for whoever compares versions of both.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::pjrt::{LAYOUT_FUNCTIONS, LAYOUT_NAMES, Raw, SLOT_COUNT, SLOT_NAMES};

/// Functions outside the table: those of the layouts extension, then the host memory allocator's.
const OTHERS: usize = LAYOUT_FUNCTIONS + 1;
const HOST_MEMORY: usize = SLOT_COUNT + LAYOUT_FUNCTIONS;

static CALLS: [Calls; SLOT_COUNT + OTHERS] = [const { Calls::new() }; SLOT_COUNT + OTHERS];

struct Calls {
    number: AtomicU64,
    struct_size: AtomicU64,
}

impl Calls {
    const fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            struct_size: AtomicU64::new(0),
        }
    }
}

/// A function that was called.
#[derive(Serialize)]
pub struct Called {
    pub function: &'static str,
    pub calls: u64,
    /// What the caller said of its argument struct the last time.
    pub struct_size: u64,
}

/// The function at this slot is called.
pub fn note(slot: usize, arguments: Raw) {
    let Some(calls) = CALLS.get(slot) else {
        return;
    };
    calls.number.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller gives an argument struct, which begins with its size, or null.
    if let Some(size) = unsafe { arguments.cast::<usize>().as_ref() } {
        calls.struct_size.store(*size as u64, Ordering::Relaxed);
    }
}

/// A function of the layouts extension is called.
pub fn note_layouts(index: usize, arguments: Raw) {
    note(SLOT_COUNT + index, arguments);
}

/// The allocator of host memory is called.
pub fn note_host_memory(arguments: Raw) {
    note(HOST_MEMORY, arguments);
}

/// The functions that were called, in the order of the table.
pub fn list() -> Vec<Called> {
    let names = SLOT_NAMES
        .iter()
        .chain(&LAYOUT_NAMES)
        .chain(&["PJRT_HostMemoryAllocator_Allocate"]);
    let called = names.zip(&CALLS).map(|(function, calls)| Called {
        function,
        calls: calls.number.load(Ordering::Relaxed),
        struct_size: calls.struct_size.load(Ordering::Relaxed),
    });
    called.filter(|called| called.calls > 0).collect()
}
