//! A plug-in without a computer behind it: two devices, each with HBM and memory of the host, and
//! buffers that are only sizes. It keeps books of its own, by the life of each piece of memory, for
//! comparison with tpu-core's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "only tests use it")]

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};

#[allow(
    clippy::wildcard_imports,
    reason = "one argument struct for each of the table's functions"
)]
use tpu_core::pjrt::*;

/// Live bytes by place: HBM of the devices, then memory of the host.
pub static TRUTH: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

pub const DEVICES: [i32; 2] = [3, 5];
/// A piece of memory. Its end is the end of its bytes.
struct Piece {
    bytes: i64,
    memory: usize,
}

impl Piece {
    fn new(bytes: u64, memory: usize) -> Arc<Self> {
        let piece = Self {
            bytes: bytes as i64,
            memory,
        };
        TRUTH[memory.min(2)].fetch_add(piece.bytes, Ordering::SeqCst);
        Arc::new(piece)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        TRUTH[self.memory.min(2)].fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

#[derive(Default)]
struct Buffer {
    piece: Mutex<Option<Arc<Piece>>>,
    outside: Mutex<Vec<Arc<Piece>>>,
    promised: Option<Arc<Mutex<Promised>>>,
    memory: usize,
}

/// What an alias is to have.
#[derive(Default)]
struct Promised {
    piece: Option<Arc<Piece>>,
    over: bool,
}

impl Buffer {
    fn with(piece: Option<Arc<Piece>>, memory: usize) -> Raw {
        give(Self {
            piece: Mutex::new(piece),
            memory,
            ..Self::default()
        })
    }

    fn fresh(bytes: u64, memory: usize) -> Raw {
        Self::with(Some(Piece::new(bytes, memory)), memory)
    }

    fn piece(&self) -> Option<Arc<Piece>> {
        let promised = self.promised.as_ref();
        match promised {
            Some(promised) => promised.lock().unwrap().piece.clone(),
            None => self.piece.lock().unwrap().clone(),
        }
    }

    fn is_deleted(&self) -> bool {
        match &self.promised {
            Some(promised) => promised.lock().unwrap().over,
            None => self.piece.lock().unwrap().is_none(),
        }
    }

    fn delete(&self) {
        self.piece.lock().unwrap().take();
        if let Some(promised) = &self.promised {
            *promised.lock().unwrap() = Promised {
                piece: None,
                over: true,
            };
        }
    }
}

/// What makes an alias whole: weak, because an alias that is gone takes no memory any more.
struct Fulfilment(Weak<Mutex<Promised>>);

struct Manager {
    pieces: Mutex<Vec<Option<Arc<Piece>>>>,
    sizes: Vec<u64>,
    memory: usize,
}

/// A program: sizes and memories of its results, and the arguments it takes over.
struct Program {
    results: Vec<(u64, bool)>,
    taken: Vec<usize>,
}

struct Failed(u32, String);

fn give<T>(value: T) -> Raw {
    Box::into_raw(Box::new(value)).cast()
}

fn own<'a, T>(raw: Raw) -> &'a T {
    // SAFETY: tpu-core hands back what it was given.
    unsafe { raw.cast::<T>().as_ref() }.expect("a handle of the plug-in")
}

fn take<T>(raw: Raw) -> T {
    assert!(!raw.is_null());
    // SAFETY: tpu-core frees what it was given, once.
    *unsafe { Box::from_raw(raw.cast()) }
}

fn list<'a, T>(start: *const T, size: usize) -> &'a [T] {
    if size == 0 {
        return &[];
    }
    // SAFETY: a list of the caller's, alive during the call.
    unsafe { std::slice::from_raw_parts(start, size) }
}

fn fail(code: u32, message: &str) -> Raw {
    give(Failed(code, message.into()))
}

/// Handles of devices and memories are addresses of these bytes.
static HANDLES: [u8; 64] = [0; 64];

fn device(index: usize) -> Raw {
    (&raw const HANDLES[8 + index]).cast_mut().cast()
}

fn description(index: usize) -> Raw {
    (&raw const HANDLES[16 + index]).cast_mut().cast()
}

fn memory(index: usize) -> Raw {
    (&raw const HANDLES[32 + index]).cast_mut().cast()
}

fn index(raw: Raw, first: Raw) -> usize {
    (raw as usize).wrapping_sub(first as usize)
}

/// The memory a caller means: by memory, by device, or that of the first device.
fn chosen(of_memory: Raw, of_device: Raw) -> usize {
    if !of_memory.is_null() {
        index(of_memory, memory(0))
    } else if !of_device.is_null() {
        index(of_device, device(0))
    } else {
        0
    }
}

struct Lists([Raw; 8]);
// SAFETY: addresses of a static.
unsafe impl Sync for Lists {}
// SAFETY: see above.
unsafe impl Send for Lists {}

/// Devices at 0, memories at 2, and the memories of each device at 2 and 4 of another order.
static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    Lists([
        device(0),
        device(1),
        memory(0),
        memory(2),
        memory(1),
        memory(3),
        device(0),
        device(1),
    ])
});

fn at(start: usize) -> Raw {
    (&raw const LISTS.0[start]).cast_mut().cast()
}

fn put(text: &'static str, start: &mut Raw, size: &mut usize) {
    *start = text.as_ptr().cast_mut().cast();
    *size = text.len();
}

fn bytes_of(dimensions: Raw, count: usize, kind: u32) -> u64 {
    let elements: i64 = list(dimensions.cast::<i64>(), count).iter().product();
    elements as u64 * element_bytes(kind)
}

/// Events are done before anybody asks.
fn event() -> Raw {
    EVENTS.fetch_add(1, Ordering::SeqCst);
    give(0_u8)
}

fn destroy_event(event: Raw) -> Raw {
    take::<u8>(event);
    EVENTS.fetch_sub(1, Ordering::SeqCst);
    ok()
}

/// Events that nobody has destroyed.
pub static EVENTS: AtomicI64 = AtomicI64::new(0);

/// The result a launch leaves out, in spite of its success.
pub static WITHHELD: AtomicUsize = AtomicUsize::new(usize::MAX);

/// `8h,16/0,2`: results of 8 bytes in memory of the host and 16 in HBM; arguments 0 and 2 taken over.
fn parse(code: &str) -> Program {
    let (results, taken) = code.split_once('/').unwrap_or((code, ""));
    Program {
        results: results
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| {
                (
                    part.trim_end_matches('h').parse().unwrap(),
                    part.ends_with('h'),
                )
            })
            .collect(),
        taken: taken
            .split(',')
            .filter_map(|part| part.parse().ok())
            .collect(),
    }
}

fn execute(arguments: &mut LoadedExecutableExecute) -> Raw {
    let program = own::<Arc<Program>>(arguments.executable);
    let lists = list(
        arguments.argument_lists.cast::<*const Raw>(),
        arguments.num_devices,
    );
    let outputs = list(
        arguments.output_lists.cast::<*mut Raw>(),
        arguments.num_devices,
    );
    for number in 0..arguments.num_devices {
        let home = if arguments.execute_device.is_null() {
            number
        } else {
            index(arguments.execute_device, device(0))
        };
        for argument in &program.taken {
            own::<Buffer>(list(lists[number], arguments.num_args)[*argument]).delete();
        }
        for (place, (bytes, on_host)) in program.results.iter().enumerate() {
            let made = Buffer::fresh(*bytes, if *on_host { home + 2 } else { home });
            if WITHHELD.load(Ordering::SeqCst) == place {
                drop(take::<Buffer>(made));
                continue;
            }
            // SAFETY: the caller gives room for each result.
            unsafe { *outputs[number].add(place) = made };
        }
        if !arguments.device_complete_events.is_null() {
            // SAFETY: room for an event a device.
            unsafe { *arguments.device_complete_events.cast::<Raw>().add(number) = event() };
        }
    }
    std::ptr::null_mut()
}

fn ok() -> Raw {
    std::ptr::null_mut()
}

/// The table, filled for everything that has to do with memory.
#[allow(clippy::too_many_lines, reason = "one line for each function")]
pub fn slots() -> [Option<Function>; SLOT_COUNT] {
    let mut slots = [None; SLOT_COUNT];
    macro_rules! offer {
        ($($name:ident => |$a:ident| $body:expr),* $(,)?) => { $( {
            unsafe extern "C" fn entry(raw: Raw) -> Raw {
                // SAFETY: tpu-core gives the struct of this slot.
                let $a = unsafe { &mut *raw.cast::<$name>() };
                assert!($a.struct_size >= $name::SIZE);
                $body
            }
            slots[$name::SLOT] = Some(entry as Function);
        } )* };
    }
    offer!(
        ErrorDestroy => |a| { drop(take::<Failed>(a.error)); ok() },
        ErrorMessage => |a| {
            let text = &own::<Failed>(a.error).1;
            (a.message, a.message_size) = (text.as_ptr().cast_mut().cast(), text.len());
            ok()
        },
        ErrorGetCode => |a| { a.code = own::<Failed>(a.error).0; ok() },
        PluginInitialize => |_a| ok(),
        EventDestroy => |a| destroy_event(a.event),
        EventIsReady => |a| { a.is_ready = 1; ok() },
        EventAwait => |_a| ok(),
        EventError => |_a| ok(),
        EventOnReady => |a| {
            // SAFETY: the field is a function pointer of this type.
            let function: extern "C" fn(Raw, Raw) = unsafe { std::mem::transmute(a.callback) };
            function(ok(), a.user_arg);
            ok()
        },
        ClientCreate => |a| { a.client = (&raw const HANDLES[0]).cast_mut().cast(); ok() },
        ClientPlatformName => |a| { put("stand-in", &mut a.platform_name, &mut a.platform_name_size); ok() },
        ClientPlatformVersion => |a| { put("1", &mut a.platform_version, &mut a.platform_version_size); ok() },
        ClientDevices => |a| { (a.devices, a.num_devices) = (at(0), 2); ok() },
        ClientAddressableDevices => |a| { (a.addressable_devices, a.num_addressable_devices) = (at(0), 2); ok() },
        ClientAddressableMemories => |a| { (a.addressable_memories, a.num_addressable_memories) = (at(2), 4); ok() },
        DeviceGetDescription => |a| { a.device_description = description(index(a.device, device(0))); ok() },
        DeviceDescriptionId => |a| { a.id = DEVICES[index(a.device_description, description(0))]; ok() },
        DeviceDescriptionKind => |a| { put("stand-in", &mut a.device_kind, &mut a.device_kind_size); ok() },
        DeviceAddressableMemories => |a| {
            (a.memories, a.num_memories) = (at(2 + 2 * index(a.device, device(0))), 2);
            ok()
        },
        DeviceDefaultMemory => |a| { a.memory = memory(index(a.device, device(0))); ok() },
        DeviceCreateAsyncTrackingEvent => |a| { a.event = event(); ok() },
        AsyncTrackingEventDestroy => |a| destroy_event(a.event),
        MemoryKind => |a| {
            let kind = if index(a.memory, memory(0)) < 2 { "device" } else { "pinned_host" };
            put(kind, &mut a.kind, &mut a.kind_size);
            ok()
        },
        MemoryAddressableByDevices => |a| {
            (a.devices, a.num_devices) = (at(index(a.memory, memory(0)) % 2), 1);
            ok()
        },
        ClientCompile => |a| {
            let program = own::<tpu_core::pjrt::Program>(a.program);
            let code = list(program.code.cast::<u8>(), program.code_size);
            match std::str::from_utf8(code) {
                Ok(code) if !code.starts_with('!') => { a.executable = give(Arc::new(parse(code))); ok() }
                _ => fail(3, "no program"),
            }
        },
        LoadedExecutableGetExecutable => |a| {
            a.executable = give(own::<Arc<Program>>(a.loaded_executable).clone());
            ok()
        },
        LoadedExecutableAddressableDevices => |a| {
            (a.addressable_devices, a.num_addressable_devices) = (at(0), 2);
            ok()
        },
        LoadedExecutableDestroy => |a| { drop(take::<Arc<Program>>(a.executable)); ok() },
        LoadedExecutableExecute => |a| execute(a),
        ExecutableDestroy => |a| { drop(take::<Arc<Program>>(a.executable)); ok() },
        ExecutableNumOutputs => |a| { a.num_outputs = own::<Arc<Program>>(a.executable).results.len(); ok() },
        ExecutableName => |a| { put("program", &mut a.executable_name, &mut a.executable_name_size); ok() },
        ClientBufferFromHostBuffer => |a| {
            a.buffer = Buffer::fresh(bytes_of(a.dims, a.num_dims, a.kind), chosen(a.memory, a.device));
            a.done_with_host_buffer = event();
            ok()
        },
        ClientCreateUninitializedBuffer => |a| {
            let bytes = bytes_of(a.shape_dims, a.shape_num_dims, a.shape_element_type);
            a.buffer = Buffer::fresh(bytes, chosen(a.memory, a.device));
            ok()
        },
        ClientCreateViewOfDeviceBuffer => |a| { a.buffer = Buffer::with(None, 0); ok() },
        ClientCreateErrorBuffer => |a| { a.buffer = Buffer::with(None, 0); ok() },
        ClientCreateAliasBuffer => |a| {
            let promised = Arc::new(Mutex::new(Promised::default()));
            a.fulfill_alias_buffer_cb = give(Fulfilment(Arc::downgrade(&promised)));
            let memory = chosen(a.memory, ok());
            a.alias_buffer = give(Buffer { promised: Some(promised), memory, ..Buffer::default() });
            ok()
        },
        ClientFulfillAliasBuffer => |a| {
            let promised = take::<Fulfilment>(a.fulfill_alias_buffer_cb).0.upgrade();
            if let Some(promised) = promised.filter(|_| a.status_code == 0) {
                let mut promised = promised.lock().unwrap();
                if !promised.over {
                    promised.piece = own::<Buffer>(a.buffer).piece();
                }
            }
            ok()
        },
        BufferDestroy => |a| { drop(take::<Buffer>(a.buffer)); ok() },
        BufferDelete => |a| { own::<Buffer>(a.buffer).delete(); ok() },
        BufferIsDeleted => |a| { a.is_deleted = own::<Buffer>(a.buffer).is_deleted().into(); ok() },
        BufferOnDeviceSizeInBytes => |a| {
            a.on_device_size_in_bytes = own::<Buffer>(a.buffer).piece().map_or(0, |piece| piece.bytes as usize);
            ok()
        },
        BufferDevice => |a| { a.device = device(own::<Buffer>(a.buffer).memory % 2); ok() },
        BufferMemory => |a| { a.memory = memory(own::<Buffer>(a.buffer).memory); ok() },
        BufferReadyEvent => |a| { a.event = event(); ok() },
        BufferToHostBuffer => |a| { a.event = event(); ok() },
        BufferCopyToDevice => |a| {
            let bytes = own::<Buffer>(a.buffer).piece().map_or(0, |piece| piece.bytes as u64);
            a.dst_buffer = Buffer::fresh(bytes, index(a.dst_device, device(0)));
            ok()
        },
        BufferCopyToMemory => |a| {
            let bytes = own::<Buffer>(a.buffer).piece().map_or(0, |piece| piece.bytes as u64);
            a.dst_buffer = Buffer::fresh(bytes, index(a.dst_memory, memory(0)));
            ok()
        },
        BufferDonateWithControlDependency => |a| {
            let buffer = own::<Buffer>(a.buffer);
            a.out_buffer = Buffer::with(buffer.piece(), buffer.memory);
            buffer.delete();
            ok()
        },
        BufferBitcast => |a| {
            let buffer = own::<Buffer>(a.buffer);
            a.out_buffer = Buffer::with(buffer.piece(), buffer.memory);
            ok()
        },
        BufferIncreaseExternalReferenceCount => |a| {
            let buffer = own::<Buffer>(a.buffer);
            let kept = buffer.outside.lock().unwrap().last().cloned();
            buffer.outside.lock().unwrap().extend(kept.or_else(|| buffer.piece()));
            ok()
        },
        BufferDecreaseExternalReferenceCount => |a| {
            own::<Buffer>(a.buffer).outside.lock().unwrap().pop();
            ok()
        },
        ClientCreateBuffersForAsyncHostToDevice => |a| {
            let shapes = list(a.shape_specs.cast::<ShapeSpec>(), a.num_shape_specs);
            let sizes: Vec<u64> = shapes
                .iter()
                .map(|shape| bytes_of(shape.dims.cast_mut().cast(), shape.num_dims, shape.element_type))
                .collect();
            let memory = chosen(a.memory, ok());
            let pieces = sizes.iter().map(|bytes| Some(Piece::new(*bytes, memory))).collect();
            a.transfer_manager = give(Manager { pieces: Mutex::new(pieces), sizes, memory });
            ok()
        },
        TransferManagerDestroy => |a| { drop(take::<Manager>(a.transfer_manager)); ok() },
        TransferManagerRetrieveBuffer => |a| {
            let manager = own::<Manager>(a.transfer_manager);
            let piece = manager.pieces.lock().unwrap()[a.buffer_index as usize].take();
            match piece {
                Some(piece) => { a.buffer_out = Buffer::with(Some(piece), manager.memory); ok() }
                None => fail(9, "retrieved already"),
            }
        },
        TransferManagerDevice => |a| { a.device_out = device(own::<Manager>(a.transfer_manager).memory % 2); ok() },
        TransferManagerBufferCount => |a| { a.buffer_count = own::<Manager>(a.transfer_manager).sizes.len(); ok() },
        TransferManagerBufferSize => |a| {
            a.buffer_size = own::<Manager>(a.transfer_manager).sizes[a.buffer_index as usize] as usize;
            ok()
        },
        TransferManagerTransferData => |a| { a.done_with_h2d_transfer = event(); ok() },
        TransferManagerTransferLiteral => |a| { a.done_with_h2d_transfer = event(); ok() },
        TransferManagerSetBufferError => |_a| ok(),
        TransferManagerAddMetadata => |_a| ok(),
    );
    slots
}

/// A table of `size` bytes around these functions, which lives for ever.
pub fn table(slots: &[Option<Function>; SLOT_COUNT], size: usize) -> &'static Api {
    Box::leak(Box::new(Api {
        struct_size: size,
        extension_start: std::ptr::null_mut(),
        version: ApiVersion {
            struct_size: 24,
            extension_start: std::ptr::null_mut(),
            major: 0,
            minor: 114,
        },
        slots: *slots,
    }))
}
