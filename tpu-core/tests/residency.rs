//! Every way a buffer can come to be or go, through the whole table: tpu-core's count is that of
//! the plug-in behind it, device by device and cell by cell.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ptr::null_mut;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use tpu_core::pjrt::{Raw, SLOT_COUNT};

#[path = "stand_in/caller.rs"]
mod caller;
#[path = "stand_in/plugin.rs"]
mod plugin;

use caller::{Client, holdings};

/// The count is the process's: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

fn client() -> (Client, MutexGuard<'static, ()>) {
    let guard = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let api = caller::table(|| plugin::table(&plugin::slots(), 40 + 8 * SLOT_COUNT));
    (Client::new(api).unwrap(), guard)
}

/// Live bytes on the first device, on the second, and in memory of the host, by tpu-core; checked
/// against the plug-in's own books.
fn live() -> [u64; 3] {
    let places = holdings().places;
    let counted: Vec<u64> = places.iter().map(|place| place.live_bytes).collect();
    let truth: Vec<u64> = plugin::TRUTH
        .iter()
        .map(|bytes| bytes.load(Ordering::SeqCst) as u64)
        .collect();
    assert_eq!(counted, truth);
    [counted[0], counted[1], counted[2]]
}

/// Buffers of the first device that were taken over.
fn donations() -> u64 {
    holdings().places[0].donations
}

#[test]
fn the_devices_are_known_by_their_numbers_and_the_host_comes_last() {
    let (_client, _guard) = client();
    let devices: Vec<Option<i32>> = holdings().places.iter().map(|place| place.device).collect();
    assert_eq!(devices, [Some(3), Some(5), None]);
}

#[test]
fn buffers_are_counted_where_they_are() {
    let (client, _guard) = client();
    let [first, second] = [client.devices[0], client.devices[1]];
    let pinned = client.memories[3];
    let there = client.upload(8, null_mut(), null_mut()).unwrap();
    let other = client.upload(2, second, null_mut()).unwrap();
    let outside = client.uninitialized(4, null_mut(), pinned).unwrap();
    assert_eq!(live(), [32, 8, 16]);
    let across = client.copy_to_device(there, second).unwrap();
    let back = client.copy_to_memory(other, client.memories[0]).unwrap();
    let aside = client.copy_to_memory(there, pinned).unwrap();
    assert_eq!(live(), [40, 40, 48]);
    let view = client.view().unwrap();
    let failed = client.error_buffer().unwrap();
    let short = client.uninitialized(1, first, null_mut()).unwrap();
    assert_eq!(live(), [44, 40, 48]);
    client.delete(short).unwrap();
    assert_eq!(live(), [40, 40, 48]);
    for buffer in [
        there, other, outside, across, back, aside, view, failed, short,
    ] {
        client.destroy(buffer).unwrap();
    }
    assert_eq!(live(), [0, 0, 0]);
}

#[test]
fn what_shares_memory_is_counted_once_and_until_the_last() {
    let (client, _guard) = client();
    let before = donations();
    let a = client.upload(8, null_mut(), null_mut()).unwrap();
    let b = client.bitcast(a).unwrap();
    assert_eq!((live(), holdings().places[0].live_buffers), ([32, 0, 0], 1));
    client.destroy(a).unwrap();
    assert_eq!(live(), [32, 0, 0]);
    let c = client.donate(b).unwrap();
    assert_eq!((live(), donations() - before), ([32, 0, 0], 1));
    client.destroy(b).unwrap();
    client.keep(c).unwrap();
    client.keep(c).unwrap();
    client.delete(c).unwrap();
    client.let_go(c).unwrap();
    assert_eq!(live(), [32, 0, 0]);
    client.let_go(c).unwrap();
    assert_eq!(live(), [0, 0, 0]);
    client.destroy(c).unwrap();
    let d = client.upload(8, null_mut(), null_mut()).unwrap();
    client.keep(d).unwrap();
    client.destroy(d).unwrap();
    assert_eq!(live(), [0, 0, 0]);
}

#[test]
fn an_alias_has_the_memory_of_what_it_stands_for_once_that_is_there() {
    let (client, _guard) = client();
    let (alias, fulfilment) = client.alias(client.memories[0]).unwrap();
    assert_eq!(live(), [0, 0, 0]);
    let buffer = client.upload(8, null_mut(), null_mut()).unwrap();
    client.fulfil(fulfilment, buffer, 0).unwrap();
    assert_eq!(live(), [32, 0, 0]);
    client.destroy(buffer).unwrap();
    assert_eq!(live(), [32, 0, 0]);
    client.destroy(alias).unwrap();
    assert_eq!(live(), [0, 0, 0]);
    // the alias is gone before it is fulfilled; then one that is told of a failure
    let (gone, fulfilment) = client.alias(client.memories[0]).unwrap();
    client.destroy(gone).unwrap();
    let buffer = client.upload(8, null_mut(), null_mut()).unwrap();
    client.fulfil(fulfilment, buffer, 0).unwrap();
    client.destroy(buffer).unwrap();
    assert_eq!(live(), [0, 0, 0]);
    let (failed, fulfilment) = client.alias(client.memories[0]).unwrap();
    client.fulfil(fulfilment, null_mut(), 13).unwrap();
    assert_eq!(live(), [0, 0, 0]);
    client.destroy(failed).unwrap();
}

#[test]
fn a_transfer_manager_has_the_memory_of_what_nobody_retrieved() {
    let (client, _guard) = client();
    let manager = client.manager(&[8, 2, 1], client.memories[1]).unwrap();
    assert_eq!(live(), [0, 44, 0]);
    client.transfer(manager, 0, 32).unwrap();
    let a = client.retrieve(manager, 0).unwrap();
    let b = client.retrieve(manager, 2).unwrap();
    assert_eq!(client.retrieve(manager, 2).unwrap_err().0, 9);
    assert_eq!(live(), [0, 44, 0]);
    client.destroy(a).unwrap();
    assert_eq!(live(), [0, 12, 0]);
    client.destroy_manager(manager).unwrap();
    assert_eq!(live(), [0, 4, 0]);
    client.destroy(b).unwrap();
    assert_eq!(live(), [0, 0, 0]);
}

#[test]
fn a_launch_whose_result_is_missing_keeps_neither_the_others_nor_an_event() {
    let (client, _guard) = client();
    let program = client.compile("32,16h,8").unwrap();
    let events = plugin::EVENTS.load(Ordering::SeqCst);
    for missing in 0..3 {
        plugin::WITHHELD.store(missing, Ordering::SeqCst);
        let refused = client.execute(program, &[], 3, null_mut()).unwrap_err();
        assert_eq!(refused.1, "the plug-in gave no result");
        assert_eq!(live(), [0, 0, 0]);
    }
    plugin::WITHHELD.store(usize::MAX, Ordering::SeqCst);
    assert_eq!(plugin::EVENTS.load(Ordering::SeqCst), events);
    client.destroy_program(program).unwrap();
}

#[test]
fn programs_take_arguments_over_and_the_peak_counts_memory_once() {
    let (client, _guard) = client();
    let before = donations();
    let program = client.compile("32,16h/0").unwrap();
    let mut buffer = client.upload(8, null_mut(), null_mut()).unwrap();
    // SAFETY: takes nothing.
    unsafe { ((*tpu_core::api::tpu_core_api()).reset_peak)() };
    for _ in 0..3 {
        let results = client.execute(program, &[buffer], 2, null_mut()).unwrap();
        assert_eq!(live(), [32, 0, 16]);
        client.destroy(buffer).unwrap();
        client.destroy(results[1]).unwrap();
        buffer = results[0];
    }
    assert_eq!(
        (donations() - before, holdings().places[0].peak_bytes),
        (3, 32)
    );
    let results = client
        .execute(program, &[buffer], 2, client.devices[1])
        .unwrap();
    assert_eq!(live(), [0, 32, 16]);
    for buffer in [buffer, results[0], results[1]] {
        client.destroy(buffer).unwrap();
    }
    client.destroy_program(program).unwrap();
    assert_eq!(live(), [0, 0, 0]);
}

#[test]
fn memory_belongs_to_the_cell_that_made_it_until_it_is_gone() {
    let (client, _guard) = client();
    caller::enter("first");
    let kept = client.upload(8, null_mut(), null_mut()).unwrap();
    let shared = client.bitcast(kept).unwrap();
    let taken = client.upload(2, client.devices[1], null_mut()).unwrap();
    client
        .upload(4, null_mut(), client.memories[2])
        .and_then(|host| client.destroy(host))
        .unwrap();
    caller::enter("second");
    let program = client.compile("8/0").unwrap();
    let made = client
        .execute(program, &[taken], 1, client.devices[1])
        .unwrap()[0];
    client.destroy(kept).unwrap();
    caller::enter("");
    let cells = holdings().cells;
    let of = |name: &str| {
        let cell = cells.iter().find(|cell| cell.cell == name).unwrap();
        (
            cell.live_bytes,
            cell.live_buffers,
            cell.made_bytes,
            cell.made_buffers,
        )
    };
    assert_eq!((of("first"), of("second")), ((32, 1, 40, 2), (8, 1, 8, 1)));
    for buffer in [shared, taken, made] {
        client.destroy(buffer).unwrap();
    }
    client.destroy_program(program).unwrap();
    assert_eq!(live(), [0, 0, 0]);
}

#[test]
fn what_a_limit_refuses_leaves_no_trace() {
    let (client, _guard) = client();
    // SAFETY: takes a number.
    let limit = |bytes| unsafe { ((*tpu_core::api::tpu_core_api()).set_limit)(bytes) };
    let first = client.upload(8, null_mut(), null_mut()).unwrap();
    limit(40);
    let refused = |answer: Result<Raw, (u32, String)>| answer.unwrap_err().0;
    assert_eq!(refused(client.upload(3, null_mut(), null_mut())), 8);
    assert_eq!(refused(client.uninitialized(3, null_mut(), null_mut())), 8);
    assert_eq!(refused(client.manager(&[1, 2], client.memories[0])), 8);
    assert_eq!(refused(client.copy_to_memory(first, client.memories[0])), 8);
    // another device and the host have room of their own
    let second = client.copy_to_device(first, client.devices[1]).unwrap();
    let third = client.copy_to_memory(first, client.memories[2]).unwrap();
    assert_eq!(live(), [32, 32, 32]);
    limit(0);
    for buffer in [first, second, third] {
        client.destroy(buffer).unwrap();
    }
    assert_eq!(live(), [0, 0, 0]);
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

#[test]
fn after_each_of_twenty_thousand_random_steps_the_count_is_exact() {
    let (client, _guard) = client();
    let mut dice = Dice(20_261_130);
    let programs = ["16", "8,24h/0", "4,4,4/0,1", "/0"].map(|code| client.compile(code).unwrap());
    let results = [1, 2, 3, 0];
    let arguments = [0, 1, 2, 1];
    let mut buffers: Vec<Raw> = Vec::new();
    let mut managers: Vec<(Raw, Vec<i32>)> = Vec::new();
    let mut promises: Vec<Raw> = Vec::new();
    for step in 0..20_000 {
        let size = dice.roll(64) as i64;
        let device = client.devices[dice.roll(2)];
        let memory = client.memories[dice.roll(4)];
        let one = (!buffers.is_empty()).then(|| dice.roll(buffers.len()));
        match (dice.roll(15), one) {
            (0, _) => buffers.push(client.upload(size, device, null_mut()).unwrap()),
            (1, _) => buffers.push(client.uninitialized(size, null_mut(), memory).unwrap()),
            (2, Some(one)) => buffers.push(client.bitcast(buffers[one]).unwrap()),
            (3, Some(one)) => buffers.push(client.donate(buffers[one]).unwrap()),
            (4, Some(one)) => buffers.push(client.copy_to_memory(buffers[one], memory).unwrap()),
            (5, Some(one)) => client.delete(buffers[one]).unwrap(),
            (6, Some(one)) => client.keep(buffers[one]).unwrap(),
            (7, Some(one)) => client.let_go(buffers[one]).unwrap(),
            (8, _) => {
                let (alias, promise) = client.alias(memory).unwrap();
                buffers.push(alias);
                promises.push(promise);
            }
            (9, Some(one)) => {
                if let Some(promise) = promises.pop() {
                    client.fulfil(promise, buffers[one], 0).unwrap();
                }
            }
            (10, _) => managers.push((client.manager(&[size, 3], memory).unwrap(), vec![0, 1])),
            (11, _) => {
                if let Some((manager, left)) = managers.last_mut() {
                    match left.pop() {
                        Some(index) => buffers.push(client.retrieve(*manager, index).unwrap()),
                        None => client.destroy_manager(managers.pop().unwrap().0).unwrap(),
                    }
                }
            }
            (12, Some(first)) => {
                let which = dice.roll(4);
                let second = (first + 1) % buffers.len();
                let given = [buffers[first], buffers[second]];
                if arguments[which] < 2 || first != second {
                    let given = &given[..arguments[which]];
                    let made = client
                        .execute(programs[which], given, results[which], device)
                        .unwrap();
                    buffers.extend(made);
                }
            }
            (_, Some(one)) => client.destroy(buffers.swap_remove(one)).unwrap(),
            _ => {}
        }
        if step % 16 == 0 {
            live();
        }
    }
    for promise in promises {
        client.fulfil(promise, null_mut(), 1).unwrap();
    }
    for (manager, _) in managers {
        client.destroy_manager(manager).unwrap();
    }
    for buffer in buffers {
        client.destroy(buffer).unwrap();
    }
    for program in programs {
        client.destroy_program(program).unwrap();
    }
    assert_eq!(live(), [0, 0, 0]);
    let places = holdings().places;
    assert!(
        places
            .iter()
            .all(|place| place.live_buffers == 0 && place.allocations > 1000)
    );
    let cells = holdings().cells;
    assert!(
        cells
            .iter()
            .all(|cell| cell.live_bytes == 0 && cell.live_buffers == 0)
    );
}
