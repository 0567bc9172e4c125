//! The runtime session of tpu-core, for both sides: Python reads it through `embed`, the io thread
//! without asking Python.

use std::path::Path;
use std::sync::OnceLock;

pub use tpu_core::client::{AttachError, Session};

static SESSION: OnceLock<Session> = OnceLock::new();

/// Attach to the library at `path`, once in a process.
pub fn attach(path: &Path) -> Result<&'static Session, AttachError> {
    if let Some(session) = SESSION.get() {
        return Ok(session);
    }
    let session = Session::attach(path)?;
    Ok(SESSION.get_or_init(|| session))
}

/// The session, once attached.
pub fn session() -> Option<&'static Session> {
    SESSION.get()
}
