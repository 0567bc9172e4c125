//! What Python is asked for the feed, between cells: the names of tensors, the mode, and what a
//! person ordered in a panel.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Between queued cells names are resolved at most for this part of the time.
const SHARE: u32 = 20;
/// After the last cell it waits this many times as long as it took before, since the person may go
/// on at once; but never longer than `LONGEST_PAUSE`.
const PAUSES: u32 = 3;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Something to do on the main thread while no cell runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Who ordered it; nobody, when only `tensors` or the mode is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm_id: Option<String>,
    /// `free` or `mode`.
    #[serde(rename = "do", skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The table of tensors is wanted.
    pub tensors: bool,
}

/// What Python answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    pub comm_id: Option<String>,
    pub mode: Option<String>,
    pub tensors: Option<Value>,
    pub said: Option<String>,
    pub error: Option<String>,
}

/// What waits to be asked.
#[derive(Debug, Default)]
pub struct Orders {
    waiting: Vec<Order>,
    mode: bool,
    tensors: bool,
    /// When the names were resolved last, and how long it took.
    resolved: Option<(Instant, Duration)>,
    began: Option<Instant>,
    /// When a cell ended last.
    rests: Option<Instant>,
}

impl Orders {
    pub fn push(&mut self, order: Order) {
        self.waiting.push(order);
    }

    /// The mode, and with `tensors` the names, may be others now.
    pub fn refresh(&mut self, tensors: bool) {
        self.mode = true;
        self.tensors |= tensors;
    }

    /// A cell has ended: it may have made and named others.
    pub fn rest(&mut self, tensors: bool) {
        self.rests = Some(Instant::now());
        self.refresh(tensors);
    }

    /// When the names are to be resolved if nothing happens before; None when they are not wanted.
    pub fn due(&self) -> Option<Instant> {
        let pause = self.resolved.map_or(Duration::ZERO, |(_, took)| {
            (took * PAUSES).min(LONGEST_PAUSE)
        });
        let now = Instant::now();
        self.tensors
            .then(|| self.rests.map_or(now, |at| at + pause))
    }

    /// The next for Python. `last`: no cell waits, so there is time.
    pub fn next(&mut self, last: bool) -> Option<Order> {
        if !self.waiting.is_empty() {
            let mut order = self.waiting.remove(0);
            order.tensors = std::mem::take(&mut self.tensors);
            self.began = Some(Instant::now());
            return Some(order);
        }
        let soon = |(at, took): (Instant, Duration)| at.elapsed() < took * SHARE;
        let rested = last && self.due().is_some_and(|due| due <= Instant::now());
        let tensors = self.tensors && (rested || !last && !self.resolved.is_some_and(soon));
        if !self.mode && !tensors {
            return None;
        }
        self.mode = false;
        self.tensors &= !tensors;
        self.began = Some(Instant::now());
        Some(Order {
            comm_id: None,
            what: None,
            mode: None,
            tensors,
        })
    }

    /// Python has answered.
    pub fn answered(&mut self, tensors: bool) {
        if let Some(began) = self.began.take()
            && tensors
        {
            self.resolved = Some((Instant::now(), began.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_after_the_last_cell_and_seldom_between_cells() {
        let mut orders = Orders::default();
        assert_eq!(orders.next(true), None);
        orders.refresh(true);
        assert!(orders.next(false).unwrap().tensors);
        std::thread::sleep(Duration::from_millis(5));
        orders.answered(true);
        orders.refresh(true);
        assert!(!orders.next(false).unwrap().tensors);
        assert_eq!(orders.next(false), None);
        assert!(orders.next(true).unwrap().tensors);
        assert_eq!(orders.next(true), None);
    }

    #[test]
    fn who_goes_on_at_once_does_not_wait_for_names() {
        let mut orders = Orders::default();
        orders.rest(true);
        assert!(orders.next(true).unwrap().tensors);
        std::thread::sleep(Duration::from_millis(50));
        orders.answered(true);
        orders.rest(true);
        assert!(!orders.next(true).unwrap().tensors);
        let pause = orders.due().unwrap() - Instant::now();
        assert!(pause > Duration::from_millis(60), "{pause:?}");
        std::thread::sleep(pause);
        assert!(orders.next(true).unwrap().tensors);
        assert_eq!(orders.due(), None);
    }

    #[test]
    fn what_a_person_ordered_comes_first() {
        let mut orders = Orders::default();
        orders.refresh(false);
        orders.push(Order {
            comm_id: Some("a".into()),
            what: Some("free".into()),
            mode: None,
            tensors: false,
        });
        let first = serde_json::to_string(&orders.next(true).unwrap()).unwrap();
        assert_eq!(first, r#"{"comm_id":"a","do":"free","tensors":false}"#);
        let second = serde_json::to_string(&orders.next(true).unwrap()).unwrap();
        assert_eq!(second, r#"{"tensors":false}"#);
    }
}
