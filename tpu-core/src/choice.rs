//! Which plug-in to wrap: the one asked for, libtpu where a chip is, else an XLA CPU plug-in.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Path of the plug-in to wrap, whatever the machine has.
const PLUGIN_VARIABLE: &str = "TPU_KERNEL_PJRT_PLUGIN";
/// Path of libtpu, set by the bootstrap from the Python environment.
const LIBTPU_VARIABLE: &str = "TPU_KERNEL_LIBTPU";
/// Path of the CPU plug-in, set by the bootstrap from the Python environment.
const CPU_VARIABLE: &str = "TPU_KERNEL_CPU_PLUGIN";
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
    /// What is missing, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What the choice would be, as the environment is now.
pub fn describe() -> Description {
    let chip = has_chip(&root());
    match choose() {
        Ok(plugin) => Description {
            chip,
            plugin: Some(plugin),
            problem: None,
        },
        Err(error) => Description {
            chip,
            plugin: None,
            problem: Some(error.to_string()),
        },
    }
}

/// The plug-in to wrap, by the process's environment.
pub fn choose() -> Result<PathBuf, ChoiceError> {
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
) -> Result<PathBuf, ChoiceError> {
    if let Some(path) = variable(PLUGIN_VARIABLE).map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            Err(ChoiceError::NoSuchPlugin(path))
        };
    }
    let file = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_file())
    };
    if has_chip(root) {
        file(LIBTPU_VARIABLE).ok_or(ChoiceError::NoLibtpu)
    } else {
        file(CPU_VARIABLE).ok_or(ChoiceError::NoPlugin)
    }
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
        assert_eq!(choose_from(&machine.0, environment), Ok(cpu.clone()));
        machine.pci("0000:00:05.0", "0x1ae0", "0x006f", "0x120000");
        machine.file("dev/vfio/7", "");
        assert_eq!(choose_from(&machine.0, environment), Ok(libtpu.clone()));
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
        assert_eq!(choose_from(&machine.0, given), Ok(asked.clone()));
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
    fn memory_is_read_from_the_kernels_table() {
        assert_eq!(
            parse_meminfo("MemTotal:       24601156 kB\nMemFree: 1 kB\n"),
            Some(25_191_583_744)
        );
        assert_eq!(parse_meminfo("MemFree: 1 kB\n"), None);
    }
}
