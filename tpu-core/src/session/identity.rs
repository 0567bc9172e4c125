//! What the chip is called and how large it is, real or emulated.

use serde::{Deserialize, Serialize};

/// Facts of a TPU generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The generations there are, oldest first: names of `PyTorch` (`torch_tpu`'s table of PCI numbers),
/// kind, HBM and cores as libtpu 0.0.52 reports them for a topology of one chip.
const GENERATIONS: [Generation; 5] = [
    Generation {
        name: "v4",
        device_name: "TPU v4",
        kind: "TPU v4",
        hbm_bytes: 32_745_977_856,
        cores: 1,
    },
    V5E,
    Generation {
        name: "v5p",
        device_name: "TPU v5p",
        kind: "TPU v5",
        hbm_bytes: 102_786_661_888,
        cores: 2,
    },
    Generation {
        name: "v6e",
        device_name: "TPU v6e",
        kind: "TPU v6 lite",
        hbm_bytes: 33_546_042_880,
        cores: 1,
    },
    // A chip shows as two devices, and a process has one of them.
    Generation {
        name: "7x",
        device_name: "TPU v7",
        kind: "TPU7x",
        hbm_bytes: 101_724_453_888,
        cores: 1,
    },
];

/// TPU v5e, which is emulated unless another is asked for.
const V5E: Generation = Generation {
    name: "v5e",
    device_name: "TPU v5e",
    kind: "TPU v5 lite",
    hbm_bytes: 16_909_336_064,
    cores: 1,
};

impl Generation {
    /// The generation that is emulated unless another is asked for.
    pub const DEFAULT: &'static Self = &V5E;

    /// The generation people call `name`, in any case: `v5e`, `TPU v5e`, `v5litepod`, `tpu7x`, …
    pub fn find(name: &str) -> Option<&'static Self> {
        let name = name.to_ascii_lowercase().replace([' ', '-', '_'], "");
        let name = name.strip_prefix("tpu").unwrap_or(&name);
        let name = match name {
            "v5lite" | "v5litepod" => "v5e",
            "v6lite" | "trillium" => "v6e",
            "v7" | "v7x" | "7" | "ironwood" => "7x",
            other => other,
        };
        GENERATIONS.iter().find(|generation| {
            generation.name.trim_start_matches('v') == name.trim_start_matches('v')
        })
    }
}

/// The device of this session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// As `v5e` when emulated, empty when a real chip says for itself what it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_found_by_the_names_people_use() {
        let name = |text| Generation::find(text).map(|generation| generation.device_name);
        for text in ["v5e", "V5E", "TPU v5e", "v5litepod", "5e"] {
            assert_eq!(name(text), Some("TPU v5e"), "{text}");
        }
        for text in ["7x", "tpu7x", "TPU7x", "v7", "v7x"] {
            assert_eq!(name(text), Some("TPU v7"), "{text}");
        }
        assert_eq!(name("v4"), Some("TPU v4"));
        assert_eq!(name("v5p"), Some("TPU v5p"));
        assert_eq!(name("v6e"), Some("TPU v6e"));
        for text in ["", "v", "v5", "v8", "e", "tpu"] {
            assert_eq!(name(text), None, "{text}");
        }
    }
}
