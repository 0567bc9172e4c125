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
/// Columns of what is no terminal; it has as many rows as are needed.
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
        let (columns, rows) = size(&output);
        let text = if options.json {
            let told: Vec<Value> = now.iter().map(|kernel| kernel.json(&before)).collect();
            format!("{:#}\n", Value::Array(told))
        } else {
            fitting(
                table::draw(&now, &before, columns),
                if once { usize::MAX } else { rows },
            )
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

/// As many lines as there is room for: over others the next table could not be written.
fn fitting(text: String, rows: usize) -> String {
    if text.lines().count() < rows {
        return text;
    }
    let shown = text.lines().take(rows.saturating_sub(2).max(1));
    let mut kept: String = shown.flat_map(|line| [line, "\n"]).collect();
    kept.push_str("…\n");
    kept
}

/// Columns and rows.
fn size(output: &io::Stdout) -> (usize, usize) {
    use std::os::fd::AsRawFd;
    // SAFETY: a record of integers, for which zero is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: fills the record it is given.
    let known = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) } == 0;
    if known && size.ws_col > 0 {
        (size.ws_col.into(), size.ws_row.into())
    } else {
        (WIDTH, usize::MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_terminal_shows_the_first_kernels() {
        let text = "HEAD\n1\n2\n3\n".to_owned();
        assert_eq!(fitting(text.clone(), 5), text);
        assert_eq!(fitting(text.clone(), 4), "HEAD\n1\n…\n");
        assert_eq!(fitting(text, 0), "HEAD\n…\n");
    }
}
