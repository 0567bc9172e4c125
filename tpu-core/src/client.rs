//! The host program's side of the C table: attach to the library and read its session safely.
//!
//! The library must be the same file `TorchTPU` loads: the loader then gives both the same
//! instance, and with it the same session.

use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::{Snapshot, TpuCoreApi, VERSION};
use crate::library;
use crate::session::Identity;
pub use crate::session::{
    CellMemory, Event, EventKind, Holdings, Ongoing, PlaceMemory, Program, Watcher,
};

/// Why a library cannot be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error("`{path}` cannot be loaded: {reason}")]
    Load { path: PathBuf, reason: String },
    #[error("`{path}` is not libtpu_core: it has no `tpu_core_api`")]
    NotTpuCore { path: PathBuf },
    #[error(
        "`{path}` has version {found} of the table, {VERSION} is needed: reinstall pytorch-tpu-kernel"
    )]
    Version { path: PathBuf, found: u32 },
}

/// The session of this process as its library counts it. Cheap to copy; never detached.
#[derive(Clone, Copy)]
pub struct Session {
    api: &'static TpuCoreApi,
}

impl Session {
    /// Load the library at `path` and take its table.
    pub fn attach(path: &Path) -> Result<Self, AttachError> {
        let library = library::open(path).map_err(|reason| AttachError::Load {
            path: path.to_owned(),
            reason,
        })?;
        let foreign = || AttachError::NotTpuCore {
            path: path.to_owned(),
        };
        let symbol = library::symbol(library, c"tpu_core_api").ok_or_else(foreign)?;
        // SAFETY: the symbol has this type in every version of the library.
        let getter: extern "C" fn() -> *const TpuCoreApi = unsafe { std::mem::transmute(symbol) };
        // SAFETY: the table is a static of the library, which is never unloaded.
        let api = unsafe { getter().as_ref() }.ok_or_else(foreign)?;
        if api.version != VERSION || api.struct_size < size_of::<TpuCoreApi>() {
            return Err(AttachError::Version {
                path: path.to_owned(),
                found: api.version,
            });
        }
        Ok(Self { api })
    }

    /// Counters, or `None` while no device exists.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let mut snapshot = Snapshot::default();
        // SAFETY: room for one snapshot.
        unsafe { (self.api.snapshot)(&raw mut snapshot, size_of::<Snapshot>()) }.then_some(snapshot)
    }

    /// Events from `cursor` on, as far as they are still kept, and the cursor that continues.
    pub fn events(&self, cursor: u64) -> (u64, Vec<Event>) {
        let (next, text) = self.events_json(cursor);
        (next, serde_json::from_slice(&text).unwrap_or_default())
    }

    /// As [`Self::events`], as the JSON array it travels in.
    pub fn events_json(&self, cursor: u64) -> (u64, Vec<u8>) {
        let mut text = Vec::new();
        // SAFETY: the sink is called during the call only, with this context.
        let next = unsafe { (self.api.events)(cursor, collect, (&raw mut text).cast()) };
        (next, text)
    }

    /// Keep as many bytes of events of launches and transfers as this; 0 for as usual. The time it
    /// is, in nanoseconds on the clock of the events.
    pub fn keep_events(&self, bytes: u64) -> u64 {
        // SAFETY: takes a number.
        unsafe { (self.api.keep_events)(bytes) }
    }

    /// Stamp what starts from now on with this cell; empty for none.
    pub fn set_cell(&self, cell: &str) {
        // SAFETY: pointer and length of a string that lives during the call.
        unsafe { (self.api.set_cell)(cell.as_ptr().cast::<c_char>(), cell.len()) };
    }

    /// Bytes there may be on the device; 0 for the chip's own limit.
    pub fn set_limit(&self, bytes: u64) {
        // SAFETY: takes a number.
        unsafe { (self.api.set_limit)(bytes) };
    }

    /// Wait until what was issued before has ended; false when the time is over first. Holds no
    /// lock of the caller's: release the interpreter first.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: takes a number.
        unsafe { (self.api.wait_idle)(nanoseconds) }
    }

    /// Start peak and largest again from what is live.
    pub fn reset_peak(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.api.reset_peak)() };
    }

    /// Refuse launches that wait, and those that come, until [`Self::resume`]. What runs goes on.
    pub fn cancel(&self) {
        // SAFETY: takes nothing.
        unsafe { (self.api.cancel)() };
    }

    /// Launch again; how many launches were refused.
    pub fn resume(&self) -> u64 {
        // SAFETY: takes nothing.
        unsafe { (self.api.resume)() }
    }

    /// Launches are refused now.
    pub fn is_cancelling(&self) -> bool {
        // SAFETY: takes nothing.
        unsafe { (self.api.cancelling)() }
    }

    /// What goes on now: compiles first, then the oldest launch or transfer that has not ended.
    pub fn ongoing(&self) -> Vec<Ongoing> {
        let mut text = Vec::new();
        // SAFETY: the sink is called during the call only, with this context.
        unsafe { (self.api.ongoing)(collect, (&raw mut text).cast()) };
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Who has how much memory: each device, the host, and each cell that made some.
    pub fn holdings(&self) -> Holdings {
        let mut text = Vec::new();
        // SAFETY: the sink is called during the call only, with this context.
        unsafe { (self.api.holdings)(collect, (&raw mut text).cast()) };
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Programs from number `cursor` on, as far as they are remembered, and the cursor that
    /// continues: the JSON array they travel in.
    pub fn programs_json(&self, cursor: u64) -> (u64, Vec<u8>) {
        let mut text = Vec::new();
        // SAFETY: the sink is called during the call only, with this context.
        let next = unsafe { (self.api.programs)(cursor, collect, (&raw mut text).cast()) };
        (next, text)
    }

    /// As [`Self::programs_json`], read.
    pub fn programs(&self, cursor: u64) -> (u64, Vec<Program>) {
        let (next, text) = self.programs_json(cursor);
        (next, serde_json::from_slice(&text).unwrap_or_default())
    }

    /// Call `watcher` when a compile begins, on the thread that compiles; `None` for nobody.
    pub fn watch_compiles(&self, watcher: Option<Watcher>) {
        (self.api.watch_compiles)(watcher);
    }

    /// Say where in its cell a program comes from.
    pub fn set_place(&self, number: u64, place: &str) {
        // SAFETY: pointer and length of a string that lives during the call.
        unsafe { (self.api.set_place)(number, place.as_ptr().cast::<c_char>(), place.len()) };
    }

    /// What the compiler made of the loaded program with this fingerprint, a serialised `HloProto`;
    /// or why there is none, in one line.
    pub fn optimized(&self, fingerprint: &[u8]) -> Result<Vec<u8>, String> {
        let mut told = Vec::new();
        let (start, size) = (fingerprint.as_ptr().cast::<c_char>(), fingerprint.len());
        // SAFETY: bytes that live during the call; the sink is called during it only, with this context.
        let found = unsafe { (self.api.optimized)(start, size, collect, (&raw mut told).cast()) };
        if found {
            Ok(told)
        } else {
            Err(String::from_utf8_lossy(&told).into_owned())
        }
    }

    /// Who the device is, or `None` while there is none.
    pub fn identity(&self) -> Option<Identity> {
        let mut text = Vec::new();
        // SAFETY: the sink is called during the call only, with this context.
        unsafe { (self.api.identity)(collect, (&raw mut text).cast()) }
            .then(|| serde_json::from_slice(&text).ok())
            .flatten()
    }
}

unsafe extern "C" fn collect(context: *mut c_void, data: *const u8, size: usize) {
    // SAFETY: the context is the vector of the caller above; data and size come together.
    unsafe {
        (*context.cast::<Vec<u8>>()).extend_from_slice(std::slice::from_raw_parts(data, size));
    }
}
