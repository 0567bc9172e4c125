//! TPU runtime session.
