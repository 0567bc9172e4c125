//! Every bound of the transport, by name: bytes, counts and times.
//!
//! Nothing in `zmtp` may grow with what a peer *says*, only with what it really sent, and never past a
//! bound of this file. A [`Limits`] gathers those that differ between sockets; tests shorten its times.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// A peer that has not finished greeting and `READY` by then is closed.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may be in their handshake at once; one more closes the oldest of them, so that
/// silent connections cannot keep a front end out.
pub const HALF_OPEN_PEERS: usize = 64;
/// Peers of one socket after their handshake; further ones are closed at once. Five sockets of these
/// stay below the usual limit of open files only because few kernels have more than a handful.
pub const PEERS: usize = 128;

/// Bytes of a whole inbound message on a ROUTER: widgets send buffers of tens of megabytes.
pub const INBOUND_MESSAGE: usize = 512 * MIB;
/// Bytes of a whole inbound message where only subscriptions or heartbeats arrive.
pub const INBOUND_SMALL_MESSAGE: usize = 64 * KIB;
/// Frames of one inbound message.
pub const INBOUND_FRAMES: usize = 16 * KIB;
/// What a frame costs besides its bytes; counted in every bound, so that empty frames are not free.
pub const FRAME_OVERHEAD: usize = 64;
/// Bytes of a command (`READY`, `PING`, `SUBSCRIBE`, …).
pub const COMMAND: usize = 64 * KIB;
/// Bytes of an identity, by the specification.
pub const IDENTITY: usize = 255;
/// Bytes of the context of a `PING`, by the specification.
pub const PING_CONTEXT: usize = 16;

/// Bytes received from one peer and not yet taken by the session; past it the peer is not read.
pub const INBOX_PEER: usize = 64 * MIB;
/// Messages received from one peer and not yet taken by the session; past it the peer is not read.
pub const INBOX_PEER_MESSAGES: usize = 1024;
/// Bytes received from all peers and not yet taken; past it no peer is read.
pub const INBOX_TOTAL: usize = 256 * MIB;
/// Bytes of an unfinished message that count as nothing: any peer may have that much under way.
pub const PARTIAL_FREE: usize = MIB;
/// Bytes of all larger unfinished messages of a socket; past it the peer with the largest is closed.
pub const PARTIAL_TOTAL: usize = 1024 * MIB;

/// Bytes waiting for one peer. A message is taken while the queue is below, so that one larger than
/// the bound still passes: the most a queue holds is this and one message.
pub const SEND_QUEUE: usize = 64 * MIB;
/// Bytes waiting for all peers of a ROUTER; past it only a peer whose queue is empty is sent to.
pub const SEND_QUEUE_TOTAL: usize = 256 * MIB;
/// Bytes waiting for one peer of the heartbeat.
pub const ECHO_QUEUE: usize = MIB;

/// A peer of a ROUTER that takes nothing of what waits for it in this time is closed.
pub const ROUTER_PATIENCE: Duration = Duration::from_secs(60);
/// A subscriber with a full queue that takes nothing in this time holds nobody up any longer: it is
/// passed over until it reads again.
pub const SUBSCRIBER_PATIENCE: Duration = Duration::from_secs(2);
/// A subscriber that took something within this time reads, if slowly.
pub const READS: Duration = Duration::from_secs(1);
/// A subscriber passed over for this long is closed and its queue freed.
pub const STALLED_SUBSCRIBER_LIFE: Duration = Duration::from_secs(30);
/// Subscribers that may be passed over at once (each holds a full queue); one more closes the one
/// that has been so longest.
pub const STALLED_SUBSCRIBERS: usize = 2;
/// A peer that takes nothing in this time is not waited for by `flush`.
pub const FLUSH_PATIENCE: Duration = Duration::from_millis(250);
/// How often a writer that cannot write looks whether its peer's time is over.
pub const STALL_CHECK: Duration = Duration::from_millis(500);

/// Topics of one subscriber.
pub const SUBSCRIPTIONS: usize = 256;
/// Bytes of all topics of one subscriber.
pub const SUBSCRIPTION_BYTES: usize = 256 * KIB;
/// Subscriptions the session has not looked at; past it further subscribers are not read.
pub const SUBSCRIPTION_EVENTS: usize = 1024;

/// The read buffer of a peer; larger frames are read into memory of their own.
pub const READ_BUFFER: usize = 16 * KIB;
/// The first piece of memory for a frame larger than the read buffer; it doubles as bytes arrive.
pub const LARGE_FRAME_START: usize = 64 * KIB;
/// Outbound frames up to here are copied together into one piece; larger ones are shared uncopied.
pub const COPIED_FRAME: usize = 8 * KIB;
/// CURVE: outbound frames up to here are sealed whole; larger ones a piece at a time, and twice.
pub const SEALED_AT_ONCE: usize = 256 * KIB;
/// CURVE: bytes sealed for one peer before they are written; with one frame sealed whole, the most a
/// peer has besides its queue.
pub const SEALED_PIECE: usize = 64 * KIB;
/// Pieces handed to one vectored write.
pub const WRITE_PIECES: usize = 64;
/// Bytes a peer may read or write in one go before others on the thread get their turn.
pub const TURN_BYTES: usize = 256 * KIB;
/// A pause after an `accept` that failed (no more open files), instead of a busy loop.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// When the writer gives its peer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveUp {
    /// Nothing was taken of a queue that was not empty for this long.
    Blocked(Duration),
    /// The peer has been passed over for this long.
    Stalled(Duration),
}

/// The bounds of one socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// See [`HANDSHAKE_TIMEOUT`].
    pub handshake: Duration,
    /// See [`HALF_OPEN_PEERS`].
    pub half_open: usize,
    /// See [`PEERS`].
    pub peers: usize,
    /// Bytes of one inbound message, frame overhead included.
    pub message: usize,
    /// See [`INBOUND_FRAMES`].
    pub frames: usize,
    /// See [`INBOX_PEER`].
    pub inbox_peer: usize,
    /// See [`INBOX_TOTAL`].
    pub inbox_total: usize,
    /// See [`PARTIAL_TOTAL`].
    pub partial_total: usize,
    /// See [`SEND_QUEUE`].
    pub queue: usize,
    /// See [`SEND_QUEUE_TOTAL`].
    pub queue_total: usize,
    /// When a subscriber with a full queue counts as stalled, see [`SUBSCRIBER_PATIENCE`].
    pub stall: Duration,
    /// When a peer that does not read is closed.
    pub give_up: GiveUp,
}

impl Limits {
    /// Bounds of shell, control and stdin.
    pub const ROUTER: Self = Self {
        handshake: HANDSHAKE_TIMEOUT,
        half_open: HALF_OPEN_PEERS,
        peers: PEERS,
        message: INBOUND_MESSAGE,
        frames: INBOUND_FRAMES,
        inbox_peer: INBOX_PEER,
        inbox_total: INBOX_TOTAL,
        partial_total: PARTIAL_TOTAL,
        queue: SEND_QUEUE,
        queue_total: SEND_QUEUE_TOTAL,
        stall: SUBSCRIBER_PATIENCE,
        give_up: GiveUp::Blocked(ROUTER_PATIENCE),
    };

    /// Bounds of iopub. What waits for several subscribers is one copy, so it needs no total.
    pub const PUBLISHER: Self = Self {
        message: INBOUND_SMALL_MESSAGE,
        queue_total: usize::MAX,
        give_up: GiveUp::Stalled(STALLED_SUBSCRIBER_LIFE),
        ..Self::ROUTER
    };

    /// Bounds of the heartbeat.
    pub const ECHO: Self = Self {
        message: INBOUND_SMALL_MESSAGE,
        queue: ECHO_QUEUE,
        ..Self::ROUTER
    };
}
