//! How much text a cell shows, and how much of it was dropped: the cap on runaway output.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use memchr::{memchr, memrchr};

use crate::outbox::StreamName;

/// A browser holds a notebook's text, and the file it is saved to, in strings of less than 512 MiB.
const DEFAULT_CAP: u64 = 128 << 20;
/// Names the cap: bytes, with `KiB`, `MiB` or `GiB` behind the number or not; `off` is no cap.
pub const VARIABLE: &str = "TPU_KERNEL_OUTPUT_CAP";

/// How many bytes of text a cell may show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap(u64);

impl Default for Cap {
    fn default() -> Self {
        Self(DEFAULT_CAP)
    }
}

impl Cap {
    /// Read a value of [`VARIABLE`].
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("off") {
            return Some(Self(u64::MAX));
        }
        if text == "0" {
            return Some(Self(0));
        }
        tpu_core::parse_size(text).map(Self)
    }
}

/// What one cell has written to stdout and stderr. Written to under the outbox's lock.
#[derive(Debug, Default)]
pub struct Tally {
    /// Bytes a front end holds now.
    shown: AtomicU64,
    /// Of these, bytes in the unfinished line of each stream: a progress bar overwrites it.
    line: [AtomicU64; 2],
    /// The cap was reached.
    stopped: AtomicBool,
    dropped: AtomicU64,
    /// Of these, bytes that the person was told of.
    told: AtomicU64,
    /// The cell has been answered.
    over: AtomicBool,
    interrupted: AtomicBool,
    /// Pieces of output so far, text and other: tells whether something came since.
    pieces: AtomicU64,
}

impl Tally {
    /// Of a request that has been answered before.
    pub fn of_the_past() -> Self {
        let tally = Self::default();
        tally.over.store(true, Relaxed);
        tally
    }

    /// The cell writes `text`. Returns how many bytes of it are to be shown (the rest is dropped), and
    /// whether it is here that the output stops.
    pub fn admit(&self, cap: Cap, name: StreamName, text: &str) -> (usize, bool) {
        let room = cap.0.saturating_sub(self.shown.load(Relaxed));
        let stopped = self.stopped.load(Relaxed);
        if !stopped {
            self.add_piece();
        }
        if !stopped && text.len() as u64 <= room {
            self.count(name, text);
            return (text.len(), false);
        }
        let mut shown = if stopped { 0 } else { room as usize };
        while !text.is_char_boundary(shown) {
            shown -= 1;
        }
        self.stopped.store(true, Relaxed);
        self.drop_bytes(text.len() - shown);
        (shown, !stopped)
    }

    /// Something is shown below what was shown before.
    pub fn add_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    /// How many pieces of output there were so far.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }

    fn count(&self, name: StreamName, text: &str) {
        let line = &self.line[name.index()];
        let mut shown = self.shown.load(Relaxed);
        let mut open = line.load(Relaxed);
        if memchr(b'\r', text.as_bytes()).is_some() {
            for piece in text.split_inclusive('\n') {
                let body = piece.trim_end_matches('\n').trim_end_matches('\r');
                let kept = match body.rfind('\r') {
                    Some(at) => {
                        shown = shown.saturating_sub(open);
                        open = 0;
                        piece.len() - at
                    }
                    None => piece.len(),
                } as u64;
                shown += kept;
                open = if piece.ends_with('\n') {
                    0
                } else {
                    open + kept
                };
            }
        } else {
            shown += text.len() as u64;
            open = match memrchr(b'\n', text.as_bytes()) {
                Some(at) => (text.len() - at - 1) as u64,
                None => open + text.len() as u64,
            };
        }
        self.shown.store(shown, Relaxed);
        line.store(open, Relaxed);
    }

    /// Text that will not be shown.
    pub fn drop_bytes(&self, bytes: usize) {
        self.dropped.fetch_add(bytes as u64, Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// The front end was told to clear the cell's output: what it held counts no longer.
    pub fn clear(&self) {
        self.shown.store(0, Relaxed);
        self.stopped.store(false, Relaxed);
        for line in &self.line {
            line.store(0, Relaxed);
        }
    }

    /// The cell has been answered; what is dropped from now on has to be told of by itself.
    pub fn end(&self) {
        self.over.store(true, Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub fn interrupt(&self) {
        self.interrupted.store(true, Relaxed);
    }

    pub fn was_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// What the person reads where the output stops.
    pub fn stop_notice(cap: Cap) -> String {
        format!(
            "\n[This cell has written {} bytes. What it writes from here on is counted but not shown; \
             {VARIABLE} sets the limit.]\n",
            cap.0
        )
    }

    /// What the person reads about dropped text, unless told before.
    pub fn report(&self) -> Option<String> {
        let dropped = self.dropped();
        (self.told.swap(dropped, Relaxed) < dropped)
            .then(|| format!("\n[{dropped} bytes that this cell wrote are not shown.]\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: StreamName = StreamName::Stdout;

    #[test]
    fn a_cap_is_a_number_of_bytes_with_or_without_a_unit() {
        assert_eq!(Cap::parse("1000"), Some(Cap(1000)));
        assert_eq!(Cap::parse(" 64MiB "), Some(Cap(64 << 20)));
        assert_eq!(Cap::parse("2 gb"), Some(Cap(2 << 30)));
        assert_eq!(Cap::parse("0"), Some(Cap(0)));
        assert_eq!(Cap::parse("1.5 GiB"), Some(Cap(3 << 29)));
        assert_eq!(Cap::parse("Off"), Some(Cap(u64::MAX)));
        for wrong in ["", "much", "-1", "10 apples", "99999999999 GiB"] {
            assert_eq!(Cap::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn text_up_to_the_cap_is_shown_and_the_rest_counted() {
        let (tally, cap) = (Tally::default(), Cap(10));
        assert_eq!(tally.admit(cap, OUT, "1234567\n"), (8, false));
        assert_eq!(tally.report(), None);
        // No half of a character.
        assert_eq!(tally.admit(cap, StreamName::Stderr, "x€z"), (1, true));
        assert_eq!(tally.admit(cap, OUT, "abc"), (0, false));
        assert_eq!(tally.dropped(), 7);
        let told = "\n[7 bytes that this cell wrote are not shown.]\n";
        assert_eq!(tally.report().as_deref(), Some(told));
        assert_eq!(tally.report(), None);
        tally.clear();
        assert_eq!(tally.admit(cap, OUT, "shown again"), (10, true));
        assert_eq!(tally.dropped(), 8);
    }

    #[test]
    fn a_progress_bar_counts_as_one_line() {
        let (tally, cap) = (Tally::default(), Cap(40));
        for _ in 0..100 {
            assert_eq!(tally.admit(cap, OUT, "\rstep 12/99"), (11, false));
            assert_eq!(
                tally.admit(cap, StreamName::Stderr, "\r\u{1b}[A50%"),
                (7, false)
            );
        }
        assert_eq!(tally.admit(cap, OUT, "\nover\r\nwritten\r\n"), (16, false));
        assert_eq!(tally.admit(cap, OUT, "12345678"), (6, true));
    }
}
