//! What waits to be written to one peer, and the writer that empties it.
//!
//! Bounded in bytes. Pushing never waits; the owner learns that a queue is full and decides. A queue
//! knows when its peer last took something: that tells a slow reader from one that does not read.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::curve::{Sealer, Sealing};
use super::encoded::Encoded;
use super::error::PeerError;
use super::limits::{FLUSH_PATIENCE, GiveUp, Limits, STALL_CHECK, TURN_BYTES, WRITE_PIECES};
use super::lock;
use super::socket::Socket;

/// What the queues of one socket share.
#[derive(Debug, Default)]
pub(crate) struct QueueGroup {
    /// Bytes waiting in all queues.
    bytes: AtomicUsize,
    /// A queue became empty, fell below its bound, or went away.
    changed: Notify,
}

impl QueueGroup {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Waits until what `queues` lists is written to the peers that take it, or until `deadline`.
    /// True when nothing is left.
    pub(crate) async fn flush(
        &self,
        deadline: Instant,
        queues: impl Fn() -> Vec<Arc<SendQueue>>,
    ) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let mut left = false;
            let mut until: Option<Instant> = None;
            for queue in queues() {
                let state = lock(&queue.state);
                if state.messages.is_empty() {
                    continue;
                }
                left = true;
                let patience = state.last_progress + FLUSH_PATIENCE;
                if patience > now {
                    until = Some(until.map_or(patience, |until| until.max(patience)));
                }
            }
            let Some(until) = until.filter(|_| deadline > now) else {
                return !left;
            };
            let _ = tokio::time::timeout_at(until.min(deadline), changed).await;
        }
    }
}

/// The queue took nothing: it is at its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

/// Whether a queue takes more, or else whether it is worth waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Open,
    /// Full; may be called stalled if nothing is taken until then.
    FullUntil(Instant),
    /// Full, and called stalled at that time.
    Stalled(Instant),
}

/// One peer's queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    bound: usize,
    stall: Duration,
    give_up: GiveUp,
    state: Mutex<State>,
    work: Notify,
    group: Arc<QueueGroup>,
}

#[derive(Debug)]
struct State {
    messages: VecDeque<Encoded>,
    /// Bytes of the first message already written.
    written: usize,
    bytes: usize,
    last_progress: Instant,
    full_since: Option<Instant>,
    stalled_since: Option<Instant>,
}

impl SendQueue {
    pub(crate) fn new(limits: &Limits, group: &Arc<QueueGroup>) -> Arc<Self> {
        Arc::new(Self {
            bound: limits.queue,
            stall: limits.stall,
            give_up: limits.give_up,
            state: Mutex::new(State {
                messages: VecDeque::new(),
                written: 0,
                bytes: 0,
                last_progress: Instant::now(),
                full_since: None,
                stalled_since: None,
            }),
            work: Notify::new(),
            group: Arc::clone(group),
        })
    }

    /// Takes `message` unless the queue is at its bound.
    pub(crate) fn push(&self, message: Encoded) -> Result<(), Full> {
        let mut state = lock(&self.state);
        if state.bytes >= self.bound {
            return Err(Full);
        }
        let now = Instant::now();
        if state.messages.is_empty() {
            state.last_progress = now;
        }
        let cost = message.cost();
        state.bytes += cost;
        self.group.bytes.fetch_add(cost, Ordering::Relaxed);
        state.messages.push_back(message);
        if state.bytes >= self.bound {
            state.full_since = Some(now);
        }
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Bytes waiting.
    pub(crate) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    /// Are more than `bytes` waiting for a peer that took some within `recent`?
    pub(crate) fn is_behind(&self, bytes: usize, recent: Duration) -> bool {
        let state = lock(&self.state);
        state.bytes > bytes && state.last_progress.elapsed() < recent
    }

    /// Whether the queue takes more.
    pub(crate) fn room(&self) -> Room {
        let state = lock(&self.state);
        match (state.full_since, state.stalled_since) {
            (None, _) => Room::Open,
            (Some(_), Some(since)) => Room::Stalled(since),
            (Some(since), None) => Room::FullUntil(since.max(state.last_progress) + self.stall),
        }
    }

    /// Calls the peer stalled until it reads again. For the owner to do after its writer had a turn:
    /// when this whole process was stopped, its clock tells nothing about the peer.
    pub(crate) fn call_stalled(&self) {
        let mut state = lock(&self.state);
        if state.full_since.is_some() {
            state.stalled_since.get_or_insert_with(Instant::now);
        }
    }

    /// Writes what is pushed, sealed if there is something to seal it with, for as long as the
    /// connection stands and the peer reads.
    pub(crate) async fn write_to(&self, socket: &Socket, sealer: Option<Sealer>) -> PeerError {
        let mut sealing = sealer.map(Sealing::new);
        let mut turn = 0;
        loop {
            let done = match &mut sealing {
                None => self.write_some(socket),
                Some(sealing) => self.write_sealed(socket, sealing),
            };
            match done {
                Ok(0) => {
                    turn = 0;
                    self.work.notified().await;
                }
                Ok(count) => {
                    turn += count;
                    if turn >= TURN_BYTES {
                        turn = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    turn = 0;
                    let writable = tokio::time::timeout(STALL_CHECK, socket.writable()).await;
                    match writable {
                        Ok(Err(error)) => return error.into(),
                        Err(_) if self.is_given_up() => return PeerError::Stalled,
                        Ok(Ok(())) | Err(_) => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.into(),
            }
        }
    }

    /// One write of as many messages as fit; 0 when nothing waits.
    fn write_some(&self, socket: &Socket) -> io::Result<usize> {
        let mut state = lock(&self.state);
        let mut pieces = [IoSlice::new(&[]); WRITE_PIECES];
        let mut used = 0;
        let mut skip = state.written;
        for piece in state.messages.iter().flat_map(Encoded::pieces) {
            if used == WRITE_PIECES {
                break;
            }
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            pieces[used] = IoSlice::new(&piece[skip..]);
            skip = 0;
            used += 1;
        }
        if used == 0 {
            return Ok(0);
        }
        let count = socket.try_write(&pieces[..used])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        state.advance(count, &self.group);
        self.tell(&mut state);
        Ok(count)
    }

    /// One piece of work: sealing what comes next, or a write of what is sealed; 0 when nothing waits.
    fn write_sealed(&self, socket: &Socket, sealing: &mut Sealing) -> io::Result<usize> {
        if sealing.unwritten().is_empty() {
            let mut state = lock(&self.state);
            let ended = sealing.take_ended();
            if ended > 0 {
                state.remove(ended, &self.group);
                self.tell(&mut state);
            }
            let work = sealing.fill(&state.messages);
            if work == 0 {
                return Ok(0);
            }
            // The time this takes is not the peer's.
            state.last_progress = Instant::now();
            return Ok(work);
        }
        let count = socket.try_write(&[IoSlice::new(sealing.unwritten())])?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        sealing.advance(count);
        lock(&self.state).note_progress();
        Ok(count)
    }

    /// Tells who waits for this queue that there is room, or nothing left.
    fn tell(&self, state: &mut State) {
        if state.messages.is_empty() || (state.full_since.is_some() && state.bytes < self.bound) {
            self.group.changed.notify_waiters();
        }
        if state.bytes < self.bound {
            state.full_since = None;
        }
    }

    fn is_given_up(&self) -> bool {
        let state = lock(&self.state);
        match self.give_up {
            GiveUp::Blocked(patience) => {
                !state.messages.is_empty() && state.last_progress.elapsed() >= patience
            }
            GiveUp::Stalled(patience) => state
                .stalled_since
                .is_some_and(|since| since.elapsed() >= patience),
        }
    }
}

impl State {
    fn advance(&mut self, count: usize, group: &QueueGroup) {
        self.written += count;
        while let Some(first) = self.messages.front() {
            let length = first.wire_len();
            if self.written < length {
                break;
            }
            self.written -= length;
            self.remove(1, group);
        }
        self.note_progress();
    }

    fn note_progress(&mut self) {
        self.last_progress = Instant::now();
        self.stalled_since = None;
    }

    /// Takes the first `count` messages out.
    fn remove(&mut self, count: usize, group: &QueueGroup) {
        for message in self.messages.drain(..count) {
            let cost = message.cost();
            self.bytes -= cost;
            group.bytes.fetch_sub(cost, Ordering::Relaxed);
        }
        if self.messages.is_empty() && self.messages.capacity() > WRITE_PIECES {
            self.messages.shrink_to(WRITE_PIECES);
        }
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        let state = self
            .state
            .get_mut()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.group.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
        self.group.changed.notify_waiters();
    }
}
