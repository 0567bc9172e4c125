//! What can go wrong before the kernel runs. Each message is one line that says what
//! happened, to which of the person's things, and what to do.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{message}; `tpu-kernel --help` lists the commands and their options")]
    Usage { message: String },

    #[error("cannot write to standard output: {source}")]
    Print { source: io::Error },

    #[error(
        "cannot read the connection file `{}` ({}): let Jupyter start this kernel, or give -f a file that Jupyter wrote",
        .path.display(), reason(.source)
    )]
    ConnectionUnreadable { path: PathBuf, source: io::Error },

    #[error(
        "the connection file `{}` is not a JSON object: let Jupyter start this kernel, or give -f a file that Jupyter wrote",
        .path.display()
    )]
    ConnectionInvalid { path: PathBuf },

    #[error(
        "found no Python beside `{}` nor on PATH: run the `tpu-kernel` of the environment that has PyTorch (TPU), or name its Python with --python",
        .launcher.display()
    )]
    NoPython { launcher: PathBuf },

    #[error("cannot run `{}` ({}): name the environment's Python with --python", .python.display(), reason(.source))]
    PythonUnusable { python: PathBuf, source: io::Error },

    #[error(
        "`{}` is no working Python ({detail}): name the environment's Python with --python",
        .python.display()
    )]
    NotPython { python: PathBuf, detail: String },

    #[error(
        "`{}` is Python {major}.{minor}, PyTorch (TPU) needs 3.11 or newer: make an environment with a newer Python and install pytorch-tpu-kernel there",
        .python.display()
    )]
    PythonTooOld {
        python: PathBuf,
        major: u32,
        minor: u32,
    },

    #[error(
        "`{}` is a free-threaded Python, which PyTorch (TPU) cannot run in: make an environment with the ordinary build of Python",
        .python.display()
    )]
    PythonFreeThreaded { python: PathBuf },

    #[error(
        "the package pytorch-tpu-kernel is not installed for `{0}`: run `{0} -m pip install pytorch-tpu-kernel`",
        .python.display()
    )]
    PackageMissing { python: PathBuf },

    #[error(
        "`{}` is not a kernel name: use letters, digits, `-`, `_` and `.` only",
        .name.display()
    )]
    BadName { name: OsString },

    #[error("no home folder is known for --user: set HOME or JUPYTER_DATA_DIR, or use --prefix")]
    NoHome,

    #[error("the path `{}` is not UTF-8, and a kernelspec is JSON: install into a folder with a plain name", .path.display())]
    PathNotUtf8 { path: PathBuf },

    #[error("cannot write `{}` ({}): choose a place you may write to with --user or --prefix", .path.display(), reason(.source))]
    CannotWrite { path: PathBuf, source: io::Error },
}

/// The system's own words without the number behind them: `No such file or directory`.
fn reason(source: &io::Error) -> String {
    let text = source.to_string();
    match text.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => text,
    }
}
