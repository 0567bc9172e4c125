//! The C table through which the host program reads and steers the session.
//!
//! Version 1. Fields are only ever appended; a reader checks `struct_size` before it uses a field
//! it knows to be newer. All functions may be called from any thread at any time.

use std::ffi::{c_char, c_void};
use std::panic::{UnwindSafe, catch_unwind};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::session::{SESSION, Watcher, now_ns, unix_ns};

/// Version of [`TpuCoreApi`].
pub const VERSION: u32 = 1;

/// Most bytes of events of launches and transfers that a host program can have kept.
const MOST_KEPT: usize = 64 << 20;

/// Counters of the session. Bytes and nanoseconds; all sums run from the start of the process.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Bytes of this struct in the library that filled it.
    pub struct_size: u64,
    /// Bytes of live device buffers.
    pub live_bytes: u64,
    /// Most bytes live at once since the start or the last reset.
    pub peak_bytes: u64,
    /// Bytes there may be at once; 0 when nobody limits them here.
    pub limit_bytes: u64,
    /// Live device buffers.
    pub live_buffers: u64,
    /// Largest buffer since the start or the last reset of the peak.
    pub largest_bytes: u64,
    /// Buffers ever made.
    pub allocations: u64,
    /// Buffers taken over by a program that wrote its result in their place.
    pub donations: u64,
    /// Programs compiled, and the time that took.
    pub compiles: u64,
    pub compile_ns: u64,
    /// Programs loaded from a cache instead, and the time that took.
    pub cache_hits: u64,
    pub cache_hit_ns: u64,
    /// Launches accepted, and the time the device was busy with them.
    pub executions: u64,
    pub busy_ns: u64,
    /// Host to device.
    pub uploads: u64,
    pub upload_bytes: u64,
    /// Device to host.
    pub downloads: u64,
    pub download_bytes: u64,
    /// Failures, asynchronous ones included.
    pub errors: u64,
    /// Launches and transfers begun, and those not yet ended.
    pub issued: u64,
    pub pending: u64,
    /// Sequence number the next event will have: the cursor that skips all earlier ones.
    pub next_sequence: u64,
    /// 1 when the chip is emulated.
    pub emulated: u64,
    /// Programs loaded on the device now, and programs that ran at least once: of `executions`, all
    /// but these found their program in memory.
    pub loaded_programs: u64,
    pub programs_run: u64,
    /// Most bytes live at once since the cell that runs was named.
    pub cell_peak_bytes: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        // SAFETY: a struct of integers only, for which zero is a value.
        let mut snapshot: Self = unsafe { std::mem::zeroed() };
        snapshot.struct_size = size_of::<Self>() as u64;
        snapshot
    }
}

/// Takes bytes that are valid during the call. The first argument is the caller's own.
pub type Sink = unsafe extern "C" fn(context: *mut c_void, data: *const u8, size: usize);

/// The table. Get it with [`tpu_core_api`].
#[repr(C)]
pub struct TpuCoreApi {
    pub struct_size: usize,
    pub version: u32,
    /// Fill at most `size` bytes of a [`Snapshot`]; false while no client exists.
    pub snapshot: unsafe extern "C" fn(out: *mut Snapshot, size: usize) -> bool,
    /// Give the sink a JSON array of the events from `cursor` on; returns the next cursor.
    pub events: unsafe extern "C" fn(cursor: u64, sink: Sink, context: *mut c_void) -> u64,
    /// Stamp what starts from now on with this cell, in UTF-8; empty means no cell.
    pub set_cell: unsafe extern "C" fn(name: *const c_char, size: usize),
    /// Bytes there may be on the device; 0 goes back to the chip's own limit.
    pub set_limit: unsafe extern "C" fn(bytes: u64),
    /// Wait until what was issued before the call has ended; false when the time is over first.
    pub wait_idle: unsafe extern "C" fn(timeout_ns: u64) -> bool,
    /// Give the sink the identity of the device as a JSON object; false while no client exists.
    pub identity: unsafe extern "C" fn(sink: Sink, context: *mut c_void) -> bool,
    /// Start peak and largest again from what is live.
    pub reset_peak: unsafe extern "C" fn(),
    /// Give the sink, as a JSON object, which plug-in would be wrapped and why.
    pub choice: unsafe extern "C" fn(sink: Sink, context: *mut c_void),
    /// Give the sink a JSON array of what goes on now: compiles, and the oldest launch or transfer
    /// that has not ended.
    pub ongoing: unsafe extern "C" fn(sink: Sink, context: *mut c_void),
    /// Give the sink, as a JSON object, who has how much memory: each device, the host, each cell.
    pub holdings: unsafe extern "C" fn(sink: Sink, context: *mut c_void),
    /// Give the sink a JSON array of the PJRT functions that were called, how often, and how large
    /// the caller's argument struct was.
    pub calls: unsafe extern "C" fn(sink: Sink, context: *mut c_void),
    /// Refuse launches that wait, and those that come, until `resume`. What runs is not stopped.
    pub cancel: unsafe extern "C" fn(),
    /// Launch again; returns how many launches were refused.
    pub resume: unsafe extern "C" fn() -> u64,
    /// Launches are refused now.
    pub cancelling: unsafe extern "C" fn() -> bool,
    /// Give the sink a JSON array of the programs from number `cursor` on, as far as they are
    /// remembered; returns the next cursor.
    pub programs: unsafe extern "C" fn(cursor: u64, sink: Sink, context: *mut c_void) -> u64,
    /// Call this function when a compile begins, on the thread that compiles; null for none. It must
    /// not wait for a lock that a thread holds which waits for the device.
    pub watch_compiles: extern "C" fn(watcher: Option<Watcher>),
    /// Say where in its cell a program comes from, in UTF-8.
    pub set_place: unsafe extern "C" fn(number: u64, place: *const c_char, size: usize),
    /// Give the sink, as a JSON object, what the wrapped plug-in is and has, loading it if need be;
    /// `null` where it cannot be loaded.
    pub plugin: unsafe extern "C" fn(sink: Sink, context: *mut c_void),
    /// Keep as many bytes of events of launches and transfers as this, for a reader who wants all of
    /// a stretch of time; 0 goes back to what is kept usually. Returns the time it is on the clock
    /// of the events.
    pub keep_events: unsafe extern "C" fn(bytes: u64) -> u64,
    /// Give the sink what the compiler made of the loaded program with this fingerprint, as the
    /// plug-in tells it: a serialised `HloProto`. False where there is none; the sink then gets one
    /// line that says why.
    pub optimized: unsafe extern "C" fn(
        fingerprint: *const c_char,
        size: usize,
        sink: Sink,
        context: *mut c_void,
    ) -> bool,
}

static TABLE: TpuCoreApi = TpuCoreApi {
    struct_size: size_of::<TpuCoreApi>(),
    version: VERSION,
    snapshot,
    events,
    set_cell,
    set_limit,
    wait_idle,
    identity,
    reset_peak,
    choice: describe_choice,
    ongoing,
    holdings,
    calls,
    cancel,
    resume,
    cancelling,
    programs,
    watch_compiles,
    set_place,
    plugin,
    keep_events,
    optimized,
};

/// The table of this library; valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tpu_core_api() -> *const TpuCoreApi {
    &raw const TABLE
}

unsafe extern "C" fn snapshot(out: *mut Snapshot, size: usize) -> bool {
    let Some(snapshot) = SESSION.snapshot() else {
        return false;
    };
    if out.is_null() {
        return false;
    }
    let size = size.min(size_of::<Snapshot>());
    // SAFETY: the caller gave room for `size` bytes; a prefix of integers is copied.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const snapshot).cast::<u8>(), out.cast::<u8>(), size);
    }
    true
}

unsafe extern "C" fn events(cursor: u64, sink: Sink, context: *mut c_void) -> u64 {
    catch_unwind(|| {
        let (next, events) = SESSION.events(cursor);
        let text = serde_json::to_vec(&events).unwrap_or_else(|_| b"[]".to_vec());
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, text.as_ptr(), text.len()) };
        next
    })
    .unwrap_or(cursor)
}

unsafe extern "C" fn set_cell(name: *const c_char, size: usize) {
    let _ = catch_unwind(|| {
        if name.is_null() || size == 0 {
            SESSION.enter_cell("");
            return;
        }
        // SAFETY: the caller gives `size` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(name.cast::<u8>(), size) };
        SESSION.enter_cell(&String::from_utf8_lossy(bytes));
    });
}

unsafe extern "C" fn set_limit(bytes: u64) {
    SESSION.residency.set_limit(bytes);
}

unsafe extern "C" fn wait_idle(timeout_ns: u64) -> bool {
    catch_unwind(|| SESSION.wait_idle(Duration::from_nanos(timeout_ns))).unwrap_or(false)
}

unsafe extern "C" fn cancel() {
    SESSION.window.cancel();
}

unsafe extern "C" fn resume() -> u64 {
    SESSION.window.resume()
}

unsafe extern "C" fn cancelling() -> bool {
    SESSION.window.is_cancelling()
}

unsafe extern "C" fn reset_peak() {
    SESSION.residency.reset_peak();
}

unsafe extern "C" fn identity(sink: Sink, context: *mut c_void) -> bool {
    catch_unwind(|| {
        let Some(identity) = SESSION.identity() else {
            return false;
        };
        let text = serde_json::to_vec(identity).unwrap_or_default();
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, text.as_ptr(), text.len()) };
        true
    })
    .unwrap_or(false)
}

/// Give the sink what `make` returns, as JSON.
fn tell<T: Serialize>(sink: Sink, context: *mut c_void, make: impl FnOnce() -> T + UnwindSafe) {
    let _ = catch_unwind(|| {
        let text = serde_json::to_vec(&make()).unwrap_or_default();
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, text.as_ptr(), text.len()) };
    });
}

unsafe extern "C" fn describe_choice(sink: Sink, context: *mut c_void) {
    tell(sink, context, choice::describe);
}

unsafe extern "C" fn ongoing(sink: Sink, context: *mut c_void) {
    tell(sink, context, || SESSION.ongoing());
}

unsafe extern "C" fn holdings(sink: Sink, context: *mut c_void) {
    tell(sink, context, || SESSION.holdings());
}

unsafe extern "C" fn calls(sink: Sink, context: *mut c_void) {
    tell(sink, context, crate::plugin::calls);
}

unsafe extern "C" fn programs(cursor: u64, sink: Sink, context: *mut c_void) -> u64 {
    catch_unwind(|| {
        let (next, programs) = SESSION.programs(cursor);
        let text = serde_json::to_vec(&programs).unwrap_or_else(|_| b"[]".to_vec());
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, text.as_ptr(), text.len()) };
        next
    })
    .unwrap_or(cursor)
}

extern "C" fn watch_compiles(watcher: Option<Watcher>) {
    SESSION.programs.watch(watcher);
}

unsafe extern "C" fn set_place(number: u64, place: *const c_char, size: usize) {
    let _ = catch_unwind(|| {
        if place.is_null() {
            return;
        }
        // SAFETY: the caller gives `size` readable bytes.
        let bytes = unsafe { std::slice::from_raw_parts(place.cast::<u8>(), size) };
        let text = String::from_utf8_lossy(&bytes[..size.min(256)]);
        SESSION.programs.place(number, &text);
    });
}

unsafe extern "C" fn keep_events(bytes: u64) -> u64 {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(MOST_KEPT);
    let _ = catch_unwind(|| SESSION.journal.keep(bytes));
    unix_ns(now_ns())
}

unsafe extern "C" fn optimized(
    fingerprint: *const c_char,
    size: usize,
    sink: Sink,
    context: *mut c_void,
) -> bool {
    catch_unwind(|| {
        if fingerprint.is_null() {
            return false;
        }
        // SAFETY: the caller gives `size` readable bytes.
        let fingerprint = unsafe { std::slice::from_raw_parts(fingerprint.cast::<u8>(), size) };
        let found = crate::plugin::optimized(fingerprint);
        let told = match &found {
            Ok(program) => program.as_slice(),
            Err(problem) => problem.as_bytes(),
        };
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, told.as_ptr(), told.len()) };
        found.is_ok()
    })
    .unwrap_or(false)
}

unsafe extern "C" fn plugin(sink: Sink, context: *mut c_void) {
    tell(sink, context, crate::plugin::describe);
}

/// As [`TpuCoreApi::choice`], for a caller that has no table yet: the bootstrap.
///
/// # Safety
/// `sink` must accept bytes that are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpu_core_choice(sink: Sink, context: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { describe_choice(sink, context) };
}

/// Load the plug-in to wrap. False when that fails; the sink then gets one line that says why.
/// `TorchTPU` ends the process when it meets such a failure, so the bootstrap asks first.
///
/// # Safety
/// `sink` must accept bytes that are valid during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpu_core_load(sink: Sink, context: *mut c_void) -> bool {
    catch_unwind(|| {
        let Some(problem) = crate::plugin::problem() else {
            return true;
        };
        // SAFETY: the bytes live until the sink returns.
        unsafe { sink(context, problem.as_ptr(), problem.len()) };
        false
    })
    .unwrap_or(false)
}
