//! What goes on at this moment, for someone who asks why it takes so long.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::journal::EventKind;
use super::lock;
use super::pending::Open;

/// Work that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ongoing {
    pub kind: EventKind,
    pub elapsed_ns: u64,
    /// As in an event of this kind.
    pub bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Ongoing {
    pub(super) fn of(open: &Open, now_ns: u64) -> Self {
        Self {
            kind: open.kind,
            elapsed_ns: now_ns.saturating_sub(open.started_ns),
            bytes: open.bytes,
            name: open.name.as_ref().map(ToString::to_string),
        }
    }
}

/// Compiles that have begun, oldest first. Few at a time: one for each thread that compiles.
pub struct Compiling {
    table: Mutex<Table>,
}

struct Table {
    next: u64,
    open: Vec<(u64, Open)>,
}

/// A compile while it lasts.
pub struct Compile<'a> {
    table: &'a Compiling,
    number: u64,
}

impl Compiling {
    pub const fn new() -> Self {
        Self {
            table: Mutex::new(Table {
                next: 0,
                open: Vec::new(),
            }),
        }
    }

    /// A compile begins; it ends when the result is dropped.
    pub fn begin(&self, open: Open) -> Compile<'_> {
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        table.open.push((number, open));
        Compile {
            table: self,
            number,
        }
    }

    pub(super) fn list(&self, now_ns: u64) -> Vec<Ongoing> {
        let table = lock(&self.table);
        table
            .open
            .iter()
            .map(|(_, open)| Ongoing::of(open, now_ns))
            .collect()
    }
}

impl Drop for Compile<'_> {
    fn drop(&mut self) {
        let mut table = lock(&self.table.table);
        table.open.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(name: &str, started_ns: u64) -> Open {
        Open {
            kind: EventKind::Compile,
            started_ns,
            bytes: 10,
            name: Some(name.into()),
        }
    }

    #[test]
    fn a_compile_is_listed_with_its_age_until_it_ends() {
        let compiling = Compiling::new();
        let first = compiling.begin(compile("a", 100));
        let second = compiling.begin(compile("b", 200));
        let names = |list: Vec<Ongoing>| {
            list.into_iter()
                .map(|one| (one.name.unwrap(), one.elapsed_ns))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(compiling.list(1000)),
            [("a".into(), 900), ("b".into(), 800)]
        );
        drop(first);
        assert_eq!(names(compiling.list(1000)), [("b".into(), 800)]);
        drop(second);
        assert!(compiling.list(1000).is_empty());
    }
}
