//! The server's key pair, in Z85 (RFC 32) as connection files hold it.

use std::fmt;

use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY: usize = 32;
/// Characters of a key in Z85.
const KEY_TEXT: usize = 40;
const ALPHABET: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// What is wrong with a key pair. Says nothing of the keys themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the {0} key is not 40 characters of Z85")]
    Text(&'static str),
    #[error("the public key does not belong to the secret key")]
    Mismatch,
}

/// A key pair of X25519.
pub struct KeyPair {
    secret: StaticSecret,
    public: PublicKey,
}

impl KeyPair {
    /// Reads a pair in Z85; without the public key it is computed.
    pub fn from_z85(secret: &str, public: Option<&str>) -> Result<Self, KeyError> {
        let secret = decode(secret).ok_or(KeyError::Text("secret"))?;
        let pair = Self::from_secret(&secret);
        if let Some(public) = public
            && *decode(public).ok_or(KeyError::Text("public"))? != *pair.public.as_bytes()
        {
            return Err(KeyError::Mismatch);
        }
        Ok(pair)
    }

    /// A pair for one connection.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = Zeroizing::new([0; KEY]);
        getrandom::fill(&mut secret[..])?;
        Ok(Self::from_secret(&secret))
    }

    pub(crate) fn from_secret(secret: &[u8; KEY]) -> Self {
        let secret = StaticSecret::from(*secret);
        let public = PublicKey::from(&secret);
        Self { secret, public }
    }

    pub(crate) fn secret(&self) -> &StaticSecret {
        &self.secret
    }

    pub(crate) fn public(&self) -> &[u8; KEY] {
        self.public.as_bytes()
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyPair").finish_non_exhaustive()
    }
}

fn decode(text: &str) -> Option<Zeroizing<[u8; KEY]>> {
    if text.len() != KEY_TEXT {
        return None;
    }
    let mut key = Zeroizing::new([0; KEY]);
    for (digits, bytes) in text.as_bytes().chunks(5).zip(key.chunks_mut(4)) {
        let mut value = 0_u32;
        for digit in digits {
            let digit = ALPHABET.iter().position(|known| known == digit)?;
            value = value.checked_mul(85)?.checked_add(digit as u32)?;
        }
        bytes.copy_from_slice(&value.to_be_bytes());
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    // The test keys of libzmq's manual (`zmq_curve`).
    const PUBLIC: &str = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID";
    const SECRET: &str = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";

    #[test]
    fn a_pair_is_read_and_its_halves_compared() {
        let pair = KeyPair::from_z85(SECRET, Some(PUBLIC)).unwrap();
        assert_eq!(pair.public()[..4], [0xbb, 0x88, 0x47, 0x1d]);
        let alone = KeyPair::from_z85(SECRET, None).unwrap();
        assert_eq!(alone.public(), pair.public());
        assert_eq!(
            KeyPair::from_z85(SECRET, Some(SECRET)).unwrap_err(),
            KeyError::Mismatch
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "short",
            &SECRET.replace('D', "\""),
            &"#".repeat(40),
            &"ä".repeat(20),
        ] {
            assert_eq!(
                KeyPair::from_z85(text, None).unwrap_err(),
                KeyError::Text("secret"),
                "{text}"
            );
        }
        assert_eq!(
            KeyPair::from_z85(SECRET, Some("short")).unwrap_err(),
            KeyError::Text("public")
        );
    }

    #[test]
    fn a_pair_is_not_printed() {
        let pair = KeyPair::from_z85(SECRET, None).unwrap();
        assert_eq!(format!("{pair:?}"), "KeyPair { .. }");
    }
}
