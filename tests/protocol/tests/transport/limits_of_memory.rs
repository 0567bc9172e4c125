//! Memory follows what really arrived and is really read, within the bounds that have names.

use std::time::Duration;

use bytes::Bytes;
use protocol_tests::raw::{RawPeer, frame_header, message};
use tpu_kernel::zmtp::limits::GiveUp;
use tpu_kernel::zmtp::{Limits, Router, Security, SendError};

use super::{ANY_PORT, SOON, received, serves_a_new_peer};

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn buffers_of_32_mb_pass_both_ways() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"big")
        .await
        .unwrap();
    let buffer: Vec<u8> = (0..=32 * MIB).map(|index| (index % 251) as u8).collect();
    let sending = buffer.clone();
    let client = tokio::spawn(async move {
        peer.send(&[b"comm", &sending[..], b"", &sending[..300]])
            .await
            .unwrap();
        peer.recv().await.unwrap()
    });
    let incoming = received(&mut router).await;
    assert_eq!(incoming.frames.len(), 4);
    assert!(incoming.frames[1] == buffer);
    assert!(incoming.frames[3] == buffer[..300]);
    router.sender().send(b"big", &incoming.frames).unwrap();
    let back = client.await.unwrap();
    assert!(back == incoming.frames);
}

#[tokio::test]
async fn hoarders_of_unfinished_messages_give_way_to_the_others() {
    let limits = Limits {
        partial_total: 30 * MIB,
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut hoarder = RawPeer::open(&router.endpoint(), "DEALER", b"hoarder")
        .await
        .unwrap();
    hoarder
        .write(&frame_header(0, 500 * MIB as u64))
        .await
        .unwrap();
    hoarder.write(&vec![1; 25 * MIB]).await.unwrap();
    let endpoint = router.endpoint();
    let front_end = tokio::spawn(async move {
        let mut peer = RawPeer::open(&endpoint, "DEALER", b"good").await.unwrap();
        peer.send(&[vec![2; 20 * MIB]]).await.unwrap();
        peer
    });
    let incoming = received(&mut router).await;
    assert_eq!(&incoming.peer[..], b"good");
    assert_eq!(incoming.frames[0].len(), 20 * MIB);
    hoarder.closes_within(SOON).await.unwrap();
    drop(front_end.await.unwrap());
}

#[tokio::test]
async fn a_peer_that_sends_and_never_reads_is_bounded_and_then_closed() {
    let limits = Limits {
        queue: MIB,
        give_up: GiveUp::Blocked(Duration::from_millis(1500)),
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let sender = router.sender();
    let mut deaf = RawPeer::connect_narrow(&router.endpoint(), 4096)
        .await
        .unwrap();
    deaf = deaf.shake_hands("DEALER", b"deaf").await.unwrap();
    deaf.send(&["hello"]).await.unwrap();
    received(&mut router).await;
    let reply = [Bytes::from(vec![3; 10_000])];
    let mut refused = 0;
    for _ in 0..2000 {
        match sender.send(b"deaf", &reply) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, SendError::QueueFull);
                refused += 1;
            }
        }
        assert!(
            sender.queued_bytes() <= MIB + 20_000,
            "{}",
            sender.queued_bytes()
        );
        tokio::task::yield_now().await;
    }
    assert!(refused > 0);
    serves_a_new_peer(&mut router).await;
    super::eventually("the deaf peer is closed", || {
        sender.send(b"deaf", &reply) == Err(SendError::UnknownPeer)
    })
    .await;
    assert_eq!(sender.queued_bytes(), 0);
}

#[tokio::test]
async fn what_waits_for_all_peers_together_is_bounded_and_readers_are_still_served() {
    let limits = Limits {
        queue: 10 * MIB,
        queue_total: 4 * MIB,
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let sender = router.sender();
    let mut deaf = Vec::new();
    for name in [&b"deaf1"[..], b"deaf2"] {
        let mut peer = RawPeer::open(&router.endpoint(), "DEALER", name)
            .await
            .unwrap();
        peer.send(&["hello"]).await.unwrap();
        received(&mut router).await;
        deaf.push(peer);
    }
    // Without a pause for the writers everything stays queued.
    let reply = [Bytes::from(vec![3; MIB])];
    let results: Vec<_> = (0..8)
        .map(|_| sender.send(b"deaf1", &reply).is_ok())
        .collect();
    assert_eq!(
        results,
        [true, true, true, true, false, false, false, false]
    );
    assert_eq!(sender.send(b"deaf2", &reply), Ok(()));
    assert_eq!(sender.send(b"deaf2", &reply), Err(SendError::QueueFull));
    serves_a_new_peer(&mut router).await;
}

#[tokio::test]
async fn a_front_end_is_heard_through_a_flood() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let endpoint = router.endpoint();
    let flood = tokio::spawn(async move {
        let mut peer = RawPeer::open(&endpoint, "DEALER", b"flood").await.unwrap();
        let burst = message(&["noise"]).repeat(1000);
        while peer.write(&burst).await.is_ok() {}
    });
    received(&mut router).await;
    let mut front_end = RawPeer::open(&router.endpoint(), "DEALER", b"good")
        .await
        .unwrap();
    for round in 0..20_u8 {
        front_end.send(&[[round]]).await.unwrap();
        let mut waited = 0;
        loop {
            let incoming = received(&mut router).await;
            if &incoming.peer[..] == b"good" {
                assert_eq!(incoming.frames, [vec![round]]);
                break;
            }
            waited += 1;
            assert!(waited < 100_000);
        }
    }
    flood.abort();
}
