//! What the chip is called and how large it is, real or emulated.

use serde::{Deserialize, Serialize};

/// Facts of a TPU generation.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    /// Short name, as `v5e`.
    pub name: &'static str,
    /// What users of `PyTorch` see.
    pub device_name: &'static str,
    /// What libtpu calls the device.
    pub kind: &'static str,
    /// HBM a program may use, as libtpu reports it.
    pub hbm_bytes: u64,
    pub cores: i64,
}

/// TPU v5e.
pub const V5E: Generation = Generation {
    name: "v5e",
    device_name: "TPU v5e",
    kind: "TPU v5 lite",
    hbm_bytes: 16_909_336_064,
    cores: 1,
};

/// The device of this session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `v5e` when emulated, empty when a real chip says for itself what it is.
    pub generation: String,
    pub device_name: String,
    pub kind: String,
    pub emulated: bool,
    /// Bytes a program may use: the chip's, or the host's when that is less.
    pub hbm_bytes: u64,
    /// Bytes the generation has.
    pub chip_hbm_bytes: u64,
    /// Plug-in that does the work.
    pub plugin: String,
    /// Version of the interface it speaks, as `0.106`.
    pub interface: String,
    pub platform_version: String,
}
