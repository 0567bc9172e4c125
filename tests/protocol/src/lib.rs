//! Helpers for the tests under `tests/`.
