//! Greeting and handshake, as the listening side: NULL's here, CURVE's commands in [`curve`](super::curve).

use bytes::{BufMut, Bytes, BytesMut};

use super::curve::{Hello, Sealer, Security};
use super::encoded::Encoded;
use super::error::PeerError;
use super::limits::IDENTITY;
use super::reader::{Reader, reported, split_command};
use super::socket::Socket;

const GREETING: usize = 64;
const MECHANISM: std::ops::Range<usize> = 12..32;
const AS_SERVER: usize = 32;

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

/// What a handshake found out.
pub(crate) struct Peer {
    /// Empty when it has none.
    pub(crate) identity: Bytes,
    /// What everything sent to it must be sealed with.
    pub(crate) sealer: Option<Sealer>,
}

/// Exchanges greetings and what the mechanism asks for; from then on `reader` opens what is sealed.
pub(crate) async fn shake_hands(
    reader: &mut Reader,
    role: Role,
    security: &Security,
) -> Result<Peer, PeerError> {
    let socket = std::sync::Arc::clone(reader.socket());
    socket.write_all(&greeting(security)).await?;
    read_greeting(reader, security).await?;
    match security {
        Security::Plain => {
            write_command(&socket, "READY", &metadata(role)).await?;
            let body = read_command(reader, "READY").await?;
            let identity = meet(&socket, role, &body).await?;
            Ok(Peer {
                identity,
                sealer: None,
            })
        }
        Security::Curve(keys) => {
            let hello = Hello::open(keys, &read_command(reader, "HELLO").await?)?;
            write_command(&socket, "WELCOME", &hello.welcome(keys)?).await?;
            let body = read_command(reader, "INITIATE").await?;
            let mut initiated = hello.initiate(keys, &body)?;
            let identity = meet(&socket, role, &initiated.metadata).await?;
            write_command(&socket, "READY", &initiated.ready(&metadata(role))).await?;
            reader.open_with(initiated.opener);
            Ok(Peer {
                identity,
                sealer: Some(initiated.sealer),
            })
        }
    }
}

/// The identity in a peer's metadata, if its socket may talk to ours.
async fn meet(socket: &Socket, role: Role, metadata: &[u8]) -> Result<Bytes, PeerError> {
    let properties = Properties::parse(metadata)?;
    if !role.accepts(properties.socket_type) {
        let reason = b"Invalid socket type";
        let refusal = [&[reason.len() as u8][..], reason].concat();
        let _ = write_command(socket, "ERROR", &refusal).await;
        let found = String::from_utf8_lossy(properties.socket_type).into_owned();
        return Err(PeerError::SocketType(found));
    }
    if properties.identity.len() > IDENTITY {
        return Err(PeerError::Malformed("identity"));
    }
    Ok(Bytes::copy_from_slice(properties.identity))
}

/// Reads the body of the command whose turn it is.
async fn read_command(reader: &mut Reader, expected: &'static str) -> Result<Vec<u8>, PeerError> {
    let header = reader.header().await?;
    if !header.is_command() {
        return Err(PeerError::Malformed("handshake: a message before its end"));
    }
    let command = reader.command(header).await?;
    let (name, body) = split_command(&command)?;
    if name == expected.as_bytes() {
        Ok(body.to_vec())
    } else if name == b"ERROR" {
        Err(reported(body))
    } else {
        Err(PeerError::Malformed("handshake: another command's turn"))
    }
}

async fn write_command(socket: &Socket, name: &str, body: &[u8]) -> Result<(), PeerError> {
    let command = Encoded::command(name, body);
    for piece in command.pieces() {
        socket.write_all(piece).await?;
    }
    Ok(())
}

fn greeting(security: &Security) -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[11] = 1;
    let name = security.mechanism().as_bytes();
    greeting[MECHANISM.start..MECHANISM.start + name.len()].copy_from_slice(name);
    greeting[AS_SERVER] = u8::from(matches!(security, Security::Curve(_)));
    greeting
}

fn metadata(role: Role) -> BytesMut {
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
    body
}

/// Reads the peer's greeting, refusing it at the first byte that is wrong: a peer of an older
/// protocol sends fewer and then waits.
async fn read_greeting(reader: &mut Reader, security: &Security) -> Result<(), PeerError> {
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
    let spoken = security.mechanism();
    if name != spoken.as_bytes() || mechanism[name.len()..].iter().any(|&byte| byte != 0) {
        return Err(PeerError::Mechanism {
            offered: String::from_utf8_lossy(name).into_owned(),
            spoken,
        });
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
