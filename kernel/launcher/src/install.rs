//! Writes a kernelspec for a Jupyter that runs outside this environment, with absolute
//! paths. (A Jupyter inside this environment finds the wheel's own kernelspec by itself.)

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Map, Value, json};

use crate::arguments::{InstallOptions, Place};
use crate::environment::Environment;
use crate::error::Error;

const KERNEL_JSON: &str = include_str!("../../../kernelspec/kernel.json");
const LOGOS: [(&str, &[u8]); 3] = [
    (
        "logo-32x32.png",
        include_bytes!("../../../kernelspec/logo-32x32.png"),
    ),
    (
        "logo-64x64.png",
        include_bytes!("../../../kernelspec/logo-64x64.png"),
    ),
    (
        "logo-svg.svg",
        include_bytes!("../../../kernelspec/logo-svg.svg"),
    ),
];

/// Returns the kernelspec's folder.
pub fn install(options: &InstallOptions) -> Result<PathBuf, Error> {
    let environment = Environment::find(options.python.as_deref())?;
    let launcher = env::current_exe().map_err(|source| Error::CannotWrite {
        path: "kernel.json".into(),
        source,
    })?;
    let jupyter = match &options.place {
        Place::User => user_data(|name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        })
        .ok_or(Error::NoHome)?,
        Place::SysPrefix => environment.prefix().join("share/jupyter"),
        Place::Prefix(prefix) => std::path::absolute(prefix)
            .map_err(|source| Error::CannotWrite {
                path: prefix.clone(),
                source,
            })?
            .join("share/jupyter"),
    };
    let spec = kernelspec(&launcher, &environment.python, options)?;
    let folder = jupyter.join("kernels").join(&options.name);
    let write = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).map_err(|source| Error::CannotWrite {
            path: path.to_owned(),
            source,
        })
    };
    fs::create_dir_all(&folder).map_err(|source| Error::CannotWrite {
        path: folder.clone(),
        source,
    })?;
    for (name, bytes) in LOGOS {
        write(&folder.join(name), bytes)?;
    }
    write(
        &folder.join("kernel.json"),
        format!("{spec:#}\n").as_bytes(),
    )?;
    Ok(folder)
}

/// Jupyter's data folder of this person, as `jupyter --paths` names it first.
fn user_data(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    variable("JUPYTER_DATA_DIR")
        .or_else(|| variable("XDG_DATA_HOME").map(|data| data.join("jupyter")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/share/jupyter")))
}

/// The wheel's kernel.json with absolute paths and the names asked for. The interpreter is
/// written down only where the launcher would not find it by itself.
fn kernelspec(launcher: &Path, python: &Path, options: &InstallOptions) -> Result<Value, Error> {
    let mut spec: Map<String, Value> = serde_json::from_str(KERNEL_JSON).unwrap_or_default();
    let mut argv = vec![utf8(launcher)?, "start"];
    if launcher.parent() != python.parent() {
        argv.extend(["--python", utf8(python)?]);
    }
    argv.extend(["-f", "{connection_file}"]);
    spec.insert("argv".to_owned(), json!(argv));
    if let Some(name) = &options.display_name {
        spec.insert("display_name".to_owned(), json!(name));
    }
    if !options.env.is_empty() {
        let env: Map<String, Value> = options
            .env
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        spec.insert("env".to_owned(), Value::Object(env));
    }
    Ok(Value::Object(spec))
}

fn utf8(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::PathNotUtf8 {
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(display_name: Option<&str>) -> InstallOptions {
        InstallOptions {
            place: Place::User,
            name: "pytorch-tpu".into(),
            display_name: display_name.map(str::to_owned),
            python: None,
            env: Vec::new(),
        }
    }

    #[test]
    fn the_kernelspec_names_the_launcher_absolutely_and_keeps_the_rest() {
        let spec = kernelspec(
            Path::new("/env/bin/tpu-kernel"),
            Path::new("/env/bin/python"),
            &options(None),
        )
        .unwrap();
        assert_eq!(
            spec["argv"],
            json!(["/env/bin/tpu-kernel", "start", "-f", "{connection_file}"])
        );
        assert_eq!(spec["display_name"], "PyTorch (TPU)");
        assert_eq!(spec["language"], "python");
        assert_eq!(spec["interrupt_mode"], "message");
        assert_eq!(spec["kernel_protocol_version"], "5.5");
    }

    #[test]
    fn an_interpreter_elsewhere_is_written_down() {
        let spec = kernelspec(
            Path::new("/build/tpu-kernel"),
            Path::new("/env/bin/python"),
            &options(Some("Mine")),
        );
        let spec = spec.unwrap();
        let argv = json!([
            "/build/tpu-kernel",
            "start",
            "--python",
            "/env/bin/python",
            "-f",
            "{connection_file}"
        ]);
        assert_eq!(spec["argv"], argv);
        assert_eq!(spec["display_name"], "Mine");
    }

    #[test]
    fn variables_asked_for_are_set_for_its_kernels() {
        let mut options = options(None);
        options.env = vec![("TPU_KERNEL_EMULATE".into(), "v6e".into())];
        let spec = kernelspec(
            Path::new("/env/bin/tpu-kernel"),
            Path::new("/env/bin/python"),
            &options,
        )
        .unwrap();
        assert_eq!(spec["env"], json!({"TPU_KERNEL_EMULATE": "v6e"}));
    }

    #[test]
    fn the_user_folder_is_the_one_jupyter_looks_in() {
        let from = |known: &[(&str, &str)]| {
            user_data(|name| {
                known
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| PathBuf::from(value))
            })
        };
        assert_eq!(
            from(&[("HOME", "/home/ada")]),
            Some("/home/ada/.local/share/jupyter".into())
        );
        assert_eq!(
            from(&[("HOME", "/home/ada"), ("XDG_DATA_HOME", "/data")]),
            Some("/data/jupyter".into())
        );
        assert_eq!(
            from(&[("JUPYTER_DATA_DIR", "/j"), ("XDG_DATA_HOME", "/data")]),
            Some("/j".into())
        );
        assert_eq!(from(&[]), None);
    }
}
