//! Everything that is Jupyter in this kernel, and no Python.
//!
//! Bytes come in through `zmtp`, become messages in `wire`, and `session` answers them at once or
//! hands them to Python through `request`. What Python prints, shows and replies goes through
//! `outbox` back out. `kernel` is the state both sides share, `io_thread` runs it all,
//! `lifecycle` ends it.

mod capture;
mod connection;
pub mod crash;
pub mod debugger;
pub mod device;
mod feed;
mod felt;
mod input;
mod interrupt;
mod io_thread;
mod kernel;
mod language;
mod late;
mod lifecycle;
mod lock;
mod metrics;
mod offer;
mod outbox;
mod outlet;
mod parent;
pub mod picture;
pub mod process;
mod progress;
mod request;
mod session;
mod standing;
mod subshells;
pub(crate) mod tally;
mod transcript;
mod usage;
mod utf8;
mod widget_control;
pub mod wire;
pub mod zmtp;

pub use connection::{Connection, ConnectionError};
pub use debugger::Debugger;
pub use interrupt::Whereabouts;
pub use io_thread::{StartError, start};
pub use kernel::Kernel;
pub use language::PROTOCOL_VERSION;
pub use outbox::StreamName;
pub use parent::{Channel, Parent};
pub use request::{Request, Service};
pub use subshells::Subshell;
pub use utf8::Utf8Tail;
