//! The page about the C table says all that is in it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::c_void;

use tpu_core::api::{Snapshot, TpuCoreApi, tpu_core_api};
use tpu_core::client::{CellMemory, Holdings, PlaceMemory};

const PAGE: &str = include_str!("../../docs/tpu-core.md");
const SOURCE: &str = include_str!("../src/api.rs");

/// Names the page does not have in code style, of all words that stand in `names`.
fn missing(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let said = |name: &String| {
        let found = PAGE.split(['`', '"', ' ', ',']).any(|word| word == name);
        !found
    };
    names.into_iter().filter(said).collect()
}

fn keys(value: &impl serde::Serialize) -> Vec<String> {
    let value = serde_json::to_value(value).unwrap();
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn every_field_of_the_table_its_structs_and_its_json_is_on_the_page() {
    let table = SOURCE.split("pub struct TpuCoreApi {").nth(1).unwrap();
    let table = table.split("\n}").next().unwrap();
    let fields = table
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split(':').next())
        .map(String::from)
        .collect::<Vec<_>>();
    assert_eq!(size_of::<TpuCoreApi>(), 8 * fields.len());
    assert_eq!(missing(fields), [""; 0]);
    assert_eq!(missing(keys(&Snapshot::default())), [""; 0]);
    assert_eq!(missing(keys(&Holdings::default())), [""; 0]);
    assert_eq!(missing(keys(&PlaceMemory::default())), [""; 0]);
    assert_eq!(missing(keys(&CellMemory::default())), [""; 0]);
    let (version, said) = (tpu_core::api::VERSION, "`version` is ");
    assert!(PAGE.contains(&format!("{said}{version}.")));
}

/// Room that shows what was written and what was not.
const UNTOUCHED: u8 = 0xA5;

unsafe extern "C" fn collect(context: *mut c_void, data: *const u8, size: usize) {
    // SAFETY: the context is the vector of the caller; data and size come together.
    unsafe { (*context.cast::<Vec<u8>>()).extend(std::slice::from_raw_parts(data, size)) };
}

#[test]
fn readers_of_every_size_and_cells_of_every_kind_are_served() {
    // SAFETY: the table of this process.
    let api = unsafe { &*tpu_core_api() };
    let mut room = [UNTOUCHED; 1024];
    for size in 0..1024 {
        // SAFETY: room for 1024 bytes.
        let known = unsafe { (api.snapshot)(room.as_mut_ptr().cast(), size) };
        assert!(!known, "there is no client");
    }
    assert!(room.iter().all(|byte| *byte == UNTOUCHED));
    for name in [&b"plain"[..], b"", b"\xff\xfe broken", &[b'x'; 10_000]] {
        // SAFETY: bytes that live during the call.
        unsafe { (api.set_cell)(name.as_ptr().cast(), name.len()) };
    }
    // SAFETY: null is no name; the sink is called during the call only.
    unsafe {
        (api.set_cell)(std::ptr::null(), 10);
        for cursor in [0, 1, u64::MAX] {
            let mut text: Vec<u8> = Vec::new();
            let next = (api.events)(cursor, collect, (&raw mut text).cast());
            assert_eq!((next, text.as_slice()), (0, &b"[]"[..]));
        }
        assert!((api.wait_idle)(0));
    }
}
