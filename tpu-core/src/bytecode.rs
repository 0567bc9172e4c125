//! Programs as TorchTPU sends them, opened far enough to be changed: MLIR bytecode of the VHLO
//! dialect, whose tables (strings, attributes, types, properties) and operations are kept as
//! numbers and bytes. What is not touched is written back as it came, byte for byte.

mod coding;
mod ir;

pub use coding::{Reader, Writer};
pub use ir::{Argument, Block, Operation, Region};

/// The bytes are no program, or one written in a way that nothing we know writes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the program is not MLIR bytecode as this version knows it")]
pub struct Malformed;

const MAGIC: &[u8] = b"ML\xefR";
/// Version of the encoding that StableHLO's artifacts are pinned to.
const VERSION: u64 = 6;

const STRINGS: u8 = 0;
const DIALECTS: u8 = 1;
const ENTRIES: u8 = 2;
const ENTRY_OFFSETS: u8 = 3;
const IR: u8 = 4;
const PROPERTIES: u8 = 8;

/// Name of the dialect all operations of an artifact but its module are of.
const DIALECT: &[u8] = b"vhlo";

/// An attribute or a type: whose it is, whether it is in that dialect's own encoding, its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    dialect: usize,
    own_encoding: bool,
    pub data: Vec<u8>,
}

struct OperationName {
    dialect: usize,
    string: usize,
    registered: bool,
}

/// A program whose tables can grow and whose operations can be changed.
pub struct Module<'a> {
    producer: &'a [u8],
    /// Sections in their order; those opened below have no data here.
    sections: Vec<(u8, usize, &'a [u8])>,
    strings: Vec<Vec<u8>>,
    /// Name of each dialect as a string, and what the section says after it (its version).
    dialects: Vec<(usize, bool, &'a [u8])>,
    operation_names: Vec<OperationName>,
    pub attributes: Vec<Entry>,
    pub types: Vec<Entry>,
    pub properties: Vec<Vec<u8>>,
    pub body: Block,
}

impl<'a> Module<'a> {
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(MAGIC.len())? != MAGIC || reader.number()? != VERSION {
            return Err(Malformed);
        }
        let end = reader
            .rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Malformed)?;
        let producer = reader.bytes(end + 1)?;
        let mut sections = Vec::new();
        while !reader.rest.is_empty() {
            let section = reader.section(bytes.len())?;
            sections.push((section.id, section.alignment, section.data));
        }
        let mut take = |id: u8| {
            let section = sections.iter_mut().find(|section| section.0 == id);
            section.map(|section| std::mem::take(&mut section.2))
        };
        let strings = read_strings(take(STRINGS).ok_or(Malformed)?)?;
        let (dialects, operation_names) = read_dialects(take(DIALECTS).ok_or(Malformed)?)?;
        let (attributes, types) = read_entries(
            take(ENTRY_OFFSETS).ok_or(Malformed)?,
            take(ENTRIES).ok_or(Malformed)?,
        )?;
        let properties = take(PROPERTIES).map_or(Ok(Vec::new()), read_properties)?;
        let mut ir = Reader::new(take(IR).ok_or(Malformed)?);
        let body = ir::read_block(&mut ir, 0)?;
        if !ir.rest.is_empty() {
            return Err(Malformed);
        }
        Ok(Self {
            producer,
            sections,
            strings,
            dialects,
            operation_names,
            attributes,
            types,
            properties,
            body,
        })
    }

    pub fn write(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes.extend_from_slice(MAGIC);
        writer.number(VERSION);
        writer.bytes.extend_from_slice(self.producer);
        for (id, alignment, data) in &self.sections {
            let mut inner = Writer::default();
            match *id {
                STRINGS => self.write_strings(&mut inner),
                DIALECTS => self.write_dialects(&mut inner),
                ENTRIES => {
                    for entry in self.attributes.iter().chain(&self.types) {
                        inner.bytes.extend_from_slice(&entry.data);
                    }
                }
                ENTRY_OFFSETS => self.write_offsets(&mut inner),
                IR => ir::write_block(&mut inner, &self.body),
                PROPERTIES => {
                    inner.index(self.properties.len());
                    for entry in &self.properties {
                        inner.index(entry.len());
                        inner.bytes.extend_from_slice(entry);
                    }
                }
                _ => inner.bytes.extend_from_slice(data),
            }
            writer.section(*id, *alignment, &inner.bytes);
        }
        writer.bytes
    }

    fn write_strings(&self, writer: &mut Writer) {
        writer.index(self.strings.len());
        for string in self.strings.iter().rev() {
            writer.index(string.len() + 1);
        }
        for string in &self.strings {
            writer.bytes.extend_from_slice(string);
            writer.bytes.push(0);
        }
    }

    fn write_dialects(&self, writer: &mut Writer) {
        writer.index(self.dialects.len());
        for (name, versioned, version) in &self.dialects {
            writer.flagged(*name, *versioned);
            writer.bytes.extend_from_slice(version);
        }
        writer.index(self.operation_names.len());
        for group in self.operation_names.chunk_by(|a, b| a.dialect == b.dialect) {
            writer.index(group[0].dialect);
            writer.index(group.len());
            for name in group {
                writer.flagged(name.string, name.registered);
            }
        }
    }

    fn write_offsets(&self, writer: &mut Writer) {
        writer.index(self.attributes.len());
        writer.index(self.types.len());
        for entries in [&self.attributes, &self.types] {
            for group in entries.chunk_by(|a, b| a.dialect == b.dialect) {
                writer.index(group[0].dialect);
                writer.index(group.len());
                for entry in group {
                    writer.flagged(entry.data.len(), entry.own_encoding);
                }
            }
        }
    }

    pub fn string(&self, index: usize) -> Option<&[u8]> {
        self.strings.get(index).map(Vec::as_slice)
    }

    /// Number of a string, entered when it is new.
    pub fn enter_string(&mut self, text: &str) -> usize {
        let known = |string: &Vec<u8>| string == text.as_bytes();
        self.strings.iter().position(known).unwrap_or_else(|| {
            self.strings.push(text.as_bytes().to_vec());
            self.strings.len() - 1
        })
    }

    /// Name of an operation of the program's dialect.
    pub fn name(&self, operation: &Operation) -> Option<&[u8]> {
        let name = self.operation_names.get(operation.name)?;
        self.string(name.string)
    }

    /// Names of all operations, as far as they are text.
    pub fn operation_names(&self) -> impl Iterator<Item = &str> {
        let text = |name: &OperationName| self.string(name.string).map(std::str::from_utf8);
        let names = self.operation_names.iter().map(text);
        names.map(|name| name.and_then(Result::ok).unwrap_or_default())
    }

    /// Number of the operation called `name` in the program's dialect, entered when it is new.
    pub fn operation(&mut self, name: &str) -> Result<usize, Malformed> {
        let known = self.operation_names.iter().position(|known| {
            self.dialect_name(known.dialect) == Some(DIALECT)
                && self.string(known.string) == Some(name.as_bytes())
        });
        if let Some(index) = known {
            return Ok(index);
        }
        let dialect = self.dialect()?;
        let string = self.enter_string(name);
        self.operation_names.push(OperationName {
            dialect,
            string,
            registered: true,
        });
        Ok(self.operation_names.len() - 1)
    }

    /// Number of the attribute with these bytes, entered when it is new.
    pub fn attribute(&mut self, write: impl FnOnce(&mut Writer)) -> Result<usize, Malformed> {
        let dialect = self.dialect()?;
        Ok(enter(&mut self.attributes, dialect, write))
    }

    /// Number of the type with these bytes, entered when it is new.
    pub fn kind(&mut self, write: impl FnOnce(&mut Writer)) -> Result<usize, Malformed> {
        let dialect = self.dialect()?;
        Ok(enter(&mut self.types, dialect, write))
    }

    /// Number of the properties that consist of these attributes, all of them required ones.
    pub fn property(&mut self, attributes: &[usize]) -> usize {
        let mut writer = Writer::default();
        for attribute in attributes {
            writer.index(*attribute);
        }
        self.properties.push(writer.bytes);
        self.properties.len() - 1
    }

    /// The attributes an operation's properties consist of, as they are where all are required.
    pub fn property_list(&self, operation: &Operation) -> Result<Vec<usize>, Malformed> {
        let index = operation.properties.ok_or(Malformed)?;
        let mut reader = Reader::new(self.properties.get(index).ok_or(Malformed)?);
        let mut list = Vec::new();
        while !reader.rest.is_empty() {
            list.push(reader.index()?);
        }
        Ok(list)
    }

    /// What an attribute's bytes begin with, and the rest of them.
    pub fn open(&self, attribute: usize) -> Result<(u64, Reader<'_>), Malformed> {
        let entry = self.attributes.get(attribute).ok_or(Malformed)?;
        let mut reader = Reader::new(&entry.data);
        Ok((reader.number()?, reader))
    }

    fn dialect(&self) -> Result<usize, Malformed> {
        let mut all = 0..self.dialects.len();
        all.find(|index| self.dialect_name(*index) == Some(DIALECT))
            .ok_or(Malformed)
    }

    fn dialect_name(&self, index: usize) -> Option<&[u8]> {
        self.string(self.dialects.get(index)?.0)
    }
}

fn enter(entries: &mut Vec<Entry>, dialect: usize, write: impl FnOnce(&mut Writer)) -> usize {
    let mut writer = Writer::default();
    write(&mut writer);
    let entry = Entry {
        dialect,
        own_encoding: true,
        data: writer.bytes,
    };
    entries
        .iter()
        .position(|known| *known == entry)
        .unwrap_or_else(|| {
            entries.push(entry);
            entries.len() - 1
        })
}

fn read_strings(data: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut reader = Reader::new(data);
    // Their lengths stand before them, the last one's first.
    let mut lengths = reader.indices()?;
    lengths.reverse();
    lengths
        .into_iter()
        .map(|length| match reader.bytes(length)?.split_last() {
            Some((0, string)) => Ok(string.to_vec()),
            _ => Err(Malformed),
        })
        .collect()
}

type Dialects<'a> = Vec<(usize, bool, &'a [u8])>;

fn read_dialects(data: &[u8]) -> Result<(Dialects<'_>, Vec<OperationName>), Malformed> {
    let mut reader = Reader::new(data);
    let mut dialects = Vec::new();
    for _ in 0..reader.count()? {
        let (name, versioned) = reader.flagged()?;
        let before = reader.rest;
        if versioned {
            reader.section(0)?;
        }
        dialects.push((name, versioned, &before[..before.len() - reader.rest.len()]));
    }
    let count = reader.count()?;
    let mut names = Vec::with_capacity(count);
    while names.len() < count {
        let dialect = reader.index()?;
        for _ in 0..reader.count()? {
            let (string, registered) = reader.flagged()?;
            names.push(OperationName {
                dialect,
                string,
                registered,
            });
        }
    }
    Ok((dialects, names))
}

fn read_entries(offsets: &[u8], data: &[u8]) -> Result<(Vec<Entry>, Vec<Entry>), Malformed> {
    let mut reader = Reader::new(offsets);
    let mut data = Reader::new(data);
    let counts = [reader.count()?, reader.count()?];
    let mut tables = [Vec::new(), Vec::new()];
    for (table, count) in tables.iter_mut().zip(counts) {
        while table.len() < count {
            let dialect = reader.index()?;
            for _ in 0..reader.count()? {
                let (size, own_encoding) = reader.flagged()?;
                table.push(Entry {
                    dialect,
                    own_encoding,
                    data: data.bytes(size)?.to_vec(),
                });
            }
        }
    }
    let [attributes, types] = tables;
    Ok((attributes, types))
}

fn read_properties(data: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let mut reader = Reader::new(data);
    (0..reader.count()?)
        .map(|_| {
            let size = reader.index()?;
            reader.bytes(size).map(<[u8]>::to_vec)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUMSUM: &[u8] = include_bytes!("../programs/cumsum.mlirbc");
    const CUMMAX: &[u8] = include_bytes!("../programs/cummax.mlirbc");
    const COMPILED: &[u8] = include_bytes!("../programs/compiled.mlirbc");
    /// Lists uses in an order of its own.
    const SVD: &[u8] = include_bytes!("../programs/svd.mlirbc");
    /// Its operation has two regions that see nothing of what surrounds them.
    const POOL: &[u8] = include_bytes!("../programs/pool.mlirbc");

    #[test]
    fn what_is_not_changed_is_written_as_it_came() {
        for program in [CUMSUM, CUMMAX, COMPILED, SVD, POOL] {
            assert!(Module::read(program).unwrap().write() == program);
        }
    }

    #[test]
    fn what_is_entered_gets_a_number_once() {
        let mut module = Module::read(CUMSUM).unwrap();
        let types = module.types.len();
        let first = module.kind(|writer| writer.number(99)).unwrap();
        let again = module.kind(|writer| writer.number(99)).unwrap();
        assert_eq!((first, again), (types, types));
        let new = module.operation("call_v1").unwrap();
        assert_eq!(module.operation("call_v1").unwrap(), new);
        assert!(module.operation("add_v1").unwrap() < new);
        let bytes = module.write();
        let mut second = Module::read(&bytes).unwrap();
        assert_eq!(second.operation("call_v1").unwrap(), new);
        assert_eq!(second.types, module.types);
    }

    #[test]
    fn broken_programs_are_refused_without_a_panic() {
        for end in 0..CUMSUM.len() {
            let _ = Module::read(&CUMSUM[..end]);
        }
        for at in 0..CUMSUM.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut broken = CUMSUM.to_vec();
                broken[at] = value;
                if let Ok(module) = Module::read(&broken) {
                    module.write();
                }
            }
        }
    }
}
