//! `tpu-kernel top`: every kernel of this user on this machine. Asks each over its socket; needs no
//! Python, and no kernel waits for it.

mod kernels;
mod table;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::arguments::TopOptions;
use crate::error::Error;
use kernels::Kernel;

/// How long is looked to tell how busy a device is, when the table is shown once.
const SPAN: Duration = Duration::from_millis(400);
/// Columns of what is no terminal.
const WIDTH: usize = 160;

/// Show them: once, or again and again until the program is ended.
pub fn top(options: &TopOptions) -> Result<ExitCode, Error> {
    let mut output = io::stdout();
    let once = options.once || options.json || !output.is_terminal();
    let mut before = kernels::all();
    let mut lines = 0;
    loop {
        // The first table comes soon, whatever the interval.
        sleep(if once || lines == 0 {
            SPAN
        } else {
            options.interval
        });
        let now = kernels::all();
        let text = if options.json {
            let told: Vec<Value> = now.iter().map(|kernel| kernel.json(&before)).collect();
            format!("{:#}\n", Value::Array(told))
        } else {
            table::draw(&now, &before, width(&output))
        };
        // Over what stands there.
        let up = if lines > 0 {
            format!("\x1b[{lines}A\x1b[J")
        } else {
            String::new()
        };
        let written = write!(output, "{up}{text}").and_then(|()| output.flush());
        match written {
            Ok(()) if once => return Ok(ExitCode::SUCCESS),
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(source) => return Err(Error::Print { source }),
        }
        lines = text.lines().count();
        before = now;
    }
}

fn width(output: &io::Stdout) -> usize {
    use std::os::fd::AsRawFd;
    // SAFETY: a record of integers, for which zero is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: fills the record it is given.
    let known = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } == 0;
    if known && size.ws_col > 0 {
        size.ws_col.into()
    } else {
        WIDTH
    }
}

impl Kernel {
    /// As it told, and what was seen of its process.
    fn json(&self, before: &[Kernel]) -> Value {
        let mut told = self.told.clone();
        told["busy_percent"] = self.busy(before).into();
        told["cpu_percent"] = self.processor(before).into();
        told["memory_bytes"] = self.memory.into();
        told
    }
}
