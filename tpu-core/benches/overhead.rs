//! What tpu-core itself takes: the same calls over a plug-in that does nothing, with tpu-core between
//! and without, in turns. Prints nanoseconds as JSON.
//!
//! `cargo bench -p tpu-core --bench overhead`, or `make bench`.
#![allow(clippy::unwrap_used, reason = "a measurement")]
#![allow(clippy::print_stdout, reason = "its output")]

use std::ptr::null_mut;
use std::time::Instant;

use tpu_core::pjrt::{Api, Raw, SLOT_COUNT};

#[path = "../tests/stand_in/caller.rs"]
#[allow(dead_code, reason = "shared with tests that use the rest")]
mod caller;
#[path = "../tests/stand_in/plugin.rs"]
#[allow(dead_code, reason = "shared with tests that use the rest")]
mod plugin;

use caller::Client;

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 25;

fn stand_in() -> &'static Api {
    plugin::table(&plugin::slots(), 40 + 8 * SLOT_COUNT)
}

/// Nanoseconds a call of `work`, over many.
fn time(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        work();
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// A buffer copied from the host and destroyed.
fn buffer(client: &Client) -> f64 {
    time(|| {
        let buffer = client.upload(8, null_mut(), null_mut()).unwrap();
        client.destroy(buffer).unwrap();
    })
}

/// A launch that writes its result in the place of an argument.
fn launch(client: &Client) -> f64 {
    let program = client.compile("32/0").unwrap();
    let mut state = client.upload(8, null_mut(), null_mut()).unwrap();
    let taken = time(|| {
        let made = client.execute(program, &[state], 1, null_mut()).unwrap()[0];
        client.destroy(std::mem::replace(&mut state, made)).unwrap();
    });
    client.destroy(state).unwrap();
    client.destroy_program(program).unwrap();
    taken
}

/// A launch of four arguments and two results, as most of a training step are.
fn wide_launch(client: &Client) -> f64 {
    let program = client.compile("32,32").unwrap();
    let given: Vec<Raw> = (0..4)
        .map(|_| client.upload(8, null_mut(), null_mut()).unwrap())
        .collect();
    let taken = time(|| {
        for made in client.execute(program, &given, 2, null_mut()).unwrap() {
            client.destroy(made).unwrap();
        }
    });
    for buffer in given {
        client.destroy(buffer).unwrap();
    }
    client.destroy_program(program).unwrap();
    taken
}

fn main() {
    let direct = Client::new(stand_in()).unwrap();
    let through = Client::new(caller::table(stand_in)).unwrap();
    let measures = [
        ("buffer", buffer as fn(&Client) -> f64),
        ("launch", launch),
        ("launch_4_to_2", wide_launch),
    ];
    for (name, measure) in measures {
        let mut added: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let alone = measure(&direct);
                measure(&through) - alone
            })
            .collect();
        added.sort_by(f64::total_cmp);
        let (median, least) = (added[added.len() / 2], added[0]);
        println!("{{\"what\": \"{name}\", \"median_ns\": {median:.0}, \"least_ns\": {least:.0}}}");
    }
}
