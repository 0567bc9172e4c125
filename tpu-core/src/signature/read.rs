//! A program's signature, read from its bytes.

use super::{Kind, Signature};
use crate::bytecode::{Block, Malformed, Module, Operation, Reader};
use crate::program::Hash;
use crate::rewrite::vhlo::{attribute, kind, text};

/// Things built into a program that are told apart; of longer programs the rest is one hash.
const MOST: usize = 256;
/// Attributes nested deeper are hashed as they stand.
const DEEPEST: usize = 8;

impl Signature {
    /// The signature of a program; of bytes that cannot be read, one that is like no other's.
    pub fn of(code: &[u8], options: u64) -> Self {
        let mut signature = Module::read(code)
            .and_then(|module| read(&module))
            .unwrap_or_else(|Malformed| Self {
                sequence: crate::program::hash(code),
                ..Self::default()
            });
        signature.options = options;
        signature
    }
}

fn read(module: &Module<'_>) -> Result<Signature, Malformed> {
    let mut reading = Reading {
        module,
        sequence: Hash::default(),
        rest: Hash::default(),
        signature: Signature::default(),
    };
    reading.block(&module.body)?;
    let (arguments, results) = entry(module).ok_or(Malformed)?;
    let kinds = |types: &[usize]| types.iter().map(|index| tensor(module, *index)).collect();
    let mut signature = reading.signature;
    signature.arguments = kinds(&arguments);
    signature.results = kinds(&results);
    signature.sequence = reading.sequence.finish();
    if signature.built_in.len() == MOST {
        signature
            .built_in
            .push(("operation".into(), reading.rest.finish()));
    }
    Ok(signature)
}

/// Types of arguments and results of the function that is run.
fn entry(module: &Module<'_>) -> Option<(Vec<usize>, Vec<usize>)> {
    let functions = module.body.operations.first()?.regions.first()?;
    let main = functions.blocks.first()?.operations.iter().find(|each| {
        let attributes = module.property_list(each).unwrap_or_default();
        attributes
            .iter()
            .any(|index| text(module, *index) == Ok(b"main".as_slice()))
    })?;
    let block = main.regions.first()?.blocks.first()?;
    let arguments = block.arguments.iter().map(|each| each.kind).collect();
    let returned = block.operations.last()?;
    // What a function returns are values; their types stand where they are made.
    let mut types: Vec<usize> = Vec::new();
    types.extend(block.arguments.iter().map(|each| each.kind));
    for operation in &block.operations {
        types.extend(&operation.results);
    }
    // Values of the function's own block are numbered after those of the blocks around it, of which
    // an isolated function sees none.
    let results = returned
        .operands
        .iter()
        .map(|value| types.get(*value).copied())
        .collect::<Option<Vec<_>>>()?;
    Some((arguments, results))
}

struct Reading<'m, 'a> {
    module: &'m Module<'a>,
    sequence: Hash,
    rest: Hash,
    signature: Signature,
}

impl Reading<'_, '_> {
    fn block(&mut self, block: &Block) -> Result<(), Malformed> {
        self.sequence.number(block.arguments.len() as u64);
        for operation in &block.operations {
            self.operation(operation)?;
        }
        Ok(())
    }

    fn operation(&mut self, operation: &Operation) -> Result<(), Malformed> {
        let name = self.module.name(operation).ok_or(Malformed)?;
        self.sequence.bytes(name);
        self.sequence.number(operation.results.len() as u64);
        for operand in &operation.operands {
            self.sequence.number(*operand as u64);
        }
        if operation.properties.is_some() {
            self.built_in(name, operation);
        }
        for region in &operation.regions {
            self.sequence.number(region.blocks.len() as u64);
            for block in &region.blocks {
                self.block(block)?;
            }
        }
        Ok(())
    }

    fn built_in(&mut self, name: &[u8], operation: &Operation) {
        let attributes = self.module.property_list(operation).unwrap_or_default();
        if name == b"constant_v1"
            && let [value] = attributes[..]
            && let Some(number) = number(self.module, value)
            && self.signature.numbers.len() < MOST
        {
            self.signature.numbers.push(number);
            return;
        }
        // The types of a function are told elsewhere.
        let mut hash = Hash::default();
        for index in attributes {
            attribute_bytes(self.module, index, DEEPEST, &mut hash);
        }
        let hash = hash.finish();
        if self.signature.built_in.len() < MOST {
            let name = String::from_utf8_lossy(name);
            let name = name.rsplit_once("_v").map_or(&*name, |(name, _)| name);
            self.signature.built_in.push((name.to_owned(), hash));
        } else {
            self.rest.number(hash);
        }
    }
}

/// What an attribute says, whatever the numbers of the tables it refers to.
fn attribute_bytes(module: &Module<'_>, index: usize, depth: usize, hash: &mut Hash) {
    let Ok((code, mut reader)) = module.open(index) else {
        // Not an attribute: properties with optional parts are written otherwise.
        hash.number(index as u64);
        return;
    };
    hash.number(code);
    match code {
        attribute::TYPE => {}
        attribute::STRING => hash.bytes(text(module, index).unwrap_or_default()),
        attribute::INTEGER | attribute::TENSOR => {
            let _ = reader.index();
            hash.bytes(reader.rest);
        }
        attribute::ARRAY if depth > 0 => {
            for each in reader.indices().unwrap_or_default() {
                attribute_bytes(module, each, depth - 1, hash);
            }
        }
        attribute::DICTIONARY if depth > 0 => {
            for _ in 0..reader.count().unwrap_or_default() {
                for _ in 0..2 {
                    if let Ok(each) = reader.index() {
                        attribute_bytes(module, each, depth - 1, hash);
                    }
                }
            }
        }
        _ => hash.bytes(reader.rest),
    }
}

/// A constant of one number, written out.
fn number(module: &Module<'_>, index: usize) -> Option<String> {
    let (code, mut reader) = module.open(index).ok()?;
    if code != attribute::TENSOR {
        return None;
    }
    let kind = tensor(module, reader.index().ok()?);
    let size = reader.index().ok()?;
    let bytes = reader.bytes(size).ok()?;
    let wide = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        wide
    };
    let value = match (kind.element.as_str(), size) {
        ("float64", 8) => f64::from_le_bytes(wide(bytes)).to_string(),
        ("float32", 4) => f32::from_le_bytes(bytes.try_into().ok()?).to_string(),
        ("bfloat16", 2) => f32::from_le_bytes([0, 0, bytes[0], bytes[1]]).to_string(),
        ("float16", 2) => half(u16::from_le_bytes([bytes[0], bytes[1]])).to_string(),
        ("bool", 1) => (bytes[0] != 0).to_string(),
        ("uint8" | "uint16" | "uint32" | "uint64", 1..=8) => {
            u64::from_le_bytes(wide(bytes)).to_string()
        }
        ("int8", 1) => i8::from_le_bytes([bytes[0]]).to_string(),
        ("int16", 2) => i16::from_le_bytes(bytes.try_into().ok()?).to_string(),
        ("int32", 4) => i32::from_le_bytes(bytes.try_into().ok()?).to_string(),
        ("int64", 8) => i64::from_le_bytes(wide(bytes)).to_string(),
        _ => return None,
    };
    Some(value)
}

/// A 16-bit floating-point number.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

/// The type with this number in PyTorch's words; what is no tensor is a `value`.
fn tensor(module: &Module<'_>, index: usize) -> Kind {
    read_tensor(module, index).unwrap_or_else(|Malformed| Kind {
        element: "value".into(),
        shape: Vec::new(),
    })
}

fn read_tensor(module: &Module<'_>, index: usize) -> Result<Kind, Malformed> {
    let mut reader = Reader::new(&module.types.get(index).ok_or(Malformed)?.data);
    if !matches!(reader.number()?, kind::TENSOR | kind::TENSOR_WITH_ENCODING) {
        return Err(Malformed);
    }
    let shape = (0..reader.count()?)
        .map(|_| reader.signed())
        .collect::<Result<_, _>>()?;
    let element = element(module, reader.index()?)?;
    Ok(Kind { element, shape })
}

fn element(module: &Module<'_>, index: usize) -> Result<String, Malformed> {
    let mut reader = Reader::new(&module.types.get(index).ok_or(Malformed)?.data);
    let name = match reader.number()? {
        kind::BOOLEAN => "bool",
        kind::COMPLEX => {
            let part = reader.index()?;
            let parts = module.types.get(part).ok_or(Malformed)?;
            match Reader::new(&parts.data).number()? {
                kind::F64 => "complex128",
                _ => "complex64",
            }
        }
        2 => "bfloat16",
        3 => "float16",
        kind::F32 => "float32",
        kind::F64 => "float64",
        6 => "float8_e4m3fn",
        7 => "float8_e5m2",
        10 => "int4",
        11 => "int8",
        12 => "int16",
        kind::I32 => "int32",
        kind::I64 => "int64",
        15 => "uint4",
        16 => "uint8",
        17 => "uint16",
        18 => "uint32",
        19 => "uint64",
        code => return Ok(format!("type {code}")),
    };
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MM: &[u8] = include_bytes!("../../programs/mm-60.mlirbc");
    const BFLOAT16: &[u8] = include_bytes!("../../programs/mm-bfloat16.mlirbc");
    const DROPOUT: &[u8] = include_bytes!("../../programs/dropout-0.1.mlirbc");
    const COMPILED: &[u8] = include_bytes!("../../programs/compiled.mlirbc");
    const SVD: &[u8] = include_bytes!("../../programs/svd.mlirbc");

    fn words(kinds: &[Kind]) -> Vec<String> {
        kinds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_matrix_product_has_two_arguments_and_one_result() {
        let signature = Signature::of(MM, 0);
        assert_eq!(
            words(&signature.arguments),
            ["float32[60, 128]", "float32[128, 128]"]
        );
        assert_eq!(words(&signature.results), ["float32[60, 128]"]);
        assert!(signature.numbers.is_empty());
        assert_eq!(
            words(&Signature::of(BFLOAT16, 0).arguments),
            ["bfloat16[4, 128]", "bfloat16[128, 128]"]
        );
    }

    #[test]
    fn numbers_built_in_are_read() {
        let numbers = Signature::of(DROPOUT, 0).numbers;
        assert!(numbers.contains(&"0.1".into()), "{numbers:?}");
    }

    #[test]
    fn whole_graphs_are_read_too() {
        for program in [COMPILED, SVD] {
            let signature = Signature::of(program, 0);
            assert!(!signature.arguments.is_empty() && !signature.results.is_empty());
            assert!(signature.built_in.len() > 1);
        }
    }

    #[test]
    fn bytes_that_are_no_program_are_like_no_other() {
        let signature = Signature::of(b"anything", 7);
        assert_eq!(signature.options, 7);
        assert!(signature.arguments.is_empty());
        assert_ne!(signature.sequence, Signature::of(b"something", 7).sequence);
        for at in 0..DROPOUT.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = DROPOUT.to_vec();
                broken[at] = value;
                let _ = Signature::of(&broken, 0);
            }
        }
    }

    #[test]
    fn halves_are_read_as_their_format_says() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
        ] {
            assert!((half(bits) - value).abs() < 1e-9);
        }
        assert!(half(0x7c00).is_infinite() && half(0x7c01).is_nan());
    }
}
