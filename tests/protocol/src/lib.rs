//! Helpers for the tests under `tests/`.
//!
//! [`frontend`] starts the installed kernel and talks to it as Jupyter does.
//!
//! [`raw`] speaks ZMTP byte by byte, so that a test can break any rule of it, and [`curve`] seals what
//! it says; [`mutate`] and [`mutate_curve`]
//! make the broken connections of the fuzz tests; [`process`] looks at this process's memory and files.

pub mod curve;
pub mod frontend;
pub mod mutate;
pub mod mutate_curve;
pub mod process;
pub mod raw;
