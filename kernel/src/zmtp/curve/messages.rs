//! `MESSAGE`: one frame or command in its box, with the number that lets nothing be repeated.

use std::sync::Arc;

use bytes::{BufMut, Bytes};

use super::handshake::short_nonce;
use super::nacl::{Pieces, SharedKey, TAG};
use crate::zmtp::encoded::put_header;
use crate::zmtp::error::PeerError;
use crate::zmtp::limits::TURN_BYTES;

pub(crate) const CLIENT_MESSAGE: &[u8; 16] = b"CurveZMQMESSAGEC";
pub(crate) const SERVER_MESSAGE: &[u8; 16] = b"CurveZMQMESSAGES";

const NAME: &[u8; 8] = b"\x07MESSAGE";
const NUMBER_AT: usize = NAME.len();
const TAG_AT: usize = NUMBER_AT + 8;
const TEXT_AT: usize = TAG_AT + TAG;
/// Bytes of a `MESSAGE` besides what it carries: name, number, tag and the flags, sealed too.
const OVERHEAD: usize = TEXT_AT + 1;

const MORE: u8 = 1;
const COMMAND: u8 = 2;

/// What a `MESSAGE` carried.
pub(crate) struct Opened {
    pub(crate) is_command: bool,
    pub(crate) has_more: bool,
    pub(crate) body: Bytes,
}

/// Opens what one peer sends.
pub(crate) struct Opener {
    key: Arc<SharedKey>,
    prefix: &'static [u8; 16],
    /// The number of the last command opened; the next must be higher.
    last: u64,
}

impl Opener {
    pub(crate) fn new(key: &Arc<SharedKey>, prefix: &'static [u8; 16], last: u64) -> Self {
        let key = Arc::clone(key);
        Self { key, prefix, last }
    }

    /// Opens a frame in its place; others on this thread get their turn while a large one is opened.
    pub(crate) async fn open(&mut self, mut frame: Vec<u8>) -> Result<Opened, PeerError> {
        if frame.len() < OVERHEAD || !frame.starts_with(NAME) {
            return Err(PeerError::Malformed("MESSAGE"));
        }
        let (head, text) = frame.split_at_mut(TEXT_AT);
        let mut number = [0; 8];
        number.copy_from_slice(&head[NUMBER_AT..TAG_AT]);
        let mut tag = [0; TAG];
        tag.copy_from_slice(&head[TAG_AT..]);
        let count = u64::from_be_bytes(number);
        if count <= self.last {
            return Err(PeerError::Repeated);
        }
        let mut pieces = Pieces::new(&self.key, &short_nonce(self.prefix, number));
        let mut rest = &*text;
        while rest.len() > TURN_BYTES {
            let (piece, after) = rest.split_at(TURN_BYTES);
            pieces.count(piece);
            rest = after;
            tokio::task::yield_now().await;
        }
        if !pieces.is_tag(rest, &tag) {
            return Err(PeerError::Sealed("MESSAGE"));
        }
        self.last = count;
        for (index, piece) in text.chunks_mut(TURN_BYTES).enumerate() {
            if index > 0 {
                tokio::task::yield_now().await;
            }
            pieces.apply(piece);
        }
        let flags = text[0];
        if flags > COMMAND {
            return Err(PeerError::Malformed("MESSAGE"));
        }
        Ok(Opened {
            is_command: flags == COMMAND,
            has_more: flags == MORE,
            body: Bytes::from(frame).slice(OVERHEAD..),
        })
    }
}

/// Seals what one peer is sent.
pub(crate) struct Sealer {
    key: Arc<SharedKey>,
    prefix: &'static [u8; 16],
    number: u64,
}

impl Sealer {
    pub(crate) fn new(key: &Arc<SharedKey>, prefix: &'static [u8; 16]) -> Self {
        Self {
            key: Arc::clone(key),
            prefix,
            number: 0,
        }
    }

    pub(crate) fn key(&self) -> &SharedKey {
        &self.key
    }

    /// A number never used before on this connection.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Appends a whole `MESSAGE` to `out`, as a frame on the wire.
    pub(crate) fn seal(&mut self, flags: u8, body: &[u8], out: &mut Vec<u8>) {
        let number = self.next_number().to_be_bytes();
        put_head(body.len(), number, out);
        let nonce = short_nonce(self.prefix, number);
        self.key.seal(&nonce, &[&[flags], body], out);
    }

    /// Begins a `MESSAGE` of `length` bytes that is sealed a piece at a time: its beginning up to the
    /// tag, appended to `head`, and what makes the rest.
    pub(crate) fn begin(&mut self, length: usize, head: &mut Vec<u8>) -> Pieces {
        let number = self.next_number().to_be_bytes();
        put_head(length, number, head);
        Pieces::new(&self.key, &short_nonce(self.prefix, number))
    }
}

fn put_head(length: usize, number: [u8; 8], out: &mut Vec<u8>) {
    // As libzmq does: a frame without flags, whatever it carries.
    put_header(out, 0, OVERHEAD + length);
    out.put_slice(NAME);
    out.put_slice(&number);
}

/// A frame's flags as they stand in the box, from those on the wire of NULL.
pub(crate) fn sealed_flags(is_command: bool, has_more: bool) -> u8 {
    match (is_command, has_more) {
        (true, _) => COMMAND,
        (false, true) => MORE,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmtp::curve::keys::KeyPair;

    fn both() -> (Sealer, Opener) {
        let one = KeyPair::from_secret(&[1; 32]);
        let other = KeyPair::from_secret(&[2; 32]);
        let key = Arc::new(SharedKey::agree(&one, other.public()).unwrap());
        (
            Sealer::new(&key, CLIENT_MESSAGE),
            Opener::new(&key, CLIENT_MESSAGE, 0),
        )
    }

    fn sealed(sealer: &mut Sealer, flags: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        sealer.seal(flags, body, &mut out);
        out.split_off(2)
    }

    #[tokio::test]
    async fn what_is_sealed_opens() {
        let (mut sealer, mut opener) = both();
        let carried = opener
            .open(sealed(&mut sealer, MORE, b"one"))
            .await
            .unwrap();
        assert!(carried.has_more && !carried.is_command);
        assert_eq!(carried.body, "one");
        let carried = opener
            .open(sealed(&mut sealer, COMMAND, b""))
            .await
            .unwrap();
        assert!(carried.is_command && !carried.has_more);
        assert!(carried.body.is_empty());
    }

    #[tokio::test]
    async fn nothing_opens_twice_or_out_of_order() {
        let (mut sealer, mut opener) = both();
        let first = sealed(&mut sealer, 0, b"first");
        let second = sealed(&mut sealer, 0, b"second");
        let third = sealed(&mut sealer, 0, b"third");
        assert_eq!(opener.open(second.clone()).await.unwrap().body, "second");
        for old in [first, second] {
            assert!(matches!(opener.open(old).await, Err(PeerError::Repeated)));
        }
        assert_eq!(opener.open(third).await.unwrap().body, "third");
    }

    #[tokio::test]
    async fn what_was_changed_does_not_open() {
        let (mut sealer, _) = both();
        let frame = sealed(&mut sealer, 0, b"text");
        for place in 0..frame.len() {
            let mut changed = frame.clone();
            changed[place] ^= 1;
            assert!(both().1.open(changed).await.is_err(), "{place}");
        }
        for length in 0..frame.len() {
            assert!(
                both().1.open(frame[..length].to_vec()).await.is_err(),
                "{length}"
            );
        }
        for flags in 3..=u8::MAX {
            let frame = sealed(&mut sealer, flags, b"text");
            assert!(both().1.open(frame).await.is_err(), "{flags}");
        }
    }
}
