//! What the files of an environment say, without running its Python.

use std::fs;
use std::path::{Path, PathBuf};

use super::Version;
use crate::error::Error;

/// The environment's folder: the one above `bin`.
pub fn prefix(python: &Path) -> &Path {
    python
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("/"))
}

/// The version in the file name behind the symbolic links: `python3.11`. `None` where the
/// name carries none (a wrapper script, a copy named `python`).
pub fn named_version(python: &Path) -> Result<Option<Version>, Error> {
    let Ok(file) = python.canonicalize() else {
        return Ok(None);
    };
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let Some((major, rest)) = name
        .strip_prefix("python")
        .and_then(|rest| rest.split_once('.'))
    else {
        return Ok(None);
    };
    let (minor, free_threaded) = match rest.strip_suffix('t') {
        Some(minor) => (minor, true),
        None => (rest, false),
    };
    let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else {
        return Ok(None);
    };
    if free_threaded {
        return Err(Error::PythonFreeThreaded {
            python: python.to_owned(),
        });
    }
    Ok(Some(Version { major, minor }))
}

/// `_kernel.abi3.so` below this environment's own library folders.
pub fn module(python: &Path, version: Version) -> Option<PathBuf> {
    let python_folder = format!("python{}.{}", version.major, version.minor);
    ["lib", "lib64", "local/lib"]
        .iter()
        .flat_map(|lib| ["site-packages", "dist-packages"].map(|packages| (lib, packages)))
        .map(|(lib, packages)| {
            let packages = prefix(python).join(lib).join(&python_folder).join(packages);
            packages.join("tpu_kernel/_kernel.abi3.so")
        })
        .find(|file| file.is_file())
}

/// The shared library of the interpreter behind `python`.
///
/// Only the interpreter's own installation is searched: another libpython of the same
/// version may be built differently.
pub fn libpython(python: &Path, version: Version) -> Option<PathBuf> {
    let base = base_prefix(python)?;
    let name = format!("libpython{}.{}.so.1.0", version.major, version.minor);
    let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    ["lib", "lib64", &multiarch]
        .iter()
        .map(|lib| base.join(lib).join(&name))
        .find(|file| file.is_file())
}

/// Where the interpreter itself is installed: what `pyvenv.cfg` calls `home`, else the
/// folder of the file behind the symbolic links.
fn base_prefix(python: &Path) -> Option<PathBuf> {
    let bin = match home(&prefix(python).join("pyvenv.cfg")) {
        Some(home) => home,
        None => python.canonicalize().ok()?.parent()?.to_owned(),
    };
    bin.parent().map(Path::to_owned)
}

fn home(pyvenv: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(pyvenv).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim().eq_ignore_ascii_case("home")).then(|| PathBuf::from(value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const V311: Version = Version {
        major: 3,
        minor: 11,
    };

    /// An installation `base` and an environment `env` made from it, as `venv` lays them.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "base/bin/python3.11", "");
        fs::create_dir_all(root.path().join("env/bin")).unwrap();
        symlink(
            root.path().join("base/bin/python3.11"),
            root.path().join("env/bin/python"),
        )
        .unwrap();
        let home = root.path().join("base/bin");
        put(
            root.path(),
            "env/pyvenv.cfg",
            &format!("home = {}\nversion = 3.11.7\n", home.display()),
        );
        root
    }

    fn put(root: &Path, name: &str, text: &str) -> PathBuf {
        let file = root.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn the_version_is_read_behind_the_links() {
        let root = tree();
        assert_eq!(
            named_version(&root.path().join("env/bin/python")).unwrap(),
            Some(V311)
        );
        let copy = put(root.path(), "copy/bin/python", "");
        assert_eq!(named_version(&copy).unwrap(), None);
        let config = put(root.path(), "copy/bin/python3.11-config", "");
        assert_eq!(named_version(&config).unwrap(), None);
    }

    #[test]
    fn a_free_threaded_python_is_refused_by_name() {
        let root = tree();
        let python = put(root.path(), "free/bin/python3.13t", "");
        let error = named_version(&python).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("`{}` is a free-threaded Python", python.display())),
            "{error}"
        );
    }

    #[test]
    fn libpython_is_found_through_pyvenv_cfg() {
        let root = tree();
        let python = root.path().join("env/bin/python");
        assert_eq!(libpython(&python, V311), None);
        let library = put(root.path(), "base/lib/libpython3.11.so.1.0", "");
        assert_eq!(libpython(&python, V311), Some(library));
    }

    #[test]
    fn libpython_is_found_in_a_multiarch_folder_and_without_an_environment() {
        let root = tree();
        let folder = format!(
            "base/lib/{}-linux-gnu/libpython3.11.so.1.0",
            std::env::consts::ARCH
        );
        let library = put(root.path(), &folder, "");
        assert_eq!(
            libpython(&root.path().join("base/bin/python3.11"), V311),
            Some(library)
        );
    }

    #[test]
    fn a_libpython_of_another_version_or_of_the_environment_does_not_count() {
        let root = tree();
        put(root.path(), "base/lib/libpython3.12.so.1.0", "");
        put(root.path(), "env/lib/libpython3.11.so.1.0", "");
        assert_eq!(libpython(&root.path().join("env/bin/python"), V311), None);
    }

    #[test]
    fn the_module_is_found_in_the_environment_only() {
        let root = tree();
        let python = root.path().join("env/bin/python");
        put(
            root.path(),
            "base/lib/python3.11/site-packages/tpu_kernel/_kernel.abi3.so",
            "",
        );
        assert_eq!(module(&python, V311), None);
        let debian = put(
            root.path(),
            "env/local/lib/python3.11/dist-packages/tpu_kernel/_kernel.abi3.so",
            "",
        );
        assert_eq!(module(&python, V311), Some(debian));
        let own = put(
            root.path(),
            "env/lib/python3.11/site-packages/tpu_kernel/_kernel.abi3.so",
            "",
        );
        assert_eq!(module(&python, V311), Some(own));
    }
}
