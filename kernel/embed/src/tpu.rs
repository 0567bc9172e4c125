//! The runtime session of tpu-core, as Python sees it.
use pyo3::prelude::*;
