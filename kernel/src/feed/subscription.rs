//! One front end that looks: what it asked for, what it was told, when it is told more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::numbers::{Counters, Numbers};
use super::{MIN_GAP, State};
use crate::parent::Parent;

const INTERVAL: Duration = Duration::from_millis(500);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// `data` of a comm message. What is not understood is passed over.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Wish {
    pub interval_ms: Option<f64>,
    pub tensors: Option<bool>,
    pub pause: bool,
    pub resume: bool,
    #[serde(rename = "do")]
    pub order: Option<String>,
    pub mode: Option<String>,
}

#[derive(Debug)]
pub struct Subscription {
    pub comm_id: String,
    pub session: Option<String>,
    /// The `comm_open`: parent of all that is sent.
    pub parent: Arc<Parent>,
    pub interval: Duration,
    pub tensors: bool,
    pub paused: bool,
    /// Answer to an order, for the next sample.
    pub said: Option<(&'static str, String)>,
    /// Since when its front end is not connected.
    pub gone: Option<Instant>,
    sent: Option<Instant>,
    /// State of the feed's events when it was told last.
    news: u64,
    counters: Counters,
    /// The last sample had something new: one more says that it has come to rest.
    moved: bool,
    cells: u64,
    events: u64,
    table: u64,
}

impl Subscription {
    pub fn new(comm_id: String, session: Option<String>, parent: Arc<Parent>) -> Self {
        Self {
            comm_id,
            session,
            parent,
            interval: INTERVAL,
            tensors: false,
            paused: false,
            said: None,
            gone: None,
            sent: None,
            news: 0,
            counters: Counters::default(),
            moved: true,
            cells: 0,
            events: 0,
            table: 0,
        }
    }

    /// Do as the front end wishes, but for orders, which are Python's.
    pub fn obey(&mut self, wish: &Wish) {
        if let Some(milliseconds) = wish.interval_ms.filter(|number| number.is_finite()) {
            let asked = Duration::from_millis(milliseconds.max(0.0) as u64);
            self.interval = asked.clamp(MIN_GAP, LONGEST_INTERVAL);
        }
        if let Some(tensors) = wish.tensors {
            // Asked for once more it is told once more.
            self.table = 0;
            self.tensors = tensors;
            self.news = u64::MAX;
        }
        if wish.pause {
            self.paused = true;
        }
        if wish.resume {
            self.paused = false;
            self.sent = None;
        }
    }

    /// Say this with the next sample, which comes soon.
    pub fn say(&mut self, field: &'static str, text: String) {
        self.said = Some((field, text));
        self.news = u64::MAX;
    }

    /// When it is to be told; None while there is nothing to tell. `follows`: something goes on, so
    /// that numbers change without an event.
    pub fn due(&self, news: u64, now: &Numbers, follows: bool) -> Option<Instant> {
        if self.paused && self.said.is_none() {
            return None;
        }
        let Some(sent) = self.sent else {
            return Some(Instant::now());
        };
        if self.news != news {
            return Some(sent + MIN_GAP);
        }
        let changed = self.counters != now.counters || !now.now.is_empty();
        (follows && (changed || self.moved)).then_some(sent + self.interval)
    }

    /// The sample for this one, which now counts as told.
    pub(super) fn sample(&mut self, state: &State, now: &Numbers) -> Value {
        let mut data = serde_json::to_value(now).unwrap_or_default();
        data["cells"] = json!(state.cells.since(self.cells));
        data["events"] = json!(state.events.since(self.events));
        if self.tensors
            && let Some(table) = &state.table
            && self.table != state.tables
        {
            data["tensors"] = table.clone();
            self.table = state.tables;
        }
        if let Some((field, text)) = self.said.take() {
            data[field] = text.into();
        }
        self.cells = state.cells.changes();
        self.events = state.events.next();
        self.moved = self.counters != now.counters || self.news != state.news;
        self.counters = now.counters;
        self.news = state.news;
        self.sent = Some(Instant::now());
        data
    }
}
