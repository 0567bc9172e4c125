//! The server's log: what fd 1 or 2 was before. Never holds its writer up: it may be a terminal that
//! was stopped or a pipe nobody reads, and the io thread writes here too.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use crate::lock::lock;

/// A reader that is merely slow has so long, in milliseconds; one that did not read in this time, none.
const PATIENCE: libc::c_int = 50;

#[derive(Debug)]
pub struct Log {
    file: File,
    /// Bytes that did not fit since it was last told.
    dropped: Mutex<usize>,
}

impl Log {
    pub fn new(file: OwnedFd) -> Self {
        Self {
            file: file.into(),
            dropped: Mutex::default(),
        }
    }

    /// Write what fits; the next text that fits says how much did not. Errors cannot be told to anyone.
    pub fn write(&self, text: &str) {
        let mut dropped = lock(&self.dropped);
        if *dropped > 0 && self.fits(0) {
            let note = format!(
                "\ntpu-kernel: {} bytes of this log were dropped\n",
                *dropped
            );
            *dropped = 0;
            let _ = (&self.file).write(note.as_bytes());
        }
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let patience = if *dropped > 0 { 0 } else { PATIENCE };
            if !self.fits(patience) {
                *dropped += rest.len();
                return;
            }
            // So much goes into a pipe that takes anything at all.
            let piece = &rest[..rest.len().min(libc::PIPE_BUF)];
            match (&self.file).write(piece) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    *dropped += rest.len();
                    return;
                }
                Err(_) => return,
            }
        }
    }

    /// Can something be written, within so many milliseconds? Also where writing fails at once.
    fn fits(&self, milliseconds: libc::c_int) -> bool {
        let mut poll = libc::pollfd {
            fd: self.file.as_raw_fd(),
            events: libc::POLLOUT,
            revents: 0,
        };
        // SAFETY: one entry, which lives during the call.
        unsafe { libc::poll(&raw mut poll, 1, milliseconds) > 0 }
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_log_nobody_reads_stops_nobody_and_says_later_how_much_is_missing() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let log = Log::new(writer.into());
        let text = "x".repeat(8 << 20);
        log.write(&text);
        log.write("unseen\n");
        let missing = *lock(&log.dropped);
        let mut written = vec![0; text.len() + "unseen\n".len() - missing];
        assert!(written.len() >= libc::PIPE_BUF);
        reader.read_exact(&mut written).unwrap();
        assert!(written.iter().all(|byte| *byte == b'x'));
        log.write("seen\n");
        drop(log);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let note = format!("\ntpu-kernel: {missing} bytes of this log were dropped\nseen\n");
        assert_eq!(rest, note);
    }

    #[test]
    fn what_is_read_is_whole() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let log = Log::new(writer.into());
        log.write("one\n");
        log.write("two\n");
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one\ntwo\n");
    }
}
