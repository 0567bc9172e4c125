//! The kernel's sockets against peers that keep the rules of ZMTP, break them, or do nothing.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::large_stack_arrays,
    reason = "a test fails by panicking, and its stack is its own"
)]

mod encryption;
mod hostile;
mod interoperation;
mod limits_of_memory;
mod peers;
mod subscribers;

use std::time::Duration;

use bytes::Bytes;
use protocol_tests::raw::{PATIENCE, RawPeer};
use tokio::time::timeout;
use tpu_kernel::zmtp::{Incoming, Publisher, Router, Subscribed};

const ANY_PORT: &str = "tcp://127.0.0.1:0";
const SOON: Duration = Duration::from_secs(5);

async fn received(router: &mut Router) -> Incoming {
    timeout(PATIENCE, router.recv())
        .await
        .expect("no message arrived")
}

async fn subscribed(publisher: &mut Publisher) -> Subscribed {
    timeout(PATIENCE, publisher.next_subscription())
        .await
        .expect("no subscription arrived")
}

/// A new peer of `router` is served: one message there, one back.
async fn serves_a_new_peer(router: &mut Router) {
    let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"new")
        .await
        .unwrap();
    peer.send(&["are you", "there?"]).await.unwrap();
    let incoming = loop {
        let incoming = received(router).await;
        if &incoming.peer[..] == b"new" {
            break incoming;
        }
    };
    assert_eq!(incoming.frames, ["are you", "there?"]);
    router.sender().send(b"new", [Bytes::from("yes")]).unwrap();
    assert_eq!(peer.recv().await.unwrap(), ["yes"]);
}

/// Waits until `condition` holds.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}
