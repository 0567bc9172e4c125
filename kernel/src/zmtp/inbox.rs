//! Messages received by a ROUTER and not yet taken by its owner.
//!
//! Each peer has a lane, and lanes are served in turn: a peer that floods waits behind everybody who
//! does not. A full lane, or a full inbox, stops the reading of peers; nothing is dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use tokio::sync::Notify;

use super::limits::{FRAME_OVERHEAD, INBOX_PEER_MESSAGES, Limits};
use super::lock;

/// One whole message from one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The identity to answer to.
    pub peer: Bytes,
    /// All frames as they came, at least one.
    pub frames: Vec<Bytes>,
}

impl Incoming {
    fn cost(&self) -> usize {
        self.frames
            .iter()
            .map(|frame| frame.len() + FRAME_OVERHEAD)
            .sum()
    }
}

/// Where readers put messages and the owner takes them.
#[derive(Debug)]
pub(crate) struct Inbox {
    peer_bound: usize,
    total_bound: usize,
    state: Mutex<State>,
    arrived: Notify,
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Only lanes that hold something.
    lanes: HashMap<u64, Lane>,
    turns: VecDeque<u64>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Lane {
    messages: VecDeque<Incoming>,
    bytes: usize,
}

impl Inbox {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            peer_bound: limits.inbox_peer,
            total_bound: limits.inbox_total,
            state: Mutex::default(),
            arrived: Notify::new(),
            taken: Notify::new(),
        }
    }

    /// Waits until connection `id` may read another message.
    pub(crate) async fn admit(&self, id: u64) {
        loop {
            let mut taken = std::pin::pin!(self.taken.notified());
            taken.as_mut().enable();
            if self.has_room(id) {
                return;
            }
            taken.await;
        }
    }

    fn has_room(&self, id: u64) -> bool {
        let state = lock(&self.state);
        state.bytes < self.total_bound
            && state.lanes.get(&id).is_none_or(|lane| {
                lane.bytes < self.peer_bound && lane.messages.len() < INBOX_PEER_MESSAGES
            })
    }

    pub(crate) fn push(&self, id: u64, message: Incoming) {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let cost = message.cost();
        state.bytes += cost;
        let lane = state.lanes.entry(id).or_default();
        if lane.messages.is_empty() {
            state.turns.push_back(id);
        }
        lane.bytes += cost;
        lane.messages.push_back(message);
        self.arrived.notify_one();
    }

    /// Takes the next message. Loses nothing when dropped before it is ready.
    pub(crate) async fn take(&self) -> Incoming {
        loop {
            if let Some(message) = self.try_take() {
                return message;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes the next message if there is one.
    pub(crate) fn try_take(&self) -> Option<Incoming> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let id = state.turns.pop_front()?;
        let lane = state.lanes.get_mut(&id)?;
        let message = lane.messages.pop_front()?;
        let cost = message.cost();
        lane.bytes -= cost;
        state.bytes -= cost;
        if lane.messages.is_empty() {
            state.lanes.remove(&id);
        } else {
            state.turns.push_back(id);
        }
        self.taken.notify_waiters();
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(peer: &'static str, text: &'static str) -> Incoming {
        Incoming {
            peer: peer.into(),
            frames: vec![text.into()],
        }
    }

    #[test]
    fn a_flood_waits_behind_the_others() {
        let inbox = Inbox::new(&Limits::ROUTER);
        for text in ["1", "2", "3"] {
            inbox.push(1, message("flood", text));
        }
        inbox.push(2, message("good", "a"));
        inbox.push(2, message("good", "b"));
        let order: Vec<_> = std::iter::from_fn(|| inbox.try_take())
            .map(|message| String::from_utf8(message.frames[0].to_vec()).unwrap())
            .collect();
        assert_eq!(order, ["1", "a", "2", "b", "3"]);
        assert_eq!(lock(&inbox.state).bytes, 0);
        assert!(lock(&inbox.state).lanes.is_empty());
    }

    #[test]
    fn a_full_lane_stops_its_own_peer_only() {
        let inbox = Inbox::new(&Limits {
            inbox_peer: 100,
            inbox_total: 1000,
            ..Limits::ROUTER
        });
        inbox.push(1, message("one", "x"));
        assert!(inbox.has_room(1));
        inbox.push(1, message("one", "y"));
        assert!(!inbox.has_room(1));
        assert!(inbox.has_room(2));
    }

    #[test]
    fn a_full_inbox_stops_every_peer() {
        let inbox = Inbox::new(&Limits {
            inbox_peer: 1000,
            inbox_total: 100,
            ..Limits::ROUTER
        });
        inbox.push(1, message("one", "x"));
        inbox.push(2, message("two", "y"));
        assert!(!inbox.has_room(3));
        inbox.try_take().unwrap();
        assert!(inbox.has_room(3));
    }
}
