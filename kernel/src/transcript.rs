//! The beginning of what a request printed, kept for whoever exports the notebook later.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::lock::lock;
use crate::outbox::StreamName;

/// Kept of one request.
const OF_ONE: usize = 64 << 10;
/// Kept of all requests that somebody still refers to.
const OF_ALL: usize = 16 << 20;

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Printed text in its order, up to a bound.
#[derive(Debug, Default)]
pub struct Transcript(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    pieces: Vec<(StreamName, String)>,
    bytes: usize,
}

impl Transcript {
    /// Add what was printed next; what is past the bound is left out.
    pub fn add(&self, name: StreamName, text: &str) {
        let mut kept = lock(&self.0);
        let room = OF_ONE
            .saturating_sub(kept.bytes)
            .min(OF_ALL.saturating_sub(KEPT.load(Relaxed)));
        let mut end = room.min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        if text.is_empty() {
            return;
        }
        kept.bytes += text.len();
        KEPT.fetch_add(text.len(), Relaxed);
        match kept.pieces.last_mut() {
            Some((last, so_far)) if *last == name => so_far.push_str(text),
            _ => kept.pieces.push((name, text.to_owned())),
        }
    }

    /// The pieces so far.
    pub fn pieces(&self) -> Vec<(StreamName, String)> {
        let kept = lock(&self.0);
        kept.pieces.clone()
    }
}

impl Drop for Transcript {
    fn drop(&mut self) {
        let kept = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        KEPT.fetch_sub(kept.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_stream_are_joined_and_the_end_of_a_long_text_is_left_out() {
        let transcript = Transcript::default();
        transcript.add(StreamName::Stdout, "a");
        transcript.add(StreamName::Stdout, "b\n");
        transcript.add(StreamName::Stderr, "é");
        assert_eq!(
            transcript.pieces(),
            [
                (StreamName::Stdout, "ab\n".to_owned()),
                (StreamName::Stderr, "é".to_owned())
            ]
        );
        transcript.add(StreamName::Stdout, &"é".repeat(OF_ONE));
        let bytes: usize = transcript.pieces().iter().map(|piece| piece.1.len()).sum();
        assert_eq!(bytes, OF_ONE - 1);
        transcript.add(StreamName::Stdout, "éé");
        assert_eq!(transcript.pieces().len(), 3);
    }
}
