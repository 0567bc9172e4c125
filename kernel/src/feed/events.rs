//! What went wrong or was changed, for a short list of the last events.

use std::collections::VecDeque;

use serde::Serialize;
use tpu_core::client::{Event as Journaled, EventKind, Session};

use super::unix_now;

/// As many are remembered, and told to who comes later.
pub const KEPT: usize = 20;
/// Longest text, in bytes.
const TEXT_BYTES: usize = 300;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    pub seq: u64,
    /// Seconds since 1970.
    pub t: f64,
    pub kind: &'static str,
    pub text: String,
    pub cell: String,
}

#[derive(Debug, Default)]
pub struct Events {
    kept: VecDeque<Event>,
    next: u64,
    /// As far as the journal of tpu-core was read, and the failures it had by then.
    cursor: u64,
    failures: u64,
}

impl Events {
    pub fn add(&mut self, kind: &'static str, text: &str, cell: &str) {
        self.add_at(unix_now(), kind, text, cell);
    }

    fn add_at(&mut self, t: f64, kind: &'static str, text: &str, cell: &str) {
        let line = text.lines().next().unwrap_or_default();
        let mut end = line.len().min(TEXT_BYTES);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let more = if end < line.len() { "…" } else { "" };
        self.kept.push_back(Event {
            seq: self.next,
            t,
            kind,
            text: format!("{}{more}", &line[..end]),
            cell: cell.into(),
        });
        self.next += 1;
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// Failures on the device since the last call. `failures` and `next` are those of a snapshot: with
    /// no new failure nothing is read.
    pub fn read(&mut self, session: Session, failures: u64, next: u64) {
        if !self.is_behind(failures, next) {
            return;
        }
        let (next, events) = session.events(self.cursor);
        self.take(failures, next, events);
    }

    /// Is there a failure that was not read?
    fn is_behind(&mut self, failures: u64, next: u64) -> bool {
        // More than there are were counted where some were thought lost that came later.
        self.failures = self.failures.min(failures);
        if failures == self.failures {
            // A failure is counted before it can be read, and `next` was read before the count.
            self.cursor = next;
        }
        failures != self.failures
    }

    fn take(&mut self, failures: u64, next: u64, events: Vec<Journaled>) {
        let is_whole = next.saturating_sub(self.cursor) == events.len() as u64;
        self.cursor = next;
        for event in events {
            if event.kind != EventKind::Error {
                continue;
            }
            self.failures += 1;
            let full = event.code.as_deref() == Some("RESOURCE_EXHAUSTED");
            let kind = if full { "oom" } else { "failure" };
            let t = event.started_unix_ns as f64 / 1e9;
            self.add_at(t, kind, &event.message.unwrap_or_default(), &event.cell);
        }
        if !is_whole {
            // Those the journal has dropped never come: waited for, every look would read it.
            self.failures = self.failures.max(failures);
        }
    }

    /// Number the next one will have.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Those from this number on, as far as they are remembered.
    pub fn since(&self, number: u64) -> Vec<&Event> {
        self.kept
            .iter()
            .filter(|event| event.seq >= number)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twenty_are_kept_and_long_texts_are_cut_at_a_letter() {
        let mut events = Events::default();
        for number in 0..30 {
            events.add("limit", &format!("HBM {number}\nmore"), "c");
        }
        let kept = events.since(0);
        assert_eq!(
            (kept.len(), kept[0].seq, kept[0].text.as_str()),
            (20, 10, "HBM 10")
        );
        assert_eq!(events.since(29).len(), 1);
        events.add("failure", &"ä".repeat(400), "");
        assert_eq!(events.since(30)[0].text, format!("{}…", "ä".repeat(150)));
    }

    fn journaled(sequence: u64, kind: EventKind) -> Journaled {
        serde_json::from_value(serde_json::json!({
            "sequence": sequence, "kind": kind, "cell": "c", "started_unix_ns": 0, "duration_ns": 0,
            "bytes": 0, "program": "", "message": "it failed",
        }))
        .unwrap()
    }

    #[test]
    fn failures_that_left_the_journal_unseen_are_not_waited_for() {
        let mut events = Events::default();
        assert!(events.is_behind(3, 100));
        let rest = vec![
            journaled(98, EventKind::Execute),
            journaled(99, EventKind::Error),
        ];
        events.take(3, 100, rest);
        assert_eq!(events.since(0).len(), 1);
        assert!(!events.is_behind(3, 100));
        assert!(events.is_behind(4, 110));
        assert_eq!(events.cursor, 100);
    }

    #[test]
    fn a_failure_that_is_counted_before_it_can_be_read_is_read_at_the_next_look() {
        let mut events = Events::default();
        assert!(events.is_behind(1, 2));
        let launches = [0, 1].map(|number| journaled(number, EventKind::Execute));
        events.take(1, 2, launches.into());
        assert!(events.is_behind(1, 2));
        events.take(1, 3, vec![journaled(2, EventKind::Error)]);
        assert!(!events.is_behind(1, 3));
        assert_eq!(events.since(0)[0].text, "it failed");
    }
}
