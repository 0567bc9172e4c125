//! One connected stream, TCP or Unix: non-blocking reads and writes and the wait for either.
//!
//! Writes never raise SIGPIPE, whatever the notebook did to that signal.

use std::io::{self, IoSlice};

use bytes::BufMut;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Waits until a read may succeed.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Waits until a write may succeed.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    /// Reads what is there into the free room of `buffer`; 0 is the end of the stream.
    pub(crate) fn try_read(&self, buffer: &mut impl BufMut) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_buf(buffer),
            Self::Unix(stream) => stream.try_read_buf(buffer),
        }
    }

    /// Writes as much of `pieces` as the stream takes at once.
    pub(crate) fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || {
                SockRef::from(stream).send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
            }),
            Self::Unix(stream) => stream.try_io(Interest::WRITABLE, || {
                SockRef::from(stream).send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
            }),
        }
    }

    /// Writes all of `bytes`, waiting as needed. For the few bytes of a handshake.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(&[IoSlice::new(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
