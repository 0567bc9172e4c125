//! The io thread's part: reads the pipes without the GIL, while a cell runs and between cells.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;

use super::Pair;
use crate::kernel::Kernel;
use crate::outbox::StreamName;

/// How long a full outbox keeps the captured pipes unread before it is looked at again.
const CAPTURE_PAUSE: Duration = Duration::from_millis(2);

/// Watch each pair of captured pipes from when it is made until no process can write to it.
pub async fn watch(kernel: Arc<Kernel>) {
    let Some(mut made) = kernel.capture.to_watch() else {
        return;
    };
    while let Some(pair) = made.recv().await {
        for name in [StreamName::Stdout, StreamName::Stderr] {
            tokio::spawn(capture(Arc::clone(&kernel), Arc::clone(&pair), name));
        }
    }
}

/// Move what a captured pipe holds to the outbox, as long as there is room.
async fn capture(kernel: Arc<Kernel>, pair: Arc<Pair>, name: StreamName) {
    let Ok(reader) = pair.reader(name) else {
        return;
    };
    // SAFETY: the descriptor is owned and open until the watcher is dropped.
    let Ok(pipe) = (unsafe { AsyncFd::register(reader) }) else {
        return;
    };
    while !pair.has_ended(name) {
        let Ok(mut ready) = pipe.readable().await else {
            break;
        };
        while !kernel.outbox.has_space() {
            tokio::time::sleep(CAPTURE_PAUSE).await;
        }
        let taken = pair.drain(false, |name, owner, text| {
            kernel.write_captured(name, owner, text);
        });
        kernel.capture.saw(taken);
        if taken == 0 {
            ready.clear_ready();
        }
        tokio::task::yield_now().await;
    }
    if pair.have_ended() {
        kernel.capture.forget(&pair);
    }
}
