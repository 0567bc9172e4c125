//! The four commands before the first message, as the server: `HELLO` and `INITIATE` are opened here,
//! `WELCOME` and `READY` sealed.
//!
//! What the server must remember between its two turns stays with the connection (of which few may be
//! in their handshake), so the cookie hides no state: it is a random token that must come back.

use super::keys::{KEY, KeyPair};
use super::messages::{CLIENT_MESSAGE, Opener, SERVER_MESSAGE, Sealer};
use super::nacl::{NONCE, SharedKey, TAG, same};
use crate::zmtp::error::PeerError;

const SHORT_NONCE: usize = 8;
const LONG_NONCE: usize = 16;
const COOKIE: usize = 96;
const VERSION_AND_PADDING: usize = 2 + 72;
/// `HELLO`'s box holds that many zeros.
const ZEROS: usize = 64;
const HELLO: usize = VERSION_AND_PADDING + KEY + SHORT_NONCE + TAG + ZEROS;
/// The client's lasting key, the vouch's nonce and its box, before the metadata.
const VOUCH: usize = KEY + LONG_NONCE + TAG + 2 * KEY;

/// After `HELLO`: what `INITIATE` will be opened with.
pub(crate) struct Hello {
    client: [u8; KEY],
    own: KeyPair,
    shared: SharedKey,
    cookie: [u8; COOKIE],
}

/// After `INITIATE`: the peer's metadata, and what seals and opens from now on.
pub(crate) struct Initiated {
    pub(crate) metadata: Vec<u8>,
    pub(crate) opener: Opener,
    pub(crate) sealer: Sealer,
}

impl Hello {
    /// Opens the body of `HELLO`: only who knows the server's public key can have sealed it.
    pub(crate) fn open(server: &KeyPair, body: &[u8]) -> Result<Self, PeerError> {
        let malformed = || PeerError::Malformed("HELLO");
        if body.len() != HELLO || body[0] != 1 {
            return Err(malformed());
        }
        let mut rest = &body[VERSION_AND_PADDING..];
        let client: [u8; KEY] = take(&mut rest).ok_or_else(malformed)?;
        let nonce = short_nonce(b"CurveZMQHELLO---", take(&mut rest).ok_or_else(malformed)?);
        let mut sealed = rest.to_vec();
        let opened = SharedKey::agree(server, &client).and_then(|key| {
            key.open(&nonce, &mut sealed)
                .map(|zeros| zeros == [0; ZEROS])
        });
        if opened != Some(true) {
            return Err(PeerError::Sealed("HELLO"));
        }
        let own = KeyPair::generate().map_err(|_| PeerError::NoRandomness)?;
        let shared = SharedKey::agree(&own, &client).ok_or(PeerError::Sealed("HELLO"))?;
        let cookie = random()?;
        Ok(Self {
            client,
            own,
            shared,
            cookie,
        })
    }

    /// The body of `WELCOME`.
    pub(crate) fn welcome(&self, server: &KeyPair) -> Result<Vec<u8>, PeerError> {
        let long: [u8; LONG_NONCE] = random()?;
        let key = SharedKey::agree(server, &self.client).ok_or(PeerError::Sealed("HELLO"))?;
        let mut body = long.to_vec();
        let nonce = long_nonce(*b"WELCOME-", &long);
        key.seal(&nonce, &[self.own.public(), &self.cookie], &mut body);
        Ok(body)
    }

    /// Opens the body of `INITIATE`: the cookie is ours, and the client vouches that its lasting key
    /// stands behind the one of this connection.
    pub(crate) fn initiate(self, server: &KeyPair, body: &[u8]) -> Result<Initiated, PeerError> {
        let malformed = || PeerError::Malformed("INITIATE");
        let mut rest = body;
        let cookie: [u8; COOKIE] = take(&mut rest).ok_or_else(malformed)?;
        if !same(&cookie, &self.cookie) {
            return Err(PeerError::Sealed("INITIATE"));
        }
        let number: [u8; SHORT_NONCE] = take(&mut rest).ok_or_else(malformed)?;
        let mut sealed = rest.to_vec();
        let text = self
            .shared
            .open(&short_nonce(b"CurveZMQINITIATE", number), &mut sealed)
            .ok_or(PeerError::Sealed("INITIATE"))?;
        let (vouch, metadata) = text.split_at_mut_checked(VOUCH).ok_or_else(malformed)?;
        let mut rest = &vouch[..];
        let lasting: [u8; KEY] = take(&mut rest).ok_or_else(malformed)?;
        let long: [u8; LONG_NONCE] = take(&mut rest).ok_or_else(malformed)?;
        let mut sealed = rest.to_vec();
        let vouched = SharedKey::agree(&self.own, &lasting).and_then(|key| {
            let text = key.open(&long_nonce(*b"VOUCH---", &long), &mut sealed)?;
            Some(same(text, &[self.client, *server.public()].concat()))
        });
        if vouched != Some(true) {
            return Err(PeerError::Sealed("INITIATE"));
        }
        let metadata = metadata.to_vec();
        let shared = std::sync::Arc::new(self.shared);
        Ok(Initiated {
            metadata,
            opener: Opener::new(&shared, CLIENT_MESSAGE, u64::from_be_bytes(number)),
            sealer: Sealer::new(&shared, SERVER_MESSAGE),
        })
    }
}

impl Initiated {
    /// The body of `READY` with our `metadata`.
    pub(crate) fn ready(&mut self, metadata: &[u8]) -> Vec<u8> {
        let number = self.sealer.next_number().to_be_bytes();
        let mut body = number.to_vec();
        let nonce = short_nonce(b"CurveZMQREADY---", number);
        self.sealer.key().seal(&nonce, &[metadata], &mut body);
        body
    }
}

pub(super) fn short_nonce(prefix: &[u8; 16], number: [u8; SHORT_NONCE]) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    nonce[..16].copy_from_slice(prefix);
    nonce[16..].copy_from_slice(&number);
    nonce
}

fn long_nonce(prefix: [u8; 8], rest: &[u8; LONG_NONCE]) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    nonce[..8].copy_from_slice(&prefix);
    nonce[8..].copy_from_slice(rest);
    nonce
}

fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

fn random<const COUNT: usize>() -> Result<[u8; COUNT], PeerError> {
    let mut bytes = [0; COUNT];
    getrandom::fill(&mut bytes).map_err(|_| PeerError::NoRandomness)?;
    Ok(bytes)
}
