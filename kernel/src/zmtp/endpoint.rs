//! Where a socket listens: `tcp://address:port` or `ipc://path`.
//!
//! An IPC socket is for its owner alone (mode 0600 before it listens), replaces a file left by a dead
//! process, never one that somebody still listens on, and is removed with its listener.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Type};
use tokio::net::{TcpListener, UnixListener};

use super::socket::Socket;

/// Connections the operating system holds until they are accepted.
const BACKLOG: i32 = 1024;

/// A parsed endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp(SocketAddr),
    Ipc(PathBuf),
}

impl Endpoint {
    /// Parses `tcp://host:port` (`*` is any address) and `ipc://path`.
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let invalid = |what: &str| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{text}` {what}; use tcp://address:port or ipc://path"),
            )
        };
        if let Some(path) = text.strip_prefix("ipc://") {
            if path.is_empty() {
                return Err(invalid("names no path"));
            }
            return Ok(Self::Ipc(PathBuf::from(path)));
        }
        let Some(address) = text.strip_prefix("tcp://") else {
            return Err(invalid("is no endpoint"));
        };
        let address = match address.strip_prefix("*:") {
            Some(port) => format!("0.0.0.0:{port}"),
            None => address.to_owned(),
        };
        // Literal addresses need no resolver; a name is resolved once, before anything is served.
        if let Ok(address) = address.parse() {
            return Ok(Self::Tcp(address));
        }
        address
            .to_socket_addrs()
            .map_err(|error| invalid(&format!("cannot be resolved ({error})")))?
            .next()
            .map(Self::Tcp)
            .ok_or_else(|| invalid("has no address"))
    }
}

/// A listening socket; an IPC file goes with it.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener, SocketFile),
}

impl Listener {
    /// Binds and listens. Must run inside a tokio runtime.
    pub(crate) async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        let listener = Self::listen(endpoint).await?;
        crate::process::close_in_children(listener.fd());
        Ok(listener)
    }

    async fn listen(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Endpoint::Ipc(path) => {
                remove_stale(path)?;
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.bind(&SockAddr::unix(path)?)?;
                let file = SocketFile::new(path)?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
                socket.listen(BACKLOG)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Ipc(UnixListener::from_std(socket.into())?, file))
            }
        }
    }

    fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Ipc(listener, _) => listener.as_raw_fd(),
        }
    }

    /// The bound endpoint as a client would name it, with the port the system chose.
    pub(crate) fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp(listener) => Ok(Endpoint::Tcp(listener.local_addr()?)),
            Self::Ipc(_, file) => Ok(Endpoint::Ipc(file.path.clone())),
        }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Fails only for a peer that has gone already.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            Self::Ipc(listener, _) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

/// The file of an IPC socket; removed on drop if it is still the one that was made here.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        let inode = fs::symlink_metadata(path)?.ino();
        Ok(Self {
            path: path.to_owned(),
            inode,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "`{}` exists and is not a socket; remove it or choose another path",
                path.display()
            ),
        ));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!(
                "another process listens on `{}`; choose another path",
                path.display()
            ),
        ));
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed() {
        let tcp = |text: &str| match Endpoint::parse(text).unwrap() {
            Endpoint::Tcp(address) => address.to_string(),
            Endpoint::Ipc(path) => panic!("{path:?}"),
        };
        assert_eq!(tcp("tcp://127.0.0.1:5555"), "127.0.0.1:5555");
        assert_eq!(tcp("tcp://*:7"), "0.0.0.0:7");
        assert_eq!(tcp("tcp://[::1]:8"), "[::1]:8");
        assert_eq!(
            Endpoint::parse("ipc:///a/b-1").unwrap(),
            Endpoint::Ipc(PathBuf::from("/a/b-1"))
        );
        for bad in [
            "tcp://",
            "ipc://",
            "udp://127.0.0.1:1",
            "127.0.0.1:1",
            "tcp://127.0.0.1:x",
        ] {
            assert_eq!(
                Endpoint::parse(bad).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{bad}"
            );
        }
    }
}
