//! The program `tpu-kernel`.
//!
//! It finds the Python of the environment it is installed in, puts that Python and the
//! kernel into this very process, and hands over. It never talks Jupyter itself, and it
//! never links Python: one binary serves every Python from 3.11 on.
//!
//! - [`arguments`]: the command line
//! - [`environment`]: the interpreter, its version, the extension module, libpython
//! - [`start`]: from a connection file to a running kernel
//! - [`install`]: writes a kernelspec for Jupyter installations elsewhere
//! - [`top`]: shows the kernels of this user
//! - [`compiler`]: the helper in which tpu-core compiles what could end its process
//! - [`error`]: everything that can go wrong, one line each

mod arguments;
mod compiler;
mod environment;
mod error;
mod install;
mod start;
mod top;

use std::io::Write;
use std::process::ExitCode;

use arguments::{Command, HELP};
use error::Error;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("tpu-kernel: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Error> {
    match arguments::parse(std::env::args_os().skip(1))? {
        Command::Help => say(HELP),
        Command::Version => say(concat!("tpu-kernel ", env!("CARGO_PKG_VERSION"))),
        Command::Compile => compiler::serve(),
        Command::Start(options) => start::start(&options),
        Command::Top(options) => top::top(&options),
        Command::Install(options) => {
            let folder = install::install(&options)?;
            say(&format!(
                "installed kernel `{}` in {}",
                options.name,
                folder.display()
            ))
        }
    }
}

/// Prints `text`; a reader that went away early (`tpu-kernel --help | head -1`) is no error.
fn say(text: &str) -> Result<ExitCode, Error> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Print { source })
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}
