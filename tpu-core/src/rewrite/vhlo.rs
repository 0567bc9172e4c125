//! Types, attributes and operations of the VHLO dialect that rewritten programs use.

use crate::bytecode::{Argument, Block, Malformed, Module, Operation, Reader, Region};

/// What an attribute's bytes begin with.
pub mod attribute {
    pub const ARRAY: u64 = 1;
    pub const BOOLEAN: u64 = 2;
    pub const DIRECTION: u64 = 3;
    pub const COMPARISON_TYPE: u64 = 4;
    pub const DICTIONARY: u64 = 6;
    pub const INTEGER: u64 = 9;
    pub const STRING: u64 = 14;
    pub const TENSOR: u64 = 15;
    pub const TYPE: u64 = 17;
}

/// What a type's bytes begin with.
pub mod kind {
    pub const BOOLEAN: u64 = 0;
    pub const COMPLEX: u64 = 1;
    pub const F32: u64 = 4;
    pub const F64: u64 = 5;
    pub const FUNCTION: u64 = 8;
    pub const I32: u64 = 13;
    pub const I64: u64 = 14;
    pub const TENSOR: u64 = 20;
    pub const TENSOR_WITH_ENCODING: u64 = 21;
}

/// Directions of a comparison.
#[derive(Clone, Copy)]
pub enum Direction {
    Equal = 0,
    Differs = 1,
    AtLeast = 2,
    Greater = 3,
    Less = 5,
}

/// How elements are compared.
#[derive(Clone, Copy)]
pub enum Order {
    Float = 1,
    Signed = 3,
}

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
    pub fn single(element: usize) -> Self {
        Self {
            shape: Vec::new(),
            element,
        }
    }

    /// The same shape of other elements.
    pub fn of(&self, element: usize) -> Self {
        Self {
            shape: self.shape.clone(),
            element,
        }
    }

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

/// Number of the type of 32-bit integers.
pub fn i32(module: &mut Module<'_>) -> Result<usize, Malformed> {
    module.kind(|writer| writer.number(kind::I32))
}

/// What the parts of a complex element are of; any other element is its own part.
pub fn real(module: &Module<'_>, element: usize) -> Result<usize, Malformed> {
    let mut reader = Reader::new(&module.types.get(element).ok_or(Malformed)?.data);
    if reader.number()? == kind::COMPLEX {
        reader.index()
    } else {
        Ok(element)
    }
}

/// The bytes of a floating-point number as an element of this type.
pub fn float(module: &Module<'_>, element: usize, value: f32) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(&module.types.get(element).ok_or(Malformed)?.data);
    match reader.number()? {
        kind::F32 => Ok(value.to_le_bytes().to_vec()),
        kind::F64 => Ok(f64::from(value).to_le_bytes().to_vec()),
        _ => Err(Malformed),
    }
}

/// Number of the type of 64-bit integers.
pub fn i64(module: &mut Module<'_>) -> Result<usize, Malformed> {
    module.kind(|writer| writer.number(kind::I64))
}

/// Number of an attribute that holds the elements of `kind`, or one element for all of them.
fn elements(module: &mut Module<'_>, kind: &Tensor, bytes: &[u8]) -> Result<usize, Malformed> {
    let kind = kind.enter(module)?;
    module.attribute(|writer| {
        writer.number(attribute::TENSOR);
        writer.index(kind);
        writer.index(bytes.len());
        writer.bytes.extend_from_slice(bytes);
    })
}

fn list(module: &mut Module<'_>, values: &[i64]) -> Result<usize, Malformed> {
    let kind = Tensor {
        shape: vec![values.len() as i64],
        element: i64(module)?,
    };
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    elements(module, &kind, &bytes)
}

fn integer(module: &mut Module<'_>, value: i64) -> Result<usize, Malformed> {
    let kind = i64(module)?;
    module.attribute(|writer| {
        writer.number(attribute::INTEGER);
        writer.index(kind);
        writer.signed(value);
    })
}

/// Number of the string attribute with this text.
fn name(module: &mut Module<'_>, text: &str) -> Result<usize, Malformed> {
    let string = module.enter_string(text);
    module.attribute(|writer| {
        writer.number(attribute::STRING);
        writer.index(string);
    })
}

/// The block of a program's functions.
pub fn functions(body: &mut Block) -> Option<&mut Block> {
    let module = body.operations.first_mut()?;
    module.regions.first_mut()?.blocks.first_mut()
}

/// A private function of the program: its operation, and the attribute that names it in a call.
pub fn function(
    module: &mut Module<'_>,
    symbol: &str,
    location: usize,
    arguments: &[Tensor],
    results: &[Tensor],
    build: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<Vec<usize>, Malformed>,
) -> Result<(Operation, usize), Malformed> {
    let mut enter = |tensors: &[Tensor]| -> Result<Vec<usize>, Malformed> {
        tensors.iter().map(|tensor| tensor.enter(module)).collect()
    };
    let (inputs, outputs) = (enter(arguments)?, enter(results)?);
    let signature = module.kind(|writer| {
        writer.number(kind::FUNCTION);
        writer.indices(&inputs);
        writer.indices(&outputs);
    })?;
    let signature = module.attribute(|writer| {
        writer.number(attribute::TYPE);
        writer.index(signature);
    })?;
    let none = module.attribute(|writer| {
        writer.number(attribute::ARRAY);
        writer.index(0);
    })?;
    let (symbol, visibility) = (name(module, symbol)?, name(module, "private")?);
    let region = body(module, location, &located(&inputs), build)?;
    let function = Operation {
        name: module.operation("func_v1")?,
        location,
        properties: Some(module.property(&[none, signature, none, symbol, visibility])),
        regions: vec![region],
        isolated: true,
        ..Operation::default()
    };
    Ok((function, symbol))
}

/// The body of a function: `build` gets its arguments and says what it returns.
pub fn body(
    module: &mut Module<'_>,
    location: usize,
    arguments: &[Argument],
    build: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<Vec<usize>, Malformed>,
) -> Result<Region, Malformed> {
    let builder = Builder {
        module,
        operations: Vec::new(),
        values: 0,
        depth: 0,
        location,
    };
    builder.region(arguments, build)
}

fn located(kinds: &[usize]) -> Vec<Argument> {
    let argument = |kind: &usize| Argument {
        kind: *kind,
        location: None,
    };
    kinds.iter().map(argument).collect()
}

/// Distance between the numbers of values in regions of different depth, while they are built.
const LEVEL: usize = 1 << 32;

/// Give the values of regions at `depth` the numbers that come after those around them.
fn settle(regions: &mut [Region], depth: usize, values: usize) {
    for block in regions.iter_mut().flat_map(|region| &mut region.blocks) {
        for operation in &mut block.operations {
            for operand in &mut operation.operands {
                if *operand >= depth * LEVEL {
                    *operand = *operand - depth * LEVEL + values;
                }
            }
            settle(&mut operation.regions, depth, values);
        }
    }
}

/// Operations of a region in the order they run, each of whose results gets the next number.
pub struct Builder<'m, 'a> {
    pub module: &'m mut Module<'a>,
    operations: Vec<Operation>,
    values: usize,
    depth: usize,
    location: usize,
}

impl Builder<'_, '_> {
    fn region(
        mut self,
        arguments: &[Argument],
        build: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<Vec<usize>, Malformed>,
    ) -> Result<Region, Malformed> {
        let first = self.values;
        self.values += arguments.len();
        let given: Vec<usize> = (first..self.values).collect();
        let outcome = build(&mut self, &given)?;
        let end = Operation {
            name: self.module.operation("return_v1")?,
            location: self.location,
            operands: outcome,
            ..Operation::default()
        };
        self.push(end);
        for operation in &mut self.operations {
            settle(&mut operation.regions, self.depth + 1, self.values);
        }
        Ok(Region {
            values: self.values - first,
            blocks: vec![Block {
                arguments: arguments.to_vec(),
                operations: self.operations,
                uses: None,
            }],
        })
    }

    /// A region inside the one that is built.
    fn inner(
        &mut self,
        kinds: &[usize],
        build: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<Vec<usize>, Malformed>,
    ) -> Result<Region, Malformed> {
        let depth = self.depth + 1;
        let builder = Builder {
            module: &mut *self.module,
            operations: Vec::new(),
            values: depth * LEVEL,
            depth,
            location: self.location,
        };
        builder.region(&located(kinds), build)
    }

    /// Add an operation and tell the numbers of its results.
    pub fn push(&mut self, operation: Operation) -> Vec<usize> {
        let first = self.values;
        self.values += operation.results.len();
        self.operations.push(operation);
        (first..self.values).collect()
    }

    /// A loop: as long as `condition` holds, `step` makes new values of the old ones.
    pub fn repeat(
        &mut self,
        initial: &[usize],
        tensors: &[Tensor],
        condition: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<usize, Malformed>,
        step: impl FnOnce(&mut Builder<'_, '_>, &[usize]) -> Result<Vec<usize>, Malformed>,
    ) -> Result<Vec<usize>, Malformed> {
        let results = tensors
            .iter()
            .map(|tensor| tensor.enter(self.module))
            .collect::<Result<Vec<_>, _>>()?;
        let condition = self.inner(&results, |builder, values| {
            Ok(vec![condition(builder, values)?])
        })?;
        let step = self.inner(&results, step)?;
        let operation = Operation {
            name: self.module.operation("while_v1")?,
            location: self.location,
            results,
            operands: initial.to_vec(),
            regions: vec![condition, step],
            ..Operation::default()
        };
        Ok(self.push(operation))
    }

    /// `value` without `dimension`, along which `name` combines the elements with `start`.
    pub fn reduce(
        &mut self,
        name: &str,
        value: usize,
        start: usize,
        dimension: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let single = Tensor::single(result.element);
        let kind = single.enter(self.module)?;
        let region = self.inner(&[kind, kind], |builder, values| {
            Ok(vec![builder.apply(name, values, &single)?])
        })?;
        let dimensions = list(self.module, &[dimension as i64])?;
        let operation = Operation {
            name: self.module.operation("reduce_v1")?,
            location: self.location,
            properties: Some(self.module.property(&[dimensions])),
            results: vec![result.enter(self.module)?],
            operands: vec![value, start],
            regions: vec![region],
            ..Operation::default()
        };
        Ok(self.push(operation)[0])
    }

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

    /// An operation without attributes and with one result.
    pub fn apply(
        &mut self,
        name: &str,
        operands: &[usize],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        self.one(name, &[], operands, result)
    }

    /// A tensor each of whose elements has these bytes.
    pub fn constant(&mut self, element: &[u8], result: &Tensor) -> Result<usize, Malformed> {
        let value = elements(self.module, result, element)?;
        self.one("constant_v1", &[value], &[], result)
    }

    /// A tensor of 64-bit integers, all of them `value`.
    pub fn number(&mut self, value: i64, result: &Tensor) -> Result<usize, Malformed> {
        self.constant(&value.to_le_bytes(), result)
    }

    /// A tensor of 32-bit integers, all of them `value`.
    pub fn integer(&mut self, value: i64, result: &Tensor) -> Result<usize, Malformed> {
        let value = i32::try_from(value).map_err(|_| Malformed)?;
        self.constant(&value.to_le_bytes(), result)
    }

    /// The place of each element along `dimension`.
    pub fn places(&mut self, dimension: usize, result: &Tensor) -> Result<usize, Malformed> {
        let dimension = integer(self.module, dimension as i64)?;
        self.one("iota_v1", &[dimension], &[], result)
    }

    pub fn compare(
        &mut self,
        direction: Direction,
        order: Order,
        operands: [usize; 2],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let order = self.module.attribute(|writer| {
            writer.number(attribute::COMPARISON_TYPE);
            writer.number(order as u64);
        })?;
        let direction = self.module.attribute(|writer| {
            writer.number(attribute::DIRECTION);
            writer.number(direction as u64);
        })?;
        self.one("compare_v1", &[order, direction], &operands, result)
    }

    /// `then` where `mask` holds, `otherwise` elsewhere.
    pub fn select(
        &mut self,
        mask: usize,
        then: usize,
        otherwise: usize,
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        self.apply("select_v1", &[mask, then, otherwise], result)
    }

    /// `value` repeated along all dimensions but these, which are its own.
    pub fn broadcast(
        &mut self,
        value: usize,
        dimensions: &[i64],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let dimensions = list(self.module, dimensions)?;
        self.one("broadcast_in_dim_v1", &[dimensions], &[value], result)
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

    /// The part of `value` of the result's shape that begins at `start`, a number for each axis.
    pub fn part(
        &mut self,
        value: usize,
        start: &[usize],
        result: &Tensor,
    ) -> Result<usize, Malformed> {
        let sizes = list(self.module, &result.shape)?;
        let operands = [&[value], start].concat();
        self.one("dynamic_slice_v1", &[sizes], &operands, result)
    }
}
