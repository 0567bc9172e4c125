//! Encrypted sockets (CURVE), against a client on another implementation of the boxes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol_tests::curve::{COMMAND, CurveClient, MORE};
use protocol_tests::mutate::Random;
use protocol_tests::raw::{
    RawPeer, SERVER_KEY, SERVER_SECRET, frame, greeting, message, metadata, opening,
};
use tpu_kernel::zmtp::{Echo, KeyPair, Limits, Publisher, Router, Security};

use super::{ANY_PORT, SOON, eventually, received, subscribed};

fn security() -> Security {
    Security::Curve(Arc::new(KeyPair::from_z85(SERVER_SECRET, None).unwrap()))
}

async fn encrypted_router(limits: Limits) -> Router {
    Router::bind_with(ANY_PORT, limits, &security())
        .await
        .unwrap()
}

async fn dealer(router: &Router) -> RawPeer {
    RawPeer::open_curve(&router.endpoint(), "DEALER", b"peer")
        .await
        .unwrap()
}

/// A new peer of `router` is served.
async fn serves(router: &mut Router) {
    let mut peer = RawPeer::open_curve(&router.endpoint(), "DEALER", b"new")
        .await
        .unwrap();
    peer.send(&["are you", "there?"]).await.unwrap();
    let incoming = received(router).await;
    assert_eq!(incoming.frames, ["are you", "there?"]);
    router
        .sender()
        .send(&incoming.peer, [Bytes::from("yes")])
        .unwrap();
    assert_eq!(peer.recv().await.unwrap(), ["yes"]);
}

#[tokio::test]
async fn a_dealer_talks_to_the_router() {
    let path = std::env::temp_dir().join(format!("tpu-kernel-curve-{}", std::process::id()));
    for endpoint in [ANY_PORT, &format!("ipc://{}", path.display())] {
        let mut router = Router::bind_with(endpoint, Limits::ROUTER, &security())
            .await
            .unwrap();
        let mut peer = dealer(&router).await;
        for size in [0, 1, 200, 300, 20_000, 600_000] {
            let body: Bytes = (0..size).map(|index| (index % 251) as u8).collect();
            let frames = [Bytes::from("a"), Bytes::new(), body];
            peer.send(&frames).await.unwrap();
            let incoming = received(&mut router).await;
            assert_eq!(&incoming.peer[..], b"peer");
            assert!(incoming.frames == frames, "{size}");
            router.sender().send(&incoming.peer, &frames).unwrap();
            assert!(peer.recv().await.unwrap() == frames, "{size}");
        }
    }
}

#[tokio::test]
async fn subscriptions_come_as_commands_and_as_messages() {
    let mut publisher = Publisher::bind_with(ANY_PORT, Limits::PUBLISHER, &security())
        .await
        .unwrap();
    let mut peer = RawPeer::open_curve(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    peer.send_command("SUBSCRIBE", b"a").await.unwrap();
    peer.send(&[b"\x01b"]).await.unwrap();
    for topic in ["a", "b"] {
        let event = subscribed(&mut publisher).await;
        assert_eq!(event.topic, topic);
        assert!(publisher.publish_to(event.peer, &[event.topic, Bytes::from("welcome")]));
        assert_eq!(peer.recv().await.unwrap(), [topic, "welcome"]);
    }
    for topic in ["a1", "b1", "c1"] {
        publisher.publish(&[Bytes::from(topic)]).unwrap();
    }
    assert_eq!(peer.recv().await.unwrap(), ["a1"]);
    assert_eq!(peer.recv().await.unwrap(), ["b1"]);
    peer.send_command("CANCEL", b"a").await.unwrap();
    peer.send(&[b"\x00b"]).await.unwrap();
    peer.send_command("SUBSCRIBE", b"last").await.unwrap();
    assert_eq!(subscribed(&mut publisher).await.topic, "last");
    for topic in ["a2", "b2"] {
        assert_eq!(publisher.publish(&[Bytes::from(topic)]), Ok(0));
    }
}

#[tokio::test]
async fn a_heartbeat_and_a_ping_come_back_sealed() {
    let echo = Echo::bind_with(ANY_PORT, Limits::ECHO, &security())
        .await
        .unwrap();
    let mut peer = RawPeer::open_curve(&echo.endpoint(), "REQ", b"")
        .await
        .unwrap();
    peer.send(&["", "beat"]).await.unwrap();
    assert_eq!(peer.recv().await.unwrap(), ["", "beat"]);
    peer.send_command("PING", b"\x00\x00context").await.unwrap();
    let (flags, body) = peer.read_frame().await.unwrap();
    assert_eq!(flags, 0);
    let pong = peer.curve.as_ref().unwrap().open(&body).unwrap();
    assert_eq!(pong, (COMMAND, b"\x04PONGcontext".to_vec()));
}

/// Makes what is wrong to send.
type Wrong = fn(&mut CurveClient) -> Vec<u8>;

#[tokio::test]
async fn who_does_not_keep_to_the_boxes_is_closed() {
    let mut router = encrypted_router(Limits::ROUTER).await;
    let wrongs: [(&str, Wrong); 9] = [
        ("repeated", |curve| curve.seal(0, b"again").repeat(2)),
        ("out of order", |curve| {
            let first = curve.seal(0, b"first");
            [curve.seal(0, b"second"), first].concat()
        }),
        ("an old number", |curve| {
            curve.number = 1;
            curve.seal(0, b"old")
        }),
        ("changed", |curve| {
            let mut bytes = curve.seal(0, b"text");
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        }),
        ("not sealed", |_| message(&[b"readable"])),
        ("an unsealed command", |_| frame(4, b"\x04PING\x00\x00")),
        ("an empty frame", |_| frame(0, b"")),
        ("unknown flags", |curve| curve.seal(4, b"x")),
        ("a command with more", |curve| {
            curve.seal(COMMAND | MORE, b"\x04PING\x00\x00")
        }),
    ];
    for (what, wrong) in wrongs {
        let mut peer = dealer(&router).await;
        let bytes = wrong(peer.curve.as_mut().unwrap());
        peer.write(&bytes).await.unwrap();
        assert!(peer.closes_within(SOON).await.is_ok(), "{what}");
        while router.try_recv().is_some() {}
    }
    serves(&mut router).await;
}

#[tokio::test]
async fn numbers_may_skip_but_not_fall() {
    let mut router = encrypted_router(Limits::ROUTER).await;
    let mut peer = dealer(&router).await;
    for number in [100, 101, u64::MAX - 5] {
        peer.curve.as_mut().unwrap().number = number;
        peer.send(&["x"]).await.unwrap();
        assert_eq!(received(&mut router).await.frames, ["x"]);
    }
}

#[tokio::test]
async fn a_handshake_that_is_not_right_is_closed() {
    let mut router = encrypted_router(Limits::ROUTER).await;
    let mut random = Random::new(1);
    let connect = async || {
        let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
        peer.write(&greeting(1, "CURVE")).await.unwrap();
        peer
    };

    // The wrong key of the server.
    let mut peer = connect().await;
    let hello = CurveClient::new([9; 32], &mut random).hello();
    peer.write(&hello).await.unwrap();
    assert_eq!(peer.read(64).await.unwrap()[32], 1);
    peer.closes_within(SOON).await.unwrap();

    // A key that agrees with everybody, and HELLOs that are changed or cut.
    for change in [
        |bytes: &mut Vec<u8>| bytes[82..114].fill(0),
        |bytes: &mut Vec<u8>| bytes[90] ^= 1,
        |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
        |bytes: &mut Vec<u8>| bytes[8] = 2,
    ] {
        let mut peer = connect().await;
        let mut bytes = CurveClient::new(SERVER_KEY, &mut random).hello();
        change(&mut bytes);
        peer.write(&bytes).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }

    // INITIATEs: another connection's cookie, changed vouch or box.
    let mut cookies = Vec::new();
    for place in [None, Some(20), Some(120), Some(150), Some(250)] {
        let mut peer = connect().await;
        let mut curve = CurveClient::new(SERVER_KEY, &mut random);
        peer.write(&curve.hello()).await.unwrap();
        peer.read(64).await.unwrap();
        curve.welcome(&peer.read_frame().await.unwrap().1).unwrap();
        let mut bytes = curve.initiate(&metadata("DEALER", b""));
        cookies.push(bytes[18..114].to_vec());
        match place {
            None => {
                peer.write(&bytes).await.unwrap();
                curve.ready(&peer.read_frame().await.unwrap().1).unwrap();
                continue;
            }
            Some(20) => bytes[18..114].copy_from_slice(&cookies[0]),
            Some(place) => bytes[place] ^= 1,
        }
        peer.write(&bytes).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
    serves(&mut router).await;
}

#[tokio::test]
async fn a_socket_that_does_not_fit_is_told() {
    let router = encrypted_router(Limits::ROUTER).await;
    let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
    let mut curve = CurveClient::new(SERVER_KEY, &mut Random::new(2));
    peer.write(&greeting(1, "CURVE")).await.unwrap();
    peer.write(&curve.hello()).await.unwrap();
    peer.read(64).await.unwrap();
    curve.welcome(&peer.read_frame().await.unwrap().1).unwrap();
    peer.write(&curve.initiate(&metadata("SUB", b"")))
        .await
        .unwrap();
    let (flags, body) = peer.read_frame().await.unwrap();
    assert_eq!(
        (flags, &body[..]),
        (4, &b"\x05ERROR\x13Invalid socket type"[..])
    );
    peer.closes_within(SOON).await.unwrap();
}

#[tokio::test]
async fn who_stops_within_the_handshake_is_closed() {
    let router = encrypted_router(Limits {
        handshake: Duration::from_millis(300),
        ..Limits::ROUTER
    })
    .await;
    let mut curve = CurveClient::new(SERVER_KEY, &mut Random::new(3));
    let hello = curve.hello();
    for opening in [
        greeting(1, "CURVE"),
        [greeting(1, "CURVE"), hello[..100].to_vec()].concat(),
        [greeting(1, "CURVE"), hello.clone()].concat(),
    ] {
        let mut peer = RawPeer::connect(&router.endpoint()).await.unwrap();
        peer.write(&opening).await.unwrap();
        peer.closes_within(SOON).await.unwrap();
    }
}

#[tokio::test]
async fn both_sides_must_encrypt_or_neither() {
    let mut encrypted = encrypted_router(Limits::ROUTER).await;
    let mut peer = RawPeer::connect(&encrypted.endpoint()).await.unwrap();
    peer.write(&opening("DEALER", b"")).await.unwrap();
    assert_eq!(&peer.read(64).await.unwrap()[12..18], b"CURVE\0");
    peer.closes_within(SOON).await.unwrap();
    serves(&mut encrypted).await;

    let mut plain = Router::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::connect(&plain.endpoint()).await.unwrap();
    peer.write(&greeting(1, "CURVE")).await.unwrap();
    assert_eq!(&peer.read(64).await.unwrap()[12..17], b"NULL\0");
    peer.closes_within(SOON).await.unwrap();
    super::serves_a_new_peer(&mut plain).await;
}

#[tokio::test]
async fn a_slow_subscriber_gets_everything_and_then_nothing_waits() {
    let mut publisher = Publisher::bind_with(ANY_PORT, Limits::PUBLISHER, &security())
        .await
        .unwrap();
    let mut peer = RawPeer::connect_narrow(publisher.endpoint().as_str(), 4096)
        .await
        .unwrap()
        .shake_hands_curve("SUB", b"")
        .await
        .unwrap();
    peer.send_command("SUBSCRIBE", b"").await.unwrap();
    subscribed(&mut publisher).await;
    let small = (0..40).map(|index| index * index);
    let sizes: Vec<usize> = small.chain([70_000, 300_000, 3, 262_145, 500]).collect();
    for size in &sizes {
        let frames = [Bytes::from(size.to_string()), Bytes::from(vec![5; *size])];
        publisher.publish(&frames).unwrap();
    }
    for size in &sizes {
        let frames = peer.recv().await.unwrap();
        assert_eq!(frames[0], size.to_string());
        assert!(frames[1].len() == *size && frames[1].iter().all(|&byte| byte == 5));
    }
    let sender = publisher.sender();
    eventually("nothing waits", || sender.queued_bytes() == 0).await;
}
