//! What Python is asked for the feed, between cells: the names of tensors, the mode, and what a
//! person ordered in a panel.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Between queued cells names are resolved at most for this part of the time.
const SHARE: u32 = 20;

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

    /// The next for Python. `last`: no cell waits, so there is time.
    pub fn next(&mut self, last: bool) -> Option<Order> {
        if !self.waiting.is_empty() {
            let mut order = self.waiting.remove(0);
            order.tensors = std::mem::take(&mut self.tensors);
            self.began = Some(Instant::now());
            return Some(order);
        }
        let soon = |(at, took): (Instant, Duration)| at.elapsed() < took * SHARE;
        let tensors = self.tensors && (last || !self.resolved.is_some_and(soon));
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
