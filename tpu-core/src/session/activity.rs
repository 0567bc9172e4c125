//! Counters of what was compiled, loaded, launched and moved.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::Snapshot;

/// Counts and sums since the session began. Times in nanoseconds.
pub struct Activity {
    pub compiles: AtomicU64,
    pub compile_ns: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_hit_ns: AtomicU64,
    pub executions: AtomicU64,
    pub uploads: AtomicU64,
    pub upload_bytes: AtomicU64,
    pub downloads: AtomicU64,
    pub download_bytes: AtomicU64,
    pub errors: AtomicU64,
    busy_ns: AtomicU64,
    busy_until_ns: AtomicU64,
}

impl Activity {
    pub const fn new() -> Self {
        Self {
            compiles: AtomicU64::new(0),
            compile_ns: AtomicU64::new(0),
            cache_hits: AtomicU64::new(0),
            cache_hit_ns: AtomicU64::new(0),
            executions: AtomicU64::new(0),
            uploads: AtomicU64::new(0),
            upload_bytes: AtomicU64::new(0),
            downloads: AtomicU64::new(0),
            download_bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            busy_until_ns: AtomicU64::new(0),
        }
    }

    /// A launch ran in this interval. Overlap with an earlier one counts once, so that queued
    /// launches do not add up to more than the time that passed. The time it added.
    pub fn busy(&self, started_ns: u64, ended_ns: u64) -> u64 {
        let until = self.busy_until_ns.fetch_max(ended_ns, Ordering::Relaxed);
        let fresh = ended_ns.saturating_sub(started_ns.max(until));
        self.busy_ns.fetch_add(fresh, Ordering::Relaxed);
        fresh
    }

    pub fn describe(&self, snapshot: &mut Snapshot) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        snapshot.compiles = read(&self.compiles);
        snapshot.compile_ns = read(&self.compile_ns);
        snapshot.cache_hits = read(&self.cache_hits);
        snapshot.cache_hit_ns = read(&self.cache_hit_ns);
        snapshot.executions = read(&self.executions);
        snapshot.busy_ns = read(&self.busy_ns);
        snapshot.uploads = read(&self.uploads);
        snapshot.upload_bytes = read(&self.upload_bytes);
        snapshot.downloads = read(&self.downloads);
        snapshot.download_bytes = read(&self.download_bytes);
        snapshot.errors = read(&self.errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_launches_count_their_time_once() {
        let activity = Activity::new();
        let added =
            [(0, 10), (5, 20), (8, 12), (30, 40)].map(|(start, end)| activity.busy(start, end));
        assert_eq!(added, [10, 10, 0, 10]);
        assert_eq!(activity.busy_ns.load(Ordering::Relaxed), 30);
    }
}
