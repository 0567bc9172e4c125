//! Which plug-in to wrap: the one asked for, libtpu where a chip is, else an XLA CPU plug-in; and
//! which chip that one plays.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::session::Generation;

/// Path of the plug-in to wrap, whatever the machine has.
const PLUGIN_VARIABLE: &str = "TPU_KERNEL_PJRT_PLUGIN";
/// Path of libtpu, set by the bootstrap from the Python environment.
const LIBTPU_VARIABLE: &str = "TPU_KERNEL_LIBTPU";
/// Path of the CPU plug-in, set by the bootstrap from the Python environment.
const CPU_VARIABLE: &str = "TPU_KERNEL_CPU_PLUGIN";
/// Generation to emulate, whether there is a chip or not.
const EMULATE_VARIABLE: &str = "TPU_KERNEL_EMULATE";
/// HBM of the emulated chip, as `8GiB`.
const HBM_VARIABLE: &str = "TPU_KERNEL_HBM";
/// Folder taken for `/` when looking for chips.
const ROOT_VARIABLE: &str = "TPU_KERNEL_ROOT";

/// Google's PCI vendor number. Its network and disk adapters have it too.
const GOOGLE: &str = "0x1ae0";
/// PCI class "processing accelerator", which TPUs report.
const ACCELERATOR_CLASS: &str = "0x12";
/// Device numbers of TPU v4, v5p, v5e, v6e and v7.
const CHIPS: [&str; 5] = ["0x005e", "0x0062", "0x0063", "0x006f", "0x0076"];

/// Why there is no plug-in to wrap.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChoiceError {
    #[error("`{PLUGIN_VARIABLE}` names `{0}`, which is not a file: correct or unset it")]
    NoSuchPlugin(PathBuf),
    #[error("this machine has a TPU but no libtpu: pip install libtpu")]
    NoLibtpu,
    #[error(
        "this machine has no TPU, and no XLA CPU plug-in to emulate one: pip install {CPU_PACKAGE}"
    )]
    NoPlugin,
    #[error("`{EMULATE_VARIABLE}` is `{0}`: set it to v4, v5e, v5p, v6e or 7x, or unset it")]
    NoSuchGeneration(String),
    #[error("`{HBM_VARIABLE}` is `{0}`: set it to a size such as 8GiB, or unset it")]
    NoSize(String),
}

/// Package that brings the default CPU plug-in.
pub const CPU_PACKAGE: &str = "fastatomstruct-xla-cpu";

/// A choice for those who ask before anything is loaded.
#[derive(Serialize)]
pub struct Description {
    /// A chip was found in the machine.
    pub chip: bool,
    /// Plug-in that would be wrapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PathBuf>,
    /// Name in `PyTorch` of the chip that is emulated; none where a real one is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulates: Option<&'static str>,
    /// What is missing, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What is wrapped, and what it is taken for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub plugin: PathBuf,
    /// The chip the plug-in plays where it is not libtpu.
    pub generation: &'static Generation,
    /// HBM asked for, in bytes.
    pub hbm_bytes: Option<u64>,
}

/// What the choice would be, as the environment is now.
pub fn describe() -> Description {
    let chip = has_chip(&root());
    match choose() {
        Ok(choice) => {
            let real =
                chip && env::var_os(LIBTPU_VARIABLE).is_some_and(|path| path == choice.plugin);
            Description {
                chip,
                emulates: (!real).then_some(choice.generation.device_name),
                plugin: Some(choice.plugin),
                problem: None,
            }
        }
        Err(error) => Description {
            chip,
            plugin: None,
            emulates: None,
            problem: Some(error.to_string()),
        },
    }
}

/// The plug-in to wrap, by the process's environment.
pub fn choose() -> Result<Choice, ChoiceError> {
    choose_from(&root(), |name| {
        env::var_os(name).filter(|value| !value.is_empty())
    })
}

fn root() -> PathBuf {
    env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

fn choose_from(
    root: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Choice, ChoiceError> {
    let text = |name| variable(name).map(|value| value.to_string_lossy().into_owned());
    let asked = text(EMULATE_VARIABLE)
        .map(|name| Generation::find(&name).ok_or(ChoiceError::NoSuchGeneration(name)))
        .transpose()?;
    let hbm_bytes = text(HBM_VARIABLE)
        .map(|size| parse_size(&size).ok_or(ChoiceError::NoSize(size)))
        .transpose()?;
    let file = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_file())
    };
    let plugin = if let Some(path) = variable(PLUGIN_VARIABLE).map(PathBuf::from) {
        if !path.is_file() {
            return Err(ChoiceError::NoSuchPlugin(path));
        }
        path
    } else if asked.is_none() && has_chip(root) {
        file(LIBTPU_VARIABLE).ok_or(ChoiceError::NoLibtpu)?
    } else {
        file(CPU_VARIABLE).ok_or(ChoiceError::NoPlugin)?
    };
    Ok(Choice {
        plugin,
        generation: asked.unwrap_or(Generation::DEFAULT),
        hbm_bytes,
    })
}

/// Bytes of a size people write: `8GiB`, `512 MB`, `1.5g`, `1073741824`. K, M, G and T count in
/// 1,024, as memory does. `None` for what is none, zero included.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim().to_ascii_lowercase();
    let unit = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    let factor = match unit {
        "" => 1_u64,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    let bytes = number * factor as f64;
    (bytes >= 1.0 && bytes < 2_f64.powi(63)).then_some(bytes as u64)
}

/// Whether a TPU is in the machine and a device file leads to it.
pub fn has_chip(root: &Path) -> bool {
    on_the_bus(&root.join("sys/bus/pci/devices")) && has_device_file(&root.join("dev"))
}

fn on_the_bus(devices: &Path) -> bool {
    let read = |path: PathBuf| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    entries(devices).any(|device| {
        read(device.join("vendor")) == GOOGLE
            && (CHIPS.contains(&read(device.join("device")).as_str())
                || read(device.join("class")).starts_with(ACCELERATOR_CLASS))
    })
}

fn has_device_file(dev: &Path) -> bool {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    entries(&dev.join("vfio")).any(|entry| name(&entry).bytes().all(|byte| byte.is_ascii_digit()))
        || entries(dev).any(|entry| name(&entry).starts_with("accel"))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

/// What the CPU of this host can do, as the kernel lists it.
pub fn cpu_features() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text
        .lines()
        .find(|line| line.starts_with("flags") || line.starts_with("Features"));
    line.unwrap_or_default().to_owned()
}

/// Bytes this host can give: its memory, or the limit of its container when that is less.
pub fn host_bytes() -> Option<u64> {
    let total = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| parse_meminfo(&text));
    let container = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
    .min();
    total.into_iter().chain(container).min()
}

fn parse_meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that goes away with the test.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("tpu-core-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, path: &str, text: &str) -> PathBuf {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        }

        fn pci(&self, slot: &str, vendor: &str, device: &str, class: &str) {
            for (file, text) in [("vendor", vendor), ("device", device), ("class", class)] {
                self.file(
                    &format!("sys/bus/pci/devices/{slot}/{file}"),
                    &format!("{text}\n"),
                );
            }
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_tpu_behind_vfio_is_found() {
        let machine = Machine::new("vfio");
        machine.pci("0000:00:05.0", "0x1ae0", "0x0063", "0x120000");
        assert!(!has_chip(&machine.0), "no device file yet");
        machine.file("dev/vfio/vfio", "");
        assert!(!has_chip(&machine.0), "only the control file");
        machine.file("dev/vfio/0", "");
        assert!(has_chip(&machine.0));
    }

    #[test]
    fn a_tpu_behind_accel_is_found_by_its_class() {
        let machine = Machine::new("accel");
        machine.pci("0000:00:05.0", "0x1ae0", "0x0099", "0x120000");
        machine.file("dev/accel0", "");
        assert!(has_chip(&machine.0));
    }

    #[test]
    fn a_google_network_card_is_no_tpu() {
        let machine = Machine::new("network");
        machine.pci("0000:00:04.0", "0x1ae0", "0x0042", "0x020000");
        machine.file("dev/vfio/0", "");
        assert!(!has_chip(&machine.0));
    }

    #[test]
    fn an_accelerator_of_another_maker_is_no_tpu() {
        let machine = Machine::new("other");
        machine.pci("0000:00:04.0", "0x10de", "0x0063", "0x120000");
        machine.file("dev/vfio/0", "");
        assert!(!has_chip(&machine.0));
    }

    #[test]
    fn the_machine_decides_between_libtpu_and_the_cpu_plugin() {
        let machine = Machine::new("choice");
        let libtpu = machine.file("libtpu.so", "");
        let cpu = machine.file("cpu.so", "");
        let environment = |name: &str| match name {
            LIBTPU_VARIABLE => Some(libtpu.clone().into_os_string()),
            CPU_VARIABLE => Some(cpu.clone().into_os_string()),
            _ => None,
        };
        let plugin = || choose_from(&machine.0, environment).map(|choice| choice.plugin);
        assert_eq!(plugin(), Ok(cpu.clone()));
        machine.pci("0000:00:05.0", "0x1ae0", "0x006f", "0x120000");
        machine.file("dev/vfio/7", "");
        assert_eq!(plugin(), Ok(libtpu.clone()));
        assert_eq!(
            choose_from(&machine.0, |_| None),
            Err(ChoiceError::NoLibtpu)
        );
    }

    #[test]
    fn a_plugin_asked_for_comes_first_and_must_exist() {
        let machine = Machine::new("asked");
        let asked = machine.file("mine.so", "");
        let given = |name: &str| (name == PLUGIN_VARIABLE).then(|| asked.clone().into_os_string());
        assert_eq!(
            choose_from(&machine.0, given).map(|choice| choice.plugin),
            Ok(asked.clone())
        );
        let missing = machine.0.join("gone.so");
        let wrong =
            |name: &str| (name == PLUGIN_VARIABLE).then(|| missing.clone().into_os_string());
        assert_eq!(
            choose_from(&machine.0, wrong),
            Err(ChoiceError::NoSuchPlugin(missing.clone()))
        );
    }

    #[test]
    fn without_any_plugin_the_message_says_what_to_install() {
        let machine = Machine::new("none");
        let error = choose_from(&machine.0, |_| None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this machine has no TPU, and no XLA CPU plug-in to emulate one: pip install fastatomstruct-xla-cpu"
        );
    }

    #[test]
    fn a_generation_asked_for_is_emulated_even_where_a_chip_is() {
        let machine = Machine::new("emulate");
        let cpu = machine.file("cpu.so", "");
        let libtpu = machine.file("libtpu.so", "");
        machine.pci("0000:00:05.0", "0x1ae0", "0x006f", "0x120000");
        machine.file("dev/vfio/7", "");
        let environment = |emulate: &'static str, hbm: &'static str| {
            let (cpu, libtpu) = (cpu.clone(), libtpu.clone());
            move |name: &str| match name {
                LIBTPU_VARIABLE => Some(libtpu.clone().into_os_string()),
                CPU_VARIABLE => Some(cpu.clone().into_os_string()),
                EMULATE_VARIABLE => Some(emulate.into()),
                HBM_VARIABLE => Some(hbm.into()),
                _ => None,
            }
        };
        let choice = choose_from(&machine.0, environment("v6e", "8GiB")).unwrap();
        assert_eq!(choice.plugin, cpu);
        assert_eq!(choice.generation.kind, "TPU v6 lite");
        assert_eq!(choice.hbm_bytes, Some(8 << 30));
        let wrong = choose_from(&machine.0, environment("v9", "8GiB")).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "`TPU_KERNEL_EMULATE` is `v9`: set it to v4, v5e, v5p, v6e or 7x, or unset it"
        );
        let wrong = choose_from(&machine.0, environment("v4", "lots")).unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "`TPU_KERNEL_HBM` is `lots`: set it to a size such as 8GiB, or unset it"
        );
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        let cases = [
            ("8GiB", Some(8 << 30)),
            ("512 MB", Some(512 << 20)),
            ("1.5g", Some(3 << 29)),
            ("64k", Some(64 << 10)),
            ("1073741824", Some(1 << 30)),
            ("100B", Some(100)),
            ("0", None),
            ("0.5", None),
            ("-1", None),
            ("", None),
            ("GiB", None),
            ("8 apples", None),
            ("1e400", None),
            ("99999999999T", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        assert_eq!(
            parse_meminfo("MemTotal:       24601156 kB\nMemFree: 1 kB\n"),
            Some(25_191_583_744)
        );
        assert_eq!(parse_meminfo("MemFree: 1 kB\n"), None);
    }
}
