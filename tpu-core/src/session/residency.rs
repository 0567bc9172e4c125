//! Bytes on the device: how many now, how many at most, how many there may be, and which cell made
//! them. Each device of the client has counts of its own; memory of the host that the plug-in
//! manages (`pinned_host`) is counted apart, because it takes no HBM.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::by_cell::{ByCell, CellMemory};
use super::cells::CellId;
use crate::api::Snapshot;

/// Marks "no limit chosen by anybody".
const UNSET: u64 = 0;

/// Where memory is: an index into the places of a [`Residency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// HBM of the device at this position among the client's devices.
    Device(u16),
    /// Memory of the host.
    Host,
}

/// Counts of device memory, updated by every buffer that comes or goes.
pub struct Residency {
    devices: OnceLock<Box<[Counts]>>,
    host: Counts,
    cells: ByCell,
    default_limit: AtomicU64,
    chosen_limit: AtomicU64,
}

/// Counts of one place. All bytes but the numbers of buffers.
struct Counts {
    id: i32,
    live: AtomicU64,
    peak: AtomicU64,
    /// Since the running cell began.
    cell_peak: AtomicU64,
    buffers: AtomicU64,
    allocations: AtomicU64,
    largest: AtomicU64,
    donated: AtomicU64,
}

/// What is in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceMemory {
    /// Number of the device; none for memory of the host.
    pub device: Option<i32>,
    pub live_bytes: u64,
    /// Most at once since the start or the last reset.
    pub peak_bytes: u64,
    /// Largest piece of memory since then.
    pub largest_bytes: u64,
    /// Pieces of memory that are live; buffers that share one count once.
    pub live_buffers: u64,
    /// Ever made.
    pub allocations: u64,
    /// Buffers a program or a donation took over.
    pub donations: u64,
}

/// Who has how much.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holdings {
    /// One for each device of the client, then the host's.
    pub places: Vec<PlaceMemory>,
    /// Each cell that ever made device memory, in the order of their first run.
    pub cells: Vec<CellMemory>,
}

/// Why something did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub wanted: u64,
    pub live: u64,
    pub limit: u64,
}

impl Counts {
    const fn new(id: i32) -> Self {
        Self {
            id,
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            cell_peak: AtomicU64::new(0),
            buffers: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            donated: AtomicU64::new(0),
        }
    }

    fn add(&self, bytes: u64) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
        self.cell_peak.fetch_max(live, Ordering::Relaxed);
        self.largest.fetch_max(bytes, Ordering::Relaxed);
        self.buffers.fetch_add(1, Ordering::Relaxed);
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    fn release(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
        self.buffers.fetch_sub(1, Ordering::Relaxed);
    }

    fn memory(&self, device: Option<i32>) -> PlaceMemory {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PlaceMemory {
            device,
            live_bytes: read(&self.live),
            peak_bytes: read(&self.peak),
            largest_bytes: read(&self.largest),
            live_buffers: read(&self.buffers),
            allocations: read(&self.allocations),
            donations: read(&self.donated),
        }
    }
}

impl Residency {
    pub const fn new() -> Self {
        Self {
            devices: OnceLock::new(),
            host: Counts::new(-1),
            cells: ByCell::new(),
            default_limit: AtomicU64::new(UNSET),
            chosen_limit: AtomicU64::new(UNSET),
        }
    }

    /// There are these devices, by their numbers. A process has one client; of further ones the
    /// devices at the same positions are counted together.
    pub fn open(&self, devices: &[i32]) {
        let _ = self
            .devices
            .set(devices.iter().map(|id| Counts::new(*id)).collect());
    }

    fn devices(&self) -> &[Counts] {
        self.devices.get().map_or(&[], |devices| devices)
    }

    fn place(&self, place: Place) -> Option<&Counts> {
        match place {
            Place::Device(index) => self.devices().get(usize::from(index)),
            Place::Host => Some(&self.host),
        }
    }

    /// Memory of `bytes` exists, made by `cell`.
    pub fn add(&self, place: Place, cell: CellId, bytes: u64) {
        if let Some(counts) = self.place(place) {
            counts.add(bytes);
        }
        if place != Place::Host {
            self.cells.add(cell, bytes);
        }
    }

    /// Memory that [`Self::add`] counted is gone.
    pub fn release(&self, place: Place, cell: CellId, bytes: u64) {
        if let Some(counts) = self.place(place) {
            counts.release(bytes);
        }
        if place != Place::Host {
            self.cells.release(cell, bytes);
        }
    }

    /// A buffer was taken over.
    pub fn donated(&self, place: Place) {
        if let Some(counts) = self.place(place) {
            counts.donated.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether `wanted` more bytes fit below the limit. The host's memory has none here.
    pub fn admit(&self, place: Place, wanted: u64) -> Result<(), Shortage> {
        let limit = self.limit();
        if place == Place::Host || limit == UNSET {
            return Ok(());
        }
        let live = self.memory(place).live_bytes;
        if live.saturating_add(wanted) <= limit {
            Ok(())
        } else {
            Err(Shortage {
                wanted,
                live,
                limit,
            })
        }
    }

    /// What is in one place.
    pub fn memory(&self, place: Place) -> PlaceMemory {
        let device = |counts: &Counts| (place != Place::Host).then_some(counts.id);
        self.place(place)
            .map_or_else(PlaceMemory::default, |counts| counts.memory(device(counts)))
    }

    /// The limit in force for each device; 0 when there is none yet.
    pub fn limit(&self) -> u64 {
        match self.chosen_limit.load(Ordering::Relaxed) {
            UNSET => self.default_limit.load(Ordering::Relaxed),
            chosen => chosen,
        }
    }

    /// Limit of the chip itself, in force unless somebody chose another.
    pub fn set_default_limit(&self, bytes: u64) {
        self.default_limit.store(bytes, Ordering::Relaxed);
    }

    /// Choose a limit; 0 goes back to the chip's own.
    pub fn set_limit(&self, bytes: u64) {
        self.chosen_limit.store(bytes, Ordering::Relaxed);
    }

    /// Peak and largest start again from what is live.
    pub fn reset_peak(&self) {
        for counts in self.devices().iter().chain([&self.host]) {
            let live = counts.live.load(Ordering::Relaxed);
            counts.peak.store(live, Ordering::Relaxed);
            counts.largest.store(0, Ordering::Relaxed);
        }
    }

    /// A cell begins: its peak starts from what is live.
    pub fn begin_cell(&self) {
        for counts in self.devices() {
            let live = counts.live.load(Ordering::Relaxed);
            counts.cell_peak.store(live, Ordering::Relaxed);
        }
    }

    /// Everything, with `name` for the name of a cell.
    pub fn holdings(&self, name: impl Fn(CellId) -> String) -> Holdings {
        let devices = self.devices().iter();
        Holdings {
            places: devices
                .map(|counts| counts.memory(Some(counts.id)))
                .chain([self.host.memory(None)])
                .collect(),
            cells: self.cells.list(name),
        }
    }

    /// Sums over the devices. With several of them the peak is the sum of their peaks.
    pub fn describe(&self, snapshot: &mut Snapshot) {
        snapshot.limit_bytes = self.limit();
        for counts in self.devices() {
            let memory = counts.memory(None);
            snapshot.live_bytes += memory.live_bytes;
            snapshot.peak_bytes += memory.peak_bytes;
            snapshot.cell_peak_bytes += counts.cell_peak.load(Ordering::Relaxed);
            snapshot.live_buffers += memory.live_buffers;
            snapshot.largest_bytes = snapshot.largest_bytes.max(memory.largest_bytes);
            snapshot.allocations += memory.allocations;
            snapshot.donations += memory.donations;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHIP: Place = Place::Device(0);

    fn residency(devices: &[i32]) -> Residency {
        let residency = Residency::new();
        residency.open(devices);
        residency
    }

    #[test]
    fn live_and_peak_follow_the_buffers() {
        let residency = residency(&[0]);
        residency.add(CHIP, 0, 100);
        residency.add(CHIP, 0, 50);
        residency.release(CHIP, 0, 100);
        residency.add(CHIP, 0, 10);
        let expected = PlaceMemory {
            device: Some(0),
            live_bytes: 60,
            peak_bytes: 150,
            largest_bytes: 100,
            live_buffers: 2,
            allocations: 3,
            donations: 0,
        };
        assert_eq!(residency.memory(CHIP), expected);
        residency.reset_peak();
        let after = residency.memory(CHIP);
        assert_eq!((after.peak_bytes, after.largest_bytes), (60, 0));
    }

    #[test]
    fn a_cell_has_a_peak_of_its_own() {
        let residency = residency(&[0]);
        let peaks = || {
            let mut snapshot = Snapshot::default();
            residency.describe(&mut snapshot);
            (snapshot.peak_bytes, snapshot.cell_peak_bytes)
        };
        residency.add(CHIP, 0, 100);
        residency.release(CHIP, 0, 70);
        assert_eq!(peaks(), (100, 100));
        residency.begin_cell();
        assert_eq!(peaks(), (100, 30));
        residency.add(CHIP, 0, 20);
        residency.release(CHIP, 0, 50);
        assert_eq!(peaks(), (100, 50));
    }

    #[test]
    fn each_device_has_its_own_count_and_the_hosts_memory_is_none_of_theirs() {
        let residency = residency(&[4, 7]);
        residency.add(CHIP, 1, 10);
        residency.add(Place::Device(1), 1, 20);
        residency.add(Place::Host, 1, 1000);
        residency.donated(Place::Device(1));
        let holdings = residency.holdings(|cell| format!("cell {cell}"));
        let seen: Vec<_> = holdings
            .places
            .iter()
            .map(|place| (place.device, place.live_bytes, place.donations))
            .collect();
        assert_eq!(seen, [(Some(4), 10, 0), (Some(7), 20, 1), (None, 1000, 0)]);
        assert_eq!(holdings.cells[0].live_bytes, 30);
        let mut snapshot = Snapshot::default();
        residency.describe(&mut snapshot);
        assert_eq!((snapshot.live_bytes, snapshot.live_buffers), (30, 2));
        assert_eq!((snapshot.largest_bytes, snapshot.donations), (20, 1));
    }

    #[test]
    fn what_is_over_the_limit_is_refused_with_the_numbers() {
        let residency = residency(&[0, 1]);
        residency.set_default_limit(1000);
        residency.add(CHIP, 0, 900);
        assert_eq!(residency.admit(CHIP, 100), Ok(()));
        let shortage = Shortage {
            wanted: 101,
            live: 900,
            limit: 1000,
        };
        assert_eq!(residency.admit(CHIP, 101), Err(shortage));
        assert_eq!(residency.admit(Place::Device(1), 1000), Ok(()));
        assert_eq!(residency.admit(Place::Host, 1 << 40), Ok(()));
        residency.set_limit(2000);
        assert_eq!(residency.admit(CHIP, 1100), Ok(()));
        residency.set_limit(0);
        assert_eq!(residency.limit(), 1000);
    }

    #[test]
    fn a_request_near_the_end_of_the_integers_is_refused_not_wrapped() {
        let residency = residency(&[0]);
        residency.set_limit(1000);
        residency.add(CHIP, 0, 10);
        assert!(residency.admit(CHIP, u64::MAX).is_err());
    }
}
