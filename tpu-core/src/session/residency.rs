//! Bytes on the device: how many now, how many at most, how many there may be.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::Snapshot;

/// Marks "no limit chosen by anybody".
const UNSET: u64 = 0;

/// Counts of device memory. All bytes; updated by every buffer that comes or goes.
pub struct Residency {
    live: AtomicU64,
    peak: AtomicU64,
    buffers: AtomicU64,
    allocations: AtomicU64,
    largest: AtomicU64,
    donated: AtomicU64,
    default_limit: AtomicU64,
    chosen_limit: AtomicU64,
}

/// Why something did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub wanted: u64,
    pub live: u64,
    pub limit: u64,
}

impl Residency {
    pub const fn new() -> Self {
        Self {
            live: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            buffers: AtomicU64::new(0),
            allocations: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            donated: AtomicU64::new(0),
            default_limit: AtomicU64::new(UNSET),
            chosen_limit: AtomicU64::new(UNSET),
        }
    }

    /// A buffer of `bytes` exists.
    pub fn add(&self, bytes: u64) {
        let live = self.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(live, Ordering::Relaxed);
        self.largest.fetch_max(bytes, Ordering::Relaxed);
        self.buffers.fetch_add(1, Ordering::Relaxed);
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// A buffer of `bytes` is gone.
    pub fn release(&self, bytes: u64) {
        self.live.fetch_sub(bytes, Ordering::Relaxed);
        self.buffers.fetch_sub(1, Ordering::Relaxed);
    }

    /// As [`Self::release`], because a program took it over.
    pub fn donate(&self, bytes: u64) {
        self.release(bytes);
        self.donated.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether `wanted` more bytes fit below the limit.
    pub fn admit(&self, wanted: u64) -> Result<(), Shortage> {
        let limit = self.limit();
        let live = self.live();
        if limit == UNSET || live.saturating_add(wanted) <= limit {
            Ok(())
        } else {
            Err(Shortage {
                wanted,
                live,
                limit,
            })
        }
    }

    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub fn buffers(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    pub fn largest(&self) -> u64 {
        self.largest.load(Ordering::Relaxed)
    }

    /// The limit in force; 0 when there is none yet.
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
        self.peak.store(self.live(), Ordering::Relaxed);
        self.largest.store(0, Ordering::Relaxed);
    }

    pub fn describe(&self, snapshot: &mut Snapshot) {
        snapshot.live_bytes = self.live();
        snapshot.peak_bytes = self.peak();
        snapshot.limit_bytes = self.limit();
        snapshot.live_buffers = self.buffers();
        snapshot.largest_bytes = self.largest();
        snapshot.allocations = self.allocations.load(Ordering::Relaxed);
        snapshot.donations = self.donated.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_and_peak_follow_the_buffers() {
        let residency = Residency::new();
        residency.add(100);
        residency.add(50);
        residency.release(100);
        residency.add(10);
        assert_eq!(
            (residency.live(), residency.peak(), residency.buffers()),
            (60, 150, 2)
        );
        assert_eq!(residency.largest(), 100);
        residency.reset_peak();
        assert_eq!(residency.peak(), 60);
    }

    #[test]
    fn what_is_over_the_limit_is_refused_with_the_numbers() {
        let residency = Residency::new();
        residency.set_default_limit(1000);
        residency.add(900);
        assert_eq!(residency.admit(100), Ok(()));
        assert_eq!(
            residency.admit(101),
            Err(Shortage {
                wanted: 101,
                live: 900,
                limit: 1000
            })
        );
        residency.set_limit(2000);
        assert_eq!(residency.admit(1100), Ok(()));
        residency.set_limit(0);
        assert_eq!(residency.limit(), 1000);
    }

    #[test]
    fn a_request_near_the_end_of_the_integers_is_refused_not_wrapped() {
        let residency = Residency::new();
        residency.set_limit(1000);
        residency.add(10);
        assert!(residency.admit(u64::MAX).is_err());
    }
}
