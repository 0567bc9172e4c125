//! File descriptors 1 and 2: what C code, subprocesses and forked children write. Owns the two
//! pipes and the originals; any thread may drain them, so that a cell's output is complete and in
//! order before its reply.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use crate::outbox::StreamName;
use crate::utf8::Utf8Tail;

/// How much one drain takes from each pipe at most; a flooding child must not hold a thread.
const DRAIN_BYTES: usize = 4 << 20;
/// One read.
const READ_BYTES: usize = 64 << 10;
/// Asked of the system for each pipe; less is fine.
const PIPE_BYTES: libc::c_int = 1 << 20;

#[derive(Debug)]
struct Pipe {
    reader: File,
    tail: Utf8Tail,
}

/// The captured pair.
#[derive(Debug)]
pub struct Capture {
    pipes: Mutex<[Pipe; 2]>,
    readers: [RawFd; 2],
    originals: [OwnedFd; 2],
}

impl Capture {
    /// Put pipes in the place of fd 1 and 2 of this process.
    pub fn install() -> io::Result<Self> {
        let (stdout, saved_out) = redirect(1)?;
        let (stderr, saved_err) = redirect(2)?;
        let readers = [stdout.as_raw_fd(), stderr.as_raw_fd()];
        Ok(Self {
            pipes: Mutex::new([stdout, stderr].map(|reader| Pipe {
                reader,
                tail: Utf8Tail::default(),
            })),
            readers,
            originals: [saved_out, saved_err],
        })
    }

    /// Duplicates of the reading ends, to be polled. They are non-blocking.
    pub fn readers(&self) -> io::Result<[OwnedFd; 2]> {
        let pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok([
            pipes[0].reader.try_clone()?.into(),
            pipes[1].reader.try_clone()?.into(),
        ])
    }

    /// What fd 1 or 2 was before: the log of the Jupyter server.
    pub fn original(&self, name: StreamName) -> &OwnedFd {
        &self.originals[index(name)]
    }

    /// Write to the server's log. Errors there cannot be told to anyone.
    pub fn log(&self, name: StreamName, text: &str) {
        if let Ok(copy) = self.original(name).try_clone() {
            let _ = File::from(copy).write_all(text.as_bytes());
        }
    }

    /// Hand what stands in the pipes to `sink`, which is called with the pipes locked so that no
    /// other thread can put later bytes before earlier ones. `complete` also hands on a character
    /// that is not whole. Returns the number of bytes read.
    pub fn drain(&self, complete: bool, mut sink: impl FnMut(StreamName, &str)) -> usize {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut total = 0;
        let ready = self.have_input();
        let names = [StreamName::Stdout, StreamName::Stderr];
        for ((pipe, name), ready) in pipes.iter_mut().zip(names).zip(ready) {
            let mut taken = 0;
            let mut buffer = if ready {
                vec![0_u8; READ_BYTES]
            } else {
                Vec::new()
            };
            while ready && taken < DRAIN_BYTES {
                match pipe.reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => {
                        taken += n;
                        pipe.tail.push(&buffer[..n], |text| sink(name, text));
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            if complete {
                pipe.tail.finish(|text| sink(name, text));
            }
            total += taken;
        }
        total
    }

    /// Which pipes hold something? One system call, so that a `print` can afford to look.
    fn have_input(&self) -> [bool; 2] {
        let mut polled = self.readers.map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: two initialised pollfd records, no waiting.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, 0) };
        polled.map(|one| one.revents != 0)
    }
}

fn index(name: StreamName) -> usize {
    match name {
        StreamName::Stdout => 0,
        StreamName::Stderr => 1,
    }
}

/// Make `fd` the writing end of a new pipe. Returns the reading end and what `fd` was.
fn redirect(fd: RawFd) -> io::Result<(File, OwnedFd)> {
    // SAFETY: fcntl on a number; the result is checked.
    let saved = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    let saved = if saved >= 0 {
        // SAFETY: a descriptor that was made just now and belongs to no one else.
        unsafe { OwnedFd::from_raw_fd(saved) }
    } else {
        // It was closed: its log goes nowhere.
        File::options().write(true).open("/dev/null")?.into()
    };
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were made just now and belong to no one else.
    let (reader, writer) =
        unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: plain calls on descriptors we own. A pipe that cannot grow still works.
    unsafe {
        libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        check(libc::fcntl(
            reader.as_raw_fd(),
            libc::F_SETFL,
            libc::O_NONBLOCK,
        ))?;
        check(libc::dup2(writer.as_raw_fd(), fd))?;
    }
    Ok((File::from(reader), saved))
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
