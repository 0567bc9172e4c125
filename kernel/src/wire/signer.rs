//! HMAC-SHA256 signatures of messages, as the connection file's key demands.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::WireError;

/// Bytes of a signature before it is written in hexadecimal.
pub const SIGNATURE: usize = 32;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Signs and verifies; with an empty key messages are unsigned.
#[derive(Clone)]
pub struct Signer {
    keyed: Option<Hmac<Sha256>>,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Signer")
            .field("signed", &self.keyed.is_some())
            .finish()
    }
}

impl Signer {
    /// A signer for `key`, the bytes of the connection file's `key`.
    pub fn new(key: &[u8]) -> Self {
        let keyed = if key.is_empty() {
            None
        } else {
            Hmac::new_from_slice(key).ok()
        };
        Self { keyed }
    }

    /// Whether messages are signed at all.
    pub fn is_signing(&self) -> bool {
        self.keyed.is_some()
    }

    /// The signature in lower-case hexadecimal; empty when messages are unsigned.
    pub fn sign(&self, frames: &[&[u8]]) -> Bytes {
        let Some(mac) = self.digest(frames) else {
            return Bytes::new();
        };
        let signature = mac.finalize().into_bytes();
        let digits = signature.iter().flat_map(|byte| {
            [
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]
        });
        digits.collect::<Vec<u8>>().into()
    }

    /// Verifies a hexadecimal signature in constant time and gives its bytes, or `None` when
    /// messages are unsigned.
    pub fn verify(
        &self,
        signature: &[u8],
        frames: &[&[u8]],
    ) -> Result<Option<[u8; SIGNATURE]>, WireError> {
        let Some(mac) = self.digest(frames) else {
            return Ok(None);
        };
        let signature = decode_hex(signature).ok_or(WireError::SignatureMalformed)?;
        mac.verify_slice(&signature)
            .map_err(|_| WireError::SignatureWrong)?;
        Ok(Some(signature))
    }

    fn digest(&self, frames: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut mac = self.keyed.clone()?;
        for frame in frames {
            mac.update(frame);
        }
        Some(mac)
    }
}

fn decode_hex(text: &[u8]) -> Option<[u8; SIGNATURE]> {
    if text.len() != 2 * SIGNATURE {
        return None;
    }
    let mut bytes = [0; SIGNATURE];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let high = char::from(digits[0]).to_digit(16)?;
        let low = char::from(digits[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4231, test case 2.
    const KEY: &[u8] = b"Jefe";
    const TEXT: &[&[u8]] = &[b"what do ya want ", b"for nothing?"];
    const SIGNED: &[u8] = b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

    #[test]
    fn the_signature_is_the_published_one() {
        assert_eq!(Signer::new(KEY).sign(TEXT), SIGNED);
        assert_eq!(Signer::new(b"").sign(TEXT), "");
    }

    #[test]
    fn only_the_right_signature_verifies() {
        let signer = Signer::new(KEY);
        assert!(signer.verify(SIGNED, TEXT).unwrap().is_some());
        assert!(signer.verify(&SIGNED.to_ascii_uppercase(), TEXT).is_ok());
        let mut wrong = SIGNED.to_vec();
        wrong[0] = b'6';
        assert_eq!(signer.verify(&wrong, TEXT), Err(WireError::SignatureWrong));
        for malformed in [&b""[..], &SIGNED[..62], &[b'g'; 64], &[0xff; 64], b"+5"] {
            assert_eq!(
                signer.verify(malformed, TEXT),
                Err(WireError::SignatureMalformed)
            );
        }
    }

    #[test]
    fn without_a_key_anything_verifies() {
        assert_eq!(Signer::new(b"").verify(b"whatever", TEXT), Ok(None));
    }
}
