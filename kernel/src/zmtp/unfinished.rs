//! How many bytes of unfinished messages a socket's peers hold together.
//!
//! Anybody may have [`PARTIAL_FREE`] bytes under way. Beyond, all share one bound, and who holds most
//! gives way: peers that send halves of huge messages lose their own connections, not a front end's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use super::error::PeerError;
use super::limits::PARTIAL_FREE;
use super::lock;

/// Shared by the peers of a socket.
#[derive(Debug)]
pub(crate) struct UnfinishedTotal {
    bound: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    peers: HashMap<u64, (usize, Arc<Notify>)>,
}

impl UnfinishedTotal {
    pub(crate) fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            held: Mutex::default(),
        })
    }
}

/// One peer's share; given back on drop.
#[derive(Debug)]
pub(crate) struct Unfinished {
    total: Arc<UnfinishedTotal>,
    peer: u64,
    /// Ends the peer's connection.
    end: Arc<Notify>,
    counted: usize,
}

impl Unfinished {
    pub(crate) fn new(total: &Arc<UnfinishedTotal>, peer: u64, end: &Arc<Notify>) -> Self {
        Self {
            total: Arc::clone(total),
            peer,
            end: Arc::clone(end),
            counted: 0,
        }
    }

    /// States that the unfinished message has `bytes` so far.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), PeerError> {
        let counted = if bytes > PARTIAL_FREE { bytes } else { 0 };
        if counted == self.counted {
            return Ok(());
        }
        let mut held = lock(&self.total.held);
        if self.counted > 0 && !held.peers.contains_key(&self.peer) {
            // Made to give way, and not ended yet.
            return Err(PeerError::TooMuchUnfinished {
                bound: self.total.bound,
            });
        }
        held.bytes = held.bytes - self.counted + counted;
        self.counted = counted;
        if counted == 0 {
            held.peers.remove(&self.peer);
            return Ok(());
        }
        held.peers
            .insert(self.peer, (counted, Arc::clone(&self.end)));
        while held.bytes > self.total.bound {
            let Some((&largest, _)) = held.peers.iter().max_by_key(|(_, (bytes, _))| *bytes) else {
                break;
            };
            if largest == self.peer {
                return Err(PeerError::TooMuchUnfinished {
                    bound: self.total.bound,
                });
            }
            // Counted as gone now: its own task ends before it can read further.
            if let Some((bytes, end)) = held.peers.remove(&largest) {
                held.bytes -= bytes;
                end.notify_one();
            }
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut held = lock(&self.total.held);
        if held.peers.remove(&self.peer).is_some() {
            held.bytes -= self.counted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIG: usize = 2 * PARTIAL_FREE;

    fn share(total: &Arc<UnfinishedTotal>, peer: u64) -> (Unfinished, Arc<Notify>) {
        let end = Arc::new(Notify::new());
        (Unfinished::new(total, peer, &end), end)
    }

    #[test]
    fn the_largest_holder_gives_way() {
        let total = UnfinishedTotal::new(3 * BIG);
        let (mut large, large_end) = share(&total, 1);
        let (mut small, _) = share(&total, 2);
        large.hold(2 * BIG).unwrap();
        small.hold(BIG).unwrap();
        small.hold(BIG + 1).unwrap();
        assert!(is_notified(&large_end));
        assert!(large.hold(2 * BIG + 1).is_err());
        assert!(large.hold(0).is_err());
        drop(large);
        assert_eq!(lock(&total.held).bytes, BIG + 1);
        drop(small);
        assert_eq!(lock(&total.held).bytes, 0);
    }

    #[test]
    fn who_holds_most_and_wants_more_is_refused() {
        let total = UnfinishedTotal::new(3 * BIG);
        let (mut large, _) = share(&total, 1);
        let (mut small, small_end) = share(&total, 2);
        small.hold(BIG).unwrap();
        assert!(large.hold(2 * BIG + 1).is_err());
        assert!(!is_notified(&small_end));
    }

    #[test]
    fn little_counts_as_nothing() {
        let total = UnfinishedTotal::new(0);
        let (mut share, _) = share(&total, 1);
        share.hold(PARTIAL_FREE).unwrap();
        assert_eq!(lock(&total.held).bytes, 0);
        assert!(share.hold(PARTIAL_FREE + 1).is_err());
    }

    fn is_notified(notify: &Notify) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(notify.notified())
            .poll(&mut context)
            .is_ready()
    }
}
