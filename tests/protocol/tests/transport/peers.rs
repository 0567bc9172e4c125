//! Peers of ROUTER and heartbeat that keep the rules.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::time::Duration;

use bytes::Bytes;
use protocol_tests::raw::{RawPeer, command, frame, greeting, ready};
use tokio::time::Instant;
use tpu_kernel::zmtp::{Echo, Router, SendError};

use super::{ANY_PORT, SOON, received, serves_a_new_peer};

#[tokio::test]
async fn dealer_req_and_router_are_answered_by_identity() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    assert_eq!(
        router.endpoint(),
        format!("tcp://127.0.0.1:{}", router.local_port().unwrap())
    );
    for (socket_type, frames) in [
        ("DEALER", vec!["a", "", "b"]),
        ("REQ", vec!["", "a"]),
        ("ROUTER", vec!["only"]),
    ] {
        let name = [b'n', socket_type.as_bytes()[0]];
        let mut peer = RawPeer::open(&router.endpoint(), socket_type, &name)
            .await
            .unwrap();
        peer.send(&frames).await.unwrap();
        let incoming = received(&mut router).await;
        assert_eq!(incoming.peer, name[..]);
        assert_eq!(incoming.frames, frames);
        router
            .sender()
            .send(&incoming.peer, &incoming.frames)
            .unwrap();
        assert_eq!(peer.recv().await.unwrap(), frames);
    }
}

#[tokio::test]
async fn peers_without_an_identity_get_one_each() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut identities = Vec::new();
    let mut peers = Vec::new();
    for claimed in [&b""[..], b"", b"\x00\x00\x00\x00\x00\x00\x00\x00\x01"] {
        let mut peer = RawPeer::open(&router.endpoint(), "DEALER", claimed)
            .await
            .unwrap();
        peer.send(&["x"]).await.unwrap();
        identities.push(received(&mut router).await.peer);
        peers.push(peer);
    }
    for (number, (identity, peer)) in identities.iter().zip(&mut peers).enumerate() {
        let text = Bytes::from(number.to_string());
        router
            .sender()
            .send(identity, std::slice::from_ref(&text))
            .unwrap();
        assert_eq!(peer.recv().await.unwrap(), [text]);
    }
}

#[tokio::test]
async fn a_second_peer_with_the_same_identity_takes_the_place_of_the_first() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut first = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    first.send(&["1"]).await.unwrap();
    assert_eq!(received(&mut router).await.frames, ["1"]);
    let mut second = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    second.send(&["2"]).await.unwrap();
    assert_eq!(received(&mut router).await.frames, ["2"]);
    first.closes_within(SOON).await.unwrap();
    router
        .sender()
        .send(b"me", [Bytes::from("to the second")])
        .unwrap();
    assert_eq!(second.recv().await.unwrap(), ["to the second"]);
    assert_eq!(router.sender().peer_count(), 1);
}

#[tokio::test]
async fn who_has_left_is_unknown() {
    let router = Router::bind(ANY_PORT).await.unwrap();
    let sender = router.sender();
    assert_eq!(
        sender.send(b"nobody", [Bytes::from("x")]),
        Err(SendError::UnknownPeer)
    );
    let peer = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    super::eventually("it is known", || sender.peer_count() == 1).await;
    drop(peer);
    super::eventually("it is unknown", || {
        sender.send(b"me", [Bytes::from("x")]) == Err(SendError::UnknownPeer)
    })
    .await;
}

#[tokio::test]
async fn what_a_peer_sent_before_it_left_is_heard() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    peer.send(&["shutdown"]).await.unwrap();
    drop(peer);
    assert_eq!(received(&mut router).await.frames, ["shutdown"]);
}

#[tokio::test]
async fn pings_are_answered_with_their_context_even_inside_a_message() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    peer.write(&frame(1, b"first")).await.unwrap();
    peer.write(&command("PING", b"\x00\x00sixteen letters!"))
        .await
        .unwrap();
    assert_eq!(
        peer.read_frame().await.unwrap(),
        (4, b"\x04PONGsixteen letters!".to_vec())
    );
    peer.write(&command("PONG", b"")).await.unwrap();
    peer.write(&command("UNHEARDOF", b"x")).await.unwrap();
    peer.write(&frame(0, b"second")).await.unwrap();
    assert_eq!(received(&mut router).await.frames, ["first", "second"]);
}

#[tokio::test]
async fn a_peer_silent_for_longer_than_it_promised_is_closed() {
    let router = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::open(&router.endpoint(), "DEALER", b"me")
        .await
        .unwrap();
    peer.write(&command("PING", b"\x00\x02")).await.unwrap();
    assert_eq!(peer.read_frame().await.unwrap(), (4, b"\x04PONG".to_vec()));
    peer.closes_within(SOON).await.unwrap();
}

#[tokio::test]
async fn peers_of_version_3_0_are_served() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
    // As libzmq does: the signature first, the rest when the other side has shown its version.
    let greeting = greeting(0, "NULL");
    peer.write(&greeting[..10]).await.unwrap();
    peer.read(64).await.unwrap();
    peer.write(&greeting[10..]).await.unwrap();
    peer.write(&ready("DEALER", b"old")).await.unwrap();
    let (flags, body) = peer.read_frame().await.unwrap();
    assert_eq!(flags, 4);
    assert_eq!(
        body,
        b"\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
    );
    peer.send(&["x"]).await.unwrap();
    assert_eq!(&received(&mut router).await.peer[..], b"old");
}

#[tokio::test]
async fn a_heartbeat_comes_back_as_it_was_sent() {
    let echo = Echo::bind(ANY_PORT).await.unwrap();
    assert!(echo.local_port().is_some());
    for (socket_type, frames) in [("REQ", vec!["", "ping"]), ("DEALER", vec!["a", "", "b"])] {
        let mut peer = RawPeer::open(&echo.endpoint(), socket_type, b"")
            .await
            .unwrap();
        for _ in 0..3 {
            peer.send(&frames).await.unwrap();
            assert_eq!(peer.recv().await.unwrap(), frames);
        }
    }
}

#[tokio::test]
async fn one_that_does_not_read_its_echoes_stops_nobodys_heart() {
    let echo = Echo::bind(ANY_PORT).await.unwrap();
    let endpoint = echo.endpoint();
    let deaf = tokio::spawn(async move {
        let mut peer = RawPeer::connect_narrow(&endpoint, 4096).await.unwrap();
        peer = peer.shake_hands("DEALER", b"").await.unwrap();
        for _ in 0..1000 {
            peer.send(&[[0; 60_000]]).await.unwrap();
        }
        peer
    });
    let mut peer = RawPeer::open(&echo.endpoint(), "REQ", b"").await.unwrap();
    for _ in 0..100 {
        peer.send(&["", "ping"]).await.unwrap();
        assert_eq!(peer.recv().await.unwrap(), ["", "ping"]);
    }
    drop(deaf.await.unwrap());
}

#[tokio::test]
async fn the_last_replies_are_flushed() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut reader = RawPeer::open(&router.endpoint(), "DEALER", b"reader")
        .await
        .unwrap();
    let deaf = RawPeer::connect_narrow(&router.endpoint(), 4096)
        .await
        .unwrap();
    let mut deaf = deaf.shake_hands("DEALER", b"deaf").await.unwrap();
    for peer in [&mut reader, &mut deaf] {
        peer.send(&["x"]).await.unwrap();
        received(&mut router).await;
    }
    let sender = router.sender();
    let large = Bytes::from(vec![5; 20_000_000]);
    sender.send(b"reader", [large.clone()]).unwrap();
    let reading = tokio::spawn(async move { reader.recv().await.unwrap() });
    assert!(sender.flush(Instant::now() + SOON).await);
    assert!(reading.await.unwrap() == [large.clone()]);
    // One that does not read is not waited for until the deadline.
    sender.send(b"deaf", [large]).unwrap();
    let begun = Instant::now();
    assert!(!router.flush(begun + Duration::from_secs(60)).await);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn dropping_a_socket_closes_its_port_and_its_peers() {
    let router = Router::bind(ANY_PORT).await.unwrap();
    let endpoint = router.endpoint();
    let mut peer = RawPeer::open(&endpoint, "DEALER", b"me").await.unwrap();
    let sender = router.sender();
    drop(router);
    peer.closes_within(SOON).await.unwrap();
    assert_eq!(
        sender.send(b"me", [Bytes::from("x")]),
        Err(SendError::UnknownPeer)
    );
    assert!(RawPeer::connect(&endpoint).await.is_err());
    Router::bind(&endpoint).await.unwrap();
}

#[tokio::test]
async fn an_ipc_socket_is_its_owners_and_outlives_a_crash() {
    let path = std::env::temp_dir().join(format!("tpu-kernel-test-{}", std::process::id()));
    let endpoint = format!("ipc://{}", path.display());
    // What a killed process leaves behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut router = Router::bind(&endpoint).await.unwrap();
    assert_eq!(router.endpoint(), endpoint);
    assert_eq!(router.local_port(), None);
    let found = std::fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    serves_a_new_peer(&mut router).await;
    let taken = Router::bind(&endpoint).await.unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    drop(router);
    super::eventually("the file is gone", || !path.exists()).await;
    std::fs::write(&path, "precious").unwrap();
    let occupied = Router::bind(&endpoint).await.unwrap_err();
    assert_eq!(occupied.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
}
