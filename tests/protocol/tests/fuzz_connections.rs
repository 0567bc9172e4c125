//! Mutated connections against all sockets at once, while a good front end goes on working.
//!
//! `TPU_KERNEL_FUZZ` is the number of connections (1,000 if unset), `TPU_KERNEL_FUZZ_SEED` the seed to
//! repeat a failure with.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol_tests::mutate::{Attack, Random, Target};
use protocol_tests::mutate_curve::SealedAttack;
use protocol_tests::process::{open_files, resident_bytes};
use protocol_tests::raw::{PATIENCE, RawPeer, SERVER_SECRET};
use tokio::sync::{Mutex, oneshot};
use tpu_kernel::wire::{EMPTY_OBJECT, Message, Part, Wire};
use tpu_kernel::zmtp::{Echo, KeyPair, Limits, Publisher, Router, Security};

const KEY: &str = "fuzz-key";
const ANY_PORT: &str = "tcp://127.0.0.1:0";
const MIB: usize = 1024 * 1024;
const AT_ONCE: usize = 8;

/// Both tests look at the same process.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Where the server listens.
#[derive(Debug, Clone)]
struct Endpoints {
    router: String,
    publisher: String,
    echo: String,
    security: Security,
}

impl Endpoints {
    /// A peer that does everything right.
    async fn open(&self, endpoint: &str, socket_type: &str) -> Result<RawPeer> {
        match self.security {
            Security::Plain => RawPeer::open(endpoint, socket_type, b"good").await,
            Security::Curve(_) => RawPeer::open_curve(endpoint, socket_type, b"good").await,
        }
    }
}

/// A kernel without Python: busy, a reply, idle for every request.
async fn serve(
    security: Security,
    bound: oneshot::Sender<Endpoints>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut router = Router::bind_with(ANY_PORT, Limits::ROUTER, &security)
        .await
        .unwrap();
    let mut publisher = Publisher::bind_with(ANY_PORT, Limits::PUBLISHER, &security)
        .await
        .unwrap();
    let echo = Echo::bind_with(ANY_PORT, Limits::ECHO, &security)
        .await
        .unwrap();
    let wire = Wire::new(KEY, "server");
    let endpoints = Endpoints {
        router: router.endpoint(),
        publisher: publisher.endpoint(),
        echo: echo.endpoint(),
        security,
    };
    bound.send(endpoints).unwrap();
    let sender = router.sender();
    loop {
        tokio::select! {
            incoming = router.recv() => {
                let Ok(message) = wire.decode(incoming.frames) else { continue };
                let output = publisher.sender();
                output.publish_when_ready(&status(&wire, &message, r#"{"execution_state":"busy"}"#)).await;
                let content = match message.object(Part::Content) {
                    Ok(_) => Bytes::from_static(br#"{"status":"ok"}"#),
                    Err(_) => Bytes::from_static(br#"{"status":"error"}"#),
                };
                let reply = wire.encode(
                    &message.identities, "reply", &message.header.raw, &EMPTY_OBJECT, &content,
                    &message.buffers,
                );
                let _ = sender.send(&incoming.peer, &reply);
                output.publish_when_ready(&status(&wire, &message, r#"{"execution_state":"idle"}"#)).await;
            }
            subscribed = publisher.next_subscription() => {
                publisher.publish_to(subscribed.peer, &[subscribed.topic, Bytes::from("welcome")]);
            }
            _ = &mut stop => return,
        }
    }
}

fn status(wire: &Wire, message: &Message, content: &'static str) -> Vec<Bytes> {
    let topic = [Bytes::from_static(b"kernel.status")];
    let content = Bytes::from_static(content.as_bytes());
    wire.encode(
        &topic,
        "status",
        &message.header.raw,
        &EMPTY_OBJECT,
        &content,
        &[],
    )
}

/// Requests, output and heartbeats of a front end that does everything right; how often.
async fn work(endpoints: Endpoints, done: Arc<AtomicBool>) -> Result<usize> {
    let mut shell = endpoints.open(&endpoints.router, "DEALER").await?;
    let mut iopub = endpoints.open(&endpoints.publisher, "SUB").await?;
    let mut heart = endpoints.open(&endpoints.echo, "REQ").await?;
    iopub.send_command("SUBSCRIBE", b"").await?;
    ensure!(iopub.recv().await?[1] == "welcome");
    let wire = Wire::new(KEY, "good");
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) {
        let content = Bytes::from(format!("{{\"round\":{rounds}}}"));
        let buffers = [Bytes::from(vec![rounds as u8; 2000])];
        let request = wire.encode(
            &[],
            "request",
            &EMPTY_OBJECT,
            &EMPTY_OBJECT,
            &content,
            &buffers,
        );
        let mine = request[2].clone();
        shell.send(&request).await?;
        let reply = wire.decode(shell.recv().await.context("no reply")?)?;
        ensure!(reply.parent_header == mine, "another's reply");
        ensure!(reply.content == r#"{"status":"ok"}"# && reply.buffers == buffers);
        for state in ["busy", "idle"] {
            loop {
                let status = wire.decode(iopub.recv().await.context("no status")?)?;
                if status.parent_header == mine {
                    ensure!(status.content == format!(r#"{{"execution_state":"{state}"}}"#));
                    break;
                }
            }
        }
        heart.send(&["", "ping"]).await?;
        ensure!(heart.recv().await.context("no heartbeat")? == ["", "ping"]);
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(rounds)
}

async fn attack(endpoints: &Endpoints, seed: u64, numbers: std::ops::Range<usize>) {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (next, endpoints) = (Arc::clone(&next), endpoints.clone());
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return;
                }
                let ran = attack_once(&endpoints, seed, number).await;
                assert!(ran.is_ok(), "connection {number} of seed {seed}: {ran:?}");
            }
        });
    }
    workers.join_all().await;
}

/// Each connection has its own seed, so that any can be repeated alone.
async fn attack_once(endpoints: &Endpoints, seed: u64, number: usize) -> std::io::Result<()> {
    let mut random = Random::new(seed ^ ((number as u64) << 20));
    let wire = Wire::new(KEY, &format!("fuzz-{number}"));
    if let Security::Curve(_) = endpoints.security {
        let (endpoint, target) = match number % 4 {
            0 => (&endpoints.publisher, Target::Publisher),
            1 => (&endpoints.echo, Target::Echo),
            _ => (&endpoints.router, Target::Router),
        };
        return SealedAttack::new(&mut random, target, &wire)
            .run(endpoint)
            .await;
    }
    let (endpoint, attack) = match number % 6 {
        0 => (
            &endpoints.router,
            Attack::on_transport(&mut random, Target::Router),
        ),
        1 => (
            &endpoints.publisher,
            Attack::on_transport(&mut random, Target::Publisher),
        ),
        2 => (
            &endpoints.echo,
            Attack::on_transport(&mut random, Target::Echo),
        ),
        _ => (&endpoints.router, Attack::on_messages(&mut random, &wire)),
    };
    attack.run(endpoint).await
}

fn number_from(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn mutated_connections_harm_nobody() {
    harm_nobody(Security::Plain).await;
}

#[tokio::test]
async fn mutated_encrypted_connections_harm_nobody() {
    let keys = KeyPair::from_z85(SERVER_SECRET, None).unwrap();
    harm_nobody(Security::Curve(Arc::new(keys))).await;
}

async fn harm_nobody(security: Security) {
    let _alone = ALONE.lock().await;
    let count = number_from("TPU_KERNEL_FUZZ", 1000);
    let seed = number_from("TPU_KERNEL_FUZZ_SEED", 2026) as u64;
    println_seed(count, seed);
    let (bound, endpoints) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let server = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(serve(security, bound, stopped));
    });
    let endpoints = endpoints.await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let front_end = tokio::spawn(work(endpoints.clone(), Arc::clone(&done)));

    // A first part settles the allocator and the pools; from then on nothing may grow.
    attack(&endpoints, seed, 0..count / 4).await;
    settle().await;
    let (files, memory) = (open_files("self").unwrap(), resident_bytes("self").unwrap());
    attack(&endpoints, seed, count / 4..count).await;
    settle().await;

    assert!(!server.is_finished(), "the server ended, seed {seed}");
    done.store(true, Ordering::Relaxed);
    let rounds = tokio::time::timeout(PATIENCE, front_end)
        .await
        .unwrap()
        .unwrap();
    let rounds = rounds.unwrap_or_else(|error| panic!("the front end, seed {seed}: {error:?}"));
    assert!(rounds >= 20, "{rounds} rounds");
    let files_now = open_files("self").unwrap();
    assert!(
        files_now <= files,
        "{files_now} open files, {files} before, seed {seed}"
    );
    let grown = resident_bytes("self").unwrap().saturating_sub(memory);
    assert!(grown < 16 * MIB, "grown by {grown}, seed {seed}");
    stop.send(()).unwrap();
    server.join().unwrap();
}

/// Time for the last connections to be seen closed.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[expect(clippy::print_stdout, reason = "shown with a failure, to repeat it")]
fn println_seed(count: usize, seed: u64) {
    println!("TPU_KERNEL_FUZZ={count} TPU_KERNEL_FUZZ_SEED={seed}");
}
