//! Heartbeat: a ROUTER whose peers get back, frame by frame, what they sent.

use std::io;
use std::sync::Arc;

use tokio::sync::Notify;

use super::acceptor::{Acceptor, Connection};
use super::curve::Security;
use super::encoded::Encoded;
use super::error::PeerError;
use super::handshake::Role;
use super::limits::Limits;
use super::reader::Received;
use super::send_queue::{QueueGroup, SendQueue};
use super::unfinished::{Unfinished, UnfinishedTotal};

/// A bound heartbeat socket. Dropping it closes the socket and its connections.
#[derive(Debug)]
pub struct Echo {
    acceptor: Acceptor,
}

struct Shared {
    limits: Limits,
    group: Arc<QueueGroup>,
    unfinished: Arc<UnfinishedTotal>,
}

impl Echo {
    /// Listens on `tcp://address:port` (port 0: the system chooses) or `ipc://path`.
    pub async fn bind(endpoint: &str) -> io::Result<Self> {
        Self::bind_with(endpoint, Limits::ECHO, &Security::Plain).await
    }

    /// As [`Echo::bind`], with bounds and security of one's own.
    pub async fn bind_with(
        endpoint: &str,
        limits: Limits,
        security: &Security,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            group: Arc::default(),
            unfinished: UnfinishedTotal::new(limits.partial_total),
            limits: limits.clone(),
        });
        let acceptor = Acceptor::bind(
            endpoint,
            Role::Router,
            &limits,
            security,
            move |connection| serve(Arc::clone(&shared), connection),
        )
        .await?;
        Ok(Self { acceptor })
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

async fn serve(shared: Arc<Shared>, connection: Connection) -> PeerError {
    let (mut reader, sealer) = (connection.reader, connection.sealer);
    let queue = SendQueue::new(&shared.limits, &shared.group);
    let end = Arc::new(Notify::new());
    let mut unfinished = Unfinished::new(&shared.unfinished, connection.id, &end);
    let socket = Arc::clone(reader.socket());
    let read = async {
        loop {
            match reader.next(&shared.limits, &mut unfinished, &queue).await {
                // A peer that does not read its echoes gets no more of them.
                Ok(Received::Message(frames)) => {
                    let _ = queue.push(Encoded::message(&frames));
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
