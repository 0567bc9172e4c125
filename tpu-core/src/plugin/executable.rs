//! Programs, loaded on the device or not, and what can be asked about them.

use std::sync::{Arc, OnceLock};

use super::client::Client;
use super::device::Device;
use super::failure::{Answer, Failure};
use super::handle::{Handle, forward, give, hold, keep_bytes, own, present, take};
use super::{optimized, wrapped};
use crate::cache;
use crate::pjrt::{
    Arguments, ExecutableDestroy, ExecutableGetCompileOptions, ExecutableGetCompiledMemoryStats,
    ExecutableName, ExecutableNumOutputs, ExecutableOutputMemoryKinds, ExecutableSerialize,
    LoadedExecutableAddressableDeviceLogicalIds, LoadedExecutableAddressableDevices,
    LoadedExecutableDestroy, LoadedExecutableGetDeviceAssignment, LoadedExecutableGetExecutable,
    MemoryKind, Raw,
};
use crate::program;
use crate::session::{Cost, Memory, Place, SESSION, Usage};
use crate::signature::Origin;

/// A compiled program.
pub struct Executable {
    inner: Raw,
    /// Memory of results where the plug-in cannot say: names and their lengths.
    memory_kinds: OnceLock<(Vec<usize>, Vec<usize>)>,
    /// Our layouts of results and arguments, which belong to the program.
    pub output_layouts: OnceLock<Vec<usize>>,
    pub parameter_layouts: OnceLock<Vec<usize>>,
    sealed: Option<Arc<[u8]>>,
    pub origin: Arc<Origin>,
}

impl Handle for Executable {
    const NAME: &'static str = "executable";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Executable {
    pub fn new(inner: Raw, sealed: Option<Arc<[u8]>>, origin: Arc<Origin>) -> Self {
        Self {
            inner,
            sealed,
            origin,
            memory_kinds: OnceLock::new(),
            output_layouts: OnceLock::new(),
            parameter_layouts: OnceLock::new(),
        }
    }
}

/// A program loaded on the device.
pub struct LoadedExecutable {
    inner: Raw,
    pub client: &'static Client,
    /// Number of results.
    pub outputs: usize,
    pub origin: Arc<Origin>,
    pub name: Arc<str>,
    pub need: Need,
    /// How long it takes on the device.
    pub cost: Cost,
    pub memory: Memory,
    pub usage: Arc<Usage>,
    /// Size and place of each result, known after the first launch.
    pub results: OnceLock<Box<[Output]>>,
    /// The cached form it was loaded from. XLA on a CPU does not write the machine code of a
    /// program it did not compile itself, so this is what saving it again must give.
    pub sealed: Option<Arc<[u8]>>,
    devices: Vec<Raw>,
}

/// A result of a program.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub bytes: u64,
    /// In memory of the host, not in HBM.
    pub on_host: bool,
}

/// Device memory a launch needs beside its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    pub output: u64,
    pub alias: u64,
    pub temporary: u64,
}

impl Need {
    /// More bytes than are live before, when `kept` bytes of arguments may not be overwritten.
    pub fn extra(self, kept: u64) -> u64 {
        (self.output + self.temporary).saturating_sub(self.alias.saturating_sub(kept))
    }
}

impl Handle for LoadedExecutable {
    const NAME: &'static str = "loaded executable";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl LoadedExecutable {
    /// Where the HBM is that a launch uses for the device at `index` of its list; `chosen` is the
    /// device a caller chose instead.
    pub fn place(&self, index: usize, chosen: Raw) -> Result<Place, Failure> {
        let device = if chosen.is_null() {
            self.devices.get(index).copied().unwrap_or(chosen)
        } else {
            chosen
        };
        if device.is_null() {
            return Ok(Place::Device(0));
        }
        own::<Device>(device).map(|device| device.place)
    }

    /// A handle for `inner`, with all that a launch must know asked once.
    pub fn new(client: &'static Client, inner: Raw, origin: Arc<Origin>) -> Result<Self, Failure> {
        let wrapped = wrapped::get()?;
        let inner = present(inner, Self::NAME)?;
        let mut get = LoadedExecutableGetExecutable::new();
        get.loaded_executable = inner;
        wrapped.call(&mut get)?;
        present(get.executable, Executable::NAME)?;
        let mut outputs = ExecutableNumOutputs::new();
        outputs.executable = get.executable;
        let mut name = ExecutableName::new();
        name.executable = get.executable;
        let mut stats = ExecutableGetCompiledMemoryStats::new();
        stats.executable = get.executable;
        let counted = wrapped.call(&mut outputs);
        let name = match wrapped.call(&mut name) {
            Ok(()) => wrapped::text(name.executable_name, name.executable_name_size)
                .as_ref()
                .into(),
            Err(_) => Arc::from("program"),
        };
        let count = |bytes: i64| bytes.max(0) as u64;
        let memory = match wrapped.call(&mut stats) {
            Ok(()) => Memory {
                code: count(stats.generated_code_size_in_bytes),
                argument: count(stats.argument_size_in_bytes),
                output: count(stats.output_size_in_bytes),
                alias: count(stats.alias_size_in_bytes),
                temporary: count(stats.temp_size_in_bytes),
            },
            Err(_) => Memory::default(),
        };
        let need = Need {
            output: memory.output,
            alias: memory.alias,
            temporary: memory.temporary,
        };
        let mut destroy = ExecutableDestroy::new();
        destroy.executable = get.executable;
        wrapped.call(&mut destroy)?;
        counted?;
        let mut devices = LoadedExecutableAddressableDevices::new();
        devices.executable = inner;
        wrapped.call(&mut devices)?;
        let devices =
            wrapped::slice::<Raw>(devices.addressable_devices, devices.num_addressable_devices)
                .iter()
                .map(|device| client.device(*device))
                .collect::<Result<_, _>>()?;
        let outputs = outputs.num_outputs;
        optimized::loaded(inner);
        Ok(Self {
            inner,
            client,
            outputs,
            origin,
            name,
            need,
            cost: Cost::default(),
            memory,
            usage: Arc::default(),
            results: OnceLock::new(),
            sealed: None,
            devices,
        })
    }
}

pub fn destroy(arguments: &mut ExecutableDestroy) -> Answer {
    let Some(executable) = take::<Executable>(arguments.executable) else {
        return Ok(());
    };
    super::layouts::release(&executable);
    let mut inner = ExecutableDestroy::new();
    inner.executable = executable.inner;
    wrapped::get()?.call(&mut inner)
}

pub fn destroy_loaded(arguments: &mut LoadedExecutableDestroy) -> Answer {
    let Some(executable) = take::<LoadedExecutable>(arguments.executable) else {
        return Ok(());
    };
    SESSION.programs.unload(&executable.usage);
    optimized::unloaded(executable.inner);
    let mut inner = LoadedExecutableDestroy::new();
    inner.executable = executable.inner;
    wrapped::get()?.call(&mut inner)
}

pub fn get_executable(arguments: &mut LoadedExecutableGetExecutable) -> Answer {
    let loaded = own::<LoadedExecutable>(arguments.loaded_executable)?;
    let (sealed, origin) = (loaded.sealed.clone(), Arc::clone(&loaded.origin));
    forward::<_, LoadedExecutable>(arguments, |arguments| &mut arguments.loaded_executable)?;
    let inner = present(arguments.executable, Executable::NAME)?;
    arguments.executable = give(Executable::new(inner, sealed, origin));
    Ok(())
}

pub fn devices(arguments: &mut LoadedExecutableAddressableDevices) -> Answer {
    let devices = &own::<LoadedExecutable>(arguments.executable)?.devices;
    arguments.addressable_devices = devices.as_ptr().cast_mut().cast();
    arguments.num_addressable_devices = devices.len();
    Ok(())
}

/// Where on the mesh a launch runs. A plug-in too old to say runs it on one device, and callers do
/// not survive an error here.
pub fn logical_ids(arguments: &mut LoadedExecutableAddressableDeviceLogicalIds) -> Answer {
    /// Replica and partition of the first device.
    static FIRST: [i32; 2] = [0, 0];
    let wrapped = wrapped::get()?;
    if wrapped.offers::<LoadedExecutableAddressableDeviceLogicalIds>() {
        return forward::<_, LoadedExecutable>(arguments, |arguments| &mut arguments.executable);
    }
    own::<LoadedExecutable>(arguments.executable)?;
    arguments.addressable_device_logical_ids = FIRST.as_ptr().cast_mut().cast();
    arguments.num_addressable_device_logical_ids = 1;
    Ok(())
}

pub fn device_assignment(arguments: &mut LoadedExecutableGetDeviceAssignment) -> Answer {
    forward::<_, LoadedExecutable>(arguments, |arguments| &mut arguments.executable)?;
    hold(
        &mut arguments.serialized_device_assignment,
        &mut arguments.serialized_device_assignment_deleter,
    );
    Ok(())
}

pub fn serialize(arguments: &mut ExecutableSerialize) -> Answer {
    saved_form(arguments)?;
    // Who asks for it keeps it on disk.
    cache::written(arguments.serialized_bytes_size);
    Ok(())
}

fn saved_form(arguments: &mut ExecutableSerialize) -> Answer {
    if let Some(sealed) = &own::<Executable>(arguments.executable)?.sealed {
        arguments.serialized_executable = std::ptr::null_mut();
        (arguments.serialized_bytes, arguments.serialized_bytes_size) = keep_bytes(
            sealed.to_vec(),
            &mut arguments.serialized_executable,
            &mut arguments.serialized_executable_deleter,
        );
        return Ok(());
    }
    let note = own::<Executable>(arguments.executable)?.origin.note();
    forward::<_, Executable>(arguments, |arguments| &mut arguments.executable)?;
    hold(
        &mut arguments.serialized_executable,
        &mut arguments.serialized_executable_deleter,
    );
    let wrapped = wrapped::get()?;
    if !wrapped.real {
        let code = wrapped::bytes(arguments.serialized_bytes, arguments.serialized_bytes_size);
        let sealed = keep_bytes(
            program::seal(code, &note, wrapped.maker),
            &mut arguments.serialized_executable,
            &mut arguments.serialized_executable_deleter,
        );
        (arguments.serialized_bytes, arguments.serialized_bytes_size) = sealed;
    }
    Ok(())
}

pub fn compile_options(arguments: &mut ExecutableGetCompileOptions) -> Answer {
    forward::<_, Executable>(arguments, |arguments| &mut arguments.executable)?;
    hold(
        &mut arguments.serialized_compile_options,
        &mut arguments.serialized_compile_options_deleter,
    );
    Ok(())
}

/// Memory kinds of results. Two of the known CPU plug-ins cannot say; there every result is in
/// the default memory of the device.
pub fn output_memory_kinds(arguments: &mut ExecutableOutputMemoryKinds) -> Answer {
    let Err(failure) = forward::<_, Executable>(arguments, |arguments| &mut arguments.executable)
    else {
        return Ok(());
    };
    let wrapped = wrapped::get()?;
    if wrapped.real {
        return Err(failure);
    }
    let executable = own::<Executable>(arguments.executable)?;
    let mut outputs = ExecutableNumOutputs::new();
    outputs.executable = executable.inner;
    wrapped.call(&mut outputs)?;
    let (start, size) = default_memory_kind().unwrap_or((c"device".as_ptr() as usize, 6));
    let (names, sizes) = executable.memory_kinds.get_or_init(|| {
        (
            vec![start; outputs.num_outputs],
            vec![size; outputs.num_outputs],
        )
    });
    arguments.num_outputs = names.len();
    arguments.memory_kinds = names.as_ptr().cast_mut().cast();
    arguments.memory_kind_sizes = sizes.as_ptr().cast_mut().cast();
    Ok(())
}

/// Name of the memory results go to: address and length. It lives as long as the client.
static DEFAULT_MEMORY_KIND: OnceLock<(usize, usize)> = OnceLock::new();

fn default_memory_kind() -> Option<(usize, usize)> {
    DEFAULT_MEMORY_KIND.get().copied()
}

/// Remember the kind of the device's default memory, for plug-ins that do not say it themselves.
pub fn learn_default_memory(memory: Raw) {
    let mut kind = MemoryKind::new();
    kind.memory = memory;
    if wrapped::get()
        .and_then(|wrapped| wrapped.call(&mut kind))
        .is_ok()
    {
        let _ = DEFAULT_MEMORY_KIND.set((kind.kind as usize, kind.kind_size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_needs_results_and_temporaries_less_what_it_overwrites() {
        let need = Need {
            output: 100,
            alias: 60,
            temporary: 30,
        };
        assert_eq!(need.extra(0), 70);
        assert_eq!(need.extra(20), 90);
        assert_eq!(need.extra(1000), 130);
    }
}
