//! Two pipes, for stdout and stderr, and whose output comes through them.

use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;
use crate::outbox::StreamName;
use crate::parent::Parent;
use crate::utf8::Utf8Tail;

/// How much one drain takes from each pipe at most; a flooding child must not hold a thread.
const DRAIN_BYTES: usize = 4 << 20;
/// One read.
const READ_BYTES: usize = 64 << 10;
/// Asked of the system for each pipe; less is fine.
const PIPE_BYTES: libc::c_int = 1 << 20;
/// Of a pipe that only children of earlier cells write to: the system limits what a user's pipes
/// hold together.
const RETIRED_PIPE_BYTES: libc::c_int = 64 << 10;

/// Whose output it is.
#[derive(Debug, Clone)]
pub enum Owner {
    /// The cell that runs, else the one that ran last.
    Running,
    /// This cell, whatever runs. None: no cell had run yet.
    Cell(Option<Arc<Parent>>),
}

/// Two pipes.
#[derive(Debug)]
pub struct Pair {
    state: Mutex<State>,
    readers: [RawFd; 2],
    pub inodes: [u64; 2],
}

#[derive(Debug)]
struct State {
    owner: Owner,
    pipes: [Pipe; 2],
}

#[derive(Debug)]
struct Pipe {
    reader: File,
    tail: Utf8Tail,
    /// No process has the writing end.
    ended: bool,
}

impl Pair {
    /// Two new pipes and their writing ends.
    pub fn new(owner: Owner) -> io::Result<(Arc<Self>, [OwnedFd; 2])> {
        let (stdout, out_writer) = pipe()?;
        let (stderr, err_writer) = pipe()?;
        let readers = [stdout.as_raw_fd(), stderr.as_raw_fd()];
        let inodes = [inode(readers[0])?, inode(readers[1])?];
        let pipes = [stdout, stderr].map(|reader| Pipe {
            reader: File::from(reader),
            tail: Utf8Tail::default(),
            ended: false,
        });
        let state = Mutex::new(State { owner, pipes });
        let pair = Self {
            state,
            readers,
            inodes,
        };
        Ok((Arc::new(pair), [out_writer, err_writer]))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// A duplicate of a reading end, to be polled. It does not block.
    pub fn reader(&self, name: StreamName) -> io::Result<OwnedFd> {
        Ok(self.lock().pipes[name.index()].reader.try_clone()?.into())
    }

    /// Further writing ends. None when one of the pipes has ended: nobody reads it any more.
    pub fn writers(&self) -> Option<[OwnedFd; 2]> {
        // Under the lock: else it could be found to have ended meanwhile.
        let state = self.lock();
        if state.pipes.iter().any(|pipe| pipe.ended) {
            return None;
        }
        let open = |fd| {
            File::options()
                .write(true)
                .open(format!("/proc/self/fd/{fd}"))
        };
        let [out, err] = self.readers.map(open);
        Some([out.ok()?.into(), err.ok()?.into()])
    }

    /// Is it kept for this cell?
    pub fn is_of(&self, parent: &Parent) -> bool {
        matches!(&self.lock().owner, Owner::Cell(Some(owner)) if owner.is(parent))
    }

    /// Has every process closed this pipe's writing end?
    pub fn has_ended(&self, name: StreamName) -> bool {
        self.lock().pipes[name.index()].ended
    }

    /// Have they closed both?
    pub fn have_ended(&self) -> bool {
        self.lock().pipes.iter().all(|pipe| pipe.ended)
    }

    /// Hand what stands in the pipes to `sink`, which is called with the pipes locked so that no
    /// other thread can put later bytes before earlier ones. `complete` also hands on a character
    /// that is not whole. Returns the number of bytes read.
    pub fn drain(&self, complete: bool, sink: impl FnMut(StreamName, &Owner, &str)) -> usize {
        let mut state = self.lock();
        let ready = self.poll();
        state.drain(ready, complete, sink)
    }

    /// The pipes stand no longer behind fd 1 and 2: what comes still is of `owner`. False when
    /// nothing can come, since no child has them.
    pub fn retire(&self, owner: Owner, sink: impl FnMut(StreamName, &Owner, &str)) -> bool {
        let mut state = self.lock();
        state.owner = owner;
        let ready = self.poll();
        state.drain(ready, true, sink);
        for pipe in &state.pipes {
            // SAFETY: a plain call on a descriptor we own. What does not fit keeps it large.
            unsafe {
                libc::fcntl(
                    pipe.reader.as_raw_fd(),
                    libc::F_SETPIPE_SZ,
                    RETIRED_PIPE_BYTES,
                );
            }
        }
        state.pipes.iter().any(|pipe| !pipe.ended)
    }

    /// Which pipes hold something, or have ended? One system call, so that a `print` can afford it.
    fn poll(&self) -> [bool; 2] {
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

impl State {
    fn drain(
        &mut self,
        ready: [bool; 2],
        complete: bool,
        mut sink: impl FnMut(StreamName, &Owner, &str),
    ) -> usize {
        let mut total = 0;
        let owner = &self.owner;
        let names = [StreamName::Stdout, StreamName::Stderr];
        for ((pipe, name), ready) in self.pipes.iter_mut().zip(names).zip(ready) {
            let mut sink = |text: &str| sink(name, owner, text);
            if ready {
                total += pipe.read(&mut sink);
            }
            if complete {
                pipe.tail.finish(&mut sink);
            }
        }
        total
    }
}

impl Pipe {
    fn read(&mut self, mut sink: impl FnMut(&str)) -> usize {
        let mut taken = 0;
        let mut buffer = vec![0_u8; READ_BYTES];
        while taken < DRAIN_BYTES {
            match self.reader.read(&mut buffer) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(n) => {
                    taken += n;
                    self.tail.push(&buffer[..n], &mut sink);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        taken
    }
}

/// A pipe: the end to read, which does not block, and the end to write.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were made just now and belong to no one else.
    let (reader, writer) =
        unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
    // SAFETY: plain calls on a descriptor we own. A pipe that cannot grow still works.
    unsafe {
        libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        check(libc::fcntl(
            reader.as_raw_fd(),
            libc::F_SETFL,
            libc::O_NONBLOCK,
        ))?;
    }
    Ok((reader, writer))
}

/// What tells one open pipe or file from another.
pub fn inode(fd: RawFd) -> io::Result<u64> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the record is filled when the call succeeds.
    unsafe {
        check(libc::fstat(fd, status.as_mut_ptr()))?;
        Ok(status.assume_init().st_ino)
    }
}

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;

    use super::*;

    fn cell() -> Arc<Parent> {
        let header = br#"{"msg_id":"a","msg_type":"execute_request"}"#;
        Parent::from_header(Bytes::from_static(header)).unwrap()
    }

    fn drained(pair: &Pair) -> Vec<(StreamName, String)> {
        let mut got = Vec::new();
        pair.drain(true, |name, owner, text| {
            let whose = match owner {
                Owner::Running => "running",
                Owner::Cell(parent) => parent.as_ref().map_or("none", |p| &p.msg_id),
            };
            got.push((name, format!("{whose}: {text}")));
        });
        got
    }

    #[test]
    fn what_a_child_writes_after_its_cell_is_still_the_cells() {
        let (pair, [out, err]) = Pair::new(Owner::Running).unwrap();
        let mut child = File::from(out.try_clone().unwrap());
        child.write_all(b"early").unwrap();
        assert_eq!(
            drained(&pair),
            [(StreamName::Stdout, "running: early".into())]
        );
        child.write_all(b"at the end").unwrap();
        drop((out, err));
        let mut at_end = String::new();
        let lives = pair.retire(Owner::Cell(Some(cell())), |_, _, text| {
            at_end.push_str(text);
        });
        assert!(lives && pair.is_of(&cell()) && !pair.have_ended());
        assert_eq!(at_end, "at the end");
        assert!(pair.has_ended(StreamName::Stderr) && !pair.has_ended(StreamName::Stdout));
        child.write_all(b"late").unwrap();
        assert_eq!(drained(&pair), [(StreamName::Stdout, "a: late".into())]);
        drop(child);
        assert_eq!(drained(&pair), []);
        assert!(pair.have_ended());
    }

    #[test]
    fn a_pair_nobody_holds_is_not_kept() {
        let (pair, writers) = Pair::new(Owner::Running).unwrap();
        drop(writers);
        assert!(!pair.retire(Owner::Cell(None), |_, _, _| ()));
        assert!(pair.writers().is_none(), "nobody would read what goes in");
    }

    #[test]
    fn a_further_writing_end_leads_into_the_same_pipe() {
        let (pair, first) = Pair::new(Owner::Cell(Some(cell()))).unwrap();
        let [out, err] = pair.writers().unwrap();
        drop(first);
        File::from(out).write_all(b"one").unwrap();
        File::from(err).write_all(b"two \xe2\x82").unwrap();
        let want = [
            (StreamName::Stdout, "a: one".into()),
            (StreamName::Stderr, "a: two ".into()),
            (StreamName::Stderr, "a: \u{fffd}".into()),
        ];
        assert_eq!(drained(&pair), want);
        assert!(pair.have_ended());
    }
}
