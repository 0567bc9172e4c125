//! A plug-in that lies: successes that give nothing, lists without a start, errors without words,
//! tables and extensions that end early with garbage behind. tpu-core answers each with an error,
//! never ends the process, and counts nothing that is gone.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::Command;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

#[allow(
    clippy::wildcard_imports,
    reason = "one argument struct for each of the table's functions"
)]
use tpu_core::pjrt::*;

#[path = "stand_in/caller.rs"]
#[allow(dead_code, reason = "shared with tests that use the rest")]
mod caller;
#[path = "stand_in/plugin.rs"]
mod plugin;

use caller::{Client, Refused, call_raw, holdings, told};

/// Whether the plug-in lies, and the state of what it decides by.
static LYING: AtomicBool = AtomicBool::new(false);
static DICE: AtomicU64 = AtomicU64::new(1);

/// Numbers that look random and are the same in every run.
fn roll(sides: usize) -> usize {
    let mut state = DICE.load(Ordering::Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    DICE.store(state, Ordering::Relaxed);
    (state % sides as u64) as usize
}

/// A start for the dice, one for each number from 1.
fn seed(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The functions that do the work when nobody lies.
fn honest() -> &'static [Option<Function>; SLOT_COUNT] {
    static HONEST: OnceLock<[Option<Function>; SLOT_COUNT]> = OnceLock::new();
    HONEST.get_or_init(plugin::slots)
}

/// Where functions write the start of a list or text, whose length stands elsewhere.
const STARTS: [(usize, usize); 14] = [
    (ErrorMessage::SLOT, 24),
    (ClientPlatformName::SLOT, 24),
    (ClientPlatformVersion::SLOT, 24),
    (ClientDevices::SLOT, 24),
    (ClientAddressableDevices::SLOT, 24),
    (ClientAddressableMemories::SLOT, 24),
    (DeviceDescriptionKind::SLOT, 24),
    (DeviceAddressableMemories::SLOT, 24),
    (MemoryKind::SLOT, 24),
    (MemoryAddressableByDevices::SLOT, 24),
    (ExecutableName::SLOT, 24),
    (LoadedExecutableAddressableDevices::SLOT, 24),
    (ExecutableOutputMemoryKinds::SLOT, 32),
    (TopologyDescriptionGetDeviceDescriptions::SLOT, 24),
];

/// Any function of the plug-in: honest, or one of the ways to lie.
fn answer(slot: usize, arguments: Raw) -> Raw {
    let errors = slot <= ErrorGetCode::SLOT;
    let Some(function) = honest()[slot] else {
        return null_mut();
    };
    // SAFETY: the arguments of this slot.
    let honestly = || unsafe { function(arguments) };
    if !LYING.load(Ordering::Relaxed) {
        return honestly();
    }
    match roll(12) {
        // Success, and nothing happens. Two such lies nobody can answer: a program that has no results
        // and then writes some writes anywhere, and one that never ends is waited for.
        0 if ![ExecutableNumOutputs::SLOT, EventOnReady::SLOT].contains(&slot) => null_mut(),
        // A failure, and nothing happens. Errors themselves cannot fail.
        1 | 2 if !errors => {
            let mut failed = ClientCompile::new();
            let mut program = Program {
                struct_size: 48,
                extension_start: null_mut(),
                code: c"!".as_ptr().cast_mut(),
                code_size: 1,
                format: c"".as_ptr(),
                format_size: 0,
            };
            failed.program = (&raw mut program).cast();
            // SAFETY: a program the honest plug-in refuses.
            unsafe { honest()[ClientCompile::SLOT].unwrap()((&raw mut failed).cast()) }
        }
        // A list of enormous length that starts nowhere, or anywhere but too long to be.
        3 | 4 => {
            let result = honestly();
            if let Some((_, at)) = STARTS.iter().find(|(of, _)| *of == slot) {
                // SAFETY: both places are in the struct of this slot.
                unsafe {
                    let start = arguments.byte_add(*at).cast::<usize>();
                    if roll(2) == 0 {
                        *start = 0;
                    } else {
                        *start.add(1) = usize::MAX - roll(4096);
                    }
                }
            }
            result
        }
        _ => honestly(),
    }
}

fn slots() -> [Option<Function>; SLOT_COUNT] {
    let mut slots = [None; SLOT_COUNT];
    macro_rules! any {
        ($($slot:literal)*) => { $( {
            unsafe extern "C" fn entry(arguments: Raw) -> Raw {
                answer($slot, arguments)
            }
            if honest()[$slot].is_some() {
                slots[$slot] = Some(entry as Function);
            }
        } )* };
    }
    any!(0 1 2 3 5 6 7 8 9 10 12 14 15 16 19 20 22 23 26 29 32 33 36 39 40 41 44 50 51 52 55 58 64 65
        66 67 68 69 70 72 74 75 92 93 101 102 103 104 105 106 107 108 109 112 115 116 118 119 122
        123 125 131);
    slots
}

/// What a caller holds, and lets go of in the end.
#[derive(Default)]
struct Held {
    buffers: Vec<Raw>,
    managers: Vec<Raw>,
    programs: Vec<Raw>,
    promises: Vec<Raw>,
}

impl Held {
    fn buffer(&self) -> Option<Raw> {
        (!self.buffers.is_empty()).then(|| self.buffers[roll(self.buffers.len())])
    }

    /// One call of a caller that keeps to the rules.
    fn step(&mut self, client: &Client) -> Result<(), Refused> {
        let memory = client.memories[roll(4)];
        let device = client.devices[roll(2)];
        let buffer = self.buffer();
        match (roll(14), buffer) {
            (0, _) => self.buffers.push(client.upload(4, device, null_mut())?),
            (1, _) => self
                .buffers
                .push(client.uninitialized(9, null_mut(), memory)?),
            (2, Some(buffer)) => self.buffers.push(client.bitcast(buffer)?),
            (3, Some(buffer)) => self.buffers.push(client.donate(buffer)?),
            (4, Some(buffer)) => self.buffers.push(client.copy_to_memory(buffer, memory)?),
            (5, Some(buffer)) => self.buffers.push(client.copy_to_device(buffer, device)?),
            (6, Some(buffer)) => client.delete(buffer)?,
            (7, Some(buffer)) => client.keep(buffer)?,
            (8, _) => self.managers.push(client.manager(&[5], memory)?),
            (9, _) => {
                if let Some(manager) = self.managers.last() {
                    self.buffers.push(client.retrieve(*manager, 0)?);
                }
            }
            (10, _) => self.programs.push(client.compile("8,12h")?),
            (11, _) => {
                if let Some(program) = self.programs.last() {
                    let made = client.execute(*program, &[], 2, device)?;
                    self.buffers
                        .extend(made.into_iter().filter(|made| !made.is_null()));
                }
            }
            (12, _) => {
                let (alias, promise) = client.alias(memory)?;
                self.buffers.push(alias);
                self.promises.push(promise);
            }
            (_, Some(buffer)) => {
                self.buffers.retain(|held| *held != buffer);
                client.destroy(buffer)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn let_go(self, client: &Client) {
        for promise in self.promises {
            let _ = client.fulfil(promise, null_mut(), 1);
        }
        for buffer in self.buffers {
            let _ = client.destroy(buffer);
        }
        for manager in self.managers {
            let _ = client.destroy_manager(manager);
        }
        for program in self.programs {
            let _ = client.destroy_program(program);
        }
    }
}

static ONE: Mutex<()> = Mutex::new(());

fn table() -> &'static Api {
    caller::table(|| plugin::table(&slots(), 40 + 8 * SLOT_COUNT))
}

#[test]
fn lies_are_answered_with_errors_and_nothing_that_is_gone_is_counted() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let api = table();
    let client = Client::new(api).unwrap();
    let rounds = std::env::var("TPU_KERNEL_FUZZ").map_or(150, |rounds| rounds.parse().unwrap());
    let mut refused = 0;
    for round in 1..=rounds {
        DICE.store(seed(round), Ordering::Relaxed);
        let mut held = Held::default();
        LYING.store(true, Ordering::Relaxed);
        for _ in 0..200 {
            if let Err((code, message)) = held.step(&client) {
                refused += 1;
                assert!(
                    !message.contains("panicked"),
                    "round {round}: {code} {message}"
                );
            }
        }
        held.let_go(&client);
        LYING.store(false, Ordering::Relaxed);
        for place in holdings().places {
            assert_eq!(
                (place.live_bytes, place.live_buffers),
                (0, 0),
                "round {round}"
            );
        }
    }
    assert!(refused > 10 * rounds);
    // No compile goes on for ever.
    let programs: Vec<serde_json::Value> = told(|sink, context| {
        // SAFETY: the sink is called during the call only.
        unsafe { ((*tpu_core::api::tpu_core_api()).programs)(0, sink, context) };
    });
    assert!(
        programs
            .iter()
            .all(|program| program["stage"] != "compiling")
    );
    // And afterwards all is as before.
    let buffer = client.upload(4, null_mut(), null_mut()).unwrap();
    assert_eq!(holdings().places[0].live_bytes, 16);
    client.destroy(buffer).unwrap();
}

#[test]
fn clients_of_a_lying_plugin_are_made_or_refused() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let api = table();
    // The devices that are counted are those of the process's first client.
    Client::new(api).unwrap();
    let (mut made, mut refused) = (0, 0);
    for number in 1..400 {
        DICE.store(seed(number), Ordering::Relaxed);
        LYING.store(true, Ordering::Relaxed);
        let mut create = ClientCreate::new();
        let answer = caller::call(api, &mut create);
        LYING.store(false, Ordering::Relaxed);
        match answer {
            Ok(()) => made += 1,
            Err((_, message)) => {
                assert!(!message.contains("panicked"), "client {number}: {message}");
                refused += 1;
            }
        }
    }
    assert!(made > 10 && refused > 10, "{made} made, {refused} refused");
}

#[test]
fn of_options_that_end_early_nothing_behind_their_end_is_read() {
    let _one = ONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let client = Client::new(table()).unwrap();
    let program = client.compile("8").unwrap();
    for size in [16, 32, 48, 72, 80] {
        let mut words = [0xdead_beef_dead_usize; 18];
        words[0] = size;
        words[1..size / 8].fill(0);
        let made = client
            .execute_with(words.as_mut_ptr().cast(), program, &[], 1, null_mut())
            .unwrap();
        client.destroy(made[0]).unwrap();
    }
    client.destroy_program(program).unwrap();
}

/// Argument structs of every length with garbage behind, all handles null.
fn call_everything(api: &'static Api) {
    for (slot, name) in SLOT_NAMES.iter().enumerate() {
        for size in [0_usize, 8, 16, 24, 64, 128, 208, 512, usize::MAX] {
            let mut words = [0_usize; 64];
            words[0] = size;
            words
                .iter_mut()
                .skip(size.min(512).div_ceil(8).max(1))
                .for_each(|word| *word = 0xdead_beef_dead);
            // A caller does not destroy or read what is no error.
            if slot <= ErrorMessage::SLOT && size < 40 {
                continue;
            }
            let answer = call_raw(api, slot, words.as_mut_ptr().cast());
            if let Err((_, message)) = answer {
                assert!(!message.contains("panicked"), "{name}: {message}");
            }
        }
    }
}

unsafe extern "C" fn never(_arguments: Raw) -> Raw {
    std::process::abort()
}

/// A table that ends after `size` bytes; what is behind must not be called.
fn short_table(size: usize) -> &'static Api {
    let known = size.saturating_sub(40) / 8;
    let mut slots = slots();
    for (slot, function) in slots.iter_mut().enumerate() {
        if slot >= known {
            *function = Some(never);
        }
    }
    let first = Box::leak(Box::new(HostMemoryExtension {
        base: ExtensionBase {
            struct_size: 24,
            kind: HOST_MEMORY_EXTENSION,
            next: null_mut(),
        },
        allocate: Some(never),
    }));
    let layouts = Box::leak(Box::new(LayoutsExtension {
        base: ExtensionBase {
            struct_size: 24,
            kind: LAYOUTS_EXTENSION,
            next: (&raw mut *first).cast(),
        },
        functions: [Some(never); LAYOUT_FUNCTIONS],
    }));
    // The chain bites its tail.
    first.base.next = (&raw mut *layouts).cast();
    let extension_start = (&raw mut *layouts).cast();
    let version = ApiVersion {
        struct_size: 24,
        extension_start: null_mut(),
        major: 0,
        minor: 40,
    };
    Box::leak(Box::new(Api {
        struct_size: size,
        extension_start,
        version,
        slots,
    }))
}

#[test]
fn of_a_table_that_ends_early_nothing_behind_its_end_is_called() {
    const VARIABLE: &str = "STAND_IN_TABLE_SIZE";
    if let Ok(size) = std::env::var(VARIABLE) {
        static SIZE: OnceLock<usize> = OnceLock::new();
        SIZE.set(size.parse().unwrap()).unwrap();
        let api = caller::table(|| short_table(*SIZE.get().unwrap()));
        call_everything(api);
        let _ = Client::new(api);
        return;
    }
    for size in [40, 47, 48, 64, 128, 400, 800, 1000, 1144, 4000] {
        let done = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "of_a_table_that_ends_early_nothing_behind_its_end_is_called",
            ])
            .env(VARIABLE, size.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(
            done.status.success(),
            "{size} bytes: {:?} {said}",
            done.status
        );
    }
}
