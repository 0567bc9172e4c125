//! The program `tpu-kernel`.
fn main() {}
