//! Topologies: what devices there are, without a client.

use std::sync::OnceLock;

use super::description::DeviceDescription;
use super::failure::{Answer, Failure};
use super::handle::{Handle, forward, give, hold, own, present, take};
use super::wrapped::{self, text};
use crate::pjrt::{
    Arguments, NamedValue, Raw, TopologyDescriptionAttributes, TopologyDescriptionCreate,
    TopologyDescriptionDeserialize, TopologyDescriptionDestroy,
    TopologyDescriptionGetDeviceDescriptions, TopologyDescriptionPlatformName,
    TopologyDescriptionPlatformVersion, TopologyDescriptionSerialize, Value,
};

/// A topology and our descriptions of its devices.
pub struct Topology {
    inner: Raw,
    owned: bool,
    descriptions: Vec<Raw>,
}

impl Handle for Topology {
    const NAME: &'static str = "topology";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl Topology {
    /// A handle for `inner`; `owned` when the caller frees it, not the client.
    pub fn new(inner: Raw, owned: bool) -> Result<Self, Failure> {
        let inner = present(inner, Self::NAME)?;
        let mut arguments = TopologyDescriptionGetDeviceDescriptions::new();
        arguments.topology = inner;
        wrapped::get()?.call(&mut arguments)?;
        let descriptions =
            wrapped::slice::<Raw>(arguments.descriptions, arguments.num_descriptions);
        let descriptions = descriptions
            .iter()
            .map(|inner| give(DeviceDescription::new(*inner)))
            .collect();
        Ok(Self {
            inner,
            owned,
            descriptions,
        })
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        for description in &self.descriptions {
            drop(take::<DeviceDescription>(*description));
        }
    }
}

pub fn create(arguments: &mut TopologyDescriptionCreate) -> Answer {
    wrapped::get()?.call(arguments)?;
    arguments.topology = give(Topology::new(arguments.topology, true)?);
    Ok(())
}

pub fn deserialize(arguments: &mut TopologyDescriptionDeserialize) -> Answer {
    wrapped::get()?.call(arguments)?;
    arguments.topology = give(Topology::new(arguments.topology, true)?);
    Ok(())
}

pub fn destroy(arguments: &mut TopologyDescriptionDestroy) -> Answer {
    // A client's topology goes with the client, which is never freed.
    if !own::<Topology>(arguments.topology)?.owned {
        return Ok(());
    }
    let answer = forward::<_, Topology>(arguments, |arguments| &mut arguments.topology);
    drop(take::<Topology>(arguments.topology));
    answer
}

pub fn platform_name(arguments: &mut TopologyDescriptionPlatformName) -> Answer {
    own::<Topology>(arguments.topology)?;
    let name = "tpu";
    arguments.platform_name = name.as_ptr().cast_mut().cast();
    arguments.platform_name_size = name.len();
    Ok(())
}

pub fn platform_version(arguments: &mut TopologyDescriptionPlatformVersion) -> Answer {
    static VERSION: OnceLock<String> = OnceLock::new();
    let wrapped = wrapped::get()?;
    forward::<_, Topology>(arguments, |arguments| &mut arguments.topology)?;
    if !wrapped.real {
        let of_plugin = text(arguments.platform_version, arguments.platform_version_size);
        let version = VERSION.get_or_init(|| wrapped.emulated_version(&of_plugin));
        arguments.platform_version = version.as_ptr().cast_mut().cast();
        arguments.platform_version_size = version.len();
    }
    Ok(())
}

pub fn descriptions(arguments: &mut TopologyDescriptionGetDeviceDescriptions) -> Answer {
    let descriptions = &own::<Topology>(arguments.topology)?.descriptions;
    arguments.descriptions = descriptions.as_ptr().cast_mut().cast();
    arguments.num_descriptions = descriptions.len();
    Ok(())
}

pub fn serialize(arguments: &mut TopologyDescriptionSerialize) -> Answer {
    forward::<_, Topology>(arguments, |arguments| &mut arguments.topology)?;
    hold(
        &mut arguments.serialized_topology,
        &mut arguments.serialized_topology_deleter,
    );
    Ok(())
}

pub fn attributes(arguments: &mut TopologyDescriptionAttributes) -> Answer {
    static ATTRIBUTES: OnceLock<[NamedValue; 3]> = OnceLock::new();
    let wrapped = wrapped::get()?;
    if wrapped.real {
        return forward::<_, Topology>(arguments, |arguments| &mut arguments.topology);
    }
    own::<Topology>(arguments.topology)?;
    let attributes = ATTRIBUTES.get_or_init(|| {
        let limit = Value::Integer(wrapped.generation.hbm_bytes as i64);
        [
            NamedValue::new("device_memory_bytes_limit", limit),
            NamedValue::new("twist", Value::Integer(0)),
            NamedValue::new("wrap", Value::Integers(&[0, 0, 0])),
        ]
    });
    arguments.attributes = attributes.as_ptr().cast_mut().cast();
    arguments.num_attributes = attributes.len();
    Ok(())
}
