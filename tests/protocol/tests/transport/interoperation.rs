//! Against a ZMTP implementation that is not ours.

use bytes::Bytes;
use tpu_kernel::zmtp::{Echo, Publisher, Router};
use zeromq::prelude::*;
use zeromq::util::PeerIdentity;
use zeromq::{DealerSocket, ReqSocket, SocketOptions, SubSocket, ZmqMessage};

use super::{ANY_PORT, received, subscribed};

fn message(frames: &[&'static str]) -> ZmqMessage {
    let frames: Vec<Bytes> = frames.iter().map(|text| Bytes::from(*text)).collect();
    frames.try_into().unwrap()
}

fn options(identity: &str) -> SocketOptions {
    let mut options = SocketOptions::default();
    options.peer_identity(identity.parse::<PeerIdentity>().unwrap());
    options
}

#[tokio::test]
async fn a_dealer_talks_to_the_router() {
    let mut router = Router::bind(ANY_PORT).await.unwrap();
    let mut dealer = DealerSocket::with_options(options("front-end"));
    dealer.connect(&router.endpoint()).await.unwrap();
    for _ in 0..100 {
        dealer.send(message(&["a", "", "c"])).await.unwrap();
        let incoming = received(&mut router).await;
        assert_eq!(&incoming.peer[..], b"front-end");
        assert_eq!(incoming.frames, ["a", "", "c"]);
        router
            .sender()
            .send(&incoming.peer, &incoming.frames)
            .unwrap();
        assert_eq!(dealer.recv().await.unwrap().into_vec(), ["a", "", "c"]);
    }
}

#[tokio::test]
async fn a_large_message_passes_over_ipc() {
    let path = std::env::temp_dir().join(format!("tpu-kernel-zeromq-{}", std::process::id()));
    let mut router = Router::bind(&format!("ipc://{}", path.display()))
        .await
        .unwrap();
    let mut dealer = DealerSocket::with_options(options("front-end"));
    dealer.connect(&router.endpoint()).await.unwrap();
    let large = Bytes::from(vec![6; 32 * 1024 * 1024]);
    let sent = large.clone();
    let client = tokio::spawn(async move {
        dealer.send(ZmqMessage::from(sent)).await.unwrap();
        dealer.recv().await.unwrap().into_vec()
    });
    let incoming = received(&mut router).await;
    assert!(incoming.frames == [large.clone()]);
    router
        .sender()
        .send(&incoming.peer, &incoming.frames)
        .unwrap();
    assert!(client.await.unwrap() == [large]);
}

#[tokio::test]
async fn a_req_hears_its_heartbeat() {
    let echo = Echo::bind(ANY_PORT).await.unwrap();
    let mut req = ReqSocket::new();
    req.connect(&echo.endpoint()).await.unwrap();
    for _ in 0..10 {
        req.send(message(&["ping"])).await.unwrap();
        assert_eq!(req.recv().await.unwrap().into_vec(), ["ping"]);
    }
}

#[tokio::test]
async fn a_sub_gets_its_topics() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let mut sub = SubSocket::with_options(options("front-end"));
    sub.connect(&publisher.endpoint()).await.unwrap();
    sub.subscribe("kernel").await.unwrap();
    let subscribed = subscribed(&mut publisher).await;
    assert_eq!(subscribed.topic, "kernel");
    publisher.publish_to(
        subscribed.peer,
        &[Bytes::from("kernel"), Bytes::from("welcome")],
    );
    publisher
        .publish(&[Bytes::from("other"), Bytes::from("1")])
        .unwrap();
    publisher
        .publish(&[Bytes::from("kernel.x"), Bytes::from("2")])
        .unwrap();
    assert_eq!(sub.recv().await.unwrap().into_vec(), ["kernel", "welcome"]);
    assert_eq!(sub.recv().await.unwrap().into_vec(), ["kernel.x", "2"]);
}
