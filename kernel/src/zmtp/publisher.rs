//! XPUB: iopub.
//!
//! A message is encoded once and shared by the queues of all subscribers whose topics match. A
//! subscriber that reads, however slowly, loses nothing: the caller is told to wait while its queue is
//! full. One that does not read holds the caller up once, for [`SUBSCRIBER_PATIENCE`], is then passed
//! over, and closed if it does not come back.
//!
//! [`SUBSCRIBER_PATIENCE`]: super::limits::SUBSCRIBER_PATIENCE

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::acceptor::{Acceptor, Connection};
use super::curve::Security;
use super::encoded::Encoded;
use super::error::PeerError;
use super::handshake::Role;
use super::limits::{Limits, READS, STALLED_SUBSCRIBERS, SUBSCRIPTION_EVENTS};
use super::lock;
use super::reader::Received;
use super::send_queue::{QueueGroup, Room, SendQueue};
use super::topics::Topics;
use super::unfinished::{Unfinished, UnfinishedTotal};

/// A connected subscriber; its number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriberId(u64);

/// A subscriber has asked for a topic it had not asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// Who.
    pub peer: SubscriberId,
    /// The prefix of first frames it wants; empty is everything.
    pub topic: Bytes,
}

/// The message went to nobody: a subscriber that reads has a full queue. Await
/// [`PublisherSender::ready`] and publish again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a subscriber's queue is full; wait until the publisher is ready")]
pub struct Congested;

/// A bound XPUB socket. Dropping it closes the socket and its connections.
#[derive(Debug)]
pub struct Publisher {
    acceptor: Acceptor,
    sender: PublisherSender,
    subscriptions: mpsc::Receiver<Subscribed>,
}

/// Publishes to the subscribers of a [`Publisher`]; cheap to clone.
#[derive(Debug, Clone)]
pub struct PublisherSender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    subscribers: Mutex<BTreeMap<SubscriberId, Subscriber>>,
    subscribed: mpsc::Sender<Subscribed>,
    group: Arc<QueueGroup>,
    unfinished: Arc<UnfinishedTotal>,
}

#[derive(Debug)]
struct Subscriber {
    topics: Topics,
    queue: Arc<SendQueue>,
    end: Arc<Notify>,
}

impl Publisher {
    /// Listens on `tcp://address:port` (port 0: the system chooses) or `ipc://path`.
    pub async fn bind(endpoint: &str) -> io::Result<Self> {
        Self::bind_with(endpoint, Limits::PUBLISHER, &Security::Plain).await
    }

    /// As [`Publisher::bind`], with bounds and security of one's own.
    pub async fn bind_with(
        endpoint: &str,
        limits: Limits,
        security: &Security,
    ) -> io::Result<Self> {
        let (subscribed, subscriptions) = mpsc::channel(SUBSCRIPTION_EVENTS);
        let shared = Arc::new(Shared {
            subscribers: Mutex::default(),
            subscribed,
            group: Arc::default(),
            unfinished: UnfinishedTotal::new(limits.partial_total),
            limits: limits.clone(),
        });
        let serving = Arc::clone(&shared);
        let acceptor = Acceptor::bind(
            endpoint,
            Role::Publisher,
            &limits,
            security,
            move |connection| serve(Arc::clone(&serving), connection),
        )
        .await?;
        Ok(Self {
            acceptor,
            sender: PublisherSender { shared },
            subscriptions,
        })
    }

    /// The next new subscription. It takes effect now: what is published to this subscriber before
    /// anything else, such as a welcome, is the first it receives. Must be awaited all along; past
    /// [`SUBSCRIPTION_EVENTS`] unseen ones no further are read. Safe to drop before it is ready.
    pub async fn next_subscription(&mut self) -> Subscribed {
        loop {
            let Some(event) = self.subscriptions.recv().await else {
                // Unreachable: `sender` holds the other end.
                return std::future::pending().await;
            };
            let mut subscribers = lock(&self.sender.shared.subscribers);
            if subscribers
                .get_mut(&event.peer)
                .is_some_and(|one| one.topics.wake(&event.topic))
            {
                return event;
            }
        }
    }

    /// A handle to publish with.
    pub fn sender(&self) -> PublisherSender {
        self.sender.clone()
    }

    /// See [`PublisherSender::publish`].
    pub fn publish(&self, frames: &[Bytes]) -> Result<usize, Congested> {
        self.sender.publish(frames)
    }

    /// See [`PublisherSender::publish_to`].
    pub fn publish_to(&self, peer: SubscriberId, frames: &[Bytes]) -> bool {
        self.sender.publish_to(peer, frames)
    }

    /// See [`PublisherSender::ready`].
    pub async fn ready(&self) {
        self.sender.ready().await;
    }

    /// See [`PublisherSender::flush`].
    pub async fn flush(&self, deadline: Instant) -> bool {
        self.sender.flush(deadline).await
    }

    /// The endpoint a client connects to.
    pub fn endpoint(&self) -> String {
        self.acceptor.endpoint()
    }

    /// The TCP port, `None` for IPC.
    pub fn local_port(&self) -> Option<u16> {
        self.acceptor.port()
    }
}

impl PublisherSender {
    /// Queues `frames` for every subscriber with a topic the first frame begins with, and says for
    /// how many. All or none: when one that reads has no room, nobody gets it.
    pub fn publish(&self, frames: &[Bytes]) -> Result<usize, Congested> {
        let Some(topic) = frames.first() else {
            return Ok(0);
        };
        let subscribers = lock(&self.shared.subscribers);
        let mut takers = Vec::with_capacity(subscribers.len());
        for subscriber in subscribers
            .values()
            .filter(|one| one.topics.match_topic(topic))
        {
            match subscriber.queue.room() {
                Room::Open => takers.push(&subscriber.queue),
                Room::FullUntil(_) => return Err(Congested),
                Room::Stalled(_) => {}
            }
        }
        if takers.is_empty() {
            return Ok(0);
        }
        let message = Encoded::message(frames);
        Ok(takers
            .iter()
            .filter(|queue| queue.push(message.clone()).is_ok())
            .count())
    }

    /// Publishes as soon as there is room, and says to how many.
    pub async fn publish_when_ready(&self, frames: &[Bytes]) -> usize {
        loop {
            match self.publish(frames) {
                Ok(count) => return count,
                Err(Congested) => self.ready().await,
            }
        }
    }

    /// Queues `frames` for one subscriber, whatever its topics; false when it has gone or is full.
    pub fn publish_to(&self, peer: SubscriberId, frames: &[Bytes]) -> bool {
        let subscribers = lock(&self.shared.subscribers);
        let Some(subscriber) = subscribers.get(&peer) else {
            return false;
        };
        !frames.is_empty() && subscriber.queue.push(Encoded::message(frames)).is_ok()
    }

    /// Waits until no subscriber that reads has a full queue.
    pub async fn ready(&self) {
        loop {
            let mut changed = std::pin::pin!(self.shared.group.changed().notified());
            changed.as_mut().enable();
            let Some(until) = self.shared.first_full_until() else {
                return;
            };
            if tokio::time::timeout_at(until, changed).await.is_err() {
                tokio::task::yield_now().await;
                self.shared.pass_over_stalled();
            }
        }
    }

    /// Waits until everything queued is written to the subscribers that read, or until `deadline`;
    /// true when nothing is left.
    pub async fn flush(&self, deadline: Instant) -> bool {
        let queues = || {
            let subscribers = lock(&self.shared.subscribers);
            subscribers
                .values()
                .map(|one| Arc::clone(&one.queue))
                .collect::<Vec<_>>()
        };
        self.shared.group.flush(deadline, queues).await
    }

    /// Are more than `bytes` waiting for a subscriber that reads, if slowly? What is better held back
    /// than queued, because it may yet be dropped, is published when this is false.
    pub fn is_behind(&self, bytes: usize) -> bool {
        lock(&self.shared.subscribers)
            .values()
            .any(|one| one.queue.is_behind(bytes, READS))
    }

    /// Bytes that wait, summed over subscribers though they share them.
    pub fn queued_bytes(&self) -> usize {
        self.shared.group.bytes()
    }

    /// Subscribers connected now, with or without topics.
    pub fn peer_count(&self) -> usize {
        lock(&self.shared.subscribers).len()
    }
}

impl Shared {
    fn first_full_until(&self) -> Option<Instant> {
        lock(&self.subscribers)
            .values()
            .filter_map(|subscriber| match subscriber.queue.room() {
                Room::FullUntil(until) => Some(until),
                Room::Open | Room::Stalled(_) => None,
            })
            .min()
    }

    /// Calls stalled whose time is over, and closes those that have been so longest if there are
    /// too many: each holds a whole queue.
    fn pass_over_stalled(&self) {
        let now = Instant::now();
        let subscribers = lock(&self.subscribers);
        let mut stalled = Vec::new();
        for subscriber in subscribers.values() {
            match subscriber.queue.room() {
                Room::Open => {}
                Room::FullUntil(until) if until > now => {}
                Room::FullUntil(_) => {
                    subscriber.queue.call_stalled();
                    stalled.push((now, subscriber));
                }
                Room::Stalled(since) => stalled.push((since, subscriber)),
            }
        }
        stalled.sort_by_key(|(since, _)| *since);
        let surplus = stalled.len().saturating_sub(STALLED_SUBSCRIBERS);
        for (_, subscriber) in &stalled[..surplus] {
            subscriber.end.notify_one();
        }
    }
}

/// Takes a subscriber out of the table with its connection.
struct Registration {
    shared: Arc<Shared>,
    id: SubscriberId,
}

impl Registration {
    fn change_topics<T>(&self, change: impl FnOnce(&mut Topics) -> T) -> Option<T> {
        let mut subscribers = lock(&self.shared.subscribers);
        subscribers
            .get_mut(&self.id)
            .map(|subscriber| change(&mut subscriber.topics))
    }

    async fn subscribe(&self, topic: Bytes) -> Result<(), PeerError> {
        let is_new = match self.change_topics(|topics| topics.add(&topic)) {
            Some(added) => added?,
            None => false,
        };
        if is_new {
            let _ = self
                .shared
                .subscribed
                .send(Subscribed {
                    peer: self.id,
                    topic,
                })
                .await;
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.shared.subscribers).remove(&self.id);
    }
}

async fn serve(shared: Arc<Shared>, connection: Connection) -> PeerError {
    let Connection {
        id: number,
        mut reader,
        sealer,
        ..
    } = connection;
    let id = SubscriberId(number);
    let queue = SendQueue::new(&shared.limits, &shared.group);
    let end = Arc::new(Notify::new());
    let subscriber = Subscriber {
        topics: Topics::default(),
        queue: Arc::clone(&queue),
        end: Arc::clone(&end),
    };
    lock(&shared.subscribers).insert(id, subscriber);
    let registration = Registration {
        shared: Arc::clone(&shared),
        id,
    };
    let mut unfinished = Unfinished::new(&shared.unfinished, number, &end);
    let socket = Arc::clone(reader.socket());
    let read = async {
        loop {
            let done = match reader.next(&shared.limits, &mut unfinished, &queue).await {
                Ok(Received::Subscribe(topic)) => registration.subscribe(topic).await,
                Ok(Received::Cancel(topic)) => {
                    registration.change_topics(|topics| topics.remove(&topic));
                    Ok(())
                }
                Ok(Received::Message(frames)) => match subscription_message(&frames) {
                    Some((true, topic)) => registration.subscribe(topic).await,
                    Some((false, topic)) => {
                        registration.change_topics(|topics| topics.remove(&topic));
                        Ok(())
                    }
                    None => Ok(()),
                },
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return error;
            }
        }
    };
    tokio::select! {
        error = read => error,
        error = queue.write_to(&socket, sealer) => error,
        () = end.notified() => PeerError::Stalled,
    }
}

/// A subscription as ZMTP 3.0 sends it, in a message: a byte 1 or 0, then the topic.
fn subscription_message(frames: &[Bytes]) -> Option<(bool, Bytes)> {
    let [frame] = frames else {
        return None;
    };
    match frame.first()? {
        1 => Some((true, frame.slice(1..))),
        0 => Some((false, frame.slice(1..))),
        _ => None,
    }
}
