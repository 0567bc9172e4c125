//! The environment the kernel runs in: its Python, and the two libraries that put that
//! Python into this process.
//!
//! Files alone answer in well under a millisecond; where they do not, the interpreter
//! itself is asked, once.

mod files;
mod query;

use std::env;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The oldest Python whose stable ABI `_kernel.abi3.so` is built for.
const OLDEST: Version = Version {
    major: 3,
    minor: 11,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

#[derive(Debug, PartialEq)]
pub struct Environment {
    /// Absolute, symbolic links kept: the path tells Python which environment it is in.
    pub python: PathBuf,
    /// `_kernel.abi3.so` of the installed package.
    pub module: PathBuf,
    /// The shared libpython of exactly this interpreter; `None` where there is none, as
    /// with Debian's own Python.
    pub libpython: Option<PathBuf>,
}

impl Environment {
    /// The environment of `explicit`, else of this program.
    pub fn find(explicit: Option<&Path>) -> Result<Self, Error> {
        let python = match explicit {
            Some(path) => absolute(path)?,
            None => beside_launcher()?,
        };
        Self::of(python)
    }

    fn of(python: PathBuf) -> Result<Self, Error> {
        let named = files::named_version(&python)?;
        if let Some(version) = named {
            check(&python, version)?;
            if let Some(module) = files::module(&python, version)
                && let Some(libpython) = files::libpython(&python, version)
            {
                return Ok(Self {
                    python,
                    module,
                    libpython: Some(libpython),
                });
            }
        }
        let answer = query::ask(&python)?;
        check(&python, answer.version)?;
        if answer.free_threaded {
            return Err(Error::PythonFreeThreaded { python });
        }
        let libpython = answer
            .libpython
            .or_else(|| files::libpython(&python, answer.version));
        match answer.module {
            Some(module) => Ok(Self {
                python,
                module,
                libpython,
            }),
            None => Err(Error::PackageMissing { python }),
        }
    }

    /// The folder that holds `bin/` and `share/`.
    pub fn prefix(&self) -> &Path {
        files::prefix(&self.python)
    }
}

fn check(python: &Path, version: Version) -> Result<(), Error> {
    if version < OLDEST {
        let Version { major, minor } = version;
        return Err(Error::PythonTooOld {
            python: python.to_owned(),
            major,
            minor,
        });
    }
    Ok(())
}

/// A path a person typed. A bare name is looked up on PATH, as a shell would.
fn absolute(python: &Path) -> Result<PathBuf, Error> {
    let bare = python.components().count() == 1 && !python.exists();
    let found = if bare {
        on_path(python)
    } else {
        Some(python.to_owned())
    };
    let found = found.unwrap_or_else(|| python.to_owned());
    let path = std::path::absolute(found).map_err(|source| Error::PythonUnusable {
        python: python.to_owned(),
        source,
    })?;
    match path.metadata() {
        Ok(_) => Ok(path),
        Err(source) => Err(Error::PythonUnusable {
            python: path,
            source,
        }),
    }
}

/// Installers may link this program from a shared store, so the name it was started by
/// counts before the file behind it.
fn beside_launcher() -> Result<PathBuf, Error> {
    let called = env::args_os()
        .next()
        .map(PathBuf::from)
        .filter(|path| path.components().count() > 1);
    let called = called.and_then(|path| std::path::absolute(path).ok());
    let launcher = env::current_exe().ok();
    let folders = called
        .iter()
        .chain(&launcher)
        .filter_map(|program| program.parent());
    for folder in folders {
        for name in ["python", "python3"] {
            let python = folder.join(name);
            if python.exists() {
                return Ok(python);
            }
        }
    }
    on_path(Path::new("python3")).ok_or_else(|| Error::NoPython {
        launcher: launcher.unwrap_or_else(|| "tpu-kernel".into()),
    })
}

fn on_path(name: &Path) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(Version { major: 3, minor: 9 } < OLDEST);
        assert!(
            Version {
                major: 2,
                minor: 17
            } < OLDEST
        );
        assert!(
            Version {
                major: 3,
                minor: 110
            } > OLDEST
        );
    }

    #[test]
    fn an_old_interpreter_is_refused_by_its_name_without_running_it() {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("python3.10"), "not a program").unwrap();
        std::os::unix::fs::symlink("python3.10", bin.join("python")).unwrap();
        let python = bin.join("python");
        let error = Environment::find(Some(&python)).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "`{}` is Python 3.10, PyTorch (TPU) needs 3.11 or newer: make an environment with a newer Python and install pytorch-tpu-kernel there",
                python.display()
            )
        );
    }

    #[test]
    fn a_python_that_does_not_exist_is_named() {
        let error = Environment::find(Some(Path::new("/nowhere/bin/python")))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "cannot run `/nowhere/bin/python` (No such file or directory): name the environment's Python with --python"
        );
    }
}
