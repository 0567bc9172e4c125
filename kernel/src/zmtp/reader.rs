//! Inbound bytes of one peer, cut into messages and commands.
//!
//! Memory follows the bytes that arrived, never a length that was declared: a frame's memory starts
//! small and doubles as it fills. Commands that need no decision (`PING`, `PONG`, `ERROR`) end here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};

use super::curve::Opener;
use super::encoded::Encoded;
use super::error::PeerError;
use super::limits::{
    COMMAND, FRAME_OVERHEAD, LARGE_FRAME_START, Limits, PING_CONTEXT, READ_BUFFER, TURN_BYTES,
};
use super::send_queue::SendQueue;
use super::socket::Socket;
use super::unfinished::Unfinished;

const FLAG_MORE: u8 = 1;
const FLAG_LONG: u8 = 2;
const FLAG_COMMAND: u8 = 4;
const FLAGS: u8 = FLAG_MORE | FLAG_LONG | FLAG_COMMAND;

/// What a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Message(Vec<Bytes>),
    Subscribe(Bytes),
    Cancel(Bytes),
}

/// A frame's flags and declared length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameHeader {
    flags: u8,
    length: u64,
}

impl FrameHeader {
    pub(crate) fn is_command(self) -> bool {
        self.flags & FLAG_COMMAND != 0
    }
}

/// Reads one peer.
pub(crate) struct Reader {
    socket: Arc<Socket>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    turn: usize,
    silence: Option<Duration>,
    opener: Option<Opener>,
}

/// A frame or command as it was before it was sealed, if it was.
struct Frame {
    is_command: bool,
    has_more: bool,
    body: Bytes,
}

impl Reader {
    pub(crate) fn new(socket: Arc<Socket>) -> Self {
        let buffer = vec![0; READ_BUFFER].into_boxed_slice();
        Self {
            socket,
            buffer,
            start: 0,
            end: 0,
            turn: 0,
            silence: None,
            opener: None,
        }
    }

    /// From now on everything is sealed.
    pub(crate) fn open_with(&mut self, opener: Opener) {
        self.opener = Some(opener);
    }

    pub(crate) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    /// Waits until `count` (at most [`READ_BUFFER`]) bytes are there and shows them unconsumed.
    pub(crate) async fn peek(&mut self, count: usize) -> Result<&[u8], PeerError> {
        while self.end - self.start < count {
            if self.start + count > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let mut free = &mut self.buffer[self.end..];
            let room = free.len();
            let got = read(&self.socket, self.silence, &mut self.turn, &mut free, room).await?;
            self.end += got;
        }
        Ok(&self.buffer[self.start..self.start + count])
    }

    /// Takes `count` bytes that were peeked at.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Reads the next frame's flags and length.
    pub(crate) async fn header(&mut self) -> Result<FrameHeader, PeerError> {
        let flags = self.peek(1).await?[0];
        if flags & !FLAGS != 0 || flags & (FLAG_COMMAND | FLAG_MORE) == FLAG_COMMAND | FLAG_MORE {
            return Err(PeerError::Malformed("frame flags"));
        }
        if flags & FLAG_LONG == 0 {
            let length = u64::from(self.peek(2).await?[1]);
            self.consume(2);
            return Ok(FrameHeader { flags, length });
        }
        let header = self.peek(9).await?;
        let length = header[1..]
            .iter()
            .fold(0, |length, &byte| (length << 8) | u64::from(byte));
        self.consume(9);
        Ok(FrameHeader { flags, length })
    }

    /// Reads a command's body, its name included.
    pub(crate) async fn command(&mut self, header: FrameHeader) -> Result<Vec<u8>, PeerError> {
        if header.length > COMMAND as u64 {
            return Err(PeerError::MessageTooLarge {
                declared: header.length,
                bound: COMMAND,
            });
        }
        self.body(header.length as usize, None).await
    }

    /// Reads until a message or a subscription is whole, answering pings into `replies` meanwhile.
    pub(crate) async fn next(
        &mut self,
        limits: &Limits,
        unfinished: &mut Unfinished,
        replies: &SendQueue,
    ) -> Result<Received, PeerError> {
        let mut frames = Vec::new();
        let mut size = 0_usize;
        loop {
            let frame = self.frame(limits, size, unfinished).await?;
            if frame.is_command {
                unfinished.hold(size)?;
                match self.obey(&frame.body, replies)? {
                    // Between the frames of a message only heartbeats make sense.
                    Some(received) if frames.is_empty() => return Ok(received),
                    _ => continue,
                }
            }
            if frames.len() >= limits.frames {
                return Err(PeerError::TooManyFrames {
                    bound: limits.frames,
                });
            }
            size += frame.body.len() + FRAME_OVERHEAD;
            unfinished.hold(size)?;
            frames.push(frame.body);
            if !frame.has_more {
                return Ok(Received::Message(frames));
            }
        }
    }

    /// Reads a frame of a message of which there are `size` bytes, or a command.
    async fn frame(
        &mut self,
        limits: &Limits,
        size: usize,
        unfinished: &mut Unfinished,
    ) -> Result<Frame, PeerError> {
        let header = self.header().await?;
        if header.is_command() && self.opener.is_none() {
            return Ok(Frame {
                is_command: true,
                has_more: false,
                body: self.command(header).await?.into(),
            });
        }
        let declared = header.length.saturating_add((size + FRAME_OVERHEAD) as u64);
        if declared > limits.message as u64 {
            return Err(PeerError::MessageTooLarge {
                declared,
                bound: limits.message,
            });
        }
        let body = self
            .body(header.length as usize, Some((size, unfinished)))
            .await?;
        let Some(opener) = &mut self.opener else {
            return Ok(Frame {
                is_command: false,
                has_more: header.flags & FLAG_MORE != 0,
                body: body.into(),
            });
        };
        let carried = opener.open(body).await?;
        if carried.is_command && carried.body.len() > COMMAND {
            return Err(PeerError::MessageTooLarge {
                declared: carried.body.len() as u64,
                bound: COMMAND,
            });
        }
        Ok(Frame {
            is_command: carried.is_command,
            has_more: carried.has_more,
            body: carried.body,
        })
    }

    fn obey(&mut self, command: &[u8], replies: &SendQueue) -> Result<Option<Received>, PeerError> {
        let (name, body) = split_command(command)?;
        match name {
            b"PING" => {
                let Some((time_to_live, context)) = body.split_first_chunk::<2>() else {
                    return Err(PeerError::Malformed("PING"));
                };
                if context.len() > PING_CONTEXT {
                    return Err(PeerError::Malformed("PING"));
                }
                let tenths = u16::from_be_bytes(*time_to_live);
                self.silence = (tenths > 0).then(|| Duration::from_millis(u64::from(tenths) * 100));
                // A peer that does not read gets no answer rather than a longer queue.
                let _ = replies.push(Encoded::command("PONG", context));
                Ok(None)
            }
            b"SUBSCRIBE" => Ok(Some(Received::Subscribe(Bytes::copy_from_slice(body)))),
            b"CANCEL" => Ok(Some(Received::Cancel(Bytes::copy_from_slice(body)))),
            b"ERROR" => Err(reported(body)),
            _ => Ok(None),
        }
    }

    async fn body(
        &mut self,
        length: usize,
        mut account: Option<(usize, &mut Unfinished)>,
    ) -> Result<Vec<u8>, PeerError> {
        if length <= self.buffer.len() {
            let body = self.peek(length).await?.to_vec();
            self.consume(length);
            return Ok(body);
        }
        let mut body = Vec::with_capacity(length.min(LARGE_FRAME_START));
        body.extend_from_slice(&self.buffer[self.start..self.end]);
        self.start = 0;
        self.end = 0;
        while body.len() < length {
            let left = length - body.len();
            if body.len() == body.capacity() {
                body.reserve_exact(left.min(body.len()));
            }
            let room = left.min(body.capacity() - body.len());
            read(&self.socket, self.silence, &mut self.turn, &mut body, room).await?;
            if let Some((before, unfinished)) = &mut account {
                unfinished.hold(*before + body.len())?;
            }
        }
        Ok(body)
    }
}

/// Splits a command into its name and the rest.
pub(crate) fn split_command(command: &[u8]) -> Result<(&[u8], &[u8]), PeerError> {
    let (&length, rest) = command
        .split_first()
        .ok_or(PeerError::Malformed("command"))?;
    rest.split_at_checked(usize::from(length))
        .ok_or(PeerError::Malformed("command name"))
}

/// The error an `ERROR` command reports.
pub(crate) fn reported(body: &[u8]) -> PeerError {
    let reason = body.get(1..).unwrap_or_default();
    PeerError::Reported(String::from_utf8_lossy(reason).into_owned())
}

/// Reads 1 to `room` bytes; lets others on this thread run after [`TURN_BYTES`].
async fn read(
    socket: &Socket,
    silence: Option<Duration>,
    turn: &mut usize,
    buffer: &mut impl BufMut,
    room: usize,
) -> Result<usize, PeerError> {
    loop {
        if *turn >= TURN_BYTES {
            *turn = 0;
            tokio::task::yield_now().await;
        }
        match socket.try_read(&mut (&mut *buffer).limit(room)) {
            Ok(0) => return Err(PeerError::Closed),
            Ok(count) => {
                *turn += count;
                return Ok(count);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *turn = 0;
                match silence {
                    None => socket.readable().await?,
                    Some(time) => tokio::time::timeout(time, socket.readable())
                        .await
                        .map_err(|_| PeerError::Silent)??,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}
