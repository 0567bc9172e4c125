//! The task that sends samples. Sleeps while nobody looks or nothing goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::numbers::Numbers;
use super::{Feed, State, lock};
use crate::kernel::Kernel;
use crate::outbox::{Entry, Publication};
use crate::wire::EMPTY_OBJECT;
use crate::zmtp::RouterSender;

/// Between two looks while something goes on and somebody watches.
const LOOK: Duration = Duration::from_millis(100);
/// A front end that is not connected for so long does not come back.
const GONE: Duration = Duration::from_secs(30);

/// Runs on the io thread. `shell` knows who is connected.
pub async fn run(kernel: Arc<Kernel>, shell: RouterSender) {
    loop {
        match turn(&kernel, &shell) {
            None => kernel.feed.wake.notified().await,
            Some(pause) => drop(timeout(pause, kernel.feed.wake.notified()).await),
        }
    }
}

/// Send what is due. How long until the next look; None until something happens.
fn turn(kernel: &Kernel, shell: &RouterSender) -> Option<Duration> {
    let mut state = lock(&kernel.feed.state);
    let state = &mut *state;
    let watched = state
        .subscriptions
        .iter()
        .any(|one| !one.paused || one.said.is_some());
    if !watched && state.lives.is_empty() {
        return None;
    }
    let now = Numbers::take(state);
    for live in &mut state.lives {
        live.take(&now);
        if kernel.outbox.has_space()
            && let Some(entry) = live.update(&now)
        {
            kernel.outbox.push(entry);
        }
    }
    state.notice(&now);
    let follows = state.cells.is_running() || now.pending > 0;
    if follows {
        forget_gone(state, shell);
    }
    let mut next = follows.then(|| Instant::now() + LOOK);
    if state.ready
        && !state.cells.is_running()
        && let Some(due) = state.orders.due()
    {
        // Python is asked when it next rests.
        if due <= Instant::now() {
            kernel.main.wake();
        }
        let again = due.max(Instant::now() + LOOK);
        next = Some(next.map_or(again, |next| next.min(again)));
    }
    let mut subscriptions = std::mem::take(&mut state.subscriptions);
    for one in &mut subscriptions {
        let Some(due) = one.due(state.news, &now, follows) else {
            continue;
        };
        // A front end that does not read is not sent more.
        if due > Instant::now() || !kernel.outbox.has_space() {
            let again = due.max(Instant::now() + Duration::from_millis(10));
            next = Some(next.map_or(again, |next| next.min(again)));
            continue;
        }
        let data = one.sample(state, &now);
        kernel.outbox.push(message(
            "comm_msg",
            &one.comm_id,
            &data,
            one.parent.header.clone(),
        ));
    }
    state.subscriptions = subscriptions;
    next.map(|next| next.saturating_duration_since(Instant::now()))
}

fn forget_gone(state: &mut State, shell: &RouterSender) {
    state.subscriptions.retain_mut(|one| {
        let peer = one.parent.identities.first();
        if peer.is_none_or(|peer| shell.is_connected(peer)) {
            one.gone = None;
        } else if one.gone.get_or_insert_with(Instant::now).elapsed() > GONE {
            return false;
        }
        true
    });
}

pub fn message(msg_type: &str, comm_id: &str, data: &Value, parent: bytes::Bytes) -> Entry {
    Entry::Publish(Publication {
        msg_type: msg_type.into(),
        parent,
        metadata: EMPTY_OBJECT,
        content: json!({"comm_id": comm_id, "data": data}).to_string().into(),
        buffers: Vec::new(),
    })
}

impl Feed {
    /// Look now.
    pub(super) fn look(&self) {
        self.wake.notify_one();
    }
}
