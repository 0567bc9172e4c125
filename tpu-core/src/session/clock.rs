//! Time for the session: monotonic nanoseconds, and what they mean on the wall.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

struct Epoch {
    instant: Instant,
    unix_ns: u64,
}

static EPOCH: OnceLock<Epoch> = OnceLock::new();

fn epoch() -> &'static Epoch {
    EPOCH.get_or_init(|| Epoch {
        instant: Instant::now(),
        unix_ns: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64),
    })
}

/// Nanoseconds since the first call in this process. Never goes back.
pub fn now_ns() -> u64 {
    epoch().instant.elapsed().as_nanos() as u64
}

/// The wall-clock time, since 1970, of a value of [`now_ns`].
pub fn unix_ns(monotonic_ns: u64) -> u64 {
    epoch().unix_ns + monotonic_ns
}
