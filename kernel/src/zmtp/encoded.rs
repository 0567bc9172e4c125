//! Outbound messages as bytes on the wire: encoded once, shared by every queue that holds them.
//!
//! Small frames are copied together, so that a usual reply is one piece and one write; large ones stay
//! the shared `Bytes` they were.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::limits::{COPIED_FRAME, FRAME_OVERHEAD};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
const HEADER_MOST: usize = 9;

/// One encoded message or command.
#[derive(Debug, Clone)]
pub(crate) enum Encoded {
    Whole(Bytes),
    Pieces(Arc<[Bytes]>),
}

impl Encoded {
    /// Encodes a message of at least one frame.
    pub(crate) fn message(frames: &[Bytes]) -> Self {
        let copied = frames.iter().filter(|frame| frame.len() <= COPIED_FRAME);
        let room = frames.len() * HEADER_MOST + copied.map(Bytes::len).sum::<usize>();
        let mut small = BytesMut::with_capacity(room);
        let mut pieces = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            let flags = if index + 1 < frames.len() { MORE } else { 0 };
            put_header(&mut small, flags, frame.len());
            if frame.len() <= COPIED_FRAME {
                small.put_slice(frame);
            } else {
                pieces.push(small.split().freeze());
                pieces.push(frame.clone());
            }
        }
        if pieces.is_empty() {
            return Self::Whole(small.freeze());
        }
        if !small.is_empty() {
            pieces.push(small.freeze());
        }
        Self::Pieces(pieces.into())
    }

    /// Encodes a command such as `PONG`.
    pub(crate) fn command(name: &str, body: &[u8]) -> Self {
        let length = 1 + name.len() + body.len();
        let mut bytes = BytesMut::with_capacity(HEADER_MOST + length);
        put_header(&mut bytes, COMMAND, length);
        bytes.put_u8(name.len() as u8);
        bytes.put_slice(name.as_bytes());
        bytes.put_slice(body);
        Self::Whole(bytes.freeze())
    }

    /// The pieces in order.
    pub(crate) fn pieces(&self) -> &[Bytes] {
        match self {
            Self::Whole(bytes) => std::slice::from_ref(bytes),
            Self::Pieces(pieces) => pieces,
        }
    }

    /// The frames again, as they were before they were encoded.
    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames {
            pieces: self.pieces().iter(),
            rest: Bytes::new(),
        }
    }

    /// Bytes on the wire.
    pub(crate) fn wire_len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// What this costs a queue.
    pub(crate) fn cost(&self) -> usize {
        self.wire_len() + FRAME_OVERHEAD * self.pieces().len()
    }
}

/// A frame, or a command, of an [`Encoded`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) is_command: bool,
    pub(crate) has_more: bool,
    pub(crate) body: Bytes,
}

/// See [`Encoded::frames`].
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    pieces: std::slice::Iter<'a, Bytes>,
    /// What follows in the piece at hand.
    rest: Bytes,
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if self.rest.is_empty() {
            self.rest = self.pieces.next()?.clone();
        }
        let flags = self.rest.get_u8();
        let length = if flags & LONG == 0 {
            usize::from(self.rest.get_u8())
        } else {
            self.rest.get_u64() as usize
        };
        // A frame that was not copied is the whole of the next piece.
        let body = if self.rest.is_empty() && length > 0 {
            self.pieces.next()?.clone()
        } else {
            self.rest.split_to(length)
        };
        Some(Frame {
            is_command: flags & COMMAND != 0,
            has_more: flags & MORE != 0,
            body,
        })
    }
}

/// The beginning of a frame; `flags` without the bit for long frames, which follows from the length.
pub(crate) fn put_header(buffer: &mut impl BufMut, flags: u8, length: usize) {
    if let Ok(short) = u8::try_from(length) {
        buffer.put_u8(flags);
        buffer.put_u8(short);
    } else {
        buffer.put_u8(flags | LONG);
        buffer.put_u64(length as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(encoded: &Encoded) -> Vec<u8> {
        encoded.pieces().concat()
    }

    #[test]
    fn small_frames_are_one_piece() {
        let encoded = Encoded::message(&[Bytes::from_static(b"ab"), Bytes::new()]);
        assert_eq!(encoded.pieces().len(), 1);
        assert_eq!(flat(&encoded), [1, 2, b'a', b'b', 0, 0]);
        assert_eq!(encoded.wire_len(), 6);
    }

    #[test]
    fn a_large_frame_is_shared_not_copied() {
        let large = Bytes::from(vec![7; 10_000]);
        let encoded = Encoded::message(&[
            Bytes::from_static(b"t"),
            large.clone(),
            Bytes::from_static(b"e"),
        ]);
        let pieces = encoded.pieces();
        assert_eq!(pieces.len(), 3);
        assert_eq!(
            &pieces[0][..],
            [1, 1, b't', 3, 0, 0, 0, 0, 0, 0, 0x27, 0x10]
        );
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert_eq!(&pieces[2][..], [0, 1, b'e']);
    }

    #[test]
    fn lengths_from_256_take_eight_bytes() {
        let encoded = Encoded::message(&[Bytes::from(vec![0; 255])]);
        assert_eq!(&flat(&encoded)[..2], [0, 255]);
        let encoded = Encoded::message(&[Bytes::from(vec![0; 256])]);
        assert_eq!(&flat(&encoded)[..9], [2, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn the_frames_are_found_again() {
        let large = Bytes::from(vec![7; 10_000]);
        let frames = [
            Bytes::new(),
            Bytes::from("a"),
            large.clone(),
            Bytes::from(vec![1; 300]),
            large,
            Bytes::new(),
        ];
        let encoded = Encoded::message(&frames);
        let found: Vec<Frame> = encoded.frames().collect();
        assert!(found.iter().map(|frame| &frame.body).eq(&frames));
        let more: Vec<bool> = found.iter().map(|frame| frame.has_more).collect();
        assert_eq!(more, [true, true, true, true, true, false]);
        assert!(!found.iter().any(|frame| frame.is_command));
        let command = Frame {
            is_command: true,
            has_more: false,
            body: Bytes::from("\x04PONGxy"),
        };
        assert!(Encoded::command("PONG", b"xy").frames().eq([command]));
    }

    #[test]
    fn commands_carry_their_name() {
        assert_eq!(
            flat(&Encoded::command("PONG", b"xy")),
            b"\x04\x07\x04PONGxy"
        );
    }
}
