//! The processes that cells started, wherever they went: children, their children, what left the
//! tree (`sleep 600 &`), and daemons with a session of their own.
//!
//! All inherit a variable that names this kernel's connection file; forks that never called `exec`
//! show the kernel's own command line. So only what removed that variable and left both the tree
//! and the session counts as none of ours.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Names the connection file of the kernel that a process belongs to.
pub const OWNER: &str = "TPU_KERNEL_OWNER";

/// What an earlier life of this kernel left may take to end.
const LEFT_OVER_END: Duration = Duration::from_millis(500);

/// Every process below this one, children before their own children.
pub fn descendants() -> Vec<i32> {
    let mut found = children_of(own_pid());
    let mut next = 0;
    while next < found.len() {
        let below = children_of(found[next]);
        found.extend(below);
        next += 1;
    }
    found
}

fn own_pid() -> i32 {
    // SAFETY: cannot fail.
    unsafe { libc::getpid() }
}

fn children_of(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// All that are alive and belong to this kernel, whose connection file is `connection`.
pub fn own_processes(connection: &Path) -> Vec<i32> {
    let mut found = BTreeSet::from_iter(descendants());
    let pid = own_pid();
    // SAFETY: plain calls that cannot fail for the calling process.
    let session = unsafe { libc::getsid(0) };
    let leader = pid == session;
    let mark = Mark::of(connection);
    for other in all_processes() {
        // SAFETY: asks about a number; a process that is gone gives -1.
        let same_session = leader && unsafe { libc::getsid(other) } == session;
        if same_session || mark.is_on(other) {
            found.insert(other);
        }
    }
    found.remove(&pid);
    found.into_iter().filter(|pid| alive(*pid)).collect()
}

/// End what an earlier life of this kernel left: one that was killed could not do it itself. It had
/// the same connection file. Waits for it; not for the io thread.
pub fn end_left_over(connection: &Path) {
    let mark = Mark::of(connection);
    let find = || -> Vec<i32> {
        let mut found: Vec<i32> = all_processes().filter(|pid| mark.is_on(*pid)).collect();
        let ours = descendants();
        found.retain(|pid| *pid != own_pid() && !ours.contains(pid) && alive(*pid));
        found
    };
    let mut left = find();
    send(&left, libc::SIGTERM);
    let deadline = Instant::now() + LEFT_OVER_END;
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        left.retain(|pid| alive(*pid));
    }
    send(&left, libc::SIGKILL);
}

fn all_processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// How a process of one kernel is told from others.
struct Mark {
    variable: Vec<u8>,
    command: Vec<u8>,
}

impl Mark {
    fn of(connection: &Path) -> Self {
        let mut variable = format!("{OWNER}=").into_bytes();
        variable.extend_from_slice(connection.as_os_str().as_encoded_bytes());
        Self {
            variable,
            command: fs::read("/proc/self/cmdline").unwrap_or_default(),
        }
    }

    fn is_on(&self, pid: i32) -> bool {
        // Those of other users cannot be read, nor are they ours.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            return false;
        };
        environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == self.variable)
            || (!self.command.is_empty()
                && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == self.command))
    }
}

/// Is it there, and not only waiting for its parent to take its status?
pub fn alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        // The name in parentheses may hold anything.
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    })
}

/// From now on, orphans below this process become its children. For the end, when they are looked
/// for; before, cells must see none but their own.
pub fn adopt_orphans() {
    // SAFETY: sets a flag of this process.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    }
}

/// Take the status of every child that has ended. At the end only: it is cells who wait for theirs.
pub fn reap() {
    // SAFETY: takes statuses, waits for none.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}

/// Send `signal` to each of `processes`. One that is gone is no error.
pub fn send(processes: &[i32], signal: libc::c_int) {
    for &pid in processes {
        // SAFETY: a plain call; `pid` is positive, so it never means a group.
        unsafe {
            libc::kill(pid, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_daemon_is_found_by_the_variable_it_inherited() {
        let connection = Path::new("/tmp/kernel-of-this-test.json");
        let mut daemon = Command::new("setsid")
            .args(["sleep", "600"])
            .env(OWNER, connection)
            .spawn()
            .unwrap();
        let pid = daemon.id() as i32;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !Mark::of(connection).is_on(pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(Mark::of(connection).is_on(pid));
        assert!(!Mark::of(Path::new("/tmp/kernel-of-this-test.jso")).is_on(pid));
        assert!(own_processes(connection).contains(&pid));
        assert!(alive(pid));
        daemon.kill().unwrap();
        while alive(pid) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!alive(pid), "a zombie is not alive");
        daemon.wait().unwrap();
    }
}
