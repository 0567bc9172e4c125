//! The server side of ZMTP 3.1 (mechanisms NULL and CURVE), as far as a Jupyter kernel needs it: [`Router`] for
//! shell, control and stdin, [`Publisher`] for iopub, [`Echo`] for the heartbeat, over TCP and IPC.
//!
//! All of it runs as tasks of the tokio runtime it is bound in; nothing here has a thread, and nothing
//! of Python. Peers are not trusted: what one does or fails to do costs only its own connection, memory
//! stays within [`limits`], and nothing a peer sends can end a socket.
//!
//! ```text
//! acceptor ── handshake ──> one task a peer: reader ──> inbox ──> Router::recv
//!                                            writer <── send queue <── RouterSender, PublisherSender
//! ```

mod acceptor;
mod curve;
mod echo;
mod encoded;
mod endpoint;
mod error;
mod handshake;
mod inbox;
pub mod limits;
mod publisher;
mod reader;
mod router;
mod send_queue;
mod socket;
mod topics;
mod unfinished;

use crate::lock::lock;

pub use curve::{KeyError, KeyPair, Security};
pub use echo::Echo;
pub use inbox::Incoming;
pub use limits::Limits;
pub use publisher::{Congested, Publisher, PublisherSender, Subscribed, SubscriberId};
pub use router::{Router, RouterSender, SendError};
