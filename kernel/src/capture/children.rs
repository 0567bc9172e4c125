//! Whether this process has, or had, children: told by two cheap system calls, because a cell that
//! starts none must not pay for those that do.

/// What was known at the last look.
#[derive(Debug, Default)]
pub struct Children {
    /// Page faults and switches of all children that ended: more when another one did.
    ended: i64,
}

impl Children {
    /// May a child have inherited the pipes since this was last asked?
    pub fn may_hold_pipes(&mut self) -> bool {
        let ended = usage_of_ended();
        let more = ended != std::mem::replace(&mut self.ended, ended);
        more || exist()
    }
}

fn exist() -> bool {
    // SAFETY: all zeros are a valid record.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: asks only; takes no child's status and does not wait.
    unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == 0 }
}

fn usage_of_ended() -> i64 {
    // SAFETY: all zeros are a valid record.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: fills the record; cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    usage.ru_minflt + usage.ru_majflt + usage.ru_nvcsw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_noticed_while_it_lives_and_once_after_it_ended() {
        let mut children = Children::default();
        children.may_hold_pipes();
        assert!(!children.may_hold_pipes());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(children.may_hold_pipes());
        assert!(children.may_hold_pipes());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(children.may_hold_pipes());
        assert!(!children.may_hold_pipes());
    }
}
