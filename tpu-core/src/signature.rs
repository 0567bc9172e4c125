//! What a program computes, as far as it takes to say how two programs differ: the sequence of its
//! operations, the types of its arguments and results, the numbers built into it.

mod compare;
mod read;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::program;

pub use compare::Why;

/// A program without its bytes. Two with the same `sequence` do the same with other things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Hash of the operations and of which values they take, without types and numbers.
    pub sequence: u64,
    /// Hash of the compile options.
    pub options: u64,
    pub arguments: Vec<Kind>,
    pub results: Vec<Kind>,
    /// Numbers built in, in their order.
    pub numbers: Vec<String>,
    /// Operations that have something else built in, and a hash of it.
    pub built_in: Vec<(String, u64)>,
}

/// What a program was made from. It is kept beside its machine code in caches, so that a program
/// loaded from there explains the next compile.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Origin {
    /// Hash of the bytes it was made from, and their number.
    pub program: u64,
    pub bytes: u64,
    pub signature: Signature,
}

impl Origin {
    pub fn of(code: &[u8], options: &[u8]) -> Self {
        Self {
            program: program::hash(code),
            bytes: code.len() as u64,
            signature: Signature::of(code, program::options_hash(options)),
        }
    }

    /// As it is kept in caches.
    pub fn note(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Type of a tensor, in PyTorch's words. A size below zero is not fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    pub element: String,
    pub shape: Vec<i64>,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}[", self.element)?;
        for (index, size) in self.shape.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            match size {
                ..0 => write!(formatter, "{separator}?")?,
                size => write!(formatter, "{separator}{size}")?,
            }
        }
        formatter.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_pytorch_does() {
        let kind = |shape: &[i64]| Kind {
            element: "float32".into(),
            shape: shape.to_vec(),
        };
        assert_eq!(kind(&[]).to_string(), "float32[]");
        assert_eq!(kind(&[60, 128]).to_string(), "float32[60, 128]");
        assert_eq!(kind(&[-1, 2]).to_string(), "float32[?, 2]");
    }
}
