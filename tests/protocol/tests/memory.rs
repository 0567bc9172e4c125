//! Memory of the whole process: it follows what really arrived and what readers take.
//!
//! One test at a time: they all look at the same process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::large_stack_arrays,
    reason = "a test fails by panicking, and its stack is its own"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use protocol_tests::process::{address_bytes, resident_bytes};
use protocol_tests::raw::{PATIENCE, RawPeer, SERVER_SECRET, command, frame_header};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tpu_kernel::zmtp::{Incoming, KeyPair, Limits, Publisher, Router, Security};

const ANY_PORT: &str = "tcp://127.0.0.1:0";
const MIB: usize = 1024 * 1024;
const MESSAGES: usize = 1000;

static ALONE: Mutex<()> = Mutex::const_new(());

async fn received(router: &mut Router) -> Incoming {
    timeout(PATIENCE, router.recv())
        .await
        .expect("no message arrived")
}

async fn subscriber(publisher: &mut Publisher) -> RawPeer {
    let mut peer = RawPeer::open(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    peer.write(&command("SUBSCRIBE", b"")).await.unwrap();
    timeout(PATIENCE, publisher.next_subscription())
        .await
        .expect("no subscription arrived");
    peer
}

#[tokio::test]
async fn a_declared_length_costs_nothing_until_its_bytes_come() {
    let _alone = ALONE.lock().await;
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let before = address_bytes("self").unwrap();
    let mut peers = Vec::new();
    for _ in 0..20 {
        let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"")
            .await
            .unwrap();
        peer.write(&frame_header(0, 500 * MIB as u64))
            .await
            .unwrap();
        peer.write(&[1; 100_000]).await.unwrap();
        peers.push(peer);
    }
    let mut other = RawPeer::open(&router.endpoint(), "DEALER", b"other")
        .await
        .unwrap();
    other.send(&["x"]).await.unwrap();
    assert_eq!(received(&mut router).await.frames, ["x"]);
    let grown = address_bytes("self").unwrap().saturating_sub(before);
    // 10 GB were declared; a thread's arena of the allocator is 64 MiB by itself.
    assert!(grown < 1024 * MIB, "grown by {grown}");
}

#[tokio::test]
async fn a_flood_stops_its_own_sender_and_loses_nothing() {
    let _alone = ALONE.lock().await;
    let limits = Limits {
        inbox_peer: MIB,
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let endpoint = router.endpoint();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let flood = tokio::spawn(async move {
        let mut peer = RawPeer::open(&endpoint, "DEALER", b"flood").await.unwrap();
        let filling = vec![0; 10_000];
        for number in 0..6000_u32 {
            peer.send(&[&number.to_be_bytes()[..], &filling])
                .await
                .unwrap();
            counter.fetch_add(1, Ordering::Relaxed);
        }
        peer
    });
    // Until it is stuck: 60 MB are offered, 1 MB is taken in and some more stands in socket buffers.
    let mut before = usize::MAX;
    while sent.load(Ordering::Relaxed) != before {
        before = sent.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(
        (100..3000).contains(&before),
        "stuck after {before} messages"
    );
    for number in 0..6000_u32 {
        assert_eq!(
            received(&mut router).await.frames[0][..],
            number.to_be_bytes()
        );
    }
    drop(flood.await.unwrap());
}

#[tokio::test]
async fn one_that_never_reads_costs_a_reader_nothing_and_memory_little() {
    let _alone = ALONE.lock().await;
    let limits = Limits {
        stall: Duration::from_millis(300),
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let before = resident_bytes("self").unwrap();
    let deaf = subscriber(&mut publisher).await;
    let mut reader = subscriber(&mut publisher).await;
    let reading = tokio::spawn(async move {
        for number in 0..MESSAGES {
            let frames = reader.recv().await.unwrap();
            assert_eq!(frames[0], number.to_string());
            assert_eq!(frames[1].len(), 1_000_000);
        }
    });
    let mut most = 0;
    for number in 0..MESSAGES {
        let frames = [
            Bytes::from(number.to_string()),
            Bytes::from(vec![9; 1_000_000]),
        ];
        publisher.sender().publish_when_ready(&frames).await;
        most = most.max(resident_bytes("self").unwrap().saturating_sub(before));
        assert!(publisher.sender().queued_bytes() < 2 * 66 * MIB);
        tokio::task::yield_now().await;
    }
    reading.await.unwrap();
    assert!(most < 200 * MIB, "grown by {most}");
    drop(deaf);
}

#[tokio::test]
async fn what_is_published_encrypted_stands_in_memory_once() {
    let _alone = ALONE.lock().await;
    let keys = KeyPair::from_z85(SERVER_SECRET, None).unwrap();
    let security = Security::Curve(Arc::new(keys));
    let mut publisher = Publisher::bind_with(ANY_PORT, Limits::PUBLISHER, &security)
        .await
        .unwrap();
    let mut readers = Vec::new();
    for _ in 0..20 {
        let mut peer = RawPeer::open_curve(&publisher.endpoint(), "SUB", b"")
            .await
            .unwrap();
        peer.send_command("SUBSCRIBE", b"").await.unwrap();
        timeout(PATIENCE, publisher.next_subscription())
            .await
            .unwrap();
        readers.push(peer);
    }
    let before = resident_bytes("self").unwrap();
    let frames = [Bytes::from("topic"), Bytes::from(vec![9; 2 * MIB])];
    assert_eq!(publisher.publish(&frames).unwrap(), 20);
    // Every reader takes the beginning, so that every connection is in the middle of its frame.
    for reader in &mut readers {
        reader.read(100_000).await.unwrap();
    }
    let grown = resident_bytes("self").unwrap().saturating_sub(before);
    assert!(grown < 20 * MIB, "grown by {grown}");
}
