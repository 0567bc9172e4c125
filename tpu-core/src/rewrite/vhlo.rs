//! Types, attributes and operations of the VHLO dialect that rewritten programs use.

use crate::bytecode::{Malformed, Module, Operation, Reader};

/// What an attribute's bytes begin with.
pub mod attribute {
    pub const BOOLEAN: u64 = 2;
    pub const DIRECTION: u64 = 3;
    pub const COMPARISON_TYPE: u64 = 4;
    pub const DICTIONARY: u64 = 6;
    pub const INTEGER: u64 = 9;
    pub const STRING: u64 = 14;
    pub const TENSOR: u64 = 15;
}

/// What a type's bytes begin with.
mod kind {
    pub const BOOLEAN: u64 = 0;
    pub const I64: u64 = 14;
    pub const TENSOR: u64 = 20;
}

/// Directions of a comparison.
#[derive(Clone, Copy)]
pub enum Direction {
    Equal = 0,
    AtLeast = 2,
    Less = 5,
}

/// Comparison of signed integers.
const SIGNED: u64 = 3;

/// The bytes of a string attribute.
pub fn text<'m>(module: &'m Module<'_>, index: usize) -> Result<&'m [u8], Malformed> {
    let (code, mut reader) = module.open(index)?;
    if code != attribute::STRING {
        return Err(Malformed);
    }
    module.string(reader.index()?).ok_or(Malformed)
}

/// A tensor's shape and the number of its element type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    pub shape: Vec<i64>,
    pub element: usize,
}

impl Tensor {
    pub fn read(module: &Module<'_>, index: usize) -> Result<Self, Malformed> {
        let mut reader = Reader::new(&module.types.get(index).ok_or(Malformed)?.data);
        if reader.number()? != kind::TENSOR {
            return Err(Malformed);
        }
        let shape = (0..reader.count()?)
            .map(|_| reader.signed())
            .collect::<Result<Vec<_>, _>>()?;
        let element = reader.index()?;
        // A size that is not known, or something behind the type: neither has a fixed shape.
        if !reader.rest.is_empty() || shape.iter().any(|size| *size < 0) {
            return Err(Malformed);
        }
        Ok(Self { shape, element })
    }

    pub fn enter(&self, module: &mut Module<'_>) -> Result<usize, Malformed> {
        module.kind(|writer| {
            writer.number(kind::TENSOR);
            writer.index(self.shape.len());
            for size in &self.shape {
                writer.signed(*size);
            }
            writer.index(self.element);
        })
    }
}

/// Number of the type of truth values.
pub fn boolean(module: &mut Module<'_>) -> Result<usize, Malformed> {
    module.kind(|writer| writer.number(kind::BOOLEAN))
}

/// Number of the type of 64-bit integers.
pub fn i64(module: &mut Module<'_>) -> Result<usize, Malformed> {
    module.kind(|writer| writer.number(kind::I64))
}

/// Number of an attribute that holds 64-bit integers in a tensor of `shape`: one for each element,
/// or one for all.
fn integers(module: &mut Module<'_>, shape: Vec<i64>, values: &[i64]) -> Result<usize, Malformed> {
    let element = i64(module)?;
    let kind = Tensor { shape, element }.enter(module)?;
    module.attribute(|writer| {
        writer.number(attribute::TENSOR);
        writer.index(kind);
        writer.index(size_of_val(values));
        for value in values {
            writer.bytes.extend_from_slice(&value.to_le_bytes());
        }
    })
}

fn list(module: &mut Module<'_>, values: &[i64]) -> Result<usize, Malformed> {
    integers(module, vec![values.len() as i64], values)
}

fn integer(module: &mut Module<'_>, value: i64) -> Result<usize, Malformed> {
    let kind = i64(module)?;
    module.attribute(|writer| {
        writer.number(attribute::INTEGER);
        writer.index(kind);
        writer.signed(value);
    })
}

/// Operations in the order they run, each of whose results gets the next number.
pub struct Builder<'m, 'a> {
    pub module: &'m mut Module<'a>,
    pub operations: Vec<Operation>,
    pub values: usize,
    location: usize,
}

impl<'m, 'a> Builder<'m, 'a> {
    /// A builder whose first result gets the number `values`.
    pub fn new(module: &'m mut Module<'a>, location: usize, values: usize) -> Self {
        Self {
            module,
            operations: Vec::new(),
            values,
            location,
        }
    }

    pub fn push(&mut self, operation: Operation) -> Vec<usize> {
        let first = self.values;
        self.values += operation.results.len();
        self.operations.push(operation);
        (first..self.values).collect()
    }

    /// An operation with one result.
    fn one(
        &mut self,
        name: &str,
        attributes: &[usize],
        operands: &[usize],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let operation = Operation {
            name: self.module.operation(name)?,
            location: self.location,
            properties: (!attributes.is_empty()).then(|| self.module.property(attributes)),
            results: vec![result.enter(self.module)?],
            operands: operands.to_vec(),
            ..Operation::default()
        };
        Ok(self.push(operation)[0])
    }

    /// The end of a region, which hands these values out.
    pub fn end(&mut self, operands: &[usize]) -> Result<(), Malformed> {
        let operation = Operation {
            name: self.module.operation("return_v1")?,
            location: self.location,
            operands: operands.to_vec(),
            ..Operation::default()
        };
        self.push(operation);
        Ok(())
    }

    pub fn constant(&mut self, value: i64, result: &Tensor) -> Result<usize, Malformed> {
        let value = integers(self.module, result.shape.clone(), &[value])?;
        self.one("constant_v1", &[value], &[], result)
    }

    pub fn iota(&mut self, dimension: usize, result: &Tensor) -> Result<usize, Malformed> {
        let dimension = integer(self.module, dimension as i64)?;
        self.one("iota_v1", &[dimension], &[], result)
    }

    pub fn compare(
        &mut self,
        direction: Direction,
        left: usize,
        right: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let kind = self.module.attribute(|writer| {
            writer.number(attribute::COMPARISON_TYPE);
            writer.number(SIGNED);
        })?;
        let direction = self.module.attribute(|writer| {
            writer.number(attribute::DIRECTION);
            writer.number(direction as u64);
        })?;
        self.one("compare_v1", &[kind, direction], &[left, right], result)
    }

    pub fn select(
        &mut self,
        mask: usize,
        then: usize,
        otherwise: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        self.one("select_v1", &[], &[mask, then, otherwise], result)
    }

    pub fn binary(
        &mut self,
        name: &str,
        left: usize,
        right: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        self.one(name, &[], &[left, right], result)
    }

    pub fn broadcast(
        &mut self,
        value: usize,
        dimensions: &[i64],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let dimensions = list(self.module, dimensions)?;
        self.one("broadcast_in_dim_v1", &[dimensions], &[value], result)
    }

    pub fn reshape(&mut self, value: usize, result: &Tensor) -> Result<usize, Malformed> {
        self.one("reshape_v1", &[], &[value], result)
    }

    /// `left` and `right` one behind the other along `dimension`.
    pub fn concatenate(
        &mut self,
        left: usize,
        right: usize,
        dimension: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let dimension = integer(self.module, dimension as i64)?;
        self.one("concatenate_v1", &[dimension], &[left, right], result)
    }

    /// The part of `value` of the result's shape that begins at `start`, one number an axis.
    pub fn dynamic_slice(
        &mut self,
        value: usize,
        start: &[usize],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let sizes = list(self.module, &result.shape)?;
        let mut operands = vec![value];
        operands.extend_from_slice(start);
        self.one("dynamic_slice_v1", &[sizes], &operands, result)
    }
}
