//! What the kernel and the processes below it use of the machine, read from `/proc`: the answer to
//! `usage_request`, which the kernel panel of `jupyter-resource-usage` shows. Needs no Python, and
//! holds up nobody: to add up the pages of a process takes the system a tenth of a second for each
//! GiB it has.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kernel::Kernel;
use crate::lock::lock;
use crate::process;
use crate::request::Request;

/// Shorter spans say little: the system counts processor time in hundredths of a second.
const SHORTEST_SPAN: Duration = Duration::from_millis(500);

/// Processor time, in clock ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct HostTime {
    busy: u64,
    all: u64,
}

/// What had been used at one moment.
#[derive(Debug)]
struct Sample {
    taken: Instant,
    host: Option<HostTime>,
    /// Ticks of each process, by its number and start: numbers are used again.
    processes: HashMap<(i32, u64), u64>,
}

/// Remembers the last sample: a load is always that of a span.
#[derive(Debug, Default)]
pub struct Usage {
    last: Mutex<Option<Sample>>,
    asked: Mutex<Asked>,
}

/// Requests that wait, and whether a thread is at work for them.
#[derive(Debug, Default)]
struct Asked {
    waiting: Vec<Request>,
    at_work: bool,
}

/// Answer a `usage_request`, from a thread that lives until nobody waits for an answer.
pub fn answer(kernel: &Arc<Kernel>, request: Request) {
    let mut asked = lock(&kernel.usage.asked);
    asked.waiting.push(request);
    if asked.at_work {
        return;
    }
    let aside = Arc::clone(kernel);
    let named = std::thread::Builder::new().name("tpu-kernel-usage".into());
    asked.at_work = named.spawn(move || answer_all(&aside)).is_ok();
    if !asked.at_work {
        drop(asked);
        answer_all(kernel);
    }
}

fn answer_all(kernel: &Kernel) {
    loop {
        let mut asked = lock(&kernel.usage.asked);
        let waiting = std::mem::take(&mut asked.waiting);
        if waiting.is_empty() {
            asked.at_work = false;
            return;
        }
        drop(asked);
        let reply = kernel.usage.reply();
        for request in &waiting {
            kernel.answer_now(request, &reply);
        }
    }
}

impl Usage {
    /// Content of `usage_reply`.
    fn reply(&self) -> Value {
        // SAFETY: cannot fail.
        let own = unsafe { libc::getpid() };
        let mut pids = vec![own];
        pids.extend(process::descendants());
        let now = Sample {
            taken: Instant::now(),
            host: read("/proc/stat").and_then(|text| host_time(&text)),
            processes: pids
                .iter()
                .filter_map(|pid| process_time(*pid, &read(&format!("/proc/{pid}/stat"))?))
                .collect(),
        };
        let memory: u64 = pids.iter().filter_map(|pid| memory_of(*pid)).sum();
        let mut reply = json!({
            "status": "ok",
            "hostname": hostname(),
            "pid": own,
            "kernel_memory": memory,
            "cpu_count": processors(),
        });
        if let Some(memory) = read("/proc/meminfo").and_then(|text| host_memory(&text)) {
            reply["host_virtual_memory"] = memory;
        }
        let mut last = lock(&self.last);
        reply["kernel_cpu"] = round(load(last.as_ref(), &now)).into();
        if let Some(percent) = last.as_ref().and_then(|before| host_load(before, &now)) {
            reply["host_cpu_percent"] = round(percent).into();
        }
        if last
            .as_ref()
            .is_none_or(|before| now.taken - before.taken >= SHORTEST_SPAN)
        {
            *last = Some(now);
        }
        reply
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

fn round(percent: f64) -> f64 {
    (percent * 10.0).round() / 10.0
}

fn ticks_per_second() -> f64 {
    // SAFETY: asks for a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

/// Processors of the machine, which the host's load is about.
fn processors() -> u64 {
    // SAFETY: asks for a number the system knows.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    online.max(1) as u64
}

/// Load of the kernel's processes in percent of one processor since `before`; the first time,
/// since each of them started.
fn load(before: Option<&Sample>, now: &Sample) -> f64 {
    let Some(before) = before else {
        return load_since_start(now);
    };
    let ticks: u64 = now
        .processes
        .iter()
        .map(|(process, ticks)| {
            ticks.saturating_sub(before.processes.get(process).copied().unwrap_or(0))
        })
        .sum();
    percent(ticks, (now.taken - before.taken).as_secs_f64())
}

fn load_since_start(now: &Sample) -> f64 {
    let up = read("/proc/uptime").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let Some(up) = up else { return 0.0 };
    now.processes
        .iter()
        .map(|((_, start), ticks)| percent(*ticks, up - *start as f64 / ticks_per_second()))
        .sum()
}

fn percent(ticks: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        ticks as f64 / ticks_per_second() / seconds * 100.0
    } else {
        0.0
    }
}

/// Load of all processors in percent.
fn host_load(before: &Sample, now: &Sample) -> Option<f64> {
    let (before, now) = (before.host?, now.host?);
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0)?;
    Some(now.busy.saturating_sub(before.busy) as f64 / all as f64 * 100.0)
}

/// The first line of `/proc/stat`. Time of guests is part of the users' time.
fn host_time(stat: &str) -> Option<HostTime> {
    let fields: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8)
        .collect();
    let all = fields.iter().sum::<u64>();
    let idle = fields.get(3)? + fields.get(4).copied().unwrap_or(0);
    Some(HostTime {
        busy: all - idle,
        all,
    })
}

/// Identity and ticks of a process from its `/proc/PID/stat`.
fn process_time(pid: i32, stat: &str) -> Option<((i32, u64), u64)> {
    // The name stands in parentheses and may hold any character.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(((pid, field(22)?), field(14)? + field(15)?))
}

/// Bytes of a process: its fair share of what is shared, else all that is resident.
fn memory_of(pid: i32) -> Option<u64> {
    read(&format!("/proc/{pid}/smaps_rollup"))
        .and_then(|text| kilobytes(&text, "Pss"))
        .or_else(|| kilobytes(&read(&format!("/proc/{pid}/status"))?, "VmRSS"))
}

/// The bytes that a line such as `Pss:   123 kB` names.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        let number = value.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(number * 1024)
    })
}

/// Memory of the machine, under the names `psutil` gives.
fn host_memory(meminfo: &str) -> Option<Value> {
    let read = |name| kilobytes(meminfo, name);
    let some = |name| read(name).unwrap_or(0);
    let (total, free) = (read("MemTotal")?, read("MemFree")?);
    let available = read("MemAvailable").unwrap_or(free).min(total);
    let used = total - available;
    Some(json!({
        "total": total,
        "available": available,
        "percent": round(used as f64 / total.max(1) as f64 * 100.0),
        "used": used,
        "free": free,
        "active": some("Active"),
        "inactive": some("Inactive"),
        "buffers": some("Buffers"),
        "cached": some("Cached") + some("SReclaimable"),
        "shared": some("Shmem"),
        "slab": some("Slab"),
    }))
}

fn hostname() -> String {
    let mut name = [0_u8; 256];
    // SAFETY: the length is that of the buffer.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(taken: Instant, host: (u64, u64), ticks: &[(i32, u64, u64)]) -> Sample {
        Sample {
            taken,
            host: Some(HostTime {
                busy: host.0,
                all: host.1,
            }),
            processes: ticks
                .iter()
                .map(|(pid, start, ticks)| ((*pid, *start), *ticks))
                .collect(),
        }
    }

    #[test]
    fn a_program_named_with_parentheses_and_spaces_is_read() {
        let stat = "42 (a) R (b c) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 7 7 20 0 3 0 9000 1 1";
        assert_eq!(process_time(42, stat), Some(((42, 9000), 200)));
        assert_eq!(process_time(42, "42 (cut short) S 1"), None);
    }

    #[test]
    fn waiting_for_the_disk_is_not_load_and_guests_do_not_count_twice() {
        let stat = "cpu  100 10 50 800 40 0 0 0 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(
            host_time(stat),
            Some(HostTime {
                busy: 160,
                all: 1000
            })
        );
        assert_eq!(host_time("intr 1\n"), None);
    }

    #[test]
    fn load_is_that_of_the_span_and_a_child_that_began_in_it_counts_whole() {
        let start = Instant::now();
        let per_second = ticks_per_second() as u64;
        let before = sample(start, (10, 100), &[(1, 5, 500), (2, 6, 70)]);
        let later = start + Duration::from_secs(2);
        let now = sample(
            later,
            (60, 300),
            &[(1, 5, 500 + per_second), (2, 900, per_second)],
        );
        assert!((load(Some(&before), &now) - 100.0).abs() < 1e-9);
        assert_eq!(host_load(&before, &now), Some(25.0));
        assert_eq!(host_load(&now, &now), None);
    }

    #[test]
    fn memory_of_the_machine_adds_up() {
        let meminfo = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  250 kB\nBuffers: 5 kB\n\
                       Cached: 60 kB\nActive: 70 kB\nActive(anon): 9 kB\nInactive: 80 kB\n\
                       Shmem: 3 kB\nSlab: 20 kB\nSReclaimable: 12 kB\n";
        let memory = host_memory(meminfo).unwrap();
        assert_eq!(memory["total"], 1_024_000);
        assert_eq!(memory["used"], 750 * 1024);
        assert_eq!(memory["percent"], 75.0);
        assert_eq!(memory["active"], 70 * 1024);
        assert_eq!(memory["cached"], 72 * 1024);
    }

    #[test]
    fn this_process_is_measured() {
        let reply = Usage::default().reply();
        assert_eq!(reply["pid"], std::process::id());
        assert!(reply["kernel_memory"].as_u64().unwrap() > 100_000);
        assert!(reply["kernel_cpu"].as_f64().unwrap() >= 0.0);
        assert!(reply["cpu_count"].as_u64().unwrap() >= 1);
        assert!(!reply["hostname"].as_str().unwrap().is_empty());
    }
}
