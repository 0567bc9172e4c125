//! Operations, blocks and regions, as numbers into the tables of their module.

use super::Malformed;
use super::coding::{Reader, Writer};

/// Section of a region that sees nothing of what surrounds it.
const ISOLATED: u8 = 4;
/// Regions nested deeper are taken for an attack on the stack.
const DEEPEST: usize = 64;

const HAS_ATTRIBUTES: u8 = 0x01;
const HAS_RESULTS: u8 = 0x02;
const HAS_OPERANDS: u8 = 0x04;
const HAS_SUCCESSORS: u8 = 0x08;
const HAS_REGIONS: u8 = 0x10;
const HAS_USE_ORDERS: u8 = 0x20;
const HAS_PROPERTIES: u8 = 0x40;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    pub name: usize,
    pub location: usize,
    pub attributes: Option<usize>,
    pub properties: Option<usize>,
    /// Types of the results.
    pub results: Vec<usize>,
    pub operands: Vec<usize>,
    pub successors: Vec<usize>,
    /// The order in which the uses of its results are listed, where it is not the usual one.
    pub uses: Option<Uses>,
    pub regions: Vec<Region>,
    pub isolated: bool,
}

/// An order of uses as it is written: nothing we do depends on it.
type Uses = Vec<u64>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Values its blocks and operations define, those of nested regions apart.
    pub values: usize,
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub arguments: Vec<Argument>,
    /// The order in which the uses of its arguments are listed.
    pub uses: Option<Uses>,
    pub operations: Vec<Operation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub kind: usize,
    pub location: Option<usize>,
}

pub fn read_block(reader: &mut Reader<'_>, depth: usize) -> Result<Block, Malformed> {
    let (count, has_arguments) = reader.flagged()?;
    if count > reader.rest.len() || depth > DEEPEST {
        return Err(Malformed);
    }
    let mut block = Block::default();
    if has_arguments {
        for _ in 0..reader.count()? {
            let (kind, located) = reader.flagged()?;
            let location = if located { Some(reader.index()?) } else { None };
            block.arguments.push(Argument { kind, location });
        }
        if reader.byte()? != 0 {
            block.uses = Some(read_uses(reader, block.arguments.len())?);
        }
    }
    for _ in 0..count {
        block.operations.push(read_operation(reader, depth)?);
    }
    Ok(block)
}

fn read_operation(reader: &mut Reader<'_>, depth: usize) -> Result<Operation, Malformed> {
    let name = reader.index()?;
    let mask = reader.byte()?;
    let location = reader.index()?;
    let mut operation = Operation {
        name,
        location,
        ..Operation::default()
    };
    if mask & HAS_ATTRIBUTES != 0 {
        operation.attributes = Some(reader.index()?);
    }
    if mask & HAS_PROPERTIES != 0 {
        operation.properties = Some(reader.index()?);
    }
    if mask & HAS_RESULTS != 0 {
        operation.results = reader.indices()?;
    }
    if mask & HAS_OPERANDS != 0 {
        operation.operands = reader.indices()?;
    }
    if mask & HAS_SUCCESSORS != 0 {
        operation.successors = reader.indices()?;
    }
    if mask & HAS_USE_ORDERS != 0 {
        operation.uses = Some(read_uses(reader, operation.results.len())?);
    }
    if mask & HAS_REGIONS != 0 {
        let (count, isolated) = reader.flagged()?;
        if count > reader.rest.len() {
            return Err(Malformed);
        }
        operation.isolated = isolated;
        let section = isolated.then(|| reader.section(0)).transpose()?;
        if section
            .as_ref()
            .is_some_and(|section| section.id != ISOLATED || section.alignment > 1)
        {
            return Err(Malformed);
        }
        // One section holds all of them.
        let mut inner = section.map(|section| Reader::new(section.data));
        for _ in 0..count {
            let region = read_region(inner.as_mut().unwrap_or(reader), depth + 1)?;
            operation.regions.push(region);
        }
    }
    Ok(operation)
}

/// The orders of the uses of some of `values` values, as the numbers they are written in.
fn read_uses(reader: &mut Reader<'_>, values: usize) -> Result<Uses, Malformed> {
    let mut uses = Vec::new();
    let mut next = |reader: &mut Reader<'_>| {
        let number = reader.number()?;
        uses.push(number);
        Ok(number)
    };
    let orders = if values > 1 { next(reader)? } else { 1 };
    for _ in 0..orders {
        if values > 1 {
            next(reader)?;
        }
        for _ in 0..next(reader)? >> 1 {
            next(reader)?;
        }
    }
    Ok(uses)
}

fn read_region(reader: &mut Reader<'_>, depth: usize) -> Result<Region, Malformed> {
    let count = reader.count()?;
    let values = if count == 0 { 0 } else { reader.index()? };
    let blocks = (0..count)
        .map(|_| read_block(reader, depth))
        .collect::<Result<_, _>>()?;
    Ok(Region { values, blocks })
}

pub fn write_block(writer: &mut Writer, block: &Block) {
    writer.flagged(block.operations.len(), !block.arguments.is_empty());
    if !block.arguments.is_empty() {
        writer.index(block.arguments.len());
        for argument in &block.arguments {
            writer.flagged(argument.kind, argument.location.is_some());
            if let Some(location) = argument.location {
                writer.index(location);
            }
        }
        writer.bytes.push(u8::from(block.uses.is_some()));
        write_uses(writer, block.uses.as_ref());
    }
    for operation in &block.operations {
        write_operation(writer, operation);
    }
}

fn write_operation(writer: &mut Writer, operation: &Operation) {
    let flag = |bit: u8, set: bool| if set { bit } else { 0 };
    writer.index(operation.name);
    writer.bytes.push(
        flag(HAS_ATTRIBUTES, operation.attributes.is_some())
            | flag(HAS_PROPERTIES, operation.properties.is_some())
            | flag(HAS_RESULTS, !operation.results.is_empty())
            | flag(HAS_OPERANDS, !operation.operands.is_empty())
            | flag(HAS_SUCCESSORS, !operation.successors.is_empty())
            | flag(HAS_USE_ORDERS, operation.uses.is_some())
            | flag(HAS_REGIONS, !operation.regions.is_empty()),
    );
    writer.index(operation.location);
    for index in [operation.attributes, operation.properties]
        .into_iter()
        .flatten()
    {
        writer.index(index);
    }
    for list in [
        &operation.results,
        &operation.operands,
        &operation.successors,
    ] {
        if !list.is_empty() {
            writer.indices(list);
        }
    }
    write_uses(writer, operation.uses.as_ref());
    if operation.regions.is_empty() {
        return;
    }
    writer.flagged(operation.regions.len(), operation.isolated);
    let mut inner = Writer::default();
    for region in &operation.regions {
        let regions = if operation.isolated {
            &mut inner
        } else {
            &mut *writer
        };
        write_region(regions, region);
    }
    if operation.isolated {
        writer.section(ISOLATED, 1, &inner.bytes);
    }
}

fn write_uses(writer: &mut Writer, uses: Option<&Uses>) {
    for number in uses.into_iter().flatten() {
        writer.number(*number);
    }
}

fn write_region(writer: &mut Writer, region: &Region) {
    writer.index(region.blocks.len());
    if !region.blocks.is_empty() {
        writer.index(region.values);
        for block in &region.blocks {
            write_block(writer, block);
        }
    }
}
