//! The kernels that answer, and what is seen of their processes.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A kernel that does not answer in this time is stuck.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most that one tells.
const MOST_BYTES: u64 = 1 << 20;

/// One kernel at one moment.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub pid: i32,
    /// What it said; see `kernel/src/offer.rs`.
    pub told: Value,
    /// Bytes of its process.
    pub memory: u64,
    /// Processor time of its process, in seconds.
    processor: f64,
    seen: Instant,
}

/// All of this user's, by their process number. Sockets nobody listens at are taken away.
pub fn all() -> Vec<Kernel> {
    let sockets = tpu_kernel_place::sockets();
    let mut kernels: Vec<Kernel> = std::thread::scope(|scope| {
        let asked: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(|| ask(socket)))
            .collect();
        let answers = asked.into_iter().filter_map(|thread| thread.join().ok());
        answers.flatten().collect()
    });
    kernels.sort_by_key(|kernel| kernel.pid);
    kernels
}

fn ask(socket: &Path) -> Option<Kernel> {
    let stream = tpu_kernel_place::connect(socket).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut text = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let told: Value = serde_json::from_str(&text).ok()?;
    if !told.is_object() {
        return None;
    }
    let pid = tpu_kernel_place::process_of(socket)?;
    Some(Kernel {
        pid,
        told,
        memory: memory(pid),
        processor: processor(pid),
        seen: Instant::now(),
    })
}

fn read(pid: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn memory(pid: i32) -> u64 {
    let text = read(pid, "statm");
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    // SAFETY: asks for a constant of the system.
    pages * u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn processor(pid: i32) -> f64 {
    let text = read(pid, "stat");
    let ticks: u64 = text.rsplit_once(')').map_or(0, |(_, fields)| {
        let fields = fields.split_whitespace().skip(11).take(2);
        fields.filter_map(|field| field.parse::<u64>().ok()).sum()
    });
    // SAFETY: asks for a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
    ticks as f64 / per_second as f64
}

impl Kernel {
    /// A number it told, or 0.
    pub fn number(&self, name: &str) -> f64 {
        self.told[name].as_f64().unwrap_or(0.0)
    }

    fn earlier<'a>(&self, before: &'a [Kernel]) -> Option<&'a Kernel> {
        before.iter().find(|kernel| {
            kernel.pid == self.pid && kernel.told["connection_file"] == self.told["connection_file"]
        })
    }

    /// Percent of the time since `before` in which the device was busy.
    pub fn busy(&self, before: &[Kernel]) -> f64 {
        let Some(before) = self.earlier(before) else {
            return 0.0;
        };
        let busy = (self.number("busy_ns") - before.number("busy_ns")) / 1e9;
        percent(busy, self.number("t") - before.number("t")).min(100.0)
    }

    /// Percent of one processor its process used since `before`.
    pub fn processor(&self, before: &[Kernel]) -> f64 {
        let Some(before) = self.earlier(before) else {
            return 0.0;
        };
        let span = self.seen.duration_since(before.seen).as_secs_f64();
        percent(self.processor - before.processor, span)
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        (part / whole * 1000.0).round().max(0.0) / 10.0
    } else {
        0.0
    }
}

#[cfg(test)]
pub fn example(pid: i32, told: Value) -> Kernel {
    Kernel {
        pid,
        told,
        memory: 3 << 29,
        processor: 0.0,
        seen: Instant::now(),
    }
}
