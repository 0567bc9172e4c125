//! The last lines that C code wrote to fd 2: what it said before it crashed.

use std::sync::{Mutex, MutexGuard};

use crate::lock::lock;

/// Kept.
const BYTES: usize = 8 << 10;

/// The end of what came through fd 2 since the running cell began.
#[derive(Debug)]
pub struct LogTail {
    /// Never grows: where a crash left the allocator locked, the io thread could not move it.
    text: Mutex<String>,
}

impl Default for LogTail {
    fn default() -> Self {
        Self {
            text: Mutex::new(String::with_capacity(3 * BYTES)),
        }
    }
}

impl LogTail {
    fn lock(&self) -> MutexGuard<'_, String> {
        lock(&self.text)
    }

    pub fn clear(&self) {
        self.lock().clear();
    }

    pub fn push(&self, text: &str) {
        let mut kept = self.lock();
        let text = &text[letter(text, text.len().saturating_sub(BYTES))..];
        kept.push_str(text);
        if kept.len() > 2 * BYTES {
            let cut = letter(&kept, kept.len() - BYTES);
            kept.drain(..cut);
        }
    }

    /// The lines, oldest first, without empty ones.
    pub fn lines(&self) -> Vec<String> {
        let kept = self.lock();
        let lines = kept.lines().filter(|line| !line.trim().is_empty());
        lines.map(ToOwned::to_owned).collect()
    }
}

/// The first letter that begins at `at` or behind it.
fn letter(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_memory_is_bounded() {
        let tail = LogTail::default();
        for number in 0..100_000 {
            tail.push(&format!("line {number} ä\n\n"));
        }
        let lines = tail.lines();
        assert_eq!(lines[lines.len() - 2..], ["line 99998 ä", "line 99999 ä"]);
        assert!(tail.lock().len() <= 2 * BYTES);
        tail.push(&"ö".repeat(BYTES));
        assert!(tail.lock().len() <= 3 * BYTES);
        assert_eq!(tail.lock().capacity(), 3 * BYTES);
        tail.clear();
        // As much as is ever kept, then a text whose last bytes begin within a letter.
        tail.push(&"x".repeat(BYTES));
        tail.push(&"x".repeat(BYTES));
        tail.push(&("ö".repeat(BYTES / 2) + "x"));
        assert!(tail.lock().len() <= 2 * BYTES);
        assert_eq!(tail.lock().capacity(), 3 * BYTES);
        tail.clear();
        assert!(tail.lines().is_empty());
    }
}
