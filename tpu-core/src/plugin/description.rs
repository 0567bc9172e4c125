//! What a device is: number, kind, attributes. The emulated chip answers as the real one does.

use std::sync::OnceLock;

use super::failure::Answer;
use super::handle::{Handle, forward, own};
use super::wrapped;
use crate::pjrt::{
    DeviceDescriptionAttributes, DeviceDescriptionDebugString, DeviceDescriptionKind,
    DeviceDescriptionToString, NamedValue, Raw, Value,
};
use crate::session::Generation;

/// Description of a device of a client or a topology.
pub struct DeviceDescription {
    inner: Raw,
}

impl Handle for DeviceDescription {
    const NAME: &'static str = "device description";

    fn inner(&self) -> Raw {
        self.inner
    }
}

impl DeviceDescription {
    pub fn new(inner: Raw) -> Self {
        Self { inner }
    }
}

/// Attributes of a device of the emulated chip, as libtpu gives them for one chip of the generation.
pub fn emulated_attributes(generation: &Generation) -> &'static [NamedValue] {
    static ATTRIBUTES: OnceLock<[NamedValue; 4]> = OnceLock::new();
    ATTRIBUTES.get_or_init(|| {
        [
            NamedValue::new("coords", Value::Integers(&[0, 0, 0])),
            NamedValue::new("core_on_chip", Value::Integer(0)),
            NamedValue::new("num_cores", Value::Integer(generation.cores)),
            NamedValue::new(
                "device_memory_bytes_limit",
                Value::Integer(generation.hbm_bytes as i64),
            ),
        ]
    })
}

/// Text of the emulated chip, long and short.
const DEBUG_TEXT: &str = "TPU_0(process=0,(0,0,0,0))";
const SHORT_TEXT: &str = "TpuDevice(id=0, process_index=0, coords=(0,0,0), core_on_chip=0)";

fn put(text: &'static str, start: &mut Raw, size: &mut usize) {
    *start = text.as_ptr().cast_mut().cast();
    *size = text.len();
}

pub fn kind(arguments: &mut DeviceDescriptionKind) -> Answer {
    let wrapped = wrapped::get()?;
    if wrapped.real {
        return forward::<_, DeviceDescription>(arguments, |arguments| {
            &mut arguments.device_description
        });
    }
    own::<DeviceDescription>(arguments.device_description)?;
    put(
        wrapped.generation.kind,
        &mut arguments.device_kind,
        &mut arguments.device_kind_size,
    );
    Ok(())
}

pub fn attributes(arguments: &mut DeviceDescriptionAttributes) -> Answer {
    let wrapped = wrapped::get()?;
    if wrapped.real {
        return forward::<_, DeviceDescription>(arguments, |arguments| {
            &mut arguments.device_description
        });
    }
    own::<DeviceDescription>(arguments.device_description)?;
    let attributes = emulated_attributes(wrapped.generation);
    arguments.attributes = attributes.as_ptr().cast_mut().cast();
    arguments.num_attributes = attributes.len();
    Ok(())
}

pub fn debug_text(arguments: &mut DeviceDescriptionDebugString) -> Answer {
    if wrapped::get()?.real {
        return forward::<_, DeviceDescription>(arguments, |arguments| {
            &mut arguments.device_description
        });
    }
    own::<DeviceDescription>(arguments.device_description)?;
    put(
        DEBUG_TEXT,
        &mut arguments.debug_string,
        &mut arguments.debug_string_size,
    );
    Ok(())
}

pub fn short_text(arguments: &mut DeviceDescriptionToString) -> Answer {
    if wrapped::get()?.real {
        return forward::<_, DeviceDescription>(arguments, |arguments| {
            &mut arguments.device_description
        });
    }
    own::<DeviceDescription>(arguments.device_description)?;
    put(
        SHORT_TEXT,
        &mut arguments.to_string,
        &mut arguments.to_string_size,
    );
    Ok(())
}
