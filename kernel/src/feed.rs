//! The live feed: what a front end that opened the comm `tpu.stats` is told (docs/feed.md).
//!
//! Lives on the io thread and needs no Python: numbers come from tpu-core, marks and events from the
//! kernel. What only Python knows (names of tensors, the mode) it tells between cells, and is sent on
//! as it was told. Nothing here touches the device. While nobody looks, nothing runs.

mod cells;
mod chart;
mod events;
mod live;
mod numbers;
mod order;
mod stream;
mod subscription;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::kernel::Kernel;
use crate::lock::lock;
use crate::outbox::Outbox;
use crate::parent::Parent;
use crate::request::Request;
use crate::wire::LossyString;

use cells::Cells;
use events::Events;
use live::Live;
pub use numbers::Numbers;
use numbers::{Busy, Device};
use order::{Answer, Order, Orders};
pub use stream::run;
use subscription::{Subscription, Wish};

/// The target a front end opens.
pub const TARGET: &str = "tpu.stats";
/// Version of the samples.
const VERSION: u32 = 1;
/// Two samples for one front end are never closer.
const MIN_GAP: Duration = Duration::from_millis(200);
/// Front ends that look at once; more than these go unserved, the oldest first.
const MOST: usize = 64;

/// Seconds since 1970.
fn unix_now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    // Milliseconds are what a person can see.
    since.map_or(0.0, |since| since.as_millis() as f64 / 1e3)
}

/// Everything the feed knows. One a kernel.
#[derive(Debug, Default)]
pub struct Feed {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    subscriptions: Vec<Subscription>,
    lives: Vec<Live>,
    /// Python is up.
    ready: bool,
    cells: Cells,
    events: Events,
    orders: Orders,
    device: Option<Device>,
    busy: Busy,
    /// How cells run, as Python said last.
    mode: String,
    /// The last table of tensors, and how many there were.
    table: Option<Value>,
    tables: u64,
    /// Grows with everything a front end is to be told of soon.
    news: u64,
    noticed: Noticed,
}

/// What was seen at the last look and is news when it is another.
#[derive(Debug, Default, PartialEq, Eq)]
struct Noticed {
    compiles: u64,
    cache_hits: u64,
    failures: u64,
    limit: u64,
    device: bool,
    doing: Vec<String>,
}

impl State {
    /// A look: is there something a front end should know soon?
    fn notice(&mut self, now: &Numbers) {
        let compiling = now.doing.iter().filter(|name| name.starts_with("compile"));
        let noticed = Noticed {
            compiles: now.counters.compiles,
            cache_hits: now.counters.cache_hits,
            failures: now.failures,
            limit: now.counters.hbm_limit,
            device: now.device.is_some(),
            doing: compiling.cloned().collect(),
        };
        if noticed != self.noticed {
            self.noticed = noticed;
            self.news += 1;
        }
    }

    fn watched(&self) -> bool {
        self.subscriptions.iter().any(|one| !one.paused)
    }

    fn wants_tensors(&self) -> bool {
        self.subscriptions
            .iter()
            .any(|one| one.tensors && !one.paused)
    }
}

#[derive(Deserialize)]
struct Content {
    comm_id: LossyString,
    #[serde(default)]
    target_name: Option<LossyString>,
    #[serde(default)]
    data: Value,
}

impl Feed {
    // -- what the front end says ------------------------------------------------------------------

    /// Handle a comm message if it is for the feed. On the io thread.
    pub fn takes(&self, kernel: &Kernel, request: &Request, session: Option<&str>) -> bool {
        let msg_type = request.parent.msg_type.as_str();
        if !matches!(msg_type, "comm_open" | "comm_msg" | "comm_close") {
            return false;
        }
        let mut state = lock(&self.state);
        if state.subscriptions.is_empty() && msg_type != "comm_open" {
            return false;
        }
        let Ok(content) = serde_json::from_slice::<Content>(&request.content) else {
            return false;
        };
        let comm_id = content.comm_id.0;
        let known = state
            .subscriptions
            .iter()
            .position(|one| one.comm_id == comm_id);
        let place = match (msg_type, known) {
            ("comm_open", _) if content.target_name.is_none_or(|name| name.0 != TARGET) => {
                return false;
            }
            ("comm_open", _) => {
                let one =
                    Subscription::new(comm_id, session.map(str::to_owned), request.parent.clone());
                state.open(kernel, one)
            }
            (_, None) => return false,
            ("comm_close", Some(place)) => {
                state.subscriptions.remove(place);
                return true;
            }
            (_, Some(place)) => place,
        };
        let wish: Wish = serde_json::from_value(content.data).unwrap_or_default();
        let one = &mut state.subscriptions[place];
        one.obey(&wish);
        let (comm_id, paused) = (one.comm_id.clone(), one.paused);
        if let Some(what) = wish.order {
            let order = Order {
                comm_id: Some(comm_id),
                what: Some(what),
                mode: wish.mode,
                tensors: false,
            };
            if let Err(fault) = state.accept(kernel, order) {
                state.subscriptions[place].say("error", fault);
            }
        } else if !paused {
            let tensors = state.wants_tensors();
            state.orders.refresh(tensors);
        }
        if state.ready && !state.cells.is_running() {
            kernel.main.wake();
        }
        drop(state);
        self.look();
        true
    }

    /// `comms` of a `comm_info_reply`: those of the feed.
    pub fn comms(&self) -> Vec<String> {
        let state = lock(&self.state);
        state
            .subscriptions
            .iter()
            .map(|one| one.comm_id.clone())
            .collect()
    }

    // -- what happens in the kernel -----------------------------------------------------------------

    /// Python is up.
    pub fn ready(&self) {
        let mut state = lock(&self.state);
        state.ready = true;
        state.news += 1;
        drop(state);
        self.look();
    }

    /// A request begins to run.
    pub(crate) fn begin(&self, parent: &Parent) {
        let mut state = lock(&self.state);
        // Told of once it has its number.
        if state.cells.begin(parent) && state.watched() {
            drop(state);
            self.look();
        }
    }

    /// The cell that runs has this number.
    pub(crate) fn number(&self, parent: &Parent, count: i64) {
        let mut state = lock(&self.state);
        state.cells.number(parent, count);
        self.told(state);
    }

    /// A request has ended. What its display is left with goes to `outbox`.
    pub(crate) fn end(&self, parent: &Parent, outbox: &Outbox) {
        let mut state = lock(&self.state);
        if let Some(place) = state.lives.iter().position(|live| live.parent.is(parent)) {
            let live = state.lives.remove(place);
            let now = Numbers::take(&mut state);
            outbox.push(live.end(&now));
        }
        if !state.cells.end(parent) {
            return;
        }
        if parent.tally.was_interrupted() {
            state
                .events
                .add("interrupted", "the cell was interrupted", &parent.cell_id);
        }
        if state.watched() {
            let tensors = state.wants_tensors();
            state.orders.rest(tensors);
        }
        self.told(state);
    }

    /// Something happened that a person should see: `kind` is `storm`, `cancelled` or `limit`.
    pub fn note(&self, kind: &'static str, text: &str) {
        let mut state = lock(&self.state);
        let cell = state
            .cells
            .current()
            .map(|cell| cell.id.clone())
            .unwrap_or_default();
        state.events.add(kind, text, &cell);
        self.told(state);
    }

    fn told(&self, mut state: MutexGuard<'_, State>) {
        state.news += 1;
        let watched = state.watched();
        drop(state);
        if watched {
            self.look();
        }
    }

    /// Show under the cell of `parent` what the device does, until the cell ends. Nothing when it has
    /// ended: a thread may outlive it, and nobody would take the display away again.
    pub fn show_live(&self, parent: &Arc<Parent>, outbox: &Outbox) {
        let mut state = lock(&self.state);
        if !state.cells.runs(parent) || state.lives.iter().any(|live| live.parent.is(parent)) {
            return;
        }
        let now = Numbers::take(&mut state);
        let mut live = Live::new(Arc::clone(parent), &now);
        if let Some(entry) = live.update(&now) {
            outbox.push(entry);
        }
        state.lives.push(live);
        drop(state);
        self.look();
    }

    // -- what Python does ---------------------------------------------------------------------------

    /// What Python is to do now, as JSON; None for nothing. Between cells, on the main thread.
    /// `last`: no request waits.
    pub fn order(&self, last: bool) -> Option<String> {
        let mut state = lock(&self.state);
        let order = state.orders.next(last)?;
        serde_json::to_string(&order).ok()
    }

    /// What Python has done, as JSON.
    pub fn answer(&self, text: &[u8]) -> Result<(), serde_json::Error> {
        let answer: Answer = serde_json::from_slice(text)?;
        let mut state = lock(&self.state);
        state.orders.answered(answer.tensors.is_some());
        if let Some(mode) = answer.mode
            && mode != state.mode
        {
            state.mode = mode;
            state.news += 1;
        }
        if let Some(mut table) = answer.tensors {
            table["t"] = unix_now().into();
            state.table = Some(table);
            state.tables += 1;
            state.news += 1;
        }
        let said = answer.error.map(|text| ("error", text));
        let said = said.or(answer.said.map(|text| ("said", text)));
        if let (Some(comm_id), Some((field, text))) = (answer.comm_id, said)
            && let Some(one) = state
                .subscriptions
                .iter_mut()
                .find(|one| one.comm_id == comm_id)
        {
            one.say(field, text);
        }
        drop(state);
        self.look();
        Ok(())
    }

    /// The numbers as of now, for others than the feed, and how many cells have ended, and for how
    /// long none runs.
    pub fn numbers(&self) -> (Numbers, u64, Option<Duration>) {
        let mut state = lock(&self.state);
        let now = Numbers::take(&mut state);
        let idle = (!state.cells.is_running()).then(|| state.cells.idle_since.elapsed());
        (now, state.cells.total, idle)
    }
}

impl State {
    /// A new subscription in place of what its session had; where it stands.
    fn open(&mut self, kernel: &Kernel, new: Subscription) -> usize {
        self.subscriptions.retain(|one| one.comm_id != new.comm_id);
        let same = |one: &Subscription| one.session.is_some() && one.session == new.session;
        let former = self.subscriptions.iter().position(same);
        if let Some(place) = former.or((self.subscriptions.len() == MOST).then_some(0)) {
            let one = self.subscriptions.remove(place);
            let parent = one.parent.header.clone();
            let close = stream::message("comm_close", &one.comm_id, &json!({}), parent);
            kernel.outbox.push(close);
        }
        self.subscriptions.push(new);
        self.subscriptions.len() - 1
    }

    /// Take an order, or say why not.
    fn accept(&mut self, kernel: &Kernel, order: Order) -> Result<(), String> {
        let what = order.what.as_deref().unwrap_or_default();
        if !matches!(what, "free" | "mode") {
            return Err(format!("there is no order `{what}`: `free` or `mode`"));
        }
        if !self.ready {
            return Err("the kernel is starting: try again in a moment".into());
        }
        if self.cells.is_running() || kernel.main.has_waiting() {
            return Err("a cell runs: this waits for its end, or interrupt it first".into());
        }
        self.orders.push(order);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) fn test_parent(msg_id: &str, cell_id: &str) -> std::sync::Arc<Parent> {
    std::sync::Arc::new(Parent {
        header: bytes::Bytes::from_static(b"{}"),
        msg_id: msg_id.into(),
        msg_type: "execute_request".into(),
        cell_id: cell_id.into(),
        identities: Vec::new(),
        allow_stdin: false,
        subshell_id: None,
        tally: crate::tally::Tally::default(),
        transcript: crate::transcript::Transcript::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Cap;

    #[test]
    fn a_live_display_is_shown_for_a_running_cell_only_and_goes_with_it() {
        let (feed, outbox) = (Feed::default(), Outbox::new(Cap::default()));
        let parent = test_parent("m", "c");
        let shown = || lock(&feed.state).lives.len();
        feed.begin(&parent);
        feed.show_live(&parent, &outbox);
        feed.show_live(&parent, &outbox);
        assert_eq!(shown(), 1);
        feed.end(&parent, &outbox);
        assert_eq!(shown(), 0);
        feed.show_live(&parent, &outbox);
        assert_eq!(shown(), 0);
    }
}
