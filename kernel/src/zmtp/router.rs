//! ROUTER: shell, control and stdin.
//!
//! Every peer has an identity and a queue; messages of all peers come out of one inbox. A peer that
//! breaks the protocol or does not read loses its own connection. A second peer with the identity of
//! a first takes its place, as a front end that reconnects needs.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::acceptor::{Acceptor, Connection};
use super::curve::Security;
use super::encoded::Encoded;
use super::error::PeerError;
use super::handshake::Role;
use super::inbox::{Inbox, Incoming};
use super::limits::Limits;
use super::lock;
use super::reader::Received;
use super::send_queue::{QueueGroup, SendQueue};
use super::unfinished::{Unfinished, UnfinishedTotal};

/// Why a message was not queued. Nothing was sent; the caller may well ignore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The peer has gone, or never was.
    #[error("no such peer; it has disconnected")]
    UnknownPeer,
    /// As much waits for the peer, or for all peers, as may.
    #[error("the peer does not read what was sent to it before")]
    QueueFull,
}

/// A bound ROUTER socket. Dropping it closes the socket and its connections.
#[derive(Debug)]
pub struct Router {
    acceptor: Acceptor,
    shared: Arc<Shared>,
}

/// Sends to the peers of a [`Router`]; cheap to clone.
#[derive(Debug, Clone)]
pub struct RouterSender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    inbox: Inbox,
    peers: Mutex<HashMap<Bytes, Peer>>,
    group: Arc<QueueGroup>,
    unfinished: Arc<UnfinishedTotal>,
}

#[derive(Debug)]
struct Peer {
    id: u64,
    queue: Arc<SendQueue>,
    end: Arc<Notify>,
}

impl Router {
    /// Listens on `tcp://address:port` (port 0: the system chooses) or `ipc://path`.
    pub async fn bind(endpoint: &str) -> io::Result<Self> {
        Self::bind_with(endpoint, Limits::ROUTER, &Security::Plain).await
    }

    /// As [`Router::bind`], with bounds and security of one's own.
    pub async fn bind_with(
        endpoint: &str,
        limits: Limits,
        security: &Security,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            inbox: Inbox::new(&limits),
            peers: Mutex::default(),
            group: Arc::default(),
            unfinished: UnfinishedTotal::new(limits.partial_total),
            limits: limits.clone(),
        });
        let serving = Arc::clone(&shared);
        let acceptor = Acceptor::bind(
            endpoint,
            Role::Router,
            &limits,
            security,
            move |connection| serve(Arc::clone(&serving), connection),
        )
        .await?;
        Ok(Self { acceptor, shared })
    }

    /// The next message of any peer. Never fails; safe to drop before it is ready.
    pub async fn recv(&mut self) -> Incoming {
        self.shared.inbox.take().await
    }

    /// The next message if one has arrived.
    pub fn try_recv(&mut self) -> Option<Incoming> {
        self.shared.inbox.try_take()
    }

    /// A handle to answer with.
    pub fn sender(&self) -> RouterSender {
        RouterSender {
            shared: Arc::clone(&self.shared),
        }
    }

    /// See [`RouterSender::flush`].
    pub async fn flush(&self, deadline: Instant) -> bool {
        self.shared.flush(deadline).await
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

impl RouterSender {
    /// Queues `frames` for `peer`; returns at once. No frames is no message.
    pub fn send(&self, peer: &[u8], frames: impl AsRef<[Bytes]>) -> Result<(), SendError> {
        let frames = frames.as_ref();
        if frames.is_empty() {
            return Ok(());
        }
        let queue = {
            let peers = lock(&self.shared.peers);
            let peer = peers.get(peer).ok_or(SendError::UnknownPeer)?;
            Arc::clone(&peer.queue)
        };
        if self.shared.group.bytes() >= self.shared.limits.queue_total && queue.bytes() > 0 {
            return Err(SendError::QueueFull);
        }
        queue
            .push(Encoded::message(frames))
            .map_err(|_| SendError::QueueFull)
    }

    /// Waits until everything queued is written to the peers that read, or until `deadline`; true
    /// when nothing is left. For the last replies before the process ends.
    pub async fn flush(&self, deadline: Instant) -> bool {
        self.shared.flush(deadline).await
    }

    /// Bytes that wait to be written, to all peers together.
    pub fn queued_bytes(&self) -> usize {
        self.shared.group.bytes()
    }

    /// Is this peer connected now?
    pub fn is_connected(&self, peer: &[u8]) -> bool {
        lock(&self.shared.peers).contains_key(peer)
    }

    /// Peers connected now.
    pub fn peer_count(&self) -> usize {
        lock(&self.shared.peers).len()
    }
}

impl Shared {
    async fn flush(&self, deadline: Instant) -> bool {
        let queues = || {
            lock(&self.peers)
                .values()
                .map(|peer| Arc::clone(&peer.queue))
                .collect::<Vec<_>>()
        };
        self.group.flush(deadline, queues).await
    }
}

/// Takes a peer out of the table with its connection, unless another has taken its place.
struct Registration {
    shared: Arc<Shared>,
    identity: Bytes,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut peers = lock(&self.shared.peers);
        if peers
            .get(&self.identity)
            .is_some_and(|peer| peer.id == self.id)
        {
            peers.remove(&self.identity);
        }
    }
}

async fn serve(shared: Arc<Shared>, connection: Connection) -> PeerError {
    let Connection {
        id,
        identity,
        mut reader,
        sealer,
    } = connection;
    let identity = usable_identity(identity, id);
    let queue = SendQueue::new(&shared.limits, &shared.group);
    let end = Arc::new(Notify::new());
    let peer = Peer {
        id,
        queue: Arc::clone(&queue),
        end: Arc::clone(&end),
    };
    if let Some(former) = lock(&shared.peers).insert(identity.clone(), peer) {
        former.end.notify_one();
    }
    let _registration = Registration {
        shared: Arc::clone(&shared),
        identity: identity.clone(),
        id,
    };
    let mut unfinished = Unfinished::new(&shared.unfinished, id, &end);
    let socket = Arc::clone(reader.socket());
    let read = async {
        loop {
            shared.inbox.admit(id).await;
            match reader.next(&shared.limits, &mut unfinished, &queue).await {
                Ok(Received::Message(frames)) => {
                    let _ = unfinished.hold(0);
                    shared.inbox.push(
                        id,
                        Incoming {
                            peer: identity.clone(),
                            frames,
                        },
                    );
                }
                Ok(Received::Subscribe(_) | Received::Cancel(_)) => {}
                Err(error) => return error,
            }
        }
    };
    tokio::select! {
        error = read => error,
        error = queue.write_to(&socket, sealer) => error,
        () = end.notified() => PeerError::Replaced,
    }
}

/// The peer's own identity, or one made here: a zero byte, which no peer may begin its own with, and
/// a number.
fn usable_identity(identity: Bytes, id: u64) -> Bytes {
    if identity.first().is_some_and(|&byte| byte != 0) {
        return identity;
    }
    let mut made = BytesMut::with_capacity(9);
    made.put_u8(0);
    made.put_u64(id);
    made.freeze()
}
