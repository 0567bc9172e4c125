//! The listening task of a socket: accepts, shakes hands within a time, and owns the peers' tasks.
//!
//! It never ends by itself; dropping the [`Acceptor`] ends it and every peer with it.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::task::{AbortHandle, JoinSet};

use super::curve::{Sealer, Security};
use super::endpoint::{Endpoint, Listener};
use super::error::PeerError;
use super::handshake::{Role, shake_hands};
use super::limits::{ACCEPT_PAUSE, Limits};
use super::reader::Reader;

/// A peer after its handshake.
pub(crate) struct Connection {
    /// Unique within the socket, never used again.
    pub(crate) id: u64,
    /// The identity the peer chose, or empty.
    pub(crate) identity: Bytes,
    pub(crate) reader: Reader,
    /// What everything sent to it must be sealed with.
    pub(crate) sealer: Option<Sealer>,
}

/// A listening socket and its peers.
#[derive(Debug)]
pub(crate) struct Acceptor {
    endpoint: Endpoint,
    task: AbortHandle,
}

impl Acceptor {
    /// Listens on `endpoint` and runs `serve` for every peer that completes its handshake.
    pub(crate) async fn bind<F, S>(
        endpoint: &str,
        role: Role,
        limits: &Limits,
        security: &Security,
        serve: S,
    ) -> io::Result<Self>
    where
        S: Fn(Connection) -> F + Clone + Send + 'static,
        F: Future<Output = PeerError> + Send + 'static,
    {
        let listener = Listener::bind(&Endpoint::parse(endpoint)?).await?;
        let endpoint = listener.endpoint()?;
        let accepting = accept(listener, role, limits.clone(), security.clone(), serve);
        let task = tokio::spawn(accepting).abort_handle();
        Ok(Self { endpoint, task })
    }

    pub(crate) fn endpoint(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(address) => format!("tcp://{address}"),
            Endpoint::Ipc(path) => format!("ipc://{}", path.display()),
        }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Tcp(address) => Some(address.port()),
            Endpoint::Ipc(_) => None,
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct HalfOpen {
    established: Arc<AtomicBool>,
    task: AbortHandle,
}

async fn accept<F, S>(listener: Listener, role: Role, limits: Limits, security: Security, serve: S)
where
    S: Fn(Connection) -> F + Clone + Send + 'static,
    F: Future<Output = PeerError> + Send + 'static,
{
    let mut peers = JoinSet::new();
    let mut half_open: VecDeque<HalfOpen> = VecDeque::new();
    for id in 1.. {
        let socket = loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok(socket) => break socket,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    // No open files left: that passes.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                Some(_) = peers.join_next() => {}
            }
        };
        while peers.try_join_next().is_some() {}
        half_open
            .retain(|peer| !peer.established.load(Ordering::Relaxed) && !peer.task.is_finished());
        if peers.len() - half_open.len() >= limits.peers {
            continue;
        }
        if half_open.len() >= limits.half_open
            && let Some(oldest) = half_open.pop_front()
        {
            oldest.task.abort();
        }
        let established = Arc::new(AtomicBool::new(false));
        let greeted = Arc::clone(&established);
        let serve = serve.clone();
        let (handshake, security) = (limits.handshake, security.clone());
        let task = peers.spawn(async move {
            let mut reader = Reader::new(Arc::new(socket));
            let shaking = shake_hands(&mut reader, role, &security);
            let Ok(Ok(peer)) = tokio::time::timeout(handshake, shaking).await else {
                return;
            };
            greeted.store(true, Ordering::Relaxed);
            serve(Connection {
                id,
                identity: peer.identity,
                reader,
                sealer: peer.sealer,
            })
            .await;
        });
        half_open.push_back(HalfOpen { established, task });
    }
}
