//! The kernel's numbers for `tpu-kernel top`: a socket of this user alone, which tells one line of JSON
//! to who connects. Costs nothing while nobody does.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::kernel::Kernel;

/// What a reader may take to read its line.
const PATIENCE: Duration = Duration::from_secs(1);
/// After a fault of the system's.
const PAUSE: Duration = Duration::from_secs(1);

/// Files of this kernel, most in the user's folder, that are taken away at its end.
#[derive(Debug, Default)]
pub struct Offer {
    files: [OnceLock<PathBuf>; 3],
    /// Where the metrics are served.
    pub metrics: OnceLock<String>,
}

impl Offer {
    /// A name for a file of this kernel in the user's folder; it is removed at the end.
    pub fn file(&self, kernel: &Kernel, ending: &str) -> io::Result<PathBuf> {
        let name = format!(
            "{}-{}.{ending}",
            std::process::id(),
            &kernel.session_id[..8]
        );
        let path = tpu_kernel_place::make()?.join(name);
        self.remember(&path);
        Ok(path)
    }

    /// This one is removed at the end too.
    pub fn remember(&self, path: &Path) {
        let mut files = self.files.iter();
        let _ = files.any(|file| file.set(path.to_owned()).is_ok());
    }

    /// The kernel ends.
    pub fn withdraw(&self) {
        for file in self.files.iter().filter_map(OnceLock::get) {
            let _ = fs::remove_file(file);
        }
    }
}

/// Answer, as long as the kernel lives. On the io thread.
pub async fn run(kernel: Arc<Kernel>) {
    // A kernel that cannot be found by `top` is still a kernel.
    let Ok(listener) = bind(&kernel) else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let kernel = Arc::clone(&kernel);
        tokio::spawn(async move { timeout(PATIENCE, tell(&kernel, stream)).await });
    }
}

fn bind(kernel: &Kernel) -> io::Result<UnixListener> {
    let path = kernel.offer.file(kernel, tpu_kernel_place::SOCKET)?;
    // Under another name until it listens: who finds one that refuses takes it away.
    let unready = path.with_extension("new");
    let listener = UnixListener::bind(&unready)?;
    fs::set_permissions(&unready, fs::Permissions::from_mode(0o600))?;
    fs::rename(unready, path)?;
    Ok(listener)
}

async fn tell(kernel: &Kernel, mut stream: UnixStream) -> io::Result<()> {
    stream.write_all(line(kernel).as_bytes()).await?;
    stream.shutdown().await
}

fn line(kernel: &Kernel) -> String {
    let (numbers, cells, idle) = kernel.feed.numbers();
    let mut told = serde_json::to_value(numbers).unwrap_or_default();
    told["pid"] = std::process::id().into();
    told["notebook"] = json!(notebook());
    told["connection_file"] = json!(kernel.owner());
    told["cells"] = cells.into();
    told["idle_seconds"] = json!(idle.map(|idle| idle.as_secs_f64()));
    told["metrics"] = json!(kernel.offer.metrics.get());
    format!("{told}\n")
}

/// What a server says the kernel is for, as the path of a notebook.
pub fn notebook() -> Option<String> {
    let name = std::env::var_os("JPY_SESSION_NAME")?;
    Some(name.to_string_lossy().into_owned())
}
