//! Mutated connections against the whole installed kernel, while a good front end goes on working.
//!
//! `TPU_KERNEL_FUZZ` is the number of connections (1,000 if unset), `TPU_KERNEL_FUZZ_SEED` the seed to
//! repeat a failure with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use protocol_tests::frontend::FrontEnd;
use protocol_tests::mutate::{Attack, Random, Target};
use protocol_tests::process::{open_files, resident_bytes};
use tpu_kernel::wire::Wire;

const AT_ONCE: usize = 4;
/// What the kernel may have grown by: caches fill, but with nothing of any size.
const GROWTH: usize = 64 << 20;

fn number(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

#[tokio::test]
async fn a_kernel_under_mutated_connections_answers_its_front_end_and_keeps_nothing() -> Result<()>
{
    let count = number("TPU_KERNEL_FUZZ", 1_000);
    let seed = number("TPU_KERNEL_FUZZ_SEED", 20_261_130) as u64;
    eprintln!("repeat with TPU_KERNEL_FUZZ_SEED={seed}");
    let mut front = FrontEnd::start().await?;
    front.run("n = 0").await?;
    let pid = front.kernel.id().to_string();
    let at = |port: &str| format!("tcp://127.0.0.1:{}", front.info[port]);
    let targets = [
        (Target::Router, at("shell_port")),
        (Target::Router, at("control_port")),
        (Target::Router, at("stdin_port")),
        (Target::Publisher, at("iopub_port")),
        (Target::Echo, at("hb_port")),
    ];
    let key = front.info["key"].as_str().unwrap_or_default().to_owned();
    let attack = |numbers: std::ops::Range<usize>| {
        let next = Arc::new(AtomicUsize::new(numbers.start));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..AT_ONCE {
            let (next, targets, key) = (Arc::clone(&next), targets.clone(), key.clone());
            let end = numbers.end;
            workers.spawn(async move {
                let wire = Wire::new(&key, "fuzz");
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return anyhow::Ok(());
                    }
                    let mut random = Random::new(seed.wrapping_add(number as u64));
                    // Signed messages go to the sockets that decode them.
                    let signed = number % 2 == 1;
                    let (target, endpoint) =
                        random.choose(if signed { &targets[..3] } else { &targets });
                    let attack = if signed {
                        Attack::on_messages(&mut random, &wire)
                    } else {
                        Attack::on_transport(&mut random, *target)
                    };
                    attack.run(endpoint).await?;
                }
            });
        }
        workers
    };

    let mut warm_up = attack(0..count / 10);
    while let Some(done) = warm_up.join_next().await {
        done??;
    }
    let (memory, files) = (resident_bytes(&pid)?, open_files(&pid)?);
    let mut workers = attack(count / 10..count);
    let (mut ran, mut asked) = (0, 0);
    while !workers.is_empty() {
        while let Some(done) = workers.try_join_next() {
            done??;
        }
        // A cell behind another's failing cell is aborted, as the protocol wants; it is not lost.
        match front.run("n += 1; print(n)").await?.reply.content["status"].as_str() {
            Some("ok") => ran += 1,
            Some("aborted") => {}
            other => anyhow::bail!("the good cell ended with {other:?}"),
        }
        let info = front
            .request("kernel_info_request", serde_json::json!({}))
            .await?;
        ensure!(info.reply.content["status"] == "ok");
        ensure!(front.heartbeat(b"beat").await? == ["beat"]);
        asked += 1;
    }
    eprintln!(
        "{count} connections; the front end ran {ran} cells and asked {asked} times meanwhile"
    );
    // What the fuzz queued is worked off; then the count must be right.
    let answer = loop {
        let answer = front.run("print(n)").await?;
        if answer.reply.content["status"] == "ok" {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(answer.text("stdout"), format!("{ran}\n"));
    assert!(asked > 0);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = resident_bytes(&pid)?.saturating_sub(memory);
    assert!(grown < GROWTH, "the kernel grew by {grown} bytes");
    let left = open_files(&pid)?;
    assert!(left <= files + 5, "{files} files were open, {left} are");
    front
        .control("shutdown_request", serde_json::json!({"restart": false}))
        .await?;
    front.wait_for_end().await?;
    Ok(())
}
