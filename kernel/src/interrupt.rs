//! What a person is told while an interrupt waits: for the end of a compile, for C code, for a
//! handler of their own. One line under the cell, updated once a second, from the io thread,
//! which never waits for the GIL.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tpu_core::client::{EventKind, Ongoing};

use crate::device;
use crate::kernel::Kernel;
use crate::lock::lock;
use crate::outbox::Entry;
use crate::parent::Parent;
use crate::request::Service;
use crate::standing::Standing;

/// An interrupt that comes so soon after another cancels what waits on the device.
pub const AGAIN: Duration = Duration::from_secs(5);
/// A cell that ends by then needs no word.
const PATIENCE: Duration = Duration::from_millis(250);
/// Between two updates of the line.
const UPDATE: Duration = Duration::from_secs(1);
/// How long an answer of Python is waited for, each time.
const ANSWER: Duration = Duration::from_millis(150);
/// What is said where a look was too short to tell.
const UNKNOWN: &str = "the cell does not react";
/// Python that has not answered after this time does not get the GIL.
const NO_ANSWER: Duration = Duration::from_millis(800);

/// Where the main thread is, as Python tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Whereabouts {
    /// As `In[3], line 2`; empty outside cells.
    pub place: String,
    /// It runs Python: it was seen at different instructions, or does as it likes with SIGINT.
    pub moving: bool,
    /// It is inside `except KeyboardInterrupt` or a `finally` that one passes through.
    pub handling: bool,
}

/// An interrupt that was asked for and has not ended its cell.
#[derive(Debug)]
pub struct Pending {
    line: Standing,
    since: Instant,
    /// What it was seen to wait for until it was raised in the cell.
    before: Seen,
    /// The same from then on: how the cell ended.
    after: Seen,
    /// When it was looked last.
    looked: Option<Instant>,
}

/// What was seen in looks now and then, in the order of the first ones, and how long each held.
#[derive(Debug, Default)]
struct Seen {
    held: Vec<(String, Duration)>,
    last: usize,
}

impl Seen {
    /// It is `what` now; `gap` ago it was what was seen last. One that could not be told then is
    /// the one that is seen next.
    fn add(&mut self, what: String, gap: Duration) {
        if let Some((unknown, _)) = self.held.iter_mut().find(|(what, _)| what == UNKNOWN)
            && what != UNKNOWN
        {
            unknown.clone_from(&what);
        }
        if let Some((_, held)) = self.held.get_mut(self.last) {
            *held += gap / 2;
        }
        let known = self.held.iter().position(|(known, _)| *known == what);
        self.last = known.unwrap_or(self.held.len());
        match known {
            Some(known) => self.held[known].1 += gap / 2,
            None => self.held.push((what, gap / 2)),
        }
    }

    /// What held longest, the first of equals.
    fn longest(&self) -> Option<(&str, Duration)> {
        let longest = self.held.iter().rev().max_by_key(|(_, held)| *held);
        longest.map(|(what, held)| (what.as_str(), *held))
    }
}

impl Pending {
    pub fn new(parent: Arc<Parent>) -> Self {
        Self {
            line: Standing::new("interrupt", parent),
            since: Instant::now(),
            before: Seen::default(),
            after: Seen::default(),
            looked: None,
        }
    }

    pub fn since(&self) -> Instant {
        self.since
    }

    pub fn concerns(&self, parent: &Arc<Parent>) -> bool {
        Arc::ptr_eq(self.line.parent(), parent)
    }

    /// Say what it waits for, as of `now`.
    fn show(&mut self, reason: Reason, now: Instant) -> Entry {
        let text = format!("interrupt pending: {reason}");
        let gap = now.saturating_duration_since(self.looked.replace(now).unwrap_or(self.since));
        let landed = reason.landed || !self.after.held.is_empty();
        let seen = if landed {
            &mut self.after
        } else {
            &mut self.before
        };
        seen.add(reason.what, gap);
        self.line.show(&text)
    }

    /// Say how it ended, where something was said before. `reply` is the content of the cell's reply.
    pub fn settle(mut self, reply: Option<&Bytes>) -> Option<Entry> {
        #[derive(serde::Deserialize)]
        struct Content {
            #[serde(default)]
            ename: String,
        }
        let content = reply.and_then(|reply| serde_json::from_slice::<Content>(reply).ok());
        let ename = content.map(|content| content.ename).unwrap_or_default();
        let seconds = self.since.elapsed().as_secs_f64();
        let interrupted = ename == "KeyboardInterrupt";
        // What held longest; where it was obeyed, what held it up before it landed.
        let (waited_for, _) = match (self.before.longest(), self.after.longest()) {
            (Some((UNKNOWN, _)), Some(after)) => after,
            (Some(before), Some(after)) if !interrupted && after.1 > before.1 => after,
            (before, after) => before.or(after)?,
        };
        let text = if interrupted {
            format!("interrupted {seconds:.1} s after it was asked for ({waited_for})")
        } else {
            format!("the cell ended {seconds:.1} s after the interrupt ({waited_for})")
        };
        Some(self.line.show(&text))
    }
}

/// What an interrupt waits for, for how long, and more about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reason {
    what: String,
    time: Duration,
    more: String,
    /// The interrupt was raised, and the cell deals with it.
    landed: bool,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} s", self.what, self.time.as_secs())?;
        if self.more.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", self.more)
        }
    }
}

impl Reason {
    fn of_device(work: &Ongoing) -> Self {
        let what = match work.kind {
            EventKind::Compile | EventKind::CacheHit => "XLA compile",
            EventKind::Upload => "transfer to the device",
            EventKind::Download => "transfer from the device",
            EventKind::Execute | EventKind::Error => "device execution",
        };
        let more = match work.kind {
            EventKind::Upload | EventKind::Download => {
                format!("{:.1} MiB", work.bytes as f64 / f64::from(1 << 20))
            }
            _ => work.name.clone().unwrap_or_default(),
        };
        Self {
            what: what.into(),
            time: Duration::from_nanos(work.elapsed_ns),
            more,
            landed: false,
        }
    }

    /// `now` is what Python answered; None where it gave no answer.
    fn of_host(time: Duration, now: Option<&Whereabouts>) -> Self {
        let (what, place) = match now {
            None if time < NO_ANSWER => (UNKNOWN, String::new()),
            None => ("C code holds the GIL", String::new()),
            Some(now) if now.handling => ("Python code handles it", format!("in {}", now.place)),
            Some(now) if now.moving => ("Python code goes on", format!("in {}", now.place)),
            Some(now) => (
                "C code does not return",
                format!("called from {}", now.place),
            ),
        };
        let placed = now.is_some_and(|now| !now.place.is_empty());
        Self {
            what: what.into(),
            time,
            more: if placed { place } else { String::new() },
            landed: now.is_some_and(|now| now.handling),
        }
    }
}

/// What the io thread knows of the main thread, and how it asks.
#[derive(Debug, Default)]
pub struct Watch {
    asked: Notify,
    outstanding: AtomicBool,
    answered: Notify,
    answer: Mutex<Option<Whereabouts>>,
}

impl Watch {
    fn last(&self) -> MutexGuard<'_, Option<Whereabouts>> {
        lock(&self.answer)
    }

    /// An interrupt was asked for.
    pub fn begin(&self) {
        self.asked.notify_one();
    }

    /// Python says where the main thread is.
    pub fn answer(&self, now: Whereabouts) {
        *self.last() = Some(now);
        self.outstanding.store(false, Ordering::Release);
        self.answered.notify_one();
    }
}

/// Say what interrupts wait for, as long as the kernel lives.
pub async fn watch(kernel: Arc<Kernel>) {
    loop {
        kernel.watch.asked.notified().await;
        let Some(since) = kernel.interrupted_since() else {
            continue;
        };
        sleep(PATIENCE.saturating_sub(ANSWER)).await;
        while kernel.interrupted_since() == Some(since) {
            let reason = reason(&kernel, since).await;
            kernel.show_interrupt(since, |pending| pending.show(reason, Instant::now()));
            let next = timeout(UPDATE.saturating_sub(ANSWER), kernel.watch.asked.notified());
            if next.await.is_ok() {
                kernel.watch.asked.notify_one(); // another cell, another interrupt
                break;
            }
        }
    }
}

/// Ask Python where the main thread is, unless it has not answered the last question yet.
fn ask(kernel: &Kernel) {
    if !kernel.watch.outstanding.swap(true, Ordering::AcqRel) {
        kernel.service.push(Service::Locate);
    }
}

/// What holds the interrupt of `since` up.
async fn reason(kernel: &Kernel, since: Instant) -> Reason {
    let watch = &kernel.watch;
    ask(kernel);
    let asked = Instant::now();
    while watch.outstanding.load(Ordering::Acquire) && asked.elapsed() < ANSWER {
        let _ = timeout(Duration::from_millis(20), watch.answered.notified()).await;
    }
    // In the same time in each case: what the device does is looked at last.
    sleep(ANSWER.saturating_sub(asked.elapsed())).await;
    let current = !watch.outstanding.load(Ordering::Acquire);
    let now = watch.last().clone().filter(|_| current);
    let host = Reason::of_host(since.elapsed(), now.as_ref());
    if now.is_some_and(|now| now.handling || now.moving) {
        return host;
    }
    let ongoing = device::session().map(device::Session::ongoing);
    ongoing
        .and_then(|ongoing| ongoing.first().map(Reason::of_device))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(moving: bool, handling: bool) -> String {
        let now = Whereabouts {
            place: "In[3], line 2".into(),
            moving,
            handling,
        };
        Reason::of_host(Duration::from_millis(3900), Some(&now)).to_string()
    }

    #[test]
    fn a_compile_is_named_with_its_own_age() {
        let compile = Ongoing {
            kind: EventKind::Compile,
            elapsed_ns: 14_200_000_000,
            bytes: 100,
            name: Some("tt_jit_mm".into()),
        };
        assert_eq!(
            Reason::of_device(&compile).to_string(),
            "XLA compile 14 s (tt_jit_mm)"
        );
        let transfer = Ongoing {
            kind: EventKind::Upload,
            bytes: 256 << 20,
            name: None,
            ..compile
        };
        assert_eq!(
            Reason::of_device(&transfer).to_string(),
            "transfer to the device 14 s (256.0 MiB)"
        );
    }

    #[test]
    fn what_python_says_tells_c_code_from_handlers() {
        assert_eq!(
            Reason::of_host(Duration::from_millis(3900), None).to_string(),
            "C code holds the GIL 3 s"
        );
        assert_eq!(
            host(false, false),
            "C code does not return 3 s (called from In[3], line 2)"
        );
        assert_eq!(
            host(true, false),
            "Python code goes on 3 s (in In[3], line 2)"
        );
        assert_eq!(
            host(true, true),
            "Python code handles it 3 s (in In[3], line 2)"
        );
    }

    fn seen(what: &str, landed: bool) -> Reason {
        Reason {
            what: what.into(),
            time: Duration::ZERO,
            more: String::new(),
            landed,
        }
    }

    #[test]
    fn nothing_is_settled_that_was_not_shown() {
        let parent = Arc::new(Parent {
            header: Bytes::from_static(b"{}"),
            msg_id: "m".into(),
            msg_type: "execute_request".into(),
            cell_id: String::new(),
            identities: Vec::new(),
            allow_stdin: false,
            subshell_id: None,
            tally: crate::tally::Tally::default(),
            transcript: crate::transcript::Transcript::default(),
        });
        let reply = Bytes::from_static(br#"{"status":"error","ename":"KeyboardInterrupt"}"#);
        assert!(
            Pending::new(Arc::clone(&parent))
                .settle(Some(&reply))
                .is_none()
        );
        let mut pending = Pending::new(parent);
        let seconds = |number| pending.since() + Duration::from_secs(number);
        let [one, two, three, four] = [1, 2, 3, 4].map(seconds);
        pending.show(seen("XLA compile", false), one);
        // Libraries tidy up, which is not what the interrupt waited for.
        pending.show(seen("Python code handles it", true), two);
        pending.show(seen("C code holds the GIL", false), three);
        pending.show(seen("Python code handles it", true), four);
        let Some(Entry::Publish(line)) = pending.settle(Some(&reply)) else {
            panic!("not settled");
        };
        assert_eq!(line.msg_type, "update_display_data");
        let content: serde_json::Value = serde_json::from_slice(&line.content).unwrap();
        assert_eq!(
            content["data"]["text/plain"],
            "interrupted 0.0 s after it was asked for (XLA compile)"
        );
        assert_eq!(content["transient"]["display_id"], "interrupt-m");
    }

    /// What was waited for longest, by what was seen at these times in milliseconds.
    fn longest(looks: &[(&str, u64)]) -> String {
        let (mut seen, mut before) = (Seen::default(), 0);
        for (what, at) in looks {
            seen.add((*what).into(), Duration::from_millis(at - before));
            before = *at;
        }
        seen.longest().unwrap().0.to_owned()
    }

    #[test]
    fn the_last_word_names_what_held_longest_not_a_glimpse() {
        assert_eq!(longest(&[(UNKNOWN, 250)]), UNKNOWN);
        let gil = "C code holds the GIL";
        assert_eq!(longest(&[(UNKNOWN, 250), (gil, 1_250)]), gil);
        assert_eq!(longest(&[(gil, 250), (UNKNOWN, 1_250)]), gil);
        let goes_on = "Python code goes on";
        assert_eq!(
            longest(&[(gil, 4_000), (goes_on, 4_300), (goes_on, 4_600)]),
            gil
        );
        assert_eq!(
            longest(&[(gil, 250), (goes_on, 1_250), (goes_on, 2_250)]),
            goes_on
        );
    }
}
