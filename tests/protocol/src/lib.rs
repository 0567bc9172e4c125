//! Helpers for the tests under `tests/`.
//!
//! [`raw`] speaks ZMTP byte by byte, so that a test can break any rule of it; [`mutate`] makes the
//! broken connections of the fuzz tests; [`process`] looks at this process's memory and files.

pub mod mutate;
pub mod process;
pub mod raw;
