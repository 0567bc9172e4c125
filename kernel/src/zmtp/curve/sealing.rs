//! What stands in a send queue, sealed for one peer a piece at a time as its socket takes it.
//!
//! The queue keeps what all subscribers share. Beside it a peer costs one piece, however large the
//! message: a large frame is sealed twice, once to know its tag, which comes first, once to send it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::messages::{Sealer, sealed_flags};
use super::nacl::Pieces;
use crate::zmtp::encoded::Encoded;
use crate::zmtp::limits::{SEALED_AT_ONCE, SEALED_PIECE};

/// The sealed bytes of one peer that are to be written next.
pub(crate) struct Sealing {
    sealer: Sealer,
    piece: Vec<u8>,
    written: usize,
    /// Frames of the first message that are sealed.
    frames: usize,
    /// Messages whose last byte stands in the piece.
    ended: usize,
    large: Option<Large>,
}

/// A frame that is sealed a piece at a time.
struct Large {
    flags: u8,
    body: Bytes,
    pieces: Pieces,
    /// Bytes of text, the flags included, that went through.
    at: usize,
    /// What comes before the tag, until the tag is known.
    head: Option<Vec<u8>>,
}

impl Sealing {
    pub(crate) fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            piece: Vec::new(),
            written: 0,
            frames: 0,
            ended: 0,
            large: None,
        }
    }

    /// Bytes to write.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.piece[self.written..]
    }

    /// States that the first `count` of them are written.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count;
    }

    /// Messages that are written to their end since it was last asked.
    pub(crate) fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    /// Seals what comes next of `messages`, from which ended ones are gone, once all is written. Says
    /// how much work it was: none when no message waits; some, with nothing to write yet, while the
    /// tag of a large frame is made.
    pub(crate) fn fill(&mut self, messages: &VecDeque<Encoded>) -> usize {
        self.piece.clear();
        self.written = 0;
        if self.large.is_some() {
            return self.fill_large();
        }
        for message in messages {
            for frame in message.frames().skip(self.frames) {
                let flags = sealed_flags(frame.is_command, frame.has_more);
                if frame.body.len() <= SEALED_AT_ONCE {
                    self.sealer.seal(flags, &frame.body, &mut self.piece);
                    self.end_frame(frame.has_more);
                } else if self.piece.is_empty() {
                    let mut head = Vec::new();
                    let pieces = self.sealer.begin(frame.body.len(), &mut head);
                    self.large = Some(Large {
                        flags,
                        body: frame.body,
                        pieces,
                        at: 0,
                        head: Some(head),
                    });
                    return self.fill_large();
                } else {
                    return self.piece.len();
                }
                if self.piece.len() >= SEALED_PIECE {
                    return self.piece.len();
                }
            }
        }
        if self.piece.is_empty() {
            self.piece = Vec::new();
        }
        self.piece.len()
    }

    fn fill_large(&mut self) -> usize {
        let Some(large) = &mut self.large else {
            return 0;
        };
        let work = large.next_text(&mut self.piece);
        let is_last = large.at > large.body.len();
        if let Some(head) = &mut large.head {
            if is_last {
                head.extend_from_slice(&large.pieces.tag(&self.piece));
                self.piece = std::mem::take(head);
                large.head = None;
                large.pieces.rewind();
                large.at = 0;
            } else {
                large.pieces.count(&self.piece);
                self.piece.clear();
            }
        } else if is_last {
            let has_more = large.flags == sealed_flags(false, true);
            self.large = None;
            self.end_frame(has_more);
        }
        work
    }

    fn end_frame(&mut self, has_more: bool) {
        if has_more {
            self.frames += 1;
        } else {
            self.frames = 0;
            self.ended += 1;
        }
    }
}

impl Large {
    /// Puts the next piece of sealed text into `piece`, which is empty.
    fn next_text(&mut self, piece: &mut Vec<u8>) -> usize {
        let mut room = SEALED_PIECE;
        if self.at == 0 {
            piece.push(self.flags);
            room -= 1;
        }
        let start = self.at.saturating_sub(1);
        let end = self.body.len().min(start + room);
        piece.extend_from_slice(&self.body[start..end]);
        self.at += piece.len();
        self.pieces.apply(piece);
        piece.len()
    }
}

const _: () = assert!(SEALED_PIECE.is_multiple_of(Pieces::STEP));

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::zmtp::curve::keys::KeyPair;
    use crate::zmtp::curve::messages::{Opener, SERVER_MESSAGE};
    use crate::zmtp::curve::nacl::SharedKey;

    /// Everything `messages` become, as frames that were frames again: flags and body.
    async fn through(messages: &[Encoded]) -> Vec<(bool, bool, Bytes)> {
        let pair = KeyPair::from_secret(&[1; 32]);
        let other = KeyPair::from_secret(&[2; 32]);
        let key = Arc::new(SharedKey::agree(&pair, other.public()).unwrap());
        let mut sealing = Sealing::new(Sealer::new(&key, SERVER_MESSAGE));
        let mut opener = Opener::new(&key, SERVER_MESSAGE, 0);
        let mut queue: VecDeque<_> = messages.iter().cloned().collect();
        let mut wire = Vec::new();
        while sealing.fill(&queue) > 0 {
            assert!(sealing.unwritten().len() <= SEALED_PIECE + SEALED_AT_ONCE + 64);
            wire.extend_from_slice(sealing.unwritten());
            sealing.advance(sealing.unwritten().len());
            queue.drain(..sealing.take_ended());
        }
        assert!(queue.is_empty());
        let mut frames = Vec::new();
        let mut wire = &wire[..];
        while let Some((&flags, rest)) = wire.split_first() {
            let (length, rest) = if flags == 0 {
                (usize::from(rest[0]), &rest[1..])
            } else {
                assert_eq!(flags, 2);
                let (length, rest) = rest.split_first_chunk().unwrap();
                (u64::from_be_bytes(*length) as usize, rest)
            };
            let (frame, rest) = rest.split_at(length);
            let frame = opener.open(frame.to_vec()).await.unwrap();
            frames.push((frame.is_command, frame.has_more, frame.body));
            wire = rest;
        }
        frames
    }

    #[tokio::test]
    async fn messages_of_every_size_arrive_in_order() {
        for size in [
            0,
            1,
            300,
            SEALED_AT_ONCE,
            SEALED_AT_ONCE + 1,
            SEALED_AT_ONCE + SEALED_PIECE - 2,
            4 * SEALED_PIECE - 2,
            4 * SEALED_PIECE - 1,
            4 * SEALED_PIECE,
            4 * SEALED_PIECE + 1,
            9 * SEALED_PIECE + 77,
        ] {
            let body: Bytes = (0..size).map(|index| (index * 7 % 251) as u8).collect();
            let messages = [
                Encoded::message(&[Bytes::from("a"), body.clone(), Bytes::from("z")]),
                Encoded::command("PONG", b"x"),
                Encoded::message(std::slice::from_ref(&body)),
            ];
            let expected = [
                (false, true, Bytes::from("a")),
                (false, true, body.clone()),
                (false, false, Bytes::from("z")),
                (true, false, Bytes::from("\x04PONGx")),
                (false, false, body),
            ];
            assert!(through(&messages).await == expected, "{size}");
        }
    }

    #[tokio::test]
    async fn many_small_frames_arrive_in_order() {
        let frames: Vec<Bytes> = (0..3000).map(|index| index.to_string().into()).collect();
        let arrived = through(&[Encoded::message(&frames)]).await;
        assert_eq!(arrived.len(), 3000);
        let (is_command, has_more, body) = &arrived[2999];
        assert!(!is_command && !has_more && body == "2999");
        assert!(arrived.iter().map(|(_, _, body)| body).eq(&frames));
    }
}
