//! The programs of this process: where each came from, why, what it cost and how often it ran.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::cells::{CellId, Cells};
use super::clock::unix_ns;
use super::lock;
use crate::signature::{Origin, Why};

/// Bytes kept of programs; the oldest are forgotten first.
const MOST_BYTES: usize = 8 << 20;

/// Device memory a program takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub code: u64,
    pub argument: u64,
    pub output: u64,
    pub alias: u64,
    pub temporary: u64,
}

/// How a program is used: counted by its launches.
#[derive(Debug, Default)]
pub struct Usage {
    pub runs: AtomicU64,
    /// It is loaded on the device.
    pub loaded: AtomicBool,
}

/// How far a program has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    #[default]
    Compiling,
    Compiled,
    /// Taken from a cache on disk or in shared memory.
    Cached,
    Failed,
}

/// What is known of a program when it comes.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    pub stage: Stage,
    pub cell: CellId,
    pub started_ns: u64,
    pub name: Option<Arc<str>>,
    pub origin: Arc<Origin>,
}

struct Record {
    arrival: Arrival,
    why: Why,
    place: Option<Box<str>>,
    duration_ns: u64,
    memory: Memory,
    usage: Arc<Usage>,
}

/// A program as a reader gets it. Bytes and nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// In the order of arrival; never repeated.
    pub number: u64,
    pub stage: Stage,
    /// As in the events of this program.
    pub program: String,
    pub name: String,
    /// Cell that caused it, or empty.
    pub cell: String,
    /// Where in the cell, in the words of the host program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Hash of its operations: the same for programs that do the same with other shapes or numbers.
    pub family: String,
    #[serde(flatten)]
    pub why: Why,
    pub arguments: Vec<String>,
    pub started_unix_ns: u64,
    pub duration_ns: u64,
    /// Of the program as it was given.
    pub bytes: u64,
    /// Of the program on the device.
    pub code_bytes: u64,
    pub argument_bytes: u64,
    pub output_bytes: u64,
    pub alias_bytes: u64,
    pub temporary_bytes: u64,
    pub runs: u64,
    pub loaded: bool,
}

/// Called, with its number, when a compile begins, on the thread that compiles.
pub type Watcher = extern "C" fn(number: u64);

/// Programs, oldest first.
pub struct Programs {
    table: Mutex<Table>,
    watcher: AtomicPtr<()>,
    /// Programs that are loaded now, and those that ever ran.
    loaded: AtomicU64,
    ran: AtomicU64,
}

struct Table {
    first: u64,
    records: VecDeque<Record>,
    bytes: usize,
}

impl Record {
    fn weight(&self) -> usize {
        let signature = &self.arrival.origin.signature;
        let kinds = signature.arguments.iter().chain(&signature.results);
        size_of::<Self>()
            + kinds
                .map(|kind| size_of_val(kind) + 16 + 8 * kind.shape.len())
                .sum::<usize>()
            + signature.built_in.len() * 48
            + signature.numbers.len() * 32
    }
}

impl Programs {
    pub const fn new() -> Self {
        Self {
            table: Mutex::new(Table {
                first: 0,
                records: VecDeque::new(),
                bytes: 0,
            }),
            watcher: AtomicPtr::new(std::ptr::null_mut()),
            loaded: AtomicU64::new(0),
            ran: AtomicU64::new(0),
        }
    }

    /// A program comes; its number.
    pub fn arrive(&self, arrival: Arrival) -> u64 {
        let compiling = arrival.stage == Stage::Compiling;
        let mut table = lock(&self.table);
        let number = table.first + table.records.len() as u64;
        let newest_first = (table.first..number).rev().zip(table.records.iter().rev());
        let why = arrival.origin.signature.why(
            newest_first
                .filter(|(_, record)| record.arrival.stage != Stage::Failed)
                .map(|(number, record)| (number, &record.arrival.origin.signature)),
        );
        let record = Record {
            arrival,
            why,
            place: None,
            duration_ns: 0,
            memory: Memory::default(),
            usage: Arc::default(),
        };
        table.bytes += record.weight();
        table.records.push_back(record);
        while table.bytes > MOST_BYTES
            && table.records.len() > 1
            && let Some(old) = table.records.pop_front()
        {
            table.bytes -= old.weight();
            table.first += 1;
        }
        drop(table);
        if compiling {
            self.tell(number);
        }
        number
    }

    /// It is there: compiled, or loaded from a cache. `usage` is counted by its launches.
    pub fn settle(
        &self,
        number: u64,
        name: &Arc<str>,
        duration_ns: u64,
        memory: Memory,
        usage: &Arc<Usage>,
    ) {
        self.with(number, |record| {
            record.arrival.name = Some(Arc::clone(name));
            record.duration_ns = duration_ns;
            record.memory = memory;
            record.usage = Arc::clone(usage);
            if record.arrival.stage == Stage::Compiling {
                record.arrival.stage = Stage::Compiled;
            }
        });
    }

    /// It could not be compiled.
    pub fn fail(&self, number: u64, duration_ns: u64) {
        self.with(number, |record| {
            record.arrival.stage = Stage::Failed;
            record.duration_ns = duration_ns;
        });
    }

    /// Where in its cell it comes from.
    pub fn place(&self, number: u64, place: &str) {
        self.with(number, |record| record.place = Some(place.into()));
    }

    fn with(&self, number: u64, change: impl FnOnce(&mut Record)) {
        let mut table = lock(&self.table);
        let index = number.checked_sub(table.first);
        if let Some(record) = index.and_then(|index| table.records.get_mut(index as usize)) {
            change(record);
        }
    }

    /// A program is loaded on the device.
    pub fn load(&self, usage: &Usage) {
        usage.loaded.store(true, Ordering::Relaxed);
        self.loaded.fetch_add(1, Ordering::Relaxed);
    }

    /// It is not any more.
    pub fn unload(&self, usage: &Usage) {
        if usage.loaded.swap(false, Ordering::Relaxed) {
            self.loaded.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// It runs.
    pub fn run(&self, usage: &Usage) {
        if usage.runs.fetch_add(1, Ordering::Relaxed) == 0 {
            self.ran.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Programs loaded now, and programs that ever ran.
    pub fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.loaded), read(&self.ran))
    }

    /// Who wants to know that a compile begins; only one.
    pub fn watch(&self, watcher: Option<Watcher>) {
        let watcher = watcher.map_or(std::ptr::null_mut(), |watcher| watcher as *mut ());
        self.watcher.store(watcher, Ordering::Release);
    }

    fn tell(&self, number: u64) {
        let watcher = self.watcher.load(Ordering::Acquire);
        if !watcher.is_null() {
            // SAFETY: only `watch` writes here, and it writes functions of this type.
            let watcher: Watcher = unsafe { std::mem::transmute(watcher) };
            watcher(number);
        }
    }

    /// Programs from `cursor` on, as far as they are remembered, and the cursor behind them.
    pub fn since(&self, cursor: u64, cells: &Cells) -> (u64, Vec<Program>) {
        let table = lock(&self.table);
        let skipped = cursor.saturating_sub(table.first) as usize;
        let next = table.first + table.records.len() as u64;
        let numbered = (table.first..).zip(&table.records).skip(skipped);
        let programs = numbered
            .map(|(number, record)| record.describe(number, cells))
            .collect();
        (next, programs)
    }
}

impl Record {
    fn describe(&self, number: u64, cells: &Cells) -> Program {
        let arrival = &self.arrival;
        let signature = &arrival.origin.signature;
        Program {
            number,
            stage: arrival.stage,
            program: format!("{:016x}", arrival.origin.program),
            name: arrival.name.as_deref().unwrap_or_default().to_owned(),
            cell: cells.name(arrival.cell),
            place: self.place.as_deref().map(str::to_owned),
            family: format!("{:016x}", signature.sequence),
            why: self.why.clone(),
            arguments: signature
                .arguments
                .iter()
                .map(ToString::to_string)
                .collect(),
            started_unix_ns: unix_ns(arrival.started_ns),
            duration_ns: self.duration_ns,
            bytes: arrival.origin.bytes,
            code_bytes: self.memory.code,
            argument_bytes: self.memory.argument,
            output_bytes: self.memory.output,
            alias_bytes: self.memory.alias,
            temporary_bytes: self.memory.temporary,
            runs: self.usage.runs.load(Ordering::Relaxed),
            loaded: self.usage.loaded.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MM_60: &[u8] = include_bytes!("../../programs/mm-60.mlirbc");
    const MM_61: &[u8] = include_bytes!("../../programs/mm-61.mlirbc");

    fn arrival(code: &[u8], stage: Stage) -> Arrival {
        Arrival {
            stage,
            origin: Arc::new(Origin::of(code, &[])),
            ..Arrival::default()
        }
    }

    #[test]
    fn a_program_is_followed_from_its_compile_to_its_runs() {
        let (programs, cells) = (Programs::new(), Cells::new());
        let number = programs.arrive(arrival(MM_60, Stage::Compiling));
        let read = || programs.since(number, &cells).1.remove(0);
        assert_eq!((read().stage, read().why), (Stage::Compiling, Why::First));
        let usage = Arc::default();
        let memory = Memory {
            temporary: 7,
            ..Memory::default()
        };
        programs.settle(number, &"mm".into(), 5, memory, &usage);
        programs.load(&usage);
        programs.place(number, "In[3], line 2");
        for _ in 0..3 {
            programs.run(&usage);
        }
        let program = read();
        assert_eq!(program.stage, Stage::Compiled);
        assert_eq!((program.duration_ns, program.temporary_bytes), (5, 7));
        assert_eq!((program.runs, program.loaded), (3, true));
        assert_eq!(program.place.as_deref(), Some("In[3], line 2"));
        assert_eq!(programs.counts(), (1, 1));
        programs.unload(&usage);
        programs.unload(&usage);
        assert_eq!(programs.counts(), (0, 1));
        assert!(!read().loaded);
    }

    #[test]
    fn a_cached_program_explains_the_next_compile_and_a_failed_one_does_not() {
        let (programs, cells) = (Programs::new(), Cells::new());
        let failed = programs.arrive(arrival(MM_61, Stage::Compiling));
        programs.fail(failed, 1);
        let cached = programs.arrive(arrival(MM_60, Stage::Cached));
        let compiled = programs.arrive(arrival(MM_61, Stage::Compiling));
        let (next, all) = programs.since(0, &cells);
        assert_eq!(next, 3);
        assert_eq!(all[failed as usize].stage, Stage::Failed);
        assert_eq!(all[cached as usize].why, Why::First);
        assert!(
            matches!(all[compiled as usize].why, Why::Differs { nearest, .. } if nearest == cached)
        );
        assert_eq!(all[1].family, all[2].family);
        assert_eq!(programs.since(next, &cells), (next, Vec::new()));
    }

    #[test]
    fn the_oldest_are_forgotten_and_numbers_go_on() {
        let (programs, cells) = (Programs::new(), Cells::new());
        for _ in 0..20_000 {
            programs.arrive(arrival(b"no program", Stage::Cached));
        }
        let (next, all) = programs.since(0, &cells);
        assert_eq!(next, 20_000);
        assert!(all.len() > 1_000 && all.len() * size_of::<Record>() <= MOST_BYTES);
        assert_eq!(all.last().unwrap().number, 19_999);
        programs.place(3, "forgotten");
    }

    #[test]
    fn a_program_travels_as_flat_json() {
        let (programs, cells) = (Programs::new(), Cells::new());
        programs.arrive(arrival(MM_60, Stage::Cached));
        programs.arrive(arrival(MM_61, Stage::Compiling));
        let (_, all) = programs.since(1, &cells);
        let text = serde_json::to_string(&all[0]).unwrap();
        assert!(text.contains(r#""stage":"compiling""#), "{text}");
        assert!(text.contains(
            r#""why":"differs","nearest":0,"differences":[{"differs":"size","part":"argument","index":0,"dimension":0,"was":60,"is":61,"tensor":"float32[61, 128]"}]"#
        ), "{text}");
        assert_eq!(serde_json::from_str::<Program>(&text).unwrap(), all[0]);
    }

    #[test]
    fn a_watcher_hears_of_compiles_only() {
        static HEARD: AtomicU64 = AtomicU64::new(0);
        extern "C" fn hear(number: u64) {
            HEARD.fetch_add(number + 1, Ordering::Relaxed);
        }
        let programs = Programs::new();
        programs.arrive(arrival(MM_60, Stage::Compiling));
        programs.watch(Some(hear));
        programs.arrive(arrival(MM_60, Stage::Cached));
        programs.arrive(arrival(MM_60, Stage::Compiling));
        assert_eq!(HEARD.load(Ordering::Relaxed), 3);
        programs.watch(None);
        programs.arrive(arrival(MM_60, Stage::Compiling));
        assert_eq!(HEARD.load(Ordering::Relaxed), 3);
    }
}
