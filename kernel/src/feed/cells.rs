//! Which cells ran and run: marks on a front end's line of time.

use std::collections::VecDeque;
use std::time::Instant;

use serde::Serialize;

use super::unix_now;
use crate::parent::Parent;

/// Cells that have ended and are remembered.
const KEPT: usize = 50;

/// One run of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// As device events are stamped: the front end's id, else the number.
    pub id: String,
    pub count: Option<i64>,
    /// Seconds since 1970.
    pub t0: f64,
    /// None while it runs.
    pub t1: Option<f64>,
    #[serde(skip)]
    msg_id: String,
    /// Number of the last change, of all cells.
    #[serde(skip)]
    change: u64,
}

/// All of them, of the main shell and of subshells.
#[derive(Debug)]
pub struct Cells {
    running: Vec<Cell>,
    ended: VecDeque<Cell>,
    changes: u64,
    /// Cells that have ended.
    pub total: u64,
    /// Since when none runs.
    pub idle_since: Instant,
}

impl Default for Cells {
    fn default() -> Self {
        Self {
            running: Vec::new(),
            ended: VecDeque::new(),
            changes: 0,
            total: 0,
            idle_since: Instant::now(),
        }
    }
}

impl Cells {
    /// A request begins to run. True when it is a cell.
    pub fn begin(&mut self, parent: &Parent) -> bool {
        if parent.msg_type != "execute_request" {
            return false;
        }
        self.changes += 1;
        self.running.push(Cell {
            id: parent.cell_id.clone(),
            count: None,
            t0: unix_now(),
            t1: None,
            msg_id: parent.msg_id.clone(),
            change: self.changes,
        });
        true
    }

    /// It has this number.
    pub fn number(&mut self, parent: &Parent, count: i64) {
        let running = &mut self.running;
        self.changes += 1;
        if let Some(cell) = running.iter_mut().find(|cell| cell.msg_id == parent.msg_id) {
            cell.count = Some(count);
            cell.change = self.changes;
            if cell.id.is_empty() {
                cell.id = count.to_string();
            }
        }
    }

    /// The request has ended. True when it was a cell that ran.
    pub fn end(&mut self, parent: &Parent) -> bool {
        let running = &self.running;
        let Some(place) = running.iter().position(|cell| cell.msg_id == parent.msg_id) else {
            return false;
        };
        let mut cell = self.running.remove(place);
        self.changes += 1;
        self.total += 1;
        self.idle_since = Instant::now();
        // A silent one is nobody's.
        if cell.count.is_some() {
            cell.t1 = Some(unix_now());
            cell.change = self.changes;
            self.ended.push_back(cell);
            if self.ended.len() > KEPT {
                self.ended.pop_front();
            }
        }
        true
    }

    /// Does this one run?
    pub fn runs(&self, parent: &Parent) -> bool {
        let mut running = self.running.iter();
        running.any(|cell| cell.msg_id == parent.msg_id)
    }

    pub fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// The one that runs, the oldest first.
    pub fn current(&self) -> Option<&Cell> {
        self.running.first()
    }

    /// Grows with every beginning and end.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Those that began or ended after that change, oldest first.
    pub fn since(&self, change: u64) -> Vec<&Cell> {
        let both = self.ended.iter().chain(&self.running);
        both.filter(|cell| cell.change > change && cell.count.is_some())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::test_parent as parent;

    #[test]
    fn a_cell_is_told_when_it_begins_and_when_it_ends() {
        let mut cells = Cells::default();
        let (first, second) = (parent("1", "a"), parent("2", ""));
        assert!(cells.begin(&first));
        cells.number(&first, 7);
        let told = cells.since(0);
        assert_eq!(
            (told[0].id.as_str(), told[0].count, told[0].t1),
            ("a", Some(7), None)
        );
        let seen = cells.changes();
        assert!(cells.since(seen).is_empty());
        assert!(cells.end(&first));
        assert!(!cells.end(&first));
        assert!(cells.begin(&second));
        cells.number(&second, 8);
        let told = cells.since(seen);
        assert_eq!(told.len(), 2);
        assert!(told[0].t1.is_some());
        assert_eq!((told[1].id.as_str(), told[1].t1), ("8", None));
        assert_eq!(cells.current().map(|cell| cell.id.as_str()), Some("8"));
    }

    #[test]
    fn silent_cells_are_no_marks_and_only_cells_are_cells() {
        let mut cells = Cells::default();
        let silent = parent("1", "");
        cells.begin(&silent);
        assert!(cells.is_running());
        cells.end(&silent);
        assert!(cells.since(0).is_empty());
        assert_eq!(cells.total, 1);
        let comm = Parent {
            msg_type: "comm_msg".into(),
            ..std::sync::Arc::try_unwrap(parent("2", "")).unwrap()
        };
        assert!(!cells.begin(&comm));
        assert!(!cells.is_running());
    }
}
