//! Device memory by the cell that made it: two lookups and no lock for each buffer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::cells::{CellId, MOST_CELLS};

/// Cells whose counts are allocated together.
const CHUNK: usize = 256;

/// Counts by number of the cell, 0 (no cell) included.
pub struct ByCell {
    chunks: [OnceLock<Box<[Counts]>>; MOST_CELLS / CHUNK + 1],
}

#[derive(Default)]
struct Counts {
    live_bytes: AtomicU64,
    live_buffers: AtomicU64,
    made_bytes: AtomicU64,
    made_buffers: AtomicU64,
}

/// What one cell made and what of it is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellMemory {
    /// Name of the cell, or empty for what no cell made.
    pub cell: String,
    pub live_bytes: u64,
    pub live_buffers: u64,
    /// All it ever made, over all its runs.
    pub made_bytes: u64,
    pub made_buffers: u64,
}

impl ByCell {
    pub const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; MOST_CELLS / CHUNK + 1],
        }
    }

    fn counts(&self, cell: CellId) -> Option<&Counts> {
        let cell = cell as usize;
        let chunk = self.chunks.get(cell / CHUNK)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| Counts::default()).collect());
        chunk.get(cell % CHUNK)
    }

    pub fn add(&self, cell: CellId, bytes: u64) {
        if let Some(counts) = self.counts(cell) {
            counts.live_bytes.fetch_add(bytes, Ordering::Relaxed);
            counts.live_buffers.fetch_add(1, Ordering::Relaxed);
            counts.made_bytes.fetch_add(bytes, Ordering::Relaxed);
            counts.made_buffers.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn release(&self, cell: CellId, bytes: u64) {
        if let Some(counts) = self.counts(cell) {
            counts.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
            counts.live_buffers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The cells that made memory, in the order of their numbers.
    pub fn list(&self, name: impl Fn(CellId) -> String) -> Vec<CellMemory> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let chunks = self.chunks.iter().enumerate();
        chunks
            .filter_map(|(index, chunk)| Some((index * CHUNK, chunk.get()?)))
            .flat_map(|(first, chunk)| (first..).zip(chunk.iter()))
            .filter(|(_, counts)| read(&counts.made_buffers) > 0)
            .map(|(cell, counts)| CellMemory {
                cell: name(cell as CellId),
                live_bytes: read(&counts.live_bytes),
                live_buffers: read(&counts.live_buffers),
                made_bytes: read(&counts.made_bytes),
                made_buffers: read(&counts.made_buffers),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_what_it_made_until_that_is_gone_whoever_runs_then() {
        let cells = ByCell::new();
        cells.add(0, 1);
        cells.add(300, 40);
        cells.add(300, 2);
        cells.release(300, 40);
        cells.add(MOST_CELLS as CellId, 5);
        cells.add(CellId::MAX, 7);
        let seen: Vec<_> = cells
            .list(|cell| cell.to_string())
            .into_iter()
            .map(|cell| {
                (
                    cell.cell,
                    cell.live_bytes,
                    cell.live_buffers,
                    cell.made_bytes,
                    cell.made_buffers,
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("0".into(), 1, 1, 1, 1),
                ("300".into(), 2, 1, 42, 2),
                (MOST_CELLS.to_string(), 5, 1, 5, 1)
            ]
        );
    }
}
