//! Asks an interpreter about itself, for layouts that the files alone do not explain:
//! editable installs, `pip install --user`, wrapper scripts, Pythons of distributions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::Version;
use crate::error::Error;

const LOCATE: &str = include_str!("locate.py");

#[derive(Debug)]
pub struct Answer {
    pub version: Version,
    pub free_threaded: bool,
    pub libpython: Option<PathBuf>,
    pub module: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Line {
    version: [u32; 2],
    #[serde(default)]
    free_threaded: bool,
    libpython: Option<PathBuf>,
    module: Option<PathBuf>,
}

pub fn ask(python: &Path) -> Result<Answer, Error> {
    let output = Command::new(python)
        .args(["-c", LOCATE])
        // `-c` puts the working folder on sys.path: it must not be the person's.
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::PythonUnusable {
            python: python.to_owned(),
            source,
        })?;
    let said = String::from_utf8_lossy(&output.stdout);
    // Start-up files of the environment may print too: ours is the last line.
    let line = said
        .lines()
        .last()
        .and_then(|line| serde_json::from_str::<Line>(line).ok());
    match line {
        Some(Line {
            version: [major, minor],
            free_threaded,
            libpython,
            module,
        }) => {
            let version = Version { major, minor };
            Ok(Answer {
                version,
                free_threaded,
                libpython,
                module,
            })
        }
        None => Err(Error::NotPython {
            python: python.to_owned(),
            detail: detail(&output),
        }),
    }
}

fn detail(output: &std::process::Output) -> String {
    let complaint = String::from_utf8_lossy(&output.stderr);
    match complaint
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
    {
        Some(line) => line.to_owned(),
        None => format!("it answered nothing of use, {}", output.status),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("python");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, file)
    }

    #[test]
    fn noise_of_start_up_files_before_the_answer_is_ignored() {
        let (_folder, python) =
            script("#!/bin/sh\necho hello\necho '{\"version\": [3, 12], \"module\": \"/m.so\"}'\n");
        let answer = ask(&python).unwrap();
        assert_eq!(
            answer.version,
            Version {
                major: 3,
                minor: 12
            }
        );
        assert_eq!(answer.module, Some(PathBuf::from("/m.so")));
        assert_eq!(answer.libpython, None);
        assert!(!answer.free_threaded);
    }

    #[test]
    fn what_a_broken_python_says_is_passed_on() {
        let (_folder, python) =
            script("#!/bin/sh\necho 'libssl.so.3: cannot open' >&2\nexit 127\n");
        assert_eq!(
            ask(&python).unwrap_err().to_string(),
            format!(
                "`{}` is no working Python (libssl.so.3: cannot open): name the environment's Python with --python",
                python.display()
            )
        );
    }
}
