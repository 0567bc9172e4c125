//! The client side of CURVE, on `crypto_box`: an implementation that shares no code with the kernel's.

use anyhow::{Context, Result, anyhow, ensure};
use crypto_box::aead::Aead;
use crypto_box::{PublicKey, SalsaBox, SecretKey};

use crate::mutate::Random;
use crate::raw::{command, frame};

/// Everything a client of one connection knows.
pub struct CurveClient {
    server: PublicKey,
    lasting: SecretKey,
    transient: SecretKey,
    cookie: Vec<u8>,
    /// The lasting key and the box that vouches for it.
    vouch: Vec<u8>,
    session: Option<SalsaBox>,
    /// The number of the next box.
    pub number: u64,
}

/// The inner flags of a frame with more to come.
pub const MORE: u8 = 1;
/// The inner flags of a command.
pub const COMMAND: u8 = 2;

impl CurveClient {
    /// A client of the server with this key; its own keys come from `random`.
    pub fn new(server: [u8; 32], random: &mut Random) -> Self {
        let mut secret = || {
            let mut bytes = [0; 32];
            bytes.fill_with(|| random.bits() as u8);
            SecretKey::from(bytes)
        };
        Self {
            server: server.into(),
            lasting: secret(),
            transient: secret(),
            cookie: Vec::new(),
            vouch: Vec::new(),
            session: None,
            number: 1,
        }
    }

    /// The command `HELLO`.
    pub fn hello(&mut self) -> Vec<u8> {
        let number = self.take_number();
        let key = SalsaBox::new(&self.server, &self.transient);
        let sealed = seal(
            &key,
            &[&b"CurveZMQHELLO---"[..], &number].concat(),
            &[0; 64],
        );
        let padding = [&[1, 0][..], &[0; 72]].concat();
        let public = self.transient.public_key();
        command(
            "HELLO",
            &[&padding, &public.as_bytes()[..], &number, &sealed].concat(),
        )
    }

    /// Takes the body of `WELCOME`, its name included.
    pub fn welcome(&mut self, body: &[u8]) -> Result<()> {
        let body = body.strip_prefix(b"\x07WELCOME").context("no WELCOME")?;
        ensure!(body.len() == 160, "WELCOME of {} bytes", body.len());
        let key = SalsaBox::new(&self.server, &self.transient);
        let text = open(&key, &[b"WELCOME-", &body[..16]].concat(), &body[16..])?;
        let (public, cookie) = text.split_first_chunk::<32>().context("WELCOME")?;
        self.cookie = cookie.to_vec();
        self.session = Some(SalsaBox::new(&(*public).into(), &self.transient));
        let vouch_nonce = [&b"VOUCH---"[..], &[7; 16]].concat();
        let vouching = SalsaBox::new(&(*public).into(), &self.lasting);
        let own = self.transient.public_key();
        let vouched = [&own.as_bytes()[..], self.server.as_bytes()].concat();
        self.vouch = [
            &self.lasting.public_key().as_bytes()[..],
            &vouch_nonce[8..],
            &seal(&vouching, &vouch_nonce, &vouched),
        ]
        .concat();
        Ok(())
    }

    /// The command `INITIATE` with this metadata.
    pub fn initiate(&mut self, metadata: &[u8]) -> Vec<u8> {
        let number = self.take_number();
        let text = [&self.vouch[..], metadata].concat();
        let sealed = self.seal_numbered(b"CurveZMQINITIATE", &number, &text);
        command("INITIATE", &[&self.cookie[..], &number, &sealed].concat())
    }

    /// The server's metadata in the body of `READY`, its name included.
    pub fn ready(&self, body: &[u8]) -> Result<Vec<u8>> {
        let body = body.strip_prefix(b"\x05READY").context("no READY")?;
        let (number, sealed) = body.split_at_checked(8).context("READY")?;
        self.open_numbered(b"CurveZMQREADY---", number, sealed)
    }

    /// One frame or command as `MESSAGE`.
    pub fn seal(&mut self, flags: u8, body: &[u8]) -> Vec<u8> {
        let number = self.take_number();
        let sealed = self.seal_numbered(b"CurveZMQMESSAGEC", &number, &[&[flags], body].concat());
        frame(0, &[&b"\x07MESSAGE"[..], &number, &sealed].concat())
    }

    /// A whole message.
    pub fn message<T: AsRef<[u8]>>(&mut self, frames: &[T]) -> Vec<u8> {
        let last = frames.len().saturating_sub(1);
        let mut bytes = Vec::new();
        for (index, body) in frames.iter().enumerate() {
            let flags = if index < last { MORE } else { 0 };
            bytes.extend(self.seal(flags, body.as_ref()));
        }
        bytes
    }

    /// The flags and the body in a `MESSAGE` of the server.
    pub fn open(&self, body: &[u8]) -> Result<(u8, Vec<u8>)> {
        let body = body.strip_prefix(b"\x07MESSAGE").context("no MESSAGE")?;
        let (number, sealed) = body.split_at_checked(8).context("MESSAGE")?;
        let mut text = self.open_numbered(b"CurveZMQMESSAGES", number, sealed)?;
        ensure!(!text.is_empty(), "a MESSAGE without flags");
        let body = text.split_off(1);
        Ok((text[0], body))
    }

    fn take_number(&mut self) -> [u8; 8] {
        self.number += 1;
        (self.number - 1).to_be_bytes()
    }

    fn seal_numbered(&self, prefix: &[u8; 16], number: &[u8], text: &[u8]) -> Vec<u8> {
        self.session
            .as_ref()
            .map(|key| seal(key, &[prefix, number].concat(), text))
            .unwrap_or_default()
    }

    fn open_numbered(&self, prefix: &[u8; 16], number: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
        let key = self.session.as_ref().context("no WELCOME yet")?;
        open(key, &[prefix, number].concat(), sealed)
    }
}

fn nonce(bytes: &[u8]) -> crypto_box::Nonce {
    *crypto_box::Nonce::from_slice(bytes)
}

fn seal(key: &SalsaBox, with: &[u8], text: &[u8]) -> Vec<u8> {
    // Sealing fails only for texts of more than the cipher's 2^70 bytes.
    key.encrypt(&nonce(with), text).unwrap_or_default()
}

fn open(key: &SalsaBox, with: &[u8], sealed: &[u8]) -> Result<Vec<u8>> {
    key.decrypt(&nonce(with), sealed)
        .map_err(|_| anyhow!("a box of {} bytes that does not open", sealed.len()))
}
