//! Helpers for the tests under `tests/`.
//!
//! [`frontend`] starts the installed kernel and talks to it as Jupyter does.
//!
//! [`raw`] speaks ZMTP byte by byte, so that a test can break any rule of it; [`mutate`] makes the
//! broken connections of the fuzz tests; [`process`] looks at this process's memory and files.

pub mod frontend;
pub mod mutate;
pub mod process;
pub mod raw;
