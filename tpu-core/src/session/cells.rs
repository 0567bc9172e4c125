//! Which notebook cell runs now, and the names of those that ran.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::journal::{Event, Record};
use super::lock;

/// Number of a cell in this process. 0 is "no cell".
pub type CellId = u32;

/// Different cells whose names are kept; later ones are stamped as no cell.
pub(super) const MOST_CELLS: usize = 65_536;

/// Names of cells, and the one that runs.
pub struct Cells {
    current: AtomicU32,
    names: Mutex<Option<Names>>,
}

#[derive(Default)]
struct Names {
    list: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, CellId>,
}

impl Cells {
    pub const fn new() -> Self {
        Self {
            current: AtomicU32::new(0),
            names: Mutex::new(None),
        }
    }

    /// Stamp what starts from now on with `name`; the empty name is no cell.
    pub fn enter(&self, name: &str) {
        let number = if name.is_empty() {
            0
        } else {
            self.number(name)
        };
        self.current.store(number, Ordering::Relaxed);
    }

    pub fn current(&self) -> CellId {
        self.current.load(Ordering::Relaxed)
    }

    fn number(&self, name: &str) -> CellId {
        let mut names = lock(&self.names);
        let names = names.get_or_insert_default();
        if let Some(number) = names.numbers.get(name) {
            return *number;
        }
        if names.list.len() >= MOST_CELLS {
            return 0;
        }
        let name: Arc<str> = name.into();
        names.list.push(Arc::clone(&name));
        let number = names.list.len() as CellId;
        names.numbers.insert(name, number);
        number
    }

    /// Name of a cell; empty for none.
    pub fn name(&self, cell: CellId) -> String {
        let names = lock(&self.names);
        let name = (cell as usize)
            .checked_sub(1)
            .and_then(|index| names.as_ref()?.list.get(index));
        name.map(ToString::to_string).unwrap_or_default()
    }

    /// Records with the names of their cells.
    pub fn resolve(&self, records: Vec<Record>) -> Vec<Event> {
        let names = lock(&self.names);
        let name = |cell: CellId| {
            let index = (cell as usize).checked_sub(1)?;
            names.as_ref()?.list.get(index).map(ToString::to_string)
        };
        records
            .into_iter()
            .map(|record| {
                let cell = name(record.cell).unwrap_or_default();
                record.into_event(cell)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_that_runs_again_keeps_its_number() {
        let cells = Cells::new();
        cells.enter("a");
        let first = cells.current();
        cells.enter("b");
        assert_ne!(cells.current(), first);
        cells.enter("a");
        assert_eq!(cells.current(), first);
        cells.enter("");
        assert_eq!(cells.current(), 0);
    }

    #[test]
    fn events_carry_the_name_of_their_cell() {
        let cells = Cells::new();
        cells.enter("cell-7");
        let record = Record {
            cell: cells.current(),
            ..Record::default()
        };
        let events = cells.resolve(vec![record, Record::default()]);
        assert_eq!(events[0].cell, "cell-7");
        assert_eq!(events[1].cell, "");
    }
}
