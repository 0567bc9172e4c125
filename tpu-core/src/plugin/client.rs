//! The client: our devices and memories beside the wrapped plug-in's, and who the chip is.

use std::sync::OnceLock;

use super::description::DeviceDescription;
use super::device::Device;
use super::executable::learn_default_memory;
use super::failure::{Answer, Failure};
use super::handle::{Handle, forward, give, own, present};
use super::memory::Memory;
use super::topology::Topology;
use super::wrapped::{self, Wrapped, slice, text};
use crate::cache;
use crate::choice;
use crate::pjrt::{
    Arguments, ClientAddressableDevices, ClientAddressableMemories, ClientCreate, ClientDestroy,
    ClientDevices, ClientLookupAddressableDevice, ClientLookupDevice, ClientPlatformName,
    ClientPlatformVersion, ClientTopologyDescription, DeviceAddressableMemories,
    DeviceDefaultMemory, DeviceDescriptionId, DeviceDescriptionKind, DeviceGetDescription,
    MemoryAddressableByDevices, Raw,
};
use crate::session::{Identity, Place, SESSION};

/// A client. Never freed: buffers and devices that callers still hold refer to it, and a process
/// has one.
pub struct Client {
    inner: Raw,
    pub platform_name: String,
    platform_version: String,
    devices: Vec<Raw>,
    addressable: Vec<Raw>,
    memories: Vec<Raw>,
    pairs: Pairs,
    topology: OnceLock<usize>,
}

// SAFETY: written only while it is made; the plug-in's objects may be used from any thread.
unsafe impl Sync for Client {}
// SAFETY: see above.
unsafe impl Send for Client {}

impl Handle for Client {
    const NAME: &'static str = "client";

    fn inner(&self) -> Raw {
        self.inner
    }
}

/// Which handle of ours stands for which object of the plug-in.
#[derive(Default)]
struct Pairs {
    devices: Vec<(Raw, Raw)>,
    memories: Vec<(Raw, Raw)>,
}

impl Pairs {
    fn find(pairs: &[(Raw, Raw)], inner: Raw) -> Option<Raw> {
        pairs
            .iter()
            .find(|(known, _)| *known == inner)
            .map(|(_, ours)| *ours)
    }

    /// Our memory for the plug-in's, made at first sight.
    fn memory(&mut self, inner: Raw) -> Raw {
        Self::find(&self.memories, inner).unwrap_or_else(|| {
            let ours = give(Memory::new(inner));
            self.memories.push((inner, ours));
            ours
        })
    }
}

impl Client {
    /// Our handle for a device of the plug-in.
    pub fn device(&self, inner: Raw) -> Result<Raw, Failure> {
        Pairs::find(&self.pairs.devices, inner)
            .ok_or_else(|| Failure::invalid("the device is not of this client"))
    }

    /// Our handle for a memory of the plug-in.
    pub fn memory(&self, inner: Raw) -> Result<Raw, Failure> {
        Pairs::find(&self.pairs.memories, inner)
            .ok_or_else(|| Failure::invalid("the memory is not of this client"))
    }
}

pub fn create(arguments: &mut ClientCreate) -> Answer {
    let wrapped = wrapped::get()?;
    let mut inner = arguments.copied();
    if !wrapped.real {
        // The options are libtpu's (host staging, topology); a CPU plug-in refuses what it does not know.
        inner.num_options = 0;
    }
    wrapped.call(&mut inner)?;
    let client = describe(wrapped, present(inner.client, Client::NAME)?)?;
    if let Some(memory) = client
        .addressable
        .first()
        .and_then(|device| own::<Device>(*device).ok()?.default())
    {
        learn_default_memory(memory);
    }
    let numbers: Vec<i32> = client
        .devices
        .iter()
        .filter_map(|device| Some(own::<Device>(*device).ok()?.id))
        .collect();
    SESSION.begin(identify(wrapped, &client), &numbers);
    cache::prune_aside();
    arguments.client = give(client);
    Ok(())
}

fn describe(wrapped: &Wrapped, inner: Raw) -> Result<Client, Failure> {
    let mut all = ClientDevices::new();
    all.client = inner;
    wrapped.call(&mut all)?;
    let mut addressable = ClientAddressableDevices::new();
    addressable.client = inner;
    wrapped.call(&mut addressable)?;
    let mut memories = ClientAddressableMemories::new();
    memories.client = inner;
    wrapped.call(&mut memories)?;
    let mut name = ClientPlatformName::new();
    name.client = inner;
    wrapped.call(&mut name)?;
    let mut version = ClientPlatformVersion::new();
    version.client = inner;
    wrapped.call(&mut version)?;
    let version = text(version.platform_version, version.platform_version_size);

    let mut pairs = Pairs::default();
    let memories: Vec<Raw> = slice::<Raw>(
        memories.addressable_memories,
        memories.num_addressable_memories,
    )
    .iter()
    .map(|memory| pairs.memory(*memory))
    .collect();
    let local = slice::<Raw>(
        addressable.addressable_devices,
        addressable.num_addressable_devices,
    );
    for device in slice::<Raw>(all.devices, all.num_devices) {
        let ours = give(describe_device(
            wrapped,
            *device,
            local.contains(device),
            &mut pairs,
        )?);
        pairs.devices.push((*device, ours));
    }
    for (memory, ours) in &pairs.memories {
        let mut users = MemoryAddressableByDevices::new();
        users.memory = *memory;
        wrapped.call(&mut users)?;
        let users = slice::<Raw>(users.devices, users.num_devices);
        let devices = users
            .iter()
            .filter_map(|device| Pairs::find(&pairs.devices, *device))
            .collect();
        own::<Memory>(*ours)?.set_devices(devices);
    }
    Ok(Client {
        inner,
        platform_name: "tpu".to_owned(),
        platform_version: if wrapped.real {
            version.into_owned()
        } else {
            wrapped.emulated_version(&version)
        },
        devices: pairs.devices.iter().map(|(_, ours)| *ours).collect(),
        addressable: local
            .iter()
            .filter_map(|device| Pairs::find(&pairs.devices, *device))
            .collect(),
        memories,
        pairs,
        topology: OnceLock::new(),
    })
}

fn describe_device(
    wrapped: &Wrapped,
    inner: Raw,
    local: bool,
    pairs: &mut Pairs,
) -> Result<Device, Failure> {
    let mut description = DeviceGetDescription::new();
    description.device = inner;
    wrapped.call(&mut description)?;
    let described = present(description.device_description, DeviceDescription::NAME)?;
    let mut number = DeviceDescriptionId::new();
    number.device_description = described;
    wrapped.call(&mut number)?;
    let id = number.id;
    let place = Place::Device(u16::try_from(pairs.devices.len()).unwrap_or(u16::MAX));
    let description = give(DeviceDescription::new(described));
    if !local {
        return Ok(Device {
            inner,
            id,
            place,
            description,
            memories: Vec::new(),
            default_memory: std::ptr::null_mut(),
        });
    }
    let mut memories = DeviceAddressableMemories::new();
    memories.device = inner;
    wrapped.call(&mut memories)?;
    let memories: Vec<Raw> = slice::<Raw>(memories.memories, memories.num_memories)
        .iter()
        .map(|memory| pairs.memory(*memory))
        .collect();
    let mut default = DeviceDefaultMemory::new();
    default.device = inner;
    wrapped.call(&mut default)?;
    let default_memory = pairs.memory(present(default.memory, Memory::NAME)?);
    own::<Memory>(default_memory)?.set_home(place);
    Ok(Device {
        inner,
        id,
        place,
        description,
        memories,
        default_memory,
    })
}

fn identify(wrapped: &Wrapped, client: &Client) -> Identity {
    let (major, minor) = wrapped.interface();
    let plugin = wrapped.path.display().to_string();
    let interface = format!("{major}.{minor}");
    let platform_version = client.platform_version.clone();
    if wrapped.real {
        let kind = real_kind(wrapped, client).unwrap_or_default();
        return Identity {
            generation: String::new(),
            device_name: kind.clone(),
            kind,
            emulated: false,
            hbm_bytes: 0,
            chip_hbm_bytes: 0,
            plugin,
            interface,
            platform_version,
        };
    }
    let generation = wrapped.generation;
    let wanted = wrapped.hbm_bytes.unwrap_or(generation.hbm_bytes);
    Identity {
        generation: generation.name.to_owned(),
        device_name: generation.device_name.to_owned(),
        kind: generation.kind.to_owned(),
        emulated: true,
        hbm_bytes: choice::host_bytes().map_or(wanted, |host| host.min(wanted)),
        chip_hbm_bytes: generation.hbm_bytes,
        plugin,
        interface,
        platform_version,
    }
}

fn real_kind(wrapped: &Wrapped, client: &Client) -> Option<String> {
    let device = own::<Device>(*client.addressable.first()?).ok()?;
    let description = own::<DeviceDescription>(device.description).ok()?;
    let mut kind = DeviceDescriptionKind::new();
    kind.device_description = description.inner();
    wrapped.call(&mut kind).ok()?;
    Some(text(kind.device_kind, kind.device_kind_size).into_owned())
}

pub fn destroy(arguments: &mut ClientDestroy) -> Answer {
    if arguments.client.is_null() {
        return Ok(());
    }
    forward::<_, Client>(arguments, |arguments| &mut arguments.client)
}

pub fn platform_name(arguments: &mut ClientPlatformName) -> Answer {
    let name = &own::<Client>(arguments.client)?.platform_name;
    arguments.platform_name = name.as_ptr().cast_mut().cast();
    arguments.platform_name_size = name.len();
    Ok(())
}

pub fn platform_version(arguments: &mut ClientPlatformVersion) -> Answer {
    let version = &own::<Client>(arguments.client)?.platform_version;
    arguments.platform_version = version.as_ptr().cast_mut().cast();
    arguments.platform_version_size = version.len();
    Ok(())
}

pub fn devices(arguments: &mut ClientDevices) -> Answer {
    let devices = &own::<Client>(arguments.client)?.devices;
    arguments.devices = devices.as_ptr().cast_mut().cast();
    arguments.num_devices = devices.len();
    Ok(())
}

pub fn addressable_devices(arguments: &mut ClientAddressableDevices) -> Answer {
    let devices = &own::<Client>(arguments.client)?.addressable;
    arguments.addressable_devices = devices.as_ptr().cast_mut().cast();
    arguments.num_addressable_devices = devices.len();
    Ok(())
}

pub fn addressable_memories(arguments: &mut ClientAddressableMemories) -> Answer {
    let memories = &own::<Client>(arguments.client)?.memories;
    arguments.addressable_memories = memories.as_ptr().cast_mut().cast();
    arguments.num_addressable_memories = memories.len();
    Ok(())
}

pub fn lookup_device(arguments: &mut ClientLookupDevice) -> Answer {
    let client = own::<Client>(arguments.client)?;
    forward::<_, Client>(arguments, |arguments| &mut arguments.client)?;
    arguments.device = client.device(arguments.device)?;
    Ok(())
}

pub fn lookup_addressable_device(arguments: &mut ClientLookupAddressableDevice) -> Answer {
    let client = own::<Client>(arguments.client)?;
    forward::<_, Client>(arguments, |arguments| &mut arguments.client)?;
    arguments.addressable_device = client.device(arguments.addressable_device)?;
    Ok(())
}

pub fn topology(arguments: &mut ClientTopologyDescription) -> Answer {
    let client = own::<Client>(arguments.client)?;
    if let Some(topology) = client.topology.get() {
        arguments.topology = *topology as Raw;
        return Ok(());
    }
    forward::<_, Client>(arguments, |arguments| &mut arguments.client)?;
    let inner = arguments.topology;
    // Two threads may ask at once: the one that loses frees what it made.
    let made = Topology::new(inner, false)?;
    arguments.topology = *client.topology.get_or_init(|| give(made) as usize) as Raw;
    Ok(())
}
