//! Why a connection ends. Such an error ends that one connection and reaches nobody else.

use std::io;

/// What ended a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("not a ZMTP 3 peer: {0}")]
    Greeting(&'static str),
    #[error("the peer offers the mechanism `{offered}`, only {spoken} is spoken here")]
    Mechanism {
        offered: String,
        spoken: &'static str,
    },
    #[error("the peer is a {0}, which does not talk to this socket")]
    SocketType(String),
    #[error("malformed {0}")]
    Malformed(&'static str),
    #[error("a {0} that was not sealed for this connection")]
    Sealed(&'static str),
    #[error("a MESSAGE came again, or out of order")]
    Repeated,
    #[error("the system gives no random bytes")]
    NoRandomness,
    #[error("a message of {declared} bytes and more, the bound is {bound}")]
    MessageTooLarge { declared: u64, bound: usize },
    #[error("a message of more than {bound} frames")]
    TooManyFrames { bound: usize },
    #[error("more than {bound} topics, or bytes of topics, of one subscriber")]
    TooManySubscriptions { bound: usize },
    #[error("unfinished messages hold more than {bound} bytes, and this one most")]
    TooMuchUnfinished { bound: usize },
    #[error("the peer sent nothing within the time it had set itself")]
    Silent,
    #[error("the peer does not read what is sent to it")]
    Stalled,
    #[error("the peer reported: {0}")]
    Reported(String),
    #[error("another connection took the place of this one")]
    Replaced,
}
