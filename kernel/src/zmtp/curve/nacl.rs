//! The `crypto_box` of `NaCl` (X25519, `XSalsa20`, `Poly1305`), whole or a piece at a time.

use poly1305::Poly1305;
use poly1305::universal_hash::{KeyInit, UniversalHash};
use salsa20::cipher::consts::U10;
use salsa20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use salsa20::{XSalsa20, hsalsa};
use x25519_dalek::PublicKey;
use zeroize::Zeroizing;

use super::keys::{KEY, KeyPair};

/// Bytes of a nonce.
pub(crate) const NONCE: usize = 24;
/// Bytes a box is longer than what it holds: the tag in front.
pub(crate) const TAG: usize = 16;
/// The key stream's first bytes are the tag's key; the text follows.
const TEXT_AT: u64 = 32;

/// The key two parties share.
pub(crate) struct SharedKey(Zeroizing<[u8; KEY]>);

impl SharedKey {
    /// What `own` and the owner of `other` agree on; nothing for a key that would agree with everybody.
    pub(crate) fn agree(own: &KeyPair, other: &[u8; KEY]) -> Option<Self> {
        let point = own.secret().diffie_hellman(&PublicKey::from(*other));
        if !point.was_contributory() {
            return None;
        }
        let mut key = hsalsa::<U10>(&(*point.as_bytes()).into(), &[0; 16].into());
        let shared = Self(Zeroizing::new(key.into()));
        zeroize::Zeroize::zeroize(&mut key[..]);
        Some(shared)
    }

    /// The box of all `parts` together, appended to `out`.
    pub(crate) fn seal(&self, nonce: &[u8; NONCE], parts: &[&[u8]], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; TAG]);
        for part in parts {
            out.extend_from_slice(part);
        }
        let (tag, text) = out[start..].split_at_mut(TAG);
        let mut pieces = Pieces::new(self, nonce);
        pieces.apply(text);
        tag.copy_from_slice(&pieces.tag(text));
    }

    /// Opens a box in its place; nothing when it was not sealed with this key and nonce.
    pub(crate) fn open<'a>(
        &self,
        nonce: &[u8; NONCE],
        sealed: &'a mut [u8],
    ) -> Option<&'a mut [u8]> {
        let (tag, text) = sealed.split_first_chunk_mut::<TAG>()?;
        let mut pieces = Pieces::new(self, nonce);
        if !pieces.is_tag(text, tag) {
            return None;
        }
        pieces.apply(text);
        Some(text)
    }
}

/// A box made or opened a piece at a time. The tag is of the sealed text, and stands before it.
pub(crate) struct Pieces {
    cipher: XSalsa20,
    mac: Poly1305,
}

impl Pieces {
    /// Sizes of all pieces but the last are multiples of this.
    pub(crate) const STEP: usize = 16;

    pub(crate) fn new(key: &SharedKey, nonce: &[u8; NONCE]) -> Self {
        let mut cipher = XSalsa20::new(&(*key.0).into(), &(*nonce).into());
        let mut mac_key = Zeroizing::new([0; TEXT_AT as usize]);
        cipher.apply_keystream(&mut mac_key[..]);
        let mac = Poly1305::new(&(*mac_key).into());
        Self { cipher, mac }
    }

    /// Seals or opens the next piece of text.
    pub(crate) fn apply(&mut self, piece: &mut [u8]) {
        self.cipher.apply_keystream(piece);
    }

    /// Counts a piece of sealed text, not the last one, into the tag.
    pub(crate) fn count(&mut self, piece: &[u8]) {
        debug_assert!(piece.len().is_multiple_of(Self::STEP));
        self.mac.update_padded(piece);
    }

    /// The tag, with the last piece of sealed text.
    pub(crate) fn tag(&self, last: &[u8]) -> [u8; TAG] {
        self.mac.clone().compute_unpadded(last).into()
    }

    /// Whether `tag` is the tag, with the last piece of sealed text; takes the same time either way.
    pub(crate) fn is_tag(&self, last: &[u8], tag: &[u8; TAG]) -> bool {
        same(&self.tag(last), tag)
    }

    /// Goes back to the first piece of text.
    pub(crate) fn rewind(&mut self) {
        self.cipher.seek(TEXT_AT);
    }
}

/// Compares secrets in a time that tells nothing of them.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of `NaCl`'s own test `box`.
    const ALICE_SECRET: &str = "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a";
    const BOB_PUBLIC: &str = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f";
    const SHARED: &str = "1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389";
    const NONCE_TEXT: &str = "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37";
    const MESSAGE: &str = "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd\
         751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1\
         318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705";
    const SEALED: &str = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4\
         476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8a\
         b932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6\
         599b1f654cb45a74e355a5";

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        digits
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect()
    }

    fn shared() -> (SharedKey, [u8; NONCE]) {
        let alice = KeyPair::from_secret(&bytes(ALICE_SECRET).try_into().unwrap());
        let key = SharedKey::agree(&alice, &bytes(BOB_PUBLIC).try_into().unwrap()).unwrap();
        (key, bytes(NONCE_TEXT).try_into().unwrap())
    }

    #[test]
    fn the_box_is_the_one_of_nacl() {
        let (key, nonce) = shared();
        assert_eq!(key.0[..], bytes(SHARED));
        let message = bytes(MESSAGE);
        let mut sealed = vec![9];
        key.seal(&nonce, &[&message[..1], &message[1..]], &mut sealed);
        assert_eq!(sealed[1..], bytes(SEALED));
        assert_eq!(key.open(&nonce, &mut sealed[1..]).unwrap(), message);
    }

    #[test]
    fn pieces_make_the_same_box() {
        let (key, nonce) = shared();
        let mut pieces = Pieces::new(&key, &nonce);
        let mut text = bytes(MESSAGE);
        let middle = 5 * Pieces::STEP;
        pieces.apply(&mut text[..middle]);
        pieces.count(&text[..middle]);
        pieces.apply(&mut text[middle..]);
        let tag = pieces.tag(&text[middle..]);
        assert_eq!([&tag[..], &text].concat(), bytes(SEALED));
        pieces.rewind();
        pieces.apply(&mut text);
        assert_eq!(text, bytes(MESSAGE));
    }

    #[test]
    fn a_changed_box_does_not_open() {
        let (key, nonce) = shared();
        for place in [0, 15, 16, 100] {
            let mut sealed = bytes(SEALED);
            sealed[place] ^= 1;
            assert!(key.open(&nonce, &mut sealed).is_none(), "{place}");
        }
        let mut sealed = bytes(SEALED);
        assert!(key.open(&[0; NONCE], &mut sealed).is_none());
        assert!(key.open(&nonce, &mut sealed[..15]).is_none());
    }

    #[test]
    fn a_key_that_agrees_with_everybody_is_refused() {
        let alice = KeyPair::from_secret(&bytes(ALICE_SECRET).try_into().unwrap());
        assert!(SharedKey::agree(&alice, &[0; KEY]).is_none());
    }
}
