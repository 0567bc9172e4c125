//! The text of a crash: one line that says what happened, then the stacks and the log.

use super::handler::Crash;
use super::stack;

/// Lines of the log that are shown.
const LOG_LINES: usize = 12;

/// Lines of the report; the first is the summary.
pub fn lines(
    crash: &Crash,
    cell: Option<i64>,
    dump: &str,
    main_thread: u64,
    log: &[String],
) -> Vec<String> {
    let mut lines = vec![summary(crash, cell, log)];
    let stacks = stack::read(dump, main_thread);
    let thread = if crash.thread.is_empty() {
        String::new()
    } else {
        format!(", `{}`", crash.thread)
    };
    for (title, frames) in [
        (
            format!("Python in the thread that crashed{thread} (innermost call first):"),
            stacks.crashed,
        ),
        (
            "Python in the main thread (innermost call first):".into(),
            stacks.main,
        ),
        ("The last lines on stderr:".into(), log_from_reason(log)),
    ] {
        if !frames.is_empty() {
            lines.push(String::new());
            lines.push(title);
            lines.extend(frames);
        }
    }
    lines
}

/// `SIGSEGV`.
pub fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        _ => "a signal",
    }
}

/// What happened and what it means, in one line.
fn summary(crash: &Crash, cell: Option<i64>, log: &[String]) -> String {
    let what = match crash.signal {
        libc::SIGSEGV => "segmentation fault",
        libc::SIGABRT => "aborted",
        libc::SIGBUS => "bus error",
        libc::SIGFPE => "arithmetic fault",
        libc::SIGILL => "illegal instruction",
        _ => "crashed",
    };
    let more = if let Some(sender) = crash.sender {
        format!(", sent by process {sender}")
    } else if crash.overflow {
        ", the stack overflowed (a recursion too deep)".into()
    } else if matches!(crash.signal, libc::SIGSEGV | libc::SIGBUS) {
        crash
            .address
            .map_or_else(String::new, |address| format!(" at address {address:#x}"))
    } else {
        reason(log).map_or_else(String::new, |line| format!(": {line}"))
    };
    let cell = cell.map_or_else(String::new, |count| format!(" in cell [{count}]"));
    format!(
        "the kernel's process ended{cell} by {} ({what}{more}). Variables are lost; restart the kernel",
        name(crash.signal)
    )
}

/// From the line with the reason on, else the last lines.
fn log_from_reason(log: &[String]) -> Vec<String> {
    let first = reason_index(log).unwrap_or(log.len().saturating_sub(LOG_LINES));
    log[first..].iter().take(LOG_LINES).cloned().collect()
}

fn reason(log: &[String]) -> Option<&str> {
    reason_index(log).map(|index| log[index].trim())
}

/// The line in which C or C++ says why it gives up.
fn reason_index(log: &[String]) -> Option<usize> {
    const MARKS: [&str; 10] = [
        "Check failed",
        "what():",
        "terminate called",
        "Fatal",
        "panicked at",
        "free()",
        "malloc",
        "corrupt",
        "stack smashing",
        "ssertion",
    ];
    let is_fatal = |line: &str| {
        let mut letters = line.bytes();
        letters.next() == Some(b'F') && letters.take(4).filter(u8::is_ascii_digit).count() == 4
    };
    log.iter()
        .rposition(|line| is_fatal(line.trim()) || MARKS.iter().any(|mark| line.contains(mark)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(signal: i32) -> Crash {
        Crash {
            signal,
            address: Some(0x10),
            sender: None,
            overflow: false,
            thread: "python".into(),
        }
    }

    #[test]
    fn a_fault_is_told_with_its_address() {
        let lines = lines(&crash(libc::SIGSEGV), Some(3), "", 1, &[]);
        assert_eq!(
            lines,
            [
                "the kernel's process ended in cell [3] by SIGSEGV (segmentation fault at address 0x10). \
              Variables are lost; restart the kernel"
            ]
        );
    }

    #[test]
    fn an_abort_is_told_with_the_line_that_gave_the_reason() {
        let log = [
            "I0000 00:00:1 a.cc:1] fine".to_owned(),
            "F0000 00:00:1.2 7 b.cc:269] Check failed: a == b".to_owned(),
            "*** Check failure stack trace: ***".to_owned(),
            "    @ 0x7f00 absl::Die".to_owned(),
        ];
        let lines = lines(&crash(libc::SIGABRT), None, "", 1, &log);
        assert_eq!(
            lines[0],
            "the kernel's process ended by SIGABRT (aborted: F0000 00:00:1.2 7 b.cc:269] \
             Check failed: a == b). Variables are lost; restart the kernel"
        );
        assert_eq!(lines[2], "The last lines on stderr:");
        assert_eq!(lines[3..], log[1..]);
    }
}
