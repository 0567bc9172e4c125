//! The extension module `tpu_kernel._kernel`.
