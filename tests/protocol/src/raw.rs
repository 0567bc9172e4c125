//! A ZMTP client of bare bytes: it does what the test says, right or wrong.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use crate::curve::{self, CurveClient};
use crate::mutate::Random;

/// The key pair of the tests' encrypting servers: libzmq's own example (`zmq_curve`).
pub const SERVER_SECRET: &str = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs";
/// The public half, as bytes.
pub const SERVER_KEY: [u8; 32] = [
    0xbb, 0x88, 0x47, 0x1d, 0x65, 0xe2, 0x65, 0x9b, 0x30, 0xc5, 0x5a, 0x53, 0x21, 0xce, 0xbb, 0x5a,
    0xab, 0x2b, 0x70, 0xa3, 0x98, 0x64, 0x5c, 0x26, 0xdc, 0xa2, 0xb2, 0xfc, 0xb4, 0x3f, 0xc5, 0x18,
];

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The 64 bytes every ZMTP 3 connection begins with.
pub fn greeting(minor: u8, mechanism: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = minor;
    bytes[12..12 + mechanism.len()].copy_from_slice(mechanism.as_bytes());
    bytes
}

/// One frame; `flags` without the bit for long frames, which follows from the length.
pub fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = frame_header(flags, body.len() as u64);
    bytes.extend_from_slice(body);
    bytes
}

/// The beginning of a frame that declares `length` bytes.
pub fn frame_header(flags: u8, length: u64) -> Vec<u8> {
    match u8::try_from(length) {
        Ok(short) => vec![flags, short],
        Err(_) => [&[flags | 2][..], &length.to_be_bytes()].concat(),
    }
}

/// A whole message.
pub fn message<T: AsRef<[u8]>>(frames: &[T]) -> Vec<u8> {
    let last = frames.len().saturating_sub(1);
    let encode = |(index, body): (usize, &T)| frame(u8::from(index < last), body.as_ref());
    frames.iter().enumerate().flat_map(encode).collect()
}

/// A command frame.
pub fn command(name: &str, body: &[u8]) -> Vec<u8> {
    frame(4, &[&[name.len() as u8], name.as_bytes(), body].concat())
}

/// The `READY` command of a peer.
pub fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    command("READY", &metadata(socket_type, identity))
}

/// What a peer says of itself in `READY` or `INITIATE`.
pub fn metadata(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in [
        ("Socket-Type", socket_type.as_bytes()),
        ("Identity", identity),
    ] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    }
    body
}

/// All that a well-behaved peer sends before its first message.
pub fn opening(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    [greeting(1, "NULL"), ready(socket_type, identity)].concat()
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection to a ZMTP socket.
pub struct RawPeer {
    stream: Box<dyn Stream>,
    /// What seals and opens messages, on an encrypted connection.
    pub curve: Option<CurveClient>,
}

impl RawPeer {
    /// Connects to `tcp://…` or `ipc://…` and says nothing.
    pub async fn connect(endpoint: &str) -> Result<Self> {
        if let Some(path) = endpoint.strip_prefix("ipc://") {
            return Ok(Self {
                stream: Box::new(UnixStream::connect(path).await?),
                curve: None,
            });
        }
        let address = endpoint.strip_prefix("tcp://").context("an endpoint")?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: Box::new(stream),
            curve: None,
        })
    }

    /// Connects to `tcp://…` with a receive buffer of `bytes`, so that not reading shows early.
    pub async fn connect_narrow(endpoint: &str, bytes: u32) -> Result<Self> {
        let address = endpoint.strip_prefix("tcp://").context("a TCP endpoint")?;
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(bytes)?;
        Ok(Self {
            stream: Box::new(socket.connect(address.parse()?).await?),
            curve: None,
        })
    }

    /// Connects and completes the handshake as `socket_type`.
    pub async fn open(endpoint: &str, socket_type: &str, identity: &[u8]) -> Result<Self> {
        Self::connect(endpoint)
            .await?
            .shake_hands(socket_type, identity)
            .await
    }

    /// Connects and completes the handshake of CURVE as `socket_type`, with the tests' server.
    pub async fn open_curve(endpoint: &str, socket_type: &str, identity: &[u8]) -> Result<Self> {
        Self::connect(endpoint)
            .await?
            .shake_hands_curve(socket_type, identity)
            .await
    }

    /// Completes the handshake of CURVE on a silent connection.
    pub async fn shake_hands_curve(mut self, socket_type: &str, identity: &[u8]) -> Result<Self> {
        let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ());
        let mut curve = CurveClient::new(SERVER_KEY, &mut Random::new(seed));
        self.write(&greeting(1, "CURVE")).await?;
        self.write(&curve.hello()).await?;
        let greeting = self.read(64).await?;
        ensure!(greeting[12..33] == *b"CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
        curve.welcome(&self.read_frame().await?.1)?;
        self.write(&curve.initiate(&metadata(socket_type, identity)))
            .await?;
        curve.ready(&self.read_frame().await?.1)?;
        self.curve = Some(curve);
        Ok(self)
    }

    /// Completes the handshake on a silent connection.
    pub async fn shake_hands(mut self, socket_type: &str, identity: &[u8]) -> Result<Self> {
        self.write(&opening(socket_type, identity)).await?;
        let greeting = self.read(64).await?;
        ensure!(
            greeting[0] == 0xff && greeting[10..12] == [3, 1],
            "greeting {greeting:?}"
        );
        let (flags, body) = self.read_frame().await?;
        ensure!(
            flags == 4 && body.starts_with(b"\x05READY"),
            "no READY: {body:?}"
        );
        Ok(self)
    }

    /// Writes bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Ends the outgoing half.
    pub async fn finish(&mut self) -> Result<()> {
        Ok(self.stream.shutdown().await?)
    }

    /// Writes one message.
    pub async fn send<T: AsRef<[u8]>>(&mut self, frames: &[T]) -> Result<()> {
        let bytes = match &mut self.curve {
            None => message(frames),
            Some(curve) => curve.message(frames),
        };
        self.write(&bytes).await
    }

    /// Writes one command.
    pub async fn send_command(&mut self, name: &str, body: &[u8]) -> Result<()> {
        let bytes = match &mut self.curve {
            None => command(name, body),
            Some(curve) => {
                let inner = [&[name.len() as u8], name.as_bytes(), body].concat();
                curve.seal(curve::COMMAND, &inner)
            }
        };
        self.write(&bytes).await
    }

    /// Reads `count` bytes.
    pub async fn read(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        tokio::time::timeout(PATIENCE, self.stream.read_exact(&mut bytes))
            .await
            .context("nothing came")??;
        Ok(bytes)
    }

    /// Reads what is there, at most `count` bytes; empty at the end of the stream.
    pub async fn read_some(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        let got = self.stream.read(&mut bytes).await?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// Reads one frame: its flags without the bit for long ones, and its body.
    pub async fn read_frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let flags = self.read(1).await?[0];
        let length = if flags & 2 == 0 {
            usize::from(self.read(1).await?[0])
        } else {
            let mut length = [0; 8];
            length.copy_from_slice(&self.read(8).await?);
            usize::try_from(u64::from_be_bytes(length))?
        };
        Ok((flags & !2, self.read(length).await?))
    }

    /// Reads one message.
    pub async fn recv(&mut self) -> Result<Vec<Bytes>> {
        let mut frames = Vec::new();
        loop {
            let (mut flags, mut body) = self.read_frame().await?;
            if let Some(curve) = &self.curve {
                ensure!(flags == 0, "a sealed frame with flags {flags}");
                (flags, body) = curve.open(&body)?;
                flags = (flags & curve::MORE) | (flags & curve::COMMAND) << 1;
            }
            if flags & 4 != 0 {
                bail!("a command where a message was due: {body:?}");
            }
            frames.push(Bytes::from(body));
            if flags & 1 == 0 {
                return Ok(frames);
            }
        }
    }

    /// Reads until the other side closes; fails if it does not within `time`.
    pub async fn closes_within(&mut self, time: Duration) -> Result<()> {
        let drain = async {
            let mut bytes = vec![0; 64 * 1024];
            while !matches!(self.stream.read(&mut bytes).await, Ok(0) | Err(_)) {}
        };
        tokio::time::timeout(time, drain)
            .await
            .context("the connection stayed open")
    }
}
