//! The function table itself: every slot filled, every entry guarded.

use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

use super::buffer::Buffer;
use super::client::Client;
use super::description::DeviceDescription;
use super::device::Device;
use super::executable::{Executable, LoadedExecutable};
use super::failure::{self, Answer, caught};
use super::handle::forward;
use super::memory::Memory;
use super::topology::Topology;
use super::transfer_manager::TransferManager;
use super::{
    alias, buffer, callbacks, calls, chip_topology, client, compile, description, device, event,
    executable, execute, host_memory, layouts, memory, topology, tracking, transfer,
    transfer_manager, wrapped,
};
#[allow(
    clippy::wildcard_imports,
    reason = "one argument struct for each of the table's functions"
)]
use crate::pjrt::*;

/// Version of the interface this plug-in offers, whatever it wraps.
const MAJOR: i32 = 0;
const MINOR: i32 = 114;

/// Extensions first, so that the address of each can be put into what comes after it.
struct Tables {
    chip_topology: ChipTopologyExtension,
    host_memory: OnceLock<HostMemoryExtension>,
    layouts: OnceLock<LayoutsExtension>,
    api: OnceLock<Api>,
}

static TABLES: OnceLock<Tables> = OnceLock::new();

/// The table, made at the first call.
pub fn table() -> *const Api {
    let tables = TABLES.get_or_init(|| Tables {
        chip_topology: chip_topology_extension(),
        host_memory: OnceLock::new(),
        layouts: OnceLock::new(),
        api: OnceLock::new(),
    });
    let chip_topology: *const ChipTopologyExtension = &raw const tables.chip_topology;
    let last = chip_topology.cast_mut().cast();
    let host_memory: *const HostMemoryExtension =
        (tables.host_memory).get_or_init(|| host_memory_extension(last));
    let first = host_memory.cast_mut().cast();
    let layouts: *const LayoutsExtension = tables.layouts.get_or_init(|| layouts_extension(first));
    tables.api.get_or_init(|| build(layouts.cast_mut().cast()))
}

/// Say something to whoever debugs, when `TPU_KERNEL_DEBUG` is set.
pub fn log(message: fmt::Arguments<'_>) {
    static WANTED: OnceLock<bool> = OnceLock::new();
    if *WANTED.get_or_init(|| std::env::var_os("TPU_KERNEL_DEBUG").is_some()) {
        let _ = writeln!(std::io::stderr(), "tpu-core: {message}");
    }
}

/// Run `function` on a caller's arguments; anything wrong becomes an error object.
fn guarded<A: Arguments>(raw: Raw, function: fn(&mut A) -> Answer) -> Raw {
    calls::note(A::SLOT, raw);
    finish(SLOT_NAMES[A::SLOT], || {
        let arguments = layouts::checked::<A>(raw, A::SIZE)?;
        function(arguments)
    })
}

fn guarded_extension<A>(raw: Raw, function: fn(&mut A) -> Answer) -> Raw {
    finish("an extension", || {
        let arguments = layouts::checked::<A>(raw, size_of::<A>())?;
        function(arguments)
    })
}

fn finish(name: &str, work: impl FnOnce() -> Answer) -> Raw {
    let Err(failure) = caught(name, work).flatten() else {
        return std::ptr::null_mut();
    };
    log(format_args!("{name}: {failure}"));
    failure.into_raw()
}

macro_rules! offer {
    ($slots:ident, $($arguments:ident => $function:expr),* $(,)?) => { $( {
        unsafe extern "C" fn entry(raw: Raw) -> Raw {
            guarded::<$arguments>(raw, $function)
        }
        $slots[<$arguments as Arguments>::SLOT] = Some(entry as Function);
    } )* };
}

/// Pass on, with the handle in the named field translated.
macro_rules! pass {
    ($slots:ident, $handle:ident . $field:ident: $($arguments:ident)*) => {
        offer!($slots, $($arguments => |arguments| {
            forward::<_, $handle>(arguments, |arguments| &mut arguments.$field)
        }),*);
    };
}

fn build(extension: Raw) -> Api {
    let mut slots: [Option<Function>; SLOT_COUNT] = [None; SLOT_COUNT];
    slots[ErrorDestroy::SLOT] = Some(failure::error_destroy);
    slots[ErrorMessage::SLOT] = Some(failure::error_message);
    fill_runtime(&mut slots);
    fill_programs(&mut slots);
    fill_buffers(&mut slots);
    Api {
        struct_size: size_of::<Api>(),
        extension_start: extension,
        version: ApiVersion {
            struct_size: size_of::<ApiVersion>(),
            extension_start: std::ptr::null_mut(),
            major: MAJOR,
            minor: MINOR,
        },
        slots,
    }
}

type Slots = [Option<Function>; SLOT_COUNT];

/// Errors, plug-in, events, clients, devices, memories, topologies.
fn fill_runtime(slots: &mut Slots) {
    offer!(slots,
        ErrorGetCode => failure::error_code,
        ErrorForEachPayload => failure::error_payloads,
        // Loading the wrapped plug-in initialises it.
        PluginInitialize => |_| wrapped::get().map(|_| ()),
        PluginAttributes => |arguments| wrapped::get()?.call(arguments),
        EventDestroy => event::destroy,
        EventIsReady => event::is_ready,
        EventError => event::error,
        EventAwait => event::wait,
        EventOnReady => event::on_ready,
        EventCreate => event::create,
        EventSet => event::set,
        ClientCreate => client::create,
        ClientDestroy => client::destroy,
        ClientPlatformName => client::platform_name,
        ClientPlatformVersion => client::platform_version,
        ClientDevices => client::devices,
        ClientAddressableDevices => client::addressable_devices,
        ClientLookupDevice => client::lookup_device,
        ClientLookupAddressableDevice => client::lookup_addressable_device,
        ClientAddressableMemories => client::addressable_memories,
        ClientTopologyDescription => client::topology,
        DeviceDescriptionAttributes => description::attributes,
        DeviceDescriptionKind => description::kind,
        DeviceDescriptionDebugString => description::debug_text,
        DeviceDescriptionToString => description::short_text,
        DeviceGetDescription => device::description,
        DeviceAddressableMemories => device::memories,
        DeviceDefaultMemory => device::default_memory,
        DeviceMemoryStats => device::memory_stats,
        DeviceClearMemoryStats => device::clear_memory_stats,
        DeviceGetAttributes => device::attributes,
        DeviceCreateAsyncTrackingEvent => tracking::create,
        AsyncTrackingEventDestroy => tracking::destroy,
        MemoryAddressableByDevices => memory::devices,
        TopologyDescriptionCreate => topology::create,
        TopologyDescriptionDestroy => topology::destroy,
        TopologyDescriptionDeserialize => topology::deserialize,
        TopologyDescriptionPlatformName => topology::platform_name,
        TopologyDescriptionPlatformVersion => topology::platform_version,
        TopologyDescriptionGetDeviceDescriptions => topology::descriptions,
        TopologyDescriptionSerialize => topology::serialize,
        TopologyDescriptionAttributes => topology::attributes,
    );
    pass!(slots, Client.client: ClientProcessIndex ClientDefaultDeviceAssignment ClientDmaMap ClientDmaUnmap
        ClientUpdateGlobalProcessInfo);
    pass!(slots, DeviceDescription.device_description: DeviceDescriptionId DeviceDescriptionProcessIndex);
    pass!(slots, Device.device: DeviceIsAddressable DeviceLocalHardwareId DevicePoisonExecution);
    pass!(slots, Memory.memory: MemoryId MemoryKind MemoryDebugString MemoryToString MemoryKindId);
    pass!(slots, Topology.topology: TopologyDescriptionFingerprint
        TopologyDescriptionMakeCanonicalShapeForMemorySpace TopologyDescriptionGetMemorySpaceKindIds);
}

/// Compilation, programs, launches.
fn fill_programs(slots: &mut Slots) {
    offer!(slots,
        ClientCompile => compile::compile,
        ClientLoad => compile::load,
        Compile => compile::compile_for_topology,
        ExecutableDeserializeAndLoad => compile::deserialize_and_load,
        ExecutableDestroy => executable::destroy,
        ExecutableSerialize => executable::serialize,
        ExecutableGetCompileOptions => executable::compile_options,
        ExecutableOutputMemoryKinds => executable::output_memory_kinds,
        LoadedExecutableDestroy => executable::destroy_loaded,
        LoadedExecutableGetExecutable => executable::get_executable,
        LoadedExecutableAddressableDevices => executable::devices,
        LoadedExecutableAddressableDeviceLogicalIds => executable::logical_ids,
        LoadedExecutableGetDeviceAssignment => executable::device_assignment,
        LoadedExecutableExecute => execute::execute,
        CopyToDeviceStreamDestroy => callbacks::destroy_stream,
        CopyToDeviceStreamAddChunk => callbacks::add_chunk,
        CopyToDeviceStreamTotalBytes => |arguments| callbacks::pass_stream(arguments, |a| &mut a.stream),
        CopyToDeviceStreamGranuleSize => |arguments| callbacks::pass_stream(arguments, |a| &mut a.stream),
        CopyToDeviceStreamCurrentBytes => |arguments| callbacks::pass_stream(arguments, |a| &mut a.stream),
        ExecuteContextCreate => execute::create_context,
        ExecuteContextDestroy => execute::destroy_context,
    );
    pass!(slots, Executable.executable: ExecutableName ExecutableNumReplicas ExecutableNumPartitions
        ExecutableNumOutputs ExecutableSizeOfGeneratedCodeInBytes ExecutableGetCostAnalysis
        ExecutableOptimizedProgram ExecutableOutputElementTypes ExecutableOutputDimensions ExecutableFingerprint
        ExecutableGetCompiledMemoryStats ExecutableParameterMemoryKinds);
    pass!(slots, LoadedExecutable.executable: LoadedExecutableDelete LoadedExecutableIsDeleted
        LoadedExecutableFingerprint);
}

/// Buffers and transfers.
fn fill_buffers(slots: &mut Slots) {
    offer!(slots,
        ClientBufferFromHostBuffer => transfer::from_host,
        ClientCreateUninitializedBuffer => transfer::uninitialized,
        ClientCreateViewOfDeviceBuffer => transfer::view,
        ClientCreateErrorBuffer => transfer::error_buffer,
        ClientCreateAliasBuffer => alias::create,
        ClientFulfillAliasBuffer => alias::fulfil,
        ClientCreateBuffersForAsyncHostToDevice => transfer_manager::create,
        TransferManagerDestroy => transfer_manager::destroy,
        TransferManagerRetrieveBuffer => transfer_manager::retrieve,
        TransferManagerDevice => transfer_manager::device,
        TransferManagerTransferData => transfer_manager::transfer,
        TransferManagerTransferLiteral => transfer_manager::transfer_literal,
        BufferDestroy => buffer::destroy,
        BufferDelete => buffer::delete,
        BufferDevice => buffer::device,
        BufferMemory => buffer::memory,
        BufferReadyEvent => buffer::ready_event,
        BufferDonateWithControlDependency => buffer::donate,
        BufferBitcast => buffer::bitcast,
        BufferIncreaseExternalReferenceCount => buffer::keep,
        BufferDecreaseExternalReferenceCount => buffer::let_go,
        BufferCopyToDevice => transfer::copy_to_device,
        BufferCopyToMemory => transfer::copy_to_memory,
        BufferToHostBuffer => transfer::to_host,
        BufferCopyRawToHost => transfer::raw_to_host,
        BufferCopyRawToHostFuture => transfer::raw_to_host_future,
    );
    pass!(slots, Buffer.buffer: BufferElementType BufferDimensions BufferUnpaddedDimensions
        BufferDynamicDimensionIndices BufferGetMemoryLayout BufferOnDeviceSizeInBytes BufferIsDeleted BufferIsOnCpu
        BufferUnsafePointer BufferOpaqueDeviceMemoryDataPointer);
    pass!(slots, TransferManager.transfer_manager: TransferManagerBufferCount TransferManagerBufferSize
        TransferManagerSetBufferError TransferManagerAddMetadata);
}

fn chip_topology_extension() -> ChipTopologyExtension {
    unsafe extern "C" fn entry<const INDEX: usize>(raw: Raw) -> Raw {
        finish("the topology extension", || {
            chip_topology::answer(INDEX, raw)
        })
    }
    let mut functions: [Option<Function>; CHIP_TOPOLOGY_FUNCTIONS] =
        [None; CHIP_TOPOLOGY_FUNCTIONS];
    macro_rules! entries {
        ($($index:literal)*) => { $( functions[$index] = Some(entry::<$index>); )* };
    }
    entries!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    ChipTopologyExtension {
        base: ExtensionBase {
            struct_size: size_of::<ChipTopologyExtension>(),
            kind: CHIP_TOPOLOGY_EXTENSION,
            next: std::ptr::null_mut(),
        },
        functions,
    }
}

fn host_memory_extension(next: *mut ExtensionBase) -> HostMemoryExtension {
    unsafe extern "C" fn allocate(raw: Raw) -> Raw {
        calls::note_host_memory(raw);
        guarded_extension::<HostMemoryAllocate>(raw, host_memory::allocate)
    }
    HostMemoryExtension {
        base: ExtensionBase {
            struct_size: size_of::<HostMemoryExtension>(),
            kind: HOST_MEMORY_EXTENSION,
            next,
        },
        allocate: Some(allocate),
    }
}

fn layouts_extension(next: *mut ExtensionBase) -> LayoutsExtension {
    let mut functions: [Option<Function>; LAYOUT_FUNCTIONS] = [None; LAYOUT_FUNCTIONS];
    macro_rules! layouts {
        ($($arguments:ident => $function:expr),* $(,)?) => { $( {
            unsafe extern "C" fn entry(raw: Raw) -> Raw {
                calls::note_layouts($arguments::INDEX, raw);
                guarded_extension::<$arguments>(raw, $function)
            }
            functions[$arguments::INDEX] = Some(entry as Function);
        } )* };
    }
    layouts!(
        LayoutDestroy => layouts::destroy,
        LayoutSerialize => layouts::serialize,
        ClientDefaultLayout => layouts::client_default,
        BufferLayout => layouts::of_buffer,
        TopologyDefaultLayout => layouts::topology_default,
        OutputLayouts => layouts::of_outputs,
        ParameterLayouts => layouts::of_parameters,
    );
    // What the wrapped plug-in is too old to answer is absent, so that callers use their own way.
    let known = wrapped::get().map_or(LAYOUT_FUNCTIONS, wrapped::Wrapped::layout_functions);
    for function in functions.iter_mut().skip(known) {
        *function = None;
    }
    LayoutsExtension {
        base: ExtensionBase {
            struct_size: size_of::<LayoutsExtension>(),
            kind: LAYOUTS_EXTENSION,
            next,
        },
        functions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_filled() {
        let api = build(std::ptr::null_mut());
        let empty: Vec<_> = (0..SLOT_COUNT)
            .filter(|slot| api.slots[*slot].is_none())
            .collect();
        assert_eq!(empty, Vec::<usize>::new());
        assert_eq!((api.struct_size, api.version.minor), (1144, 114));
    }

    #[test]
    fn null_and_short_arguments_are_answered_with_an_error() {
        let api = build(std::ptr::null_mut());
        let mut short = [16usize, 0];
        for slot in (0..SLOT_COUNT).filter(|slot| !matches!(slot, 0 | 1 | 3)) {
            for raw in [std::ptr::null_mut(), short.as_mut_ptr().cast()] {
                // SAFETY: an argument struct too small for its slot, which is what is tested.
                let error = unsafe { api.slots[slot].unwrap()(raw) };
                assert!(!error.is_null(), "{}", SLOT_NAMES[slot]);
                let mut destroy = ErrorDestroy::new();
                destroy.error = error;
                // SAFETY: an error this plug-in gave out.
                unsafe { failure::error_destroy((&raw mut destroy).cast()) };
            }
        }
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let mut arguments = EventDestroy::new();
        let error = guarded::<EventDestroy>((&raw mut arguments).cast(), |_| panic!("a test"));
        assert!(!error.is_null());
    }
}
