//! One line under the running cell while a compile or a transfer takes long: which, and for how
//! long. When it has ended the line says how long it took. From the io thread, which never waits
//! for the GIL; nothing runs here while no cell does.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tpu_core::client::{EventKind, Ongoing};
use tpu_core::readable;

use crate::device;
use crate::kernel::Kernel;
use crate::outbox::Entry;
use crate::parent::Parent;
use crate::standing::Standing;

/// Between two looks at what goes on.
const LOOK: Duration = Duration::from_millis(500);
/// What ends sooner needs no word.
const LONG_NS: u64 = 2_000_000_000;
/// Looks at the events of the session for the end of what was shown.
const LOOKS_FOR_THE_END: u32 = 3;
/// Longest name of a program that is shown, in characters.
const NAME: usize = 60;

/// Something long that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ended {
    kind: EventKind,
    name: Option<String>,
    bytes: u64,
    duration_ns: u64,
}

/// The line of one cell.
#[derive(Debug)]
pub struct Progress {
    line: Standing,
    text: String,
    ended: Vec<Ended>,
    /// Events from here on may be the end of what was shown last.
    cursor: u64,
    /// How often the end is still looked for.
    looks: u32,
}

impl Progress {
    pub fn new(parent: Arc<Parent>) -> Self {
        Self {
            line: Standing::new("progress", parent),
            text: String::new(),
            ended: Vec::new(),
            cursor: 0,
            looks: 0,
        }
    }

    pub fn concerns(&self, parent: &Arc<Parent>) -> bool {
        Arc::ptr_eq(self.line.parent(), parent)
    }

    /// The line as it should be now, where it changes.
    fn look(&mut self, long: &[Ongoing], session: device::Session) -> Option<Entry> {
        if long.is_empty() {
            return self.end(session);
        }
        if self.looks == 0 {
            self.cursor = session.snapshot().map_or(0, |now| now.next_sequence);
        }
        self.looks = LOOKS_FOR_THE_END;
        self.say(going_on(long))
    }

    /// Nothing goes on any more: how long it took.
    fn end(&mut self, session: device::Session) -> Option<Entry> {
        if self.looks == 0 {
            return None;
        }
        self.looks -= 1;
        let (next, events) = session.events(self.cursor);
        self.cursor = next;
        let before = self.ended.len();
        let long = events
            .into_iter()
            .filter(|event| event.duration_ns >= LONG_NS && is_shown(event.kind));
        self.ended.extend(long.map(|event| Ended {
            kind: event.kind,
            name: event.name,
            bytes: event.bytes,
            duration_ns: event.duration_ns,
        }));
        if self.ended.len() > before {
            self.looks = 0;
        } else if self.looks > 0 {
            return None; // it has ended a moment ago: its event comes
        }
        let text = if self.ended.is_empty() {
            format!("{}: it did not succeed", self.text)
        } else {
            ended(&self.ended)
        };
        self.say(text)
    }

    fn say(&mut self, text: String) -> Option<Entry> {
        if self.text == text {
            return None;
        }
        let entry = self.line.show(&text);
        self.text = text;
        Some(entry)
    }

    /// The cell ends: the last word.
    pub fn settle(mut self) -> Option<Entry> {
        let session = *device::session()?;
        if self.looks > 0 && !long(session).is_empty() {
            let text = format!("{}, and it goes on", self.text);
            return self.say(text);
        }
        self.looks = self.looks.min(1);
        self.end(session)
    }
}

/// What goes on now, and for long.
fn long(session: device::Session) -> Vec<Ongoing> {
    let mut long = session.ongoing();
    long.retain(|one| one.elapsed_ns >= LONG_NS && is_shown(one.kind));
    long
}

/// Look at what goes on while a cell runs, as long as the kernel lives.
pub async fn watch(kernel: Arc<Kernel>) {
    loop {
        kernel.cell_began.notified().await;
        loop {
            sleep(LOOK).await;
            let Some(parent) = kernel.running() else {
                break;
            };
            let Some(&session) = device::session() else {
                continue;
            };
            let long = long(session);
            kernel.show_progress(&parent, !long.is_empty(), |progress| {
                progress.look(&long, session)
            });
        }
    }
}

fn is_shown(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Execute | EventKind::Error)
}

fn going_on(long: &[Ongoing]) -> String {
    let mut text = String::new();
    for one in long.iter().take(1) {
        let what = what(one.kind, one.name.as_deref(), one.bytes);
        let doing = match one.kind {
            EventKind::Compile => "compiling",
            EventKind::CacheHit => "loading",
            _ => "moving",
        };
        let seconds = one.elapsed_ns / 1_000_000_000;
        let _ = write!(text, "{doing} {what} · {seconds} s");
    }
    if long.len() > 1 {
        let _ = write!(text, " (and {} more)", long.len() - 1);
    }
    text
}

fn ended(all: &[Ended]) -> String {
    let mut parts = Vec::new();
    for kind in [
        EventKind::Compile,
        EventKind::CacheHit,
        EventKind::Upload,
        EventKind::Download,
    ] {
        let of_kind = || all.iter().filter(|one| one.kind == kind);
        let seconds = of_kind().map(|one| one.duration_ns).sum::<u64>() as f64 / 1e9;
        let bytes = of_kind().map(|one| one.bytes).sum();
        let did = match kind {
            EventKind::Compile => "compiled",
            EventKind::CacheHit => "loaded",
            _ => "moved",
        };
        let what = match (of_kind().count(), of_kind().next()) {
            (1, Some(one)) => what(kind, one.name.as_deref(), bytes),
            (0, _) | (_, None) => continue,
            (count, _) if matches!(kind, EventKind::Compile | EventKind::CacheHit) => {
                format!("{count} large programs")
            }
            _ => what(kind, None, bytes),
        };
        parts.push(format!("{did} {what} in {seconds:.1} s"));
    }
    parts.join(" · ")
}

fn what(kind: EventKind, name: Option<&str>, bytes: u64) -> String {
    let name = name.filter(|name| !name.is_empty()).unwrap_or("a program");
    let shown = if name.chars().count() > NAME {
        format!("{}…", name.chars().take(NAME).collect::<String>())
    } else {
        name.to_owned()
    };
    let size = readable(bytes);
    match kind {
        EventKind::Upload => format!("{size} to the device"),
        EventKind::Download => format!("{size} from the device"),
        EventKind::CacheHit => format!("{shown} from the cache"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_named_with_its_age() {
        let compile = Ongoing {
            kind: EventKind::Compile,
            elapsed_ns: 14_200_000_000,
            bytes: 100,
            name: Some("tt_jit_mm".into()),
        };
        let transfer = Ongoing {
            kind: EventKind::Upload,
            bytes: 3 << 29,
            name: None,
            ..compile.clone()
        };
        assert_eq!(
            going_on(std::slice::from_ref(&compile)),
            "compiling tt_jit_mm · 14 s"
        );
        assert_eq!(
            going_on(&[transfer, compile]),
            "moving 1.50 GiB to the device · 14 s (and 1 more)"
        );
    }

    #[test]
    fn what_ended_is_told_with_its_time() {
        let compile = Ended {
            kind: EventKind::Compile,
            name: Some("x".repeat(80)),
            bytes: 0,
            duration_ns: 14_240_000_000,
        };
        let name = "x".repeat(60);
        assert_eq!(
            ended(std::slice::from_ref(&compile)),
            format!("compiled {name}… in 14.2 s")
        );
        let transfer = Ended {
            kind: EventKind::Download,
            name: None,
            bytes: 300 << 20,
            duration_ns: 3_100_000_000,
        };
        assert_eq!(
            ended(&[compile.clone(), transfer, compile]),
            "compiled 2 large programs in 28.5 s · moved 300.00 MiB from the device in 3.1 s"
        );
    }
}
