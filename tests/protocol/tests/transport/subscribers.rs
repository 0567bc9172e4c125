//! Subscribers: those that read lose nothing, those that do not hold nobody up for long.

use std::time::Duration;

use bytes::Bytes;
use protocol_tests::raw::{RawPeer, command, message};
use tpu_kernel::zmtp::limits::GiveUp;
use tpu_kernel::zmtp::{Congested, Limits, Publisher, Security};

use super::{ANY_PORT, SOON, eventually, subscribed};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn subscriber(publisher: &mut Publisher, topic: &[u8]) -> RawPeer {
    let peer = RawPeer::open(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    subscribe(publisher, peer, topic).await
}

/// A subscriber whose own receive buffer is small, so that it soon shows when it does not read.
async fn narrow_subscriber(publisher: &mut Publisher) -> RawPeer {
    let peer = RawPeer::connect_narrow(&publisher.endpoint(), 4096)
        .await
        .unwrap();
    let peer = peer.shake_hands("SUB", b"").await.unwrap();
    subscribe(publisher, peer, b"").await
}

async fn subscribe(publisher: &mut Publisher, mut peer: RawPeer, topic: &[u8]) -> RawPeer {
    peer.write(&command("SUBSCRIBE", topic)).await.unwrap();
    assert_eq!(subscribed(publisher).await.topic, topic);
    peer
}

#[tokio::test]
async fn topics_are_prefixes_in_either_way_of_subscribing() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let mut new = RawPeer::open(&publisher.endpoint(), "SUB", b"x")
        .await
        .unwrap();
    new.write(&command("SUBSCRIBE", b"kernel.1.str"))
        .await
        .unwrap();
    let new_id = subscribed(&mut publisher).await;
    assert_eq!(new_id.topic, "kernel.1.str");
    let mut old = RawPeer::open(&publisher.endpoint(), "XSUB", b"x")
        .await
        .unwrap();
    old.send(&["\u{1}kernel.1.status"]).await.unwrap();
    let old_id = subscribed(&mut publisher).await;
    assert_eq!(old_id.topic, "kernel.1.status");
    assert_ne!(new_id.peer, old_id.peer);

    assert_eq!(
        publisher.publish(&[text("kernel.1.stream"), text("1")]),
        Ok(1)
    );
    assert_eq!(
        publisher.publish(&[text("kernel.1.status"), text("2")]),
        Ok(1)
    );
    assert_eq!(publisher.publish(&[text("kernel.1.st"), text("3")]), Ok(0));
    assert_eq!(new.recv().await.unwrap(), ["kernel.1.stream", "1"]);
    assert_eq!(old.recv().await.unwrap(), ["kernel.1.status", "2"]);

    new.write(&command("CANCEL", b"kernel.1.str"))
        .await
        .unwrap();
    old.send(&["\u{0}kernel.1.status"]).await.unwrap();
    old.write(&command("SUBSCRIBE", b"")).await.unwrap();
    assert_eq!(subscribed(&mut publisher).await.topic, "");
    eventually("the first has cancelled", || {
        publisher.publish(&[text("kernel.1.stream")]) == Ok(1)
    })
    .await;
    loop {
        let frames = old.recv().await.unwrap();
        assert_eq!(frames, ["kernel.1.stream"]);
        if publisher.sender().queued_bytes() == 0 {
            break;
        }
    }
}

#[tokio::test]
async fn a_new_topic_is_told_once_and_its_subscriber_alone_can_be_welcomed() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let mut other = subscriber(&mut publisher, b"").await;
    let mut peer = RawPeer::open(&publisher.endpoint(), "SUB", b"x")
        .await
        .unwrap();
    for topic in ["a", "a", "b"] {
        peer.write(&command("SUBSCRIBE", topic.as_bytes()))
            .await
            .unwrap();
    }
    let first = subscribed(&mut publisher).await;
    let second = subscribed(&mut publisher).await;
    assert_eq!((first.topic, second.topic), (text("a"), text("b")));
    assert_eq!(first.peer, second.peer);
    assert!(publisher.publish_to(first.peer, &[text("welcome")]));
    assert_eq!(peer.recv().await.unwrap(), ["welcome"]);
    publisher.publish(&[text("a")]).unwrap();
    assert_eq!(other.recv().await.unwrap(), ["a"]);
    drop(peer);
    eventually("it has gone", || {
        !publisher.publish_to(first.peer, &[text("welcome")])
    })
    .await;
}

#[tokio::test]
async fn a_subscription_takes_effect_when_the_session_hears_of_it() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let mut peer = RawPeer::open(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    for bytes in [
        command("SUBSCRIBE", b"taken back"),
        command("CANCEL", b"taken back"),
        command("SUBSCRIBE", b"t"),
        command("PING", b"\0\0"),
    ] {
        peer.write(&bytes).await.unwrap();
    }
    assert_eq!(peer.read_frame().await.unwrap(), (4, b"\x04PONG".to_vec()));
    assert_eq!(publisher.publish(&[text("t"), text("too early")]), Ok(0));
    let subscribed = subscribed(&mut publisher).await;
    assert_eq!(subscribed.topic, "t");
    assert!(publisher.publish_to(subscribed.peer, &[text("t"), text("welcome")]));
    assert_eq!(publisher.publish(&[text("t"), text("then")]), Ok(1));
    assert_eq!(peer.recv().await.unwrap(), ["t", "welcome"]);
    assert_eq!(peer.recv().await.unwrap(), ["t", "then"]);
}

#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    let limits = Limits {
        queue: 256 * KIB,
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut slow = narrow_subscriber(&mut publisher).await;
    let reading = tokio::spawn(async move {
        for number in 0..120_u32 {
            if number % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            assert_eq!(slow.recv().await.unwrap()[0][..4], number.to_be_bytes());
        }
    });
    let mut congested = 0;
    for number in 0..120_u32 {
        let frames = [Bytes::from(
            [&number.to_be_bytes()[..], &[0; 32 * KIB]].concat(),
        )];
        while publisher.publish(&frames) == Err(Congested) {
            congested += 1;
            publisher.ready().await;
        }
    }
    assert!(congested > 10);
    reading.await.unwrap();
}

#[tokio::test]
async fn while_a_readers_queue_is_full_nobody_gets_a_message_twice_or_out_of_turn() {
    let limits = Limits {
        queue: 100 * KIB,
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut one = subscriber(&mut publisher, b"a").await;
    let mut two = subscriber(&mut publisher, b"").await;
    // Nothing is written before this task waits.
    assert_eq!(
        publisher.publish(&[text("b"), Bytes::from(vec![0; 200 * KIB])]),
        Ok(1)
    );
    assert_eq!(publisher.publish(&[text("a")]), Err(Congested));
    publisher.ready().await;
    assert_eq!(publisher.publish(&[text("a")]), Ok(2));
    assert_eq!(one.recv().await.unwrap(), ["a"]);
    assert_eq!(two.recv().await.unwrap()[1].len(), 200 * KIB);
    assert_eq!(two.recv().await.unwrap(), ["a"]);
}

#[tokio::test]
async fn a_message_larger_than_the_queue_passes() {
    let limits = Limits {
        queue: 64 * KIB,
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut peer = subscriber(&mut publisher, b"").await;
    let reading = tokio::spawn(async move {
        for _ in 0..3 {
            assert_eq!(peer.recv().await.unwrap()[0].len(), 5 * MIB);
        }
    });
    for _ in 0..3 {
        publisher
            .sender()
            .publish_when_ready(&[Bytes::from(vec![1; 5 * MIB])])
            .await;
    }
    assert!(publisher.flush(tokio::time::Instant::now() + SOON).await);
    reading.await.unwrap();
}

#[tokio::test]
async fn one_that_was_passed_over_is_served_again_when_it_reads() {
    let limits = Limits {
        queue: 128 * KIB,
        stall: Duration::from_millis(200),
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut peer = narrow_subscriber(&mut publisher).await;
    let sender = publisher.sender();
    let mut sent = 0_u32;
    while sender.publish_when_ready(&[frame_of(sent)]).await == 1 {
        sent += 1;
    }
    // It has been passed over now, and gets what was queued before, in order.
    for number in 0..sent {
        assert_eq!(peer.recv().await.unwrap()[0][..4], number.to_be_bytes());
    }
    assert_eq!(sender.publish(&[text("later")]), Ok(1));
    assert_eq!(peer.recv().await.unwrap(), ["later"]);
}

#[tokio::test]
async fn one_that_does_not_come_back_is_closed_and_its_queue_freed() {
    let limits = Limits {
        queue: 128 * KIB,
        stall: Duration::from_millis(100),
        give_up: GiveUp::Stalled(Duration::from_millis(600)),
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let _deaf = narrow_subscriber(&mut publisher).await;
    let sender = publisher.sender();
    while sender.publish_when_ready(&[frame_of(0)]).await == 1 {}
    assert_eq!(sender.peer_count(), 1);
    assert!(sender.queued_bytes() >= 128 * KIB);
    eventually("it is closed", || sender.peer_count() == 0).await;
    assert_eq!(sender.queued_bytes(), 0);
}

#[tokio::test]
async fn of_many_that_do_not_read_only_two_keep_their_queues() {
    let limits = Limits {
        queue: 128 * KIB,
        stall: Duration::from_millis(100),
        ..Limits::PUBLISHER
    };
    let mut publisher = Publisher::bind_with(ANY_PORT, limits, &Security::Plain)
        .await
        .unwrap();
    let mut deaf = Vec::new();
    for _ in 0..6 {
        deaf.push(narrow_subscriber(&mut publisher).await);
    }
    let mut reader = subscriber(&mut publisher, b"").await;
    let reading = tokio::spawn(async move {
        for number in 0..500_u32 {
            assert_eq!(reader.recv().await.unwrap()[0][..4], number.to_be_bytes());
        }
    });
    for number in 0..500 {
        publisher
            .sender()
            .publish_when_ready(&[frame_of(number)])
            .await;
    }
    reading.await.unwrap();
    eventually("four are closed", || publisher.sender().peer_count() <= 3).await;
    drop(deaf);
}

#[tokio::test]
async fn a_flush_does_not_wait_for_one_that_does_not_read() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let _deaf = narrow_subscriber(&mut publisher).await;
    let mut reader = subscriber(&mut publisher, b"").await;
    publisher
        .publish(&[Bytes::from(vec![1; 20 * MIB])])
        .unwrap();
    let reading = tokio::spawn(async move { reader.recv().await.unwrap()[0].len() });
    let begun = tokio::time::Instant::now();
    assert!(!publisher.flush(begun + Duration::from_secs(60)).await);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(reading.await.unwrap(), 20 * MIB);
}

#[tokio::test]
async fn topics_without_end_and_strange_messages_hurt_nobody() {
    let mut publisher = Publisher::bind(ANY_PORT).await.unwrap();
    let mut greedy = RawPeer::open(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    let mut strange = RawPeer::open(&publisher.endpoint(), "SUB", b"")
        .await
        .unwrap();
    for bytes in [
        message(&[""]),
        message(&["x"]),
        message(&["\u{1}a", "b"]),
        message(&["\u{2}"]),
    ] {
        strange.write(&bytes).await.unwrap();
    }
    let strange = subscribe(&mut publisher, strange, b"last").await;
    let taking = tokio::spawn(async move {
        for number in 0..1000_u32 {
            if greedy
                .write(&command("SUBSCRIBE", &number.to_be_bytes()))
                .await
                .is_err()
            {
                break;
            }
        }
        greedy.closes_within(SOON).await.unwrap();
    });
    for number in 0..256_u32 {
        assert_eq!(
            subscribed(&mut publisher).await.topic,
            number.to_be_bytes()[..]
        );
    }
    taking.await.unwrap();
    assert_eq!(publisher.publish(&[text("last")]), Ok(1));
    drop(strange);
}

fn frame_of(number: u32) -> Bytes {
    [&number.to_be_bytes()[..], &[0; 16 * KIB]].concat().into()
}
