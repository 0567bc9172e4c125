//! Why a program had to be compiled although one like it was there.

use serde::{Deserialize, Serialize};

use super::{Kind, Signature};

/// Differences that are told; the first ones say it.
const MOST: usize = 8;
/// Programs with the same operations that are looked at.
const MOST_COMPARED: usize = 256;

/// Why a program was not there already.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Why {
    /// No program with these operations was there before.
    #[default]
    First,
    /// The same program was there before, and is neither in memory nor on disk any more.
    Again { nearest: u64 },
    /// The nearest program with the same operations differs in this.
    Differs {
        /// Its number.
        nearest: u64,
        differences: Vec<Difference>,
    },
}

/// Where a type stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Argument,
    Result,
}

/// One thing in which two programs with the same operations differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "differs", rename_all = "snake_case")]
pub enum Difference {
    /// One size of a tensor.
    Size {
        part: Part,
        index: usize,
        dimension: usize,
        was: i64,
        is: i64,
        /// The whole type, as it is now.
        tensor: String,
    },
    /// Type or rank of a tensor.
    Type {
        part: Part,
        index: usize,
        was: String,
        is: String,
    },
    /// A number that is built in.
    Number { was: String, is: String },
    /// Something else built into an operation, such as an axis.
    BuiltIn { operation: String },
    /// The options of the compiler.
    Options,
}

impl Signature {
    /// How this program differs from an earlier one with the same operations: arguments first.
    /// Results follow from arguments, so they are told only where no argument differs.
    pub fn differences(&self, earlier: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        kinds(
            Part::Argument,
            &earlier.arguments,
            &self.arguments,
            &mut found,
        );
        if found.is_empty() {
            kinds(Part::Result, &earlier.results, &self.results, &mut found);
        }
        let of_shapes = !found.is_empty();
        let numbers = earlier.numbers.iter().zip(&self.numbers);
        found.extend(numbers.filter(|(was, is)| was != is).map(|(was, is)| {
            let (was, is) = (was.clone(), is.clone());
            Difference::Number { was, is }
        }));
        // What is built into operations follows from shapes, mostly.
        if !of_shapes {
            let built_in = earlier.built_in.iter().zip(&self.built_in);
            found.extend(
                built_in
                    .filter(|(was, is)| was != is)
                    .map(|(_, (operation, _))| Difference::BuiltIn {
                        operation: operation.clone(),
                    }),
            );
        }
        if self.options != earlier.options {
            found.push(Difference::Options);
        }
        found
    }

    /// Why this program is not among `earlier` ones (number and signature, newest first).
    pub fn why<'a>(&self, earlier: impl Iterator<Item = (u64, &'a Self)>) -> Why {
        let nearest = earlier
            .filter(|(_, other)| other.sequence == self.sequence)
            .take(MOST_COMPARED)
            .map(|(number, other)| (number, self.differences(other)))
            .min_by_key(|(_, differences)| differences.len());
        match nearest {
            None => Why::First,
            Some((nearest, differences)) if differences.is_empty() => Why::Again { nearest },
            Some((nearest, mut differences)) => {
                differences.truncate(MOST);
                Why::Differs {
                    nearest,
                    differences,
                }
            }
        }
    }
}

fn kinds(part: Part, was: &[Kind], is: &[Kind], found: &mut Vec<Difference>) {
    for (index, (was, is)) in was.iter().zip(is).enumerate() {
        if was.element != is.element || was.shape.len() != is.shape.len() {
            found.push(Difference::Type {
                part,
                index,
                was: was.to_string(),
                is: is.to_string(),
            });
            continue;
        }
        let sizes = was.shape.iter().zip(&is.shape).enumerate();
        found.extend(
            sizes
                .filter(|(_, (was, is))| was != is)
                .map(|(dimension, (was, now))| Difference::Size {
                    part,
                    index,
                    dimension,
                    was: *was,
                    is: *now,
                    tensor: is.to_string(),
                }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! program {
        ($name:literal) => {
            Signature::of(
                include_bytes!(concat!("../../programs/", $name, ".mlirbc")),
                1,
            )
        };
    }

    fn why(is: &Signature, earlier: &[&Signature]) -> Why {
        is.why(
            (0..)
                .zip(earlier.iter().copied())
                .collect::<Vec<_>>()
                .into_iter()
                .rev(),
        )
    }

    fn differs(nearest: u64, difference: Difference) -> Why {
        Why::Differs {
            nearest,
            differences: vec![difference],
        }
    }

    #[test]
    fn another_batch_is_a_size_of_the_first_argument() {
        let (first, second) = (program!("mm-60"), program!("mm-61"));
        let size = Difference::Size {
            part: Part::Argument,
            index: 0,
            dimension: 0,
            was: 60,
            is: 61,
            tensor: "float32[61, 128]".into(),
        };
        assert_eq!(why(&second, &[&first]), differs(0, size));
        assert_eq!(why(&first, &[]), Why::First);
        assert_eq!(
            why(&second, &[&first, &second, &first]),
            Why::Again { nearest: 1 }
        );
    }

    #[test]
    fn the_nearest_program_is_the_one_it_is_compared_with() {
        let (small, large) = (program!("mm-60"), program!("mm-61"));
        let half = program!("mm-bfloat16");
        let Why::Differs { nearest, .. } = why(&large, &[&half, &small, &half]) else {
            panic!("it differs");
        };
        assert_eq!(nearest, 1);
        let Why::Differs { differences, .. } = why(&half, &[&small]) else {
            panic!("it differs");
        };
        assert_eq!(
            differences[0],
            Difference::Type {
                part: Part::Argument,
                index: 0,
                was: "float32[60, 128]".into(),
                is: "bfloat16[4, 128]".into()
            }
        );
    }

    #[test]
    fn a_number_is_told_as_it_was_written() {
        let (first, second) = (program!("dropout-0.1"), program!("dropout-0.2"));
        let Why::Differs { differences, .. } = why(&second, &[&first]) else {
            panic!("it differs");
        };
        assert!(
            differences.contains(&Difference::Number {
                was: "0.1".into(),
                is: "0.2".into()
            }),
            "{differences:?}"
        );
    }

    #[test]
    fn without_arguments_the_result_says_it() {
        let size = Difference::Size {
            part: Part::Result,
            index: 0,
            dimension: 1,
            was: 1,
            is: 2,
            tensor: "float32[2, 2]".into(),
        };
        assert_eq!(
            why(&program!("full-2"), &[&program!("full-1")]),
            differs(0, size)
        );
    }

    #[test]
    fn another_axis_is_in_its_operation() {
        let mut one = program!("sum-1");
        let other = program!("sum-0");
        assert_ne!(one.results, other.results);
        // A square would show no other size.
        one.results.clone_from(&other.results);
        let Why::Differs { differences, .. } = why(&other, &[&one]) else {
            panic!("it differs");
        };
        let operation = "reduce".into();
        assert!(
            differences.contains(&Difference::BuiltIn { operation }),
            "{differences:?}"
        );
    }

    #[test]
    fn other_options_are_named() {
        let first = program!("mm-60");
        let mut second = first.clone();
        second.options = 2;
        assert_eq!(why(&second, &[&first]), differs(0, Difference::Options));
    }
}
