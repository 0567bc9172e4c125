//! Greeting and NULL handshake, as the listening side.

use bytes::{BufMut, Bytes, BytesMut};

use super::encoded::Encoded;
use super::error::PeerError;
use super::limits::IDENTITY;
use super::reader::{Reader, reported, split_command};

const GREETING: usize = 64;
const MECHANISM: std::ops::Range<usize> = 12..32;

/// The kind of socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Router,
    Publisher,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Router => "ROUTER",
            Self::Publisher => "XPUB",
        }
    }

    fn accepts(self, socket_type: &[u8]) -> bool {
        match self {
            Self::Router => matches!(socket_type, b"DEALER" | b"REQ" | b"ROUTER"),
            Self::Publisher => matches!(socket_type, b"SUB" | b"XSUB"),
        }
    }
}

/// Exchanges greetings and `READY`; gives the peer's identity, empty when it has none.
pub(crate) async fn shake_hands(reader: &mut Reader, role: Role) -> Result<Bytes, PeerError> {
    let socket = std::sync::Arc::clone(reader.socket());
    socket.write_all(&greeting()).await?;
    read_greeting(reader).await?;
    let ready = ready(role);
    socket.write_all(&ready.pieces()[0]).await?;

    let header = reader.header().await?;
    if !header.is_command() {
        return Err(PeerError::Malformed("handshake: a message before READY"));
    }
    let command = reader.command(header).await?;
    let (name, body) = split_command(&command)?;
    match name {
        b"READY" => {}
        b"ERROR" => return Err(reported(body)),
        _ => return Err(PeerError::Malformed("handshake: neither READY nor ERROR")),
    }
    let properties = Properties::parse(body)?;
    if !role.accepts(properties.socket_type) {
        let reason = b"Invalid socket type";
        let refusal = [&[reason.len() as u8][..], reason].concat();
        let _ = socket
            .write_all(&Encoded::command("ERROR", &refusal).pieces()[0])
            .await;
        let found = String::from_utf8_lossy(properties.socket_type).into_owned();
        return Err(PeerError::SocketType(found));
    }
    if properties.identity.len() > IDENTITY {
        return Err(PeerError::Malformed("identity"));
    }
    Ok(Bytes::copy_from_slice(properties.identity))
}

fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    greeting[MECHANISM.start..MECHANISM.start + 4].copy_from_slice(b"NULL");
    greeting
}

fn ready(role: Role) -> Encoded {
    let mut body = BytesMut::new();
    let mut property = |name: &str, value: &[u8]| {
        body.put_u8(name.len() as u8);
        body.put_slice(name.as_bytes());
        body.put_u32(value.len() as u32);
        body.put_slice(value);
    };
    property("Socket-Type", role.name().as_bytes());
    if role == Role::Router {
        property("Identity", b"");
    }
    Encoded::command("READY", &body)
}

/// Reads the peer's greeting, refusing it at the first byte that is wrong: a peer of an older
/// protocol sends fewer and then waits.
async fn read_greeting(reader: &mut Reader) -> Result<(), PeerError> {
    if reader.peek(1).await?[0] != 0xff {
        return Err(PeerError::Greeting("no signature"));
    }
    if reader.peek(10).await?[9] & 1 == 0 {
        return Err(PeerError::Greeting("no signature"));
    }
    if reader.peek(11).await?[10] < 3 {
        return Err(PeerError::Greeting("an older protocol version"));
    }
    let greeting = reader.peek(GREETING).await?;
    let mechanism = &greeting[MECHANISM];
    let name = mechanism
        .split(|&byte| byte == 0)
        .next()
        .unwrap_or_default();
    if name != b"NULL" || mechanism[name.len()..].iter().any(|&byte| byte != 0) {
        return Err(PeerError::Mechanism(
            String::from_utf8_lossy(name).into_owned(),
        ));
    }
    reader.consume(GREETING);
    Ok(())
}

#[derive(Debug, Default)]
struct Properties<'a> {
    socket_type: &'a [u8],
    identity: &'a [u8],
}

impl<'a> Properties<'a> {
    fn parse(mut body: &'a [u8]) -> Result<Self, PeerError> {
        let malformed = || PeerError::Malformed("READY");
        let mut properties = Self::default();
        while let Some((&length, rest)) = body.split_first() {
            let (name, rest) = rest
                .split_at_checked(usize::from(length))
                .ok_or_else(malformed)?;
            let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
            let length = u32::from_be_bytes(*length) as usize;
            let (value, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                properties.socket_type = value;
            } else if name.eq_ignore_ascii_case(b"Identity") {
                properties.identity = value;
            }
            body = rest;
        }
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_whatever_their_case_and_order() {
        let body = b"\x08identity\x00\x00\x00\x02me\x03X-A\x00\x00\x00\x00\x0bSOCKET-TYPE\x00\x00\x00\x03REQ";
        let properties = Properties::parse(body).unwrap();
        assert_eq!(properties.socket_type, b"REQ");
        assert_eq!(properties.identity, b"me");
    }

    #[test]
    fn a_property_longer_than_its_command_is_malformed() {
        for body in [
            &b"\x08identity\x00\x00\x00\x03me"[..],
            b"\x08ident",
            b"\x01a\x00\x00",
        ] {
            assert!(Properties::parse(body).is_err());
        }
    }

    #[test]
    fn each_socket_talks_to_its_counterparts_only() {
        assert!(Role::Router.accepts(b"DEALER") && Role::Router.accepts(b"REQ"));
        assert!(!Role::Router.accepts(b"SUB") && !Role::Router.accepts(b""));
        assert!(Role::Publisher.accepts(b"SUB") && Role::Publisher.accepts(b"XSUB"));
        assert!(!Role::Publisher.accepts(b"DEALER"));
    }
}
