//! CURVE, the encrypting mechanism of ZMTP (RFC 25 and 26), as the server.
//!
//! Who knows the server's public key may connect, as with libzmq when nobody asks for more:
//! `jupyter_client`'s heartbeat makes up a key of its own. What is secret here is overwritten when it
//! is dropped and never printed.
//!
//! ```text
//! keys       the kernel's key pair, as the connection file has it
//! nacl       the box everything travels in
//! handshake  HELLO, WELCOME, INITIATE, READY
//! messages   MESSAGE: opening what a peer sends, sealing what it is sent
//! sealing    a send queue's bytes for one peer, made a piece at a time
//! ```

mod handshake;
mod keys;
mod messages;
mod nacl;
mod sealing;

pub(crate) use handshake::Hello;
pub use keys::{KeyError, KeyPair};
pub(crate) use messages::{Opener, Sealer};
pub(crate) use sealing::Sealing;

use std::sync::Arc;

/// How a socket talks to its peers; one that talks otherwise is refused.
#[derive(Debug, Clone, Default)]
pub enum Security {
    /// NULL: everybody on the network can read along.
    #[default]
    Plain,
    /// CURVE, with the server's keys.
    Curve(Arc<KeyPair>),
}

impl Security {
    /// The mechanism's name in the greeting.
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::Plain => "NULL",
            Self::Curve(_) => "CURVE",
        }
    }
}
