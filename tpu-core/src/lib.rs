//! The TPU runtime session behind the PJRT C API.
//!
//! As a cdylib this is `libtpu_core.so`, a PJRT plug-in that wraps another one (libtpu on a TPU
//! VM, an XLA CPU plug-in elsewhere) and sees every program, buffer and transfer of a process. As
//! an rlib it is the client with which a host program reads that session.
//!
//! ```text
//! TorchTPU ── GetPjrtApi ──► plugin ──► wrapped plug-in
//!                              │
//!                              ▼
//! host ◄── client ◄── api ◄── session
//! ```
//!
//! It knows of no Jupyter and no Python.

pub mod api;
mod bytecode;
mod cache;
pub mod choice;
pub mod client;
pub mod hlo;
mod library;
pub mod pjrt;
mod plugin;
mod program;
mod rewrite;
mod session;
mod signature;
mod size;
mod trial;

pub use api::Snapshot;
pub use choice::parse_size;
pub use client::{AttachError, Session};
#[doc(hidden)]
pub use plugin::{GetPjrtApi, wrap_table};
pub use session::{Event, EventKind, Identity};
pub use size::readable;
