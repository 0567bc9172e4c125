//! What happened, in order, for readers that come by: two rings bounded in bytes.
//!
//! Compiles and failures have a ring of their own, so that a loop of a million launches cannot
//! push them out before a reader sees them. A reader that wants every launch of a stretch of time
//! has the other ring widened for as long; what it missed all the same, it sees by the numbers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::cells::CellId;
use super::clock::unix_ns;
use super::lock;
use crate::pjrt::Code;

/// Bytes kept of launches and transfers, and of compiles and failures.
const FREQUENT_BYTES: usize = 2 << 20;
const RARE_BYTES: usize = 2 << 20;

/// Longest message kept.
const MESSAGE_BYTES: usize = 8 << 10;

/// Kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A program was compiled.
    Compile,
    /// A program was loaded from a cache instead of being compiled.
    CacheHit,
    /// A program ran.
    #[default]
    Execute,
    /// Host to device.
    Upload,
    /// Device to host.
    Download,
    /// Something failed.
    Error,
}

/// What the session keeps of an event.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub sequence: u64,
    pub kind: EventKind,
    pub cell: CellId,
    pub started_ns: u64,
    pub duration_ns: u64,
    pub held_ns: u64,
    pub ran_ns: u64,
    pub bytes: u64,
    pub program: u64,
    pub code: u32,
    pub deferred: bool,
    pub name: Option<Arc<str>>,
    pub message: Option<Box<str>>,
}

/// An event as a reader gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the stream; never repeated.
    pub sequence: u64,
    pub kind: EventKind,
    /// Cell that caused it, or empty.
    pub cell: String,
    /// Start, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    pub duration_ns: u64,
    /// How long a launch was held back here before it began, because enough was queued.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_ns: u64,
    /// Of a launch, the last part: from its begin, or the end of launches before it, to its end.
    /// These sum up to the time the device was busy.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ran_ns: u64,
    /// Program bytes of a compile or hit, moved bytes of a transfer, result bytes of a launch.
    pub bytes: u64,
    /// Hash of the program's bytes, in hexadecimal; empty where there is no program.
    pub program: String,
    /// Name of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its code, as `RESOURCE_EXHAUSTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The failure was not returned to the main thread, so perhaps nobody was told yet.
    #[serde(default)]
    pub deferred: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Record {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.message.as_ref().map_or(0, |message| message.len())
    }

    pub(super) fn into_event(self, cell: String) -> Event {
        let failed = self.kind == EventKind::Error;
        Event {
            sequence: self.sequence,
            kind: self.kind,
            cell,
            started_unix_ns: unix_ns(self.started_ns),
            duration_ns: self.duration_ns,
            held_ns: self.held_ns,
            ran_ns: self.ran_ns,
            bytes: self.bytes,
            program: if self.program == 0 {
                String::new()
            } else {
                format!("{:016x}", self.program)
            },
            name: self.name.map(|name| name.to_string()),
            message: self.message.map(String::from),
            code: failed.then(|| Code(self.code).name().to_owned()),
            deferred: self.deferred,
        }
    }
}

/// The two rings.
pub struct Journal {
    rings: Mutex<Rings>,
}

struct Rings {
    next: u64,
    frequent: Ring,
    rare: Ring,
}

struct Ring {
    records: VecDeque<Record>,
    bytes: usize,
    most: usize,
}

impl Ring {
    const fn new(most: usize) -> Self {
        Self {
            records: VecDeque::new(),
            bytes: 0,
            most,
        }
    }

    fn push(&mut self, record: Record) {
        self.bytes += record.weight();
        self.records.push_back(record);
        self.trim();
    }

    fn trim(&mut self) {
        while self.bytes > self.most {
            match self.records.pop_front() {
                Some(old) => self.bytes -= old.weight(),
                None => break,
            }
        }
    }

    fn since(&self, cursor: u64) -> impl Iterator<Item = Record> {
        let start = self
            .records
            .partition_point(|record| record.sequence < cursor);
        self.records.range(start..).cloned()
    }
}

impl Journal {
    pub const fn new() -> Self {
        Self {
            rings: Mutex::new(Rings {
                next: 0,
                frequent: Ring::new(FREQUENT_BYTES),
                rare: Ring::new(RARE_BYTES),
            }),
        }
    }

    pub fn push(&self, mut record: Record) {
        if let Some(message) = &record.message
            && message.len() > MESSAGE_BYTES
        {
            let end = (0..=MESSAGE_BYTES)
                .rev()
                .find(|end| message.is_char_boundary(*end))
                .unwrap_or(0);
            record.message = Some(message[..end].into());
        }
        let mut rings = lock(&self.rings);
        record.sequence = rings.next;
        rings.next += 1;
        match record.kind {
            EventKind::Compile | EventKind::CacheHit | EventKind::Error => rings.rare.push(record),
            _ => rings.frequent.push(record),
        }
    }

    /// Bytes kept of launches and transfers from now on; what is less than usual is as usual. The
    /// memory for them is asked for here, not on the launch path.
    pub fn keep(&self, bytes: usize) {
        let mut rings = lock(&self.rings);
        let ring = &mut rings.frequent;
        ring.most = bytes.max(FREQUENT_BYTES);
        ring.trim();
        let room = ring.most / size_of::<Record>() + 1;
        if ring.most > FREQUENT_BYTES {
            let more = room.saturating_sub(ring.records.len());
            ring.records.reserve(more);
        } else {
            ring.records.shrink_to(room);
        }
    }

    pub fn next_sequence(&self) -> u64 {
        lock(&self.rings).next
    }

    /// What is kept from `cursor` on, in order, and the cursor behind it.
    pub fn since(&self, cursor: u64) -> (u64, Vec<Record>) {
        let rings = lock(&self.rings);
        let mut records: Vec<Record> = rings
            .rare
            .since(cursor)
            .chain(rings.frequent.since(cursor))
            .collect();
        let next = rings.next;
        drop(rings);
        records.sort_unstable_by_key(|record| record.sequence);
        (next, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: EventKind) -> Record {
        Record {
            kind,
            ..Record::default()
        }
    }

    #[test]
    fn a_reader_gets_each_event_once_and_in_order() {
        let journal = Journal::new();
        journal.push(record(EventKind::Execute));
        journal.push(record(EventKind::Compile));
        let (cursor, first) = journal.since(0);
        assert_eq!(
            first
                .iter()
                .map(|record| record.sequence)
                .collect::<Vec<_>>(),
            [0, 1]
        );
        journal.push(record(EventKind::Upload));
        let (cursor, second) = journal.since(cursor);
        assert_eq!(
            (cursor, second.len(), second[0].kind),
            (3, 1, EventKind::Upload)
        );
    }

    #[test]
    fn launches_cannot_push_out_a_failure() {
        let journal = Journal::new();
        journal.push(record(EventKind::Error));
        for _ in 0..100_000 {
            journal.push(record(EventKind::Execute));
        }
        let (_, records) = journal.since(0);
        assert_eq!(records[0].kind, EventKind::Error);
        assert!(records.len() * size_of::<Record>() <= FREQUENT_BYTES + size_of::<Record>());
    }

    #[test]
    fn a_widened_ring_keeps_every_launch_until_it_is_as_usual_again() {
        let journal = Journal::new();
        let count = FREQUENT_BYTES / size_of::<Record>() * 3;
        let run = || {
            let cursor = journal.next_sequence();
            for _ in 0..count {
                journal.push(record(EventKind::Execute));
            }
            (journal.since(cursor).1.len(), cursor)
        };
        journal.keep(4 * FREQUENT_BYTES);
        let (kept, cursor) = run();
        assert_eq!(kept, count);
        journal.keep(0);
        let (next, left) = journal.since(cursor);
        assert_eq!(left.len(), FREQUENT_BYTES / size_of::<Record>());
        assert_eq!(left.last().unwrap().sequence, next - 1);
        assert_eq!(run().0, FREQUENT_BYTES / size_of::<Record>());
    }

    #[test]
    fn long_messages_are_cut_at_a_letter() {
        let journal = Journal::new();
        let message = "é".repeat(MESSAGE_BYTES);
        journal.push(Record {
            message: Some(message.into()),
            ..record(EventKind::Error)
        });
        let (_, records) = journal.since(0);
        assert_eq!(records[0].message.as_ref().unwrap().len(), MESSAGE_BYTES);
    }

    #[test]
    fn events_travel_as_json() {
        let failed = Record {
            code: 8,
            message: Some("full".into()),
            deferred: true,
            ..record(EventKind::Error)
        };
        let event = failed.into_event("c1".into());
        let text = serde_json::to_string(&event).unwrap();
        assert!(
            text.contains(r#""kind":"error""#) && text.contains(r#""code":"RESOURCE_EXHAUSTED""#)
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
