//! LU decomposition, which reaches us as the custom call `LuDecomposition`: libtpu has it built in,
//! CPU plug-ins do not. The call becomes one of a function made here: elimination column by column
//! with the greatest element of a column as its pivot, all matrices of a batch at once.

use super::vhlo::{self, Builder, Direction, Order, Tensor};
use crate::bytecode::{Block, Malformed, Module, Operation};

/// Where the name of what is called stands among the properties of a custom call.
const TARGET: usize = 2;

pub fn replace(module: &mut Module<'_>, target: &[u8]) -> Result<(), Malformed> {
    let mut body = std::mem::take(&mut module.body);
    let mut functions = Vec::new();
    replace_in(module, &mut body, target, &mut functions)?;
    vhlo::functions(&mut body)
        .ok_or(Malformed)?
        .operations
        .append(&mut functions);
    module.body = body;
    Ok(())
}

fn replace_in(
    module: &mut Module<'_>,
    block: &mut Block,
    target: &[u8],
    functions: &mut Vec<Operation>,
) -> Result<(), Malformed> {
    for operation in &mut block.operations {
        for inner in operation
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.blocks)
        {
            replace_in(module, inner, target, functions)?;
        }
        if module.name(operation) != Some(b"custom_call_v1") {
            continue;
        }
        let called = module.property_list(operation)?;
        if vhlo::text(module, *called.get(TARGET).ok_or(Malformed)?)? != target {
            continue;
        }
        let symbol = format!("tpu_core.lu.{}", functions.len());
        let [matrix, pivots, order] = <[usize; 3]>::try_from(operation.results.as_slice())
            .map_err(|_| Malformed)?
            .map(|kind| Tensor::read(module, kind));
        let decomposition = Decomposition::new(module, matrix?, pivots?, order?)?;
        let (function, symbol) = decomposition.function(module, &symbol, operation.location)?;
        functions.push(function);
        operation.name = module.operation("call_v1")?;
        operation.properties = Some(module.property(&[symbol]));
    }
    Ok(())
}

/// The types the steps work with; `batch` stands for the dimensions before the last two.
struct Decomposition {
    /// `[batch, rows, columns]`
    matrix: Tensor,
    /// `[batch, min(rows, columns)]`, as integers
    pivots: Tensor,
    /// `[batch, rows]`, as integers, elements, their absolute values and truth values
    order: Tensor,
    column: Tensor,
    sizes: Tensor,
    rows: Tensor,
    /// `[batch, columns]`
    row: Tensor,
    /// `[batch, rows, columns]`, truth values
    mask: Tensor,
    /// `[batch]`, of integers
    batch: Tensor,
    /// A single integer.
    number: Tensor,
    /// Bytes of -1 as absolute values are written, and of 0 as an element.
    less: Vec<u8>,
    zero: Vec<u8>,
}

impl Decomposition {
    fn new(
        module: &mut Module<'_>,
        matrix: Tensor,
        pivots: Tensor,
        order: Tensor,
    ) -> Result<Self, Malformed> {
        let boolean = vhlo::boolean(module)?;
        let size = vhlo::real(module, matrix.element)?;
        let complex = size != matrix.element;
        let less = vhlo::float(module, size, -1.0)?;
        let zero = vec![0; less.len() << u8::from(complex)];
        if matrix.shape.len() < 2 || vhlo::i32(module)? != order.element {
            return Err(Malformed);
        }
        let mut row = matrix.clone();
        row.shape.remove(matrix.shape.len() - 2);
        let mut batch = pivots.clone();
        batch.shape.pop();
        Ok(Self {
            column: order.of(matrix.element),
            sizes: order.of(size),
            rows: order.of(boolean),
            mask: matrix.of(boolean),
            number: Tensor::single(order.element),
            row,
            batch,
            matrix,
            pivots,
            order,
            less,
            zero,
        })
    }

    fn function(
        &self,
        module: &mut Module<'_>,
        symbol: &str,
        location: usize,
    ) -> Result<(Operation, usize), Malformed> {
        let results = [self.matrix.clone(), self.pivots.clone(), self.order.clone()];
        let inputs = &results[..1];
        vhlo::function(
            module,
            symbol,
            location,
            inputs,
            &results,
            |builder, values| {
                let first = builder.integer(0, &self.number)?;
                let pivots = builder.integer(0, &self.pivots)?;
                let order = builder.places(self.order.shape.len() - 1, &self.order)?;
                let state = [first, values[0], pivots, order];
                let tensors = [std::slice::from_ref(&self.number), results.as_slice()].concat();
                let steps = self.pivots.shape.last().copied().ok_or(Malformed)?;
                let looped = builder.repeat(
                    &state,
                    &tensors,
                    |builder, values| {
                        let operands = [values[0], builder.integer(steps, &self.number)?];
                        let flag = Tensor::single(self.mask.element);
                        builder.compare(Direction::Less, Order::Signed, operands, &flag)
                    },
                    |builder, values| {
                        self.step(builder, values[0], values[1], values[2], values[3])
                    },
                )?;
                Ok(looped[1..].to_vec())
            },
        )
    }

    /// Eliminate column `step` below the diagonal.
    fn step(
        &self,
        builder: &mut Builder<'_, '_>,
        step: usize,
        matrix: usize,
        pivots: usize,
        order: usize,
    ) -> Result<Vec<usize>, Malformed> {
        let outer = self.batch.shape.len();
        let batches: Vec<i64> = (0..outer as i64).collect();
        let along_rows = [batches.as_slice(), &[outer as i64]].concat();
        let along_columns = [batches.as_slice(), &[outer as i64 + 1]].concat();
        let first = builder.integer(0, &self.number)?;

        // The row with the greatest element of this column, at the diagonal or below.
        let places = builder.places(outer, &self.order)?;
        let diagonal = builder.broadcast(step, &[], &self.order)?;
        let signed = Order::Signed;
        let below = builder.compare(Direction::AtLeast, signed, [places, diagonal], &self.rows)?;
        let column = self.column(builder, matrix, first, step)?;
        let sizes = builder.apply("abs_v1", &[column], &self.sizes)?;
        let less = builder.constant(&self.less, &self.sizes)?;
        let sizes = builder.select(below, sizes, less, &self.sizes)?;
        let greatest = self.batch.of(self.sizes.element);
        let none = builder.constant(&self.less, &Tensor::single(self.sizes.element))?;
        let greatest = builder.reduce("maximum_v1", sizes, none, outer, &greatest)?;
        let greatest = builder.broadcast(greatest, &batches, &self.sizes)?;
        let equal = builder.compare(
            Direction::Equal,
            Order::Float,
            [sizes, greatest],
            &self.rows,
        )?;
        let last = self.order.shape.last().copied().ok_or(Malformed)? - 1;
        let otherwise = builder.integer(last, &self.order)?;
        let candidates = builder.select(equal, places, otherwise, &self.order)?;
        let last = builder.integer(last, &self.number)?;
        let pivot = builder.reduce("minimum_v1", candidates, last, outer, &self.batch)?;

        // Note it, and swap it with the row at the diagonal.
        let place = builder.places(outer, &self.pivots)?;
        let here = builder.broadcast(step, &[], &self.pivots)?;
        let mask = self.pivots.of(self.mask.element);
        let here = builder.compare(Direction::Equal, signed, [place, here], &mask)?;
        let noted = builder.broadcast(pivot, &batches, &self.pivots)?;
        let pivots = builder.select(here, noted, pivots, &self.pivots)?;

        let pivot = builder.broadcast(pivot, &batches, &self.order)?;
        let at_pivot = builder.compare(Direction::Equal, signed, [places, pivot], &self.rows)?;
        let at_diagonal =
            builder.compare(Direction::Equal, signed, [places, diagonal], &self.rows)?;
        let nothing = builder.integer(0, &self.order)?;
        let chosen = builder.select(at_pivot, order, nothing, &self.order)?;
        let upper = builder.reduce("add_v1", chosen, first, outer, &self.batch)?;
        let upper = builder.broadcast(upper, &batches, &self.order)?;
        let lower = element(builder, order, first, step, &self.batch)?;
        let lower = builder.broadcast(lower, &batches, &self.order)?;
        let order = builder.select(at_pivot, lower, order, &self.order)?;
        let order = builder.select(at_diagonal, upper, order, &self.order)?;

        let pivot_rows = builder.broadcast(at_pivot, &along_rows, &self.mask)?;
        let diagonal_rows = builder.broadcast(at_diagonal, &along_rows, &self.mask)?;
        let zeros = builder.constant(&self.zero, &self.matrix)?;
        let zero = builder.constant(&self.zero, &Tensor::single(self.matrix.element))?;
        let chosen = builder.select(pivot_rows, matrix, zeros, &self.matrix)?;
        let upper_row = builder.reduce("add_v1", chosen, zero, outer, &self.row)?;
        let upper = builder.broadcast(upper_row, &along_columns, &self.matrix)?;
        let mut start = vec![first; outer + 2];
        start[outer] = step;
        let mut lower_row = self.row.clone();
        lower_row.shape.insert(outer, 1);
        let lower = builder.part(matrix, &start, &lower_row)?;
        let lower = builder.apply("reshape_v1", &[lower], &self.row)?;
        let lower = builder.broadcast(lower, &along_columns, &self.matrix)?;
        let matrix = builder.select(pivot_rows, lower, matrix, &self.matrix)?;
        let matrix = builder.select(diagonal_rows, upper, matrix, &self.matrix)?;

        // Take as much of that row from those below as makes their elements of this column zero,
        // and leave in their place how much that was.
        let column = self.column(builder, matrix, first, step)?;
        let divisor = self.batch.of(self.matrix.element);
        let divisor = element(builder, upper_row, first, step, &divisor)?;
        let divisor = builder.broadcast(divisor, &batches, &self.column)?;
        let quotients = builder.apply("divide_v1", &[column, divisor], &self.column)?;
        let none = builder.constant(&self.zero, &self.column)?;
        let regular = builder.compare(
            Direction::Differs,
            Order::Float,
            [divisor, none],
            &self.rows,
        )?;
        let below = builder.compare(Direction::Greater, signed, [places, diagonal], &self.rows)?;
        let changed = builder.apply("and_v1", &[below, regular], &self.rows)?;
        let factors = builder.select(changed, quotients, none, &self.column)?;
        let factors = builder.broadcast(factors, &along_rows, &self.matrix)?;
        let changed = builder.broadcast(changed, &along_rows, &self.mask)?;
        let product = builder.apply("multiply_v1", &[factors, upper], &self.matrix)?;
        let reduced = builder.apply("subtract_v1", &[matrix, product], &self.matrix)?;
        let integers = self.matrix.of(self.number.element);
        let columns = builder.places(outer + 1, &integers)?;
        let diagonal = builder.broadcast(step, &[], &integers)?;
        let right = builder.compare(Direction::Greater, signed, [columns, diagonal], &self.mask)?;
        let right = builder.apply("and_v1", &[right, changed], &self.mask)?;
        let here = builder.compare(Direction::Equal, signed, [columns, diagonal], &self.mask)?;
        let here = builder.apply("and_v1", &[here, changed], &self.mask)?;
        let matrix = builder.select(right, reduced, matrix, &self.matrix)?;
        let matrix = builder.select(here, factors, matrix, &self.matrix)?;

        let one = builder.integer(1, &self.number)?;
        let next = builder.apply("add_v1", &[step, one], &self.number)?;
        Ok(vec![next, matrix, pivots, order])
    }

    /// Column `step` of the matrix.
    fn column(
        &self,
        builder: &mut Builder<'_, '_>,
        matrix: usize,
        first: usize,
        step: usize,
    ) -> Result<usize, Malformed> {
        let mut start = vec![first; self.matrix.shape.len()];
        start[self.matrix.shape.len() - 1] = step;
        let mut column = self.column.clone();
        column.shape.push(1);
        let column = builder.part(matrix, &start, &column)?;
        builder.apply("reshape_v1", &[column], &self.column)
    }
}

/// Element `step` of each vector of a batch of them.
fn element(
    builder: &mut Builder<'_, '_>,
    vectors: usize,
    first: usize,
    step: usize,
    result: &Tensor,
) -> Result<usize, Malformed> {
    let mut start = vec![first; result.shape.len() + 1];
    start[result.shape.len()] = step;
    let mut element = result.clone();
    element.shape.push(1);
    let element = builder.part(vectors, &start, &element)?;
    builder.apply("reshape_v1", &[element], result)
}
