//! Scans (`cumsum` and what is built on it), which reach us as the composite `chlo.scan` and which
//! CPU plug-ins cannot compile: some refuse them, some end the process.
//!
//! Each composite becomes a call of the function it names as its decomposition. That function, a
//! loop over the elements as TorchTPU sends it, stays where the combination must be applied in
//! order; where it is associative and works element by element, we replace its body by one that
//! combines the whole tensor with itself moved by 1, 2, 4, … positions: as many steps as the length
//! has binary digits.

use std::slice;

use super::vhlo::{self, Builder, Direction, Order, Tensor, attribute};
use crate::bytecode::{Argument, Block, Malformed, Module, Operation, Region};

const COMPOSITE: &[u8] = b"composite_v2";
/// Where the name stands among the properties of a function.
const SYMBOL: usize = 3;

/// Operations whose every element of the result depends on the elements at its place alone.
const ELEMENTWISE: [&str; 32] = [
    "abs",
    "add",
    "and",
    "atan2",
    "cbrt",
    "ceil",
    "compare",
    "convert",
    "cosine",
    "divide",
    "exponential",
    "exponential_minus_one",
    "floor",
    "is_finite",
    "log",
    "log_plus_one",
    "logistic",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "power",
    "remainder",
    "rsqrt",
    "select",
    "sign",
    "sine",
    "sqrt",
    "subtract",
    "xor",
];

/// A scan as its composite describes it.
struct Scan {
    dimension: usize,
    reverse: bool,
    associative: bool,
    /// Attribute that names the function which does the same.
    decomposition: usize,
    /// What combines elements with what was carried so far.
    combination: Block,
}

/// Replace the composites called `composite`.
pub fn replace(module: &mut Module<'_>, composite: &[u8]) -> Result<(), Malformed> {
    let mut body = std::mem::take(&mut module.body);
    let mut scans = Vec::new();
    replace_in(module, &mut body, composite, &mut scans)?;
    for scan in &scans {
        let function = function(module, &mut body, scan.decomposition).ok_or(Malformed)?;
        let arguments = &function.regions[0].blocks[0].arguments;
        // What does not fit stays the loop it is.
        if let Ok(region) = logarithmic(module, scan, arguments, function.location) {
            function.regions[0] = region;
        }
    }
    module.body = body;
    Ok(())
}

/// Turn the scans of a block, and of all blocks in it, into calls.
fn replace_in(
    module: &mut Module<'_>,
    block: &mut Block,
    composite: &[u8],
    scans: &mut Vec<Scan>,
) -> Result<(), Malformed> {
    for operation in &mut block.operations {
        for inner in operation
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.blocks)
        {
            replace_in(module, inner, composite, scans)?;
        }
        if module.name(operation) != Some(COMPOSITE) {
            continue;
        }
        let &[attributes, decomposition, name, ..] = module.property_list(operation)?.as_slice()
        else {
            return Err(Malformed);
        };
        if vhlo::text(module, name)? != composite {
            continue;
        }
        let region = operation.regions.pop().ok_or(Malformed)?;
        let [combination] = <[Block; 1]>::try_from(region.blocks).map_err(|_| Malformed)?;
        let mut scan = Scan {
            dimension: usize::MAX,
            reverse: false,
            associative: false,
            decomposition,
            combination,
        };
        scan.read(module, attributes)?;
        scans.push(scan);
        operation.name = module.operation("call_v1")?;
        operation.properties = Some(module.property(&[decomposition]));
    }
    Ok(())
}

impl Scan {
    /// What the dictionary of the composite's attributes says.
    fn read(&mut self, module: &Module<'_>, dictionary: usize) -> Result<(), Malformed> {
        let (code, mut reader) = module.open(dictionary)?;
        if code != attribute::DICTIONARY {
            return Err(Malformed);
        }
        for _ in 0..reader.count()? {
            let key = vhlo::text(module, reader.index()?)?;
            let (code, mut value) = module.open(reader.index()?)?;
            match (key, code) {
                (b"dimension", attribute::INTEGER) => {
                    let _kind = value.index()?;
                    self.dimension = usize::try_from(value.signed()?).map_err(|_| Malformed)?;
                }
                (b"is_reverse", attribute::BOOLEAN) => self.reverse = value.number()? != 0,
                (b"is_associative", attribute::BOOLEAN) => self.associative = value.number()? != 0,
                _ => {}
            }
        }
        Ok(())
    }
}

/// The function that an attribute names.
fn function<'b>(
    module: &Module<'_>,
    body: &'b mut Block,
    name: usize,
) -> Option<&'b mut Operation> {
    let functions = vhlo::functions(body)?;
    functions.operations.iter_mut().find(|operation| {
        module.name(operation) == Some(b"func_v1")
            && operation.regions.len() == 1
            && operation.regions[0].blocks.len() == 1
            && module
                .property_list(operation)
                .is_ok_and(|list| list.get(SYMBOL).is_some_and(|symbol| *symbol == name))
    })
}

/// A body for the function that takes a number of steps that grows with the logarithm of the
/// length only; an error when the scan is not of the kind this is possible for.
fn logarithmic(
    module: &mut Module<'_>,
    scan: &Scan,
    arguments: &[Argument],
    location: usize,
) -> Result<Region, Malformed> {
    let count = arguments.len() / 2;
    let combination = Combination::read(module, scan, count)?;
    let wholes = arguments[..count]
        .iter()
        .map(|argument| Tensor::read(module, argument.kind))
        .collect::<Result<Vec<_>, _>>()?;
    let parts = arguments[count..]
        .iter()
        .map(|argument| Tensor::read(module, argument.kind))
        .collect::<Result<Vec<_>, _>>()?;
    let shape = wholes.first().ok_or(Malformed)?.shape.clone();
    let mut across = shape.clone();
    if scan.dimension >= across.len() {
        return Err(Malformed);
    }
    let length = across.remove(scan.dimension);
    let fits = |(whole, part): (&Tensor, &Tensor)| {
        whole.shape == shape && part.shape == across && whole.element == part.element
    };
    if !scan.associative || length < 1 || !wholes.iter().zip(&parts).all(fits) {
        return Err(Malformed);
    }
    let steps = Steps {
        scan,
        combination: &combination,
        wholes: &wholes,
        parts: &parts,
        length,
        flag: Tensor::single(vhlo::boolean(module)?),
        number: Tensor::single(vhlo::i64(module)?),
    };
    vhlo::body(module, location, arguments, |builder, values| {
        steps.build(builder, &values[..count], &values[count..])
    })
}

/// The operations of a combination, element by element, and what they hand on.
struct Combination<'s> {
    operations: &'s [Operation],
    outcome: &'s [usize],
}

impl<'s> Combination<'s> {
    fn read(module: &Module<'_>, scan: &'s Scan, count: usize) -> Result<Self, Malformed> {
        let (last, operations) = scan.combination.operations.split_last().ok_or(Malformed)?;
        let elementwise = operations.iter().all(|operation| {
            let name = module
                .name(operation)
                .and_then(|name| std::str::from_utf8(name).ok());
            let base = name.and_then(|name| name.rsplit_once("_v"));
            base.is_some_and(|(base, _)| ELEMENTWISE.contains(&base))
                && operation.regions.is_empty()
        });
        // The result at a place must be what is carried on from it.
        if last.operands.len() != 2 * count {
            return Err(Malformed);
        }
        let (results, carried) = last.operands.split_at(count);
        if !elementwise || results != carried || scan.combination.arguments.len() != 2 * count {
            return Err(Malformed);
        }
        Ok(Self {
            operations,
            outcome: results,
        })
    }

    /// Apply it to whole tensors: later elements and those that come before them.
    fn apply(
        &self,
        builder: &mut Builder<'_, '_>,
        shape: &[i64],
        later: &[usize],
        earlier: &[usize],
    ) -> Result<Vec<usize>, Malformed> {
        let mut values = [later, earlier].concat();
        let known = |values: &[usize], index: &usize| values.get(*index).copied().ok_or(Malformed);
        for operation in self.operations {
            let mut whole = operation.clone();
            whole.uses = None;
            for kind in &mut whole.results {
                let element = Tensor::read(builder.module, *kind)?.element;
                let shape = shape.to_vec();
                *kind = Tensor { shape, element }.enter(builder.module)?;
            }
            for operand in &mut whole.operands {
                *operand = known(&values, operand)?;
            }
            values.extend(builder.push(whole));
        }
        self.outcome
            .iter()
            .map(|index| known(&values, index))
            .collect()
    }
}

/// What the parts of the new body have in common.
struct Steps<'s> {
    scan: &'s Scan,
    combination: &'s Combination<'s>,
    /// Types of the elements' tensors.
    wholes: &'s [Tensor],
    /// Types of the initial values: the same without the scan's dimension.
    parts: &'s [Tensor],
    /// Elements along the scan's dimension.
    length: i64,
    flag: Tensor,
    number: Tensor,
}

impl Steps<'_> {
    /// The first element takes in the initial values, then the loop of steps.
    fn build(
        &self,
        builder: &mut Builder<'_, '_>,
        elements: &[usize],
        initial: &[usize],
    ) -> Result<Vec<usize>, Malformed> {
        let rank = self.wholes[0].shape.len();
        let others: Vec<i64> = (0..rank as i64)
            .filter(|axis| *axis != self.scan.dimension as i64)
            .collect();
        let first = if self.scan.reverse {
            self.length - 1
        } else {
            0
        };
        let last = self.length - 1 - first;

        let mut before = Vec::new();
        for (whole, value) in self.wholes.iter().zip(initial) {
            before.push(builder.broadcast(*value, &others, whole)?);
        }
        let place = builder.places(self.scan.dimension, &self.place())?;
        let start = builder.number(first, &self.place())?;
        let mask = self.compare(builder, Direction::Equal, place, start)?;
        let combined = self.combine(builder, elements, &before)?;
        let seeded = self.choose(builder, mask, &combined, elements)?;

        let one = builder.number(1, &self.number)?;
        let looped = builder.repeat(
            &[vec![one], seeded].concat(),
            &[slice::from_ref(&self.number), self.wholes].concat(),
            |builder, values| {
                let length = builder.number(self.length, &self.number)?;
                let operands = [values[0], length];
                builder.compare(Direction::Less, Order::Signed, operands, &self.flag)
            },
            |builder, values| self.step(builder, values[0], &values[1..]),
        )?;

        let zero = builder.number(0, &self.number)?;
        let mut start = vec![zero; rank];
        start[self.scan.dimension] = builder.number(last, &self.number)?;
        let mut outcome = looped[1..].to_vec();
        for (value, part) in looped[1..].iter().zip(self.parts) {
            let mut edge = part.clone();
            edge.shape.insert(self.scan.dimension, 1);
            let edge = builder.part(*value, &start, &edge)?;
            outcome.push(builder.apply("reshape_v1", &[edge], part)?);
        }
        Ok(outcome)
    }

    /// Combine each element with the one at the distance before it, then double the distance.
    fn step(
        &self,
        builder: &mut Builder<'_, '_>,
        distance: usize,
        values: &[usize],
    ) -> Result<Vec<usize>, Malformed> {
        let zero = builder.number(0, &self.number)?;
        let length = builder.number(self.length, &self.number)?;
        let rest = builder.apply("subtract_v1", &[length, distance], &self.number)?;
        let place = builder.places(self.scan.dimension, &self.place())?;
        let (direction, limit, turn) = if self.scan.reverse {
            (Direction::Less, rest, distance)
        } else {
            (Direction::AtLeast, distance, rest)
        };
        let limit = builder.broadcast(limit, &[], &self.place())?;
        let mask = self.compare(builder, direction, place, limit)?;
        let mut start = vec![zero; self.wholes[0].shape.len()];
        start[self.scan.dimension] = turn;
        let mut moved = Vec::new();
        for (value, whole) in values.iter().zip(self.wholes) {
            // Turned around: what comes in at the wrong end is masked.
            let mut twice = whole.clone();
            twice.shape[self.scan.dimension] = 2 * self.length;
            let twice = builder.concatenate(*value, *value, self.scan.dimension, &twice)?;
            moved.push(builder.part(twice, &start, whole)?);
        }
        let combined = self.combine(builder, values, &moved)?;
        let chosen = self.choose(builder, mask, &combined, values)?;
        // Not added to itself: XLA takes what is added for a constant, and ends the process.
        let two = builder.number(2, &self.number)?;
        let doubled = builder.apply("multiply_v1", &[distance, two], &self.number)?;
        Ok([vec![doubled], chosen].concat())
    }

    fn combine(
        &self,
        builder: &mut Builder<'_, '_>,
        later: &[usize],
        earlier: &[usize],
    ) -> Result<Vec<usize>, Malformed> {
        let shape = &self.wholes[0].shape;
        self.combination.apply(builder, shape, later, earlier)
    }

    fn choose(
        &self,
        builder: &mut Builder<'_, '_>,
        mask: usize,
        then: &[usize],
        otherwise: &[usize],
    ) -> Result<Vec<usize>, Malformed> {
        let pairs = then.iter().zip(otherwise).zip(self.wholes);
        pairs
            .map(|((then, otherwise), whole)| builder.select(mask, *then, *otherwise, whole))
            .collect()
    }

    fn compare(
        &self,
        builder: &mut Builder<'_, '_>,
        direction: Direction,
        left: usize,
        right: usize,
    ) -> Result<usize, Malformed> {
        let mask = self.wholes[0].of(self.flag.element);
        builder.compare(direction, Order::Signed, [left, right], &mask)
    }

    /// Numbers in the shape of the elements.
    fn place(&self) -> Tensor {
        self.wholes[0].of(self.number.element)
    }
}
