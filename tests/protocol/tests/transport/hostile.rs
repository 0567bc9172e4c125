//! Peers that break the rules lose their own connection, at once, and nobody else anything.

use std::time::Duration;

use bytes::Bytes;
use protocol_tests::raw::{
    RawPeer, command, frame, frame_header, greeting, message, opening, ready,
};
use tpu_kernel::zmtp::{Echo, Limits, Publisher, Router, Security};

use super::{ANY_PORT, SOON, eventually, serves_a_new_peer};

#[tokio::test]
async fn a_frame_of_absurd_length_is_refused_before_its_bytes_arrive() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let echo = Echo::bind(ANY_PORT).await.unwrap();
    for length in [
        1 << 36,
        1 << 40,
        1 << 62,
        1 << 63,
        u64::MAX,
        512 * 1024 * 1024,
    ] {
        for (endpoint, socket_type) in [
            (router.endpoint(), "DEALER"),
            (publisher.endpoint(), "SUB"),
            (echo.endpoint(), "REQ"),
        ] {
            for flags in [0, 1, 4] {
                let mut peer = RawPeer::open(&endpoint, socket_type, b"").await.unwrap();
                peer.write(&frame_header(flags, length)).await.unwrap();
                peer.closes_within(SOON).await.unwrap();
            }
        }
    }
    serves_a_new_peer(&mut router).await;
}

#[tokio::test]
async fn what_a_subscriber_or_a_heartbeat_may_send_is_small() {
    let publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let echo = Echo::bind(ANY_PORT).await.unwrap();
    for (endpoint, socket_type) in [(publisher.endpoint(), "SUB"), (echo.endpoint(), "REQ")] {
        let mut peer = RawPeer::open(&endpoint, socket_type, b"").await.unwrap();
        peer.write(&frame_header(0, 64 * 1024)).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
}

#[tokio::test]
async fn frames_without_end_are_refused_by_number_and_by_bytes() {
    let limits = Limits {
        frames: 10,
        message: 10_000,
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut many = RawPeer::open(&router.endpoint(), "DEALER", b"many")
        .await
        .unwrap();
    many.send(&[""; 10]).await.unwrap();
    assert_eq!(super::received(&mut router).await.frames.len(), 10);
    many.send(&[""; 11]).await.unwrap();
    many.closes_within(SOON).await.unwrap();
    let mut large = RawPeer::open(&router.endpoint(), "DEALER", b"large")
        .await
        .unwrap();
    large.write(&frame(1, &[0; 4936])).await.unwrap();
    large.write(&frame_header(0, 4937)).await.unwrap();
    large.closes_within(SOON).await.unwrap();
    serves_a_new_peer(&mut router).await;
}

#[tokio::test]
async fn other_protocols_and_mechanisms_are_refused_at_once() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut version2 = greeting(0, "");
    version2[10] = 1;
    let openings: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        // ZMTP 1.0: an empty identity. Then 2.0 up to the revision, where such a peer waits.
        b"\x01\x00",
        &version2[..11],
        &greeting(1, "PLAIN"),
        &greeting(1, "CURVE"),
        &greeting(1, "NULLS"),
        &[greeting(1, "NULL"), message(&["before READY"])].concat(),
    ];
    for opening in openings {
        let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
        peer.write(opening).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
    serves_a_new_peer(&mut router).await;
}

#[tokio::test]
async fn a_peer_of_the_wrong_kind_is_told_so() {
    let router = Router::bind(ANY_PORT).await.unwrap();
    let publisher = Publisher::bind(ANY_PORT).await.unwrap();
    for (endpoint, socket_type) in [
        (router.endpoint(), "SUB"),
        (router.endpoint(), "PUSH"),
        (router.endpoint(), ""),
        (publisher.endpoint(), "DEALER"),
    ] {
        let mut peer = RawPeer::open(&endpoint, socket_type, b"").await.unwrap();
        assert_eq!(
            peer.read_frame().await.unwrap(),
            (4, b"\x05ERROR\x13Invalid socket type".to_vec())
        );
        peer.closes_within(SOON).await.unwrap();
    }
}

#[tokio::test]
async fn malformed_handshakes_and_frames_end_their_connection() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let greeted = |rest: Vec<u8>| [greeting(1, "NULL"), rest].concat();
    let opened = |rest: &[u8]| [&opening("DEALER", b"x")[..], rest].concat();
    for bytes in [
        greeted(command("READY", b"\x0bSocket-Type\xff\xff\xff\xffDEALER")),
        greeted(command("HELLO", b"")),
        greeted(frame(4, b"")),
        greeted(frame(4, b"\x09READY")),
        greeted(ready("DEALER", &[b'i'; 256])),
        greeted(command("ERROR", b"\x02no")),
        opened(&[0x08, 0]),
        opened(&[0x80, 0]),
        opened(&[0x05, 6, 4, b'P', b'I', b'N', b'G', 0]),
        opened(&command("PING", b"")),
        opened(&command("PING", b"\x00\x00seventeen letters")),
        opened(&command("ERROR", b"\x04gone")),
        opened(&frame(4, b"")),
    ] {
        let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
        peer.write(&bytes).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
    serves_a_new_peer(&mut router).await;
}

#[tokio::test]
async fn a_message_cut_short_is_no_message() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let whole = message(&["one", "two", "three"]);
    for cut in [1, 2, 5, 9, whole.len() - 1] {
        let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"cut")
            .await
            .unwrap();
        peer.write(&whole[..cut]).await.unwrap();
        peer.finish().await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
    serves_a_new_peer(&mut router).await;
    assert_eq!(router.try_recv(), None);
}

#[tokio::test]
async fn silent_peers_and_half_greetings_are_dropped_in_time() {
    let limits = |from: Limits| Limits {
        handshake: Duration::from_millis(300),
        ..from
    };
    let mut router = Router::bind_with(ANY_PORT, limits(Limits::ROUTER), &Security::Plain)
        .await
        .unwrap();
    let publisher = Publisher::bind_with(ANY_PORT, limits(Limits::PUBLISHER), &Security::Plain)
        .await
        .unwrap();
    let echo = Echo::bind_with(ANY_PORT, limits(Limits::ECHO), &Security::Plain)
        .await
        .unwrap();
    let mut peers = Vec::new();
    for endpoint in [router.endpoint(), publisher.endpoint(), echo.endpoint()] {
        for said in 0..50 {
            let mut peer = RawPeer::connect(&endpoint).await.unwrap();
            let bytes = opening("DEALER", b"half");
            peer.write(&bytes[..said * 2]).await.unwrap();
            peers.push(peer);
        }
    }
    serves_a_new_peer(&mut router).await;
    for mut peer in peers {
        peer.closes_within(SOON).await.unwrap();
    }
}

#[tokio::test]
async fn silent_peers_do_not_keep_a_front_end_out() {
    let limits = Limits {
        half_open: 4,
        handshake: Duration::from_secs(600),
        ..Limits::ROUTER
    };
    let mut router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut silent = Vec::new();
    for _ in 0..12 {
        silent.push(RawPeer::connect(&router.endpoint()).await.unwrap());
    }
    serves_a_new_peer(&mut router).await;
    // The oldest gave way.
    silent[0].closes_within(SOON).await.unwrap();
}

#[tokio::test]
async fn peers_beyond_the_bound_are_closed_and_take_nobodys_place() {
    let limits = Limits {
        peers: 2,
        ..Limits::ROUTER
    };
    let router = Router::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let sender = router.sender();
    let mut first = RawPeer::open(&router.endpoint(), "DEALER", b"1")
        .await
        .unwrap();
    let second = RawPeer::open(&router.endpoint(), "DEALER", b"2")
        .await
        .unwrap();
    eventually("two peers", || sender.peer_count() == 2).await;
    let mut third = RawPeer::connect(&router.endpoint()).await.unwrap();
    third.closes_within(SOON).await.unwrap();
    sender.send(b"1", [Bytes::from("still here")]).unwrap();
    assert_eq!(first.recv().await.unwrap(), ["still here"]);
    drop(second);
    eventually("one peer", || sender.peer_count() == 1).await;
    RawPeer::open(&router.endpoint(), "DEALER", b"4")
        .await
        .unwrap();
}
