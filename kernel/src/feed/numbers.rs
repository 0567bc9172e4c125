//! The numbers of the kernel and its device as of now: for the feed, a host's dashboard and
//! `tpu-kernel top`. Reads counters, touches no device.

use serde::Serialize;
use serde_json::{Value, json};
use tpu_core::client::{EventKind, Ongoing, Session};

use super::State;
use super::cells::Cell;
use crate::device;

/// What the device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Device {
    pub name: String,
    pub emulated: bool,
    /// What computes.
    pub runtime: String,
    /// What is unlike the real chip.
    pub note: Option<String>,
}

impl Device {
    fn of(session: Session) -> Option<Self> {
        let identity = session.identity()?;
        let less = identity.emulated && identity.hbm_bytes < identity.chip_hbm_bytes;
        let note = less.then(|| {
            format!(
                "HBM is what this machine has; a {} has {:.1} GiB",
                identity.device_name,
                identity.chip_hbm_bytes as f64 / f64::from(1 << 30)
            )
        });
        Some(Self {
            name: identity.device_name,
            emulated: identity.emulated,
            runtime: if identity.emulated {
                "XLA CPU plug-in".into()
            } else {
                let file = std::path::Path::new(&identity.plugin).file_name();
                file.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            },
            note,
        })
    }
}

/// Counters that run from the start of the process, and what memory is in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub hbm_used: u64,
    pub hbm_peak: u64,
    pub hbm_limit: u64,
    pub busy_ns: u64,
    pub compiles: u64,
    pub compile_ns: u64,
    pub cache_hits: u64,
    pub memory_hits: u64,
    pub executions: u64,
    pub to_device_bytes: u64,
    pub from_device_bytes: u64,
}

/// One look.
#[derive(Debug, Clone, Serialize)]
pub struct Numbers {
    pub v: u32,
    /// Seconds since 1970.
    pub t: f64,
    pub device: Option<Device>,
    pub state: &'static str,
    pub cell: Option<Value>,
    pub mode: String,
    #[serde(flatten)]
    pub counters: Counters,
    pub now: Vec<Value>,
    /// Launches and transfers that have not ended.
    #[serde(skip)]
    pub pending: u64,
    /// What goes on, without how long.
    #[serde(skip)]
    pub doing: Vec<String>,
    #[serde(skip)]
    pub failures: u64,
}

impl Numbers {
    /// As of now. Reads new failures too.
    pub(super) fn take(state: &mut State) -> Self {
        let session = device::session();
        let snapshot = session.and_then(Session::snapshot);
        let mut counters = Counters::default();
        let (mut pending, mut failures) = (0, 0);
        let mut ongoing = Vec::new();
        if let (Some(session), Some(now)) = (session, &snapshot) {
            if state.device.is_none() {
                state.device = Device::of(*session);
            }
            state.events.read(*session, now.errors, now.next_sequence);
            ongoing = session.ongoing();
            counters = Counters {
                hbm_used: now.live_bytes,
                hbm_peak: now.peak_bytes,
                hbm_limit: now.limit_bytes,
                busy_ns: state.busy.of(now.busy_ns, &ongoing),
                compiles: now.compiles,
                compile_ns: now.compile_ns,
                cache_hits: now.cache_hits,
                memory_hits: now.executions.saturating_sub(now.programs_run),
                executions: now.executions,
                to_device_bytes: now.upload_bytes,
                from_device_bytes: now.download_bytes,
            };
            (pending, failures) = (now.pending, now.errors);
        }
        let cell = state.cells.current();
        let id = cell.map(|cell| cell.id.clone()).unwrap_or_default();
        Self {
            v: super::VERSION,
            t: super::unix_now(),
            device: state.device.clone(),
            state: match (state.ready, cell) {
                (_, Some(_)) => "busy",
                (true, None) => "idle",
                (false, None) => "starting",
            },
            cell: cell.filter(|cell| cell.count.is_some()).map(running),
            mode: state.mode.clone(),
            counters,
            now: ongoing.iter().map(|work| described(work, &id)).collect(),
            pending,
            doing: ongoing
                .iter()
                .map(|work| format!("{}{}", kind(work), work.name.as_deref().unwrap_or("")))
                .collect(),
            failures,
        }
    }
}

fn running(cell: &Cell) -> Value {
    json!({"id": cell.id, "count": cell.count, "started": cell.t0})
}

fn kind(work: &Ongoing) -> &'static str {
    match work.kind {
        EventKind::Compile | EventKind::CacheHit => "compile",
        EventKind::Upload | EventKind::Download => "transfer",
        EventKind::Execute | EventKind::Error => "execute",
    }
}

fn described(work: &Ongoing, cell: &str) -> Value {
    let kind = kind(work);
    let mut described = json!({"kind": kind, "elapsed_ns": work.elapsed_ns, "cell": cell});
    if kind == "transfer" {
        described["bytes"] = work.bytes.into();
        let down = work.kind == EventKind::Download;
        described["direction"] = if down { "from_device" } else { "to_device" }.into();
    } else {
        described["name"] = work.name.as_deref().unwrap_or("").into();
    }
    described
}

/// Busy time with that of the launch that runs, which is counted only when it has ended.
#[derive(Debug, Default)]
pub(super) struct Busy {
    counted: u64,
    /// When the count was last seen to change: what was before is in it.
    changed: Option<std::time::Instant>,
    told: u64,
}

impl Busy {
    fn of(&mut self, counted: u64, ongoing: &[Ongoing]) -> u64 {
        if counted != self.counted || self.changed.is_none() {
            self.counted = counted;
            self.changed = Some(std::time::Instant::now());
        }
        let since = self.changed.map_or(0, |at| at.elapsed().as_nanos() as u64);
        let running = ongoing.iter().find(|work| work.kind == EventKind::Execute);
        let more = running.map_or(0, |work| work.elapsed_ns.min(since));
        self.told = self.told.max(counted + more);
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_launch_counts_while_it_runs_and_never_twice() {
        let launch = |elapsed_ns| Ongoing {
            kind: EventKind::Execute,
            elapsed_ns,
            bytes: 0,
            name: None,
        };
        let mut busy = Busy::default();
        assert_eq!(busy.of(100, &[]), 100);
        std::thread::sleep(std::time::Duration::from_millis(2));
        // Older than the last change of the count: only what came after it is new.
        let during = busy.of(100, &[launch(u64::MAX)]);
        assert!(during > 2_000_000, "{during}");
        assert!(during < 60_000_000_000, "{during}");
        assert_eq!(busy.of(100, &[launch(5)]), during);
        assert_eq!(busy.of(200, &[]), during);
        assert_eq!(busy.of(during + 7, &[]), during + 7);
    }
}
