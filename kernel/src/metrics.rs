//! The kernel's numbers for a host's dashboard, in the text format of Prometheus, over HTTP.
//!
//! Off unless `TPU_KERNEL_METRICS` names a place: `unix:/PATH`, a port or `ADDRESS:PORT` of the loopback
//! interface. Who asks needs the token of `TPU_KERNEL_METRICS_TOKEN`, else one made here, in a file only
//! this user can read. On the io thread: answers whatever the kernel does.

mod exposition;
mod http;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::kernel::Kernel;
use crate::outbox::StreamName;

const VARIABLE: &str = "TPU_KERNEL_METRICS";
const TOKEN: &str = "TPU_KERNEL_METRICS_TOKEN";

/// Who asks at the same time; more wait.
const MOST: usize = 8;
/// What one answer may take, from the connection to the last byte.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a fault of the system's, such as no free descriptor.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum MetricsError {
    #[error(
        "`{0}` is no place for metrics: give `unix:/PATH`, a port, or a port of the loopback interface such as 127.0.0.1:9401"
    )]
    Place(String),
    #[error(
        "cannot serve metrics at `{place}`: {source}{}",
        if .source.kind() == io::ErrorKind::AddrInUse { ". Another kernel may be there: port 0 takes a free one" } else { "" }
    )]
    Bind {
        place: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot write the token for metrics: {0}; give one in TPU_KERNEL_METRICS_TOKEN")]
    Token(#[source] io::Error),
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Place {
    fn parse(text: &str) -> Result<Self, MetricsError> {
        let text = text.trim();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Path::new(path);
            if path.is_absolute() {
                return Ok(Self::Unix(path.to_owned()));
            }
        }
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let port = text.strip_prefix("localhost:").unwrap_or(text).parse();
        let address = port.map_or_else(
            |_| text.parse().ok(),
            |port| Some(SocketAddr::new(loopback, port)),
        );
        address
            .filter(|address| address.ip().is_loopback())
            .map(Self::Tcp)
            .ok_or_else(|| MetricsError::Place(text.to_owned()))
    }
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Serve the metrics if somebody wants them. On the io thread, as long as the kernel lives.
pub async fn run(kernel: Arc<Kernel>) {
    let Some(place) = std::env::var_os(VARIABLE).filter(|place| !place.is_empty()) else {
        return;
    };
    let log = |text: &str| {
        kernel
            .capture
            .log(StreamName::Stderr, &format!("tpu-kernel: {text}\n"));
    };
    match open(&kernel, &place.to_string_lossy()).await {
        Ok((listener, token, words)) => {
            log(&words);
            serve(&kernel, listener, Arc::from(token)).await;
        }
        Err(error) => log(&error.to_string()),
    }
}

async fn open(kernel: &Kernel, place: &str) -> Result<(Listener, String, String), MetricsError> {
    let bind = |source| MetricsError::Bind {
        place: place.to_owned(),
        source,
    };
    let (listener, address) = match Place::parse(place)? {
        Place::Unix(path) => {
            let address = format!("unix:{}", path.display());
            let listener = bind_unix(&path).map_err(bind)?;
            kernel.offer.remember(&path);
            (Listener::Unix(listener), address)
        }
        Place::Tcp(address) => {
            let listener = TcpListener::bind(address).await.map_err(bind)?;
            let address = listener.local_addr().map_err(bind)?;
            (Listener::Tcp(listener), format!("http://{address}/metrics"))
        }
    };
    let given = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let (token, whence) = match given {
        Some(token) => (token, TOKEN.to_owned()),
        None => make_token(kernel).map_err(MetricsError::Token)?,
    };
    let _ = kernel.offer.metrics.set(address.clone());
    let words = format!("metrics at {address}; the token is in {whence}");
    Ok((listener, token, words))
}

/// A socket there, in place of one that nobody listens at.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let stale = std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if stale {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A token, and the file it is in.
fn make_token(kernel: &Kernel) -> io::Result<(String, String)> {
    let token = format!(
        "{}{}",
        uuid::Uuid::new_v4().simple(),
        uuid::Uuid::new_v4().simple()
    );
    let path = kernel.offer.file(kernel, "token")?;
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    file.write_all(token.as_bytes())?;
    Ok((token, format!("`{}`", path.display())))
}

async fn serve(kernel: &Arc<Kernel>, listener: Listener, token: Arc<str>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok(stream) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let (kernel, token) = (Arc::clone(kernel), Arc::clone(&token));
        tokio::spawn(async move {
            let body = || exposition::text(&kernel);
            let _ = timeout(PATIENCE, http::answer(stream, &token, body)).await;
            drop(place);
        });
    }
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_this_machine_are_places() {
        let tcp = |text: &str| Place::Tcp(text.parse().unwrap());
        for (text, place) in [
            ("9401", tcp("127.0.0.1:9401")),
            ("0", tcp("127.0.0.1:0")),
            ("127.0.0.1:9401", tcp("127.0.0.1:9401")),
            ("localhost:9401", tcp("127.0.0.1:9401")),
            ("[::1]:9401", tcp("[::1]:9401")),
            ("unix:/run/m.sock", Place::Unix("/run/m.sock".into())),
        ] {
            assert_eq!(Place::parse(text).unwrap(), place, "{text}");
        }
        for text in [
            "0.0.0.0:9401",
            "10.0.0.1:9401",
            "unix:m.sock",
            "on",
            "99999",
            "[::]:1",
        ] {
            assert_eq!(
                Place::parse(text).unwrap_err().to_string(),
                format!(
                    "`{text}` is no place for metrics: give `unix:/PATH`, a port, or a port of the loopback interface such as 127.0.0.1:9401"
                )
            );
        }
    }
}
