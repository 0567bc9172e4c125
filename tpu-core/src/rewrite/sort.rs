//! Sorts, whose comparison is TorchTPU's or the user's own.
//!
//! `torch.unique` compares with "not greater", which says of equal elements that each comes before the
//! other. A chip sorts with that; the CPU plug-in's plain sort then reads past the end of its data.
//! Its stable sort never does, so every sort becomes a stable one.

use super::vhlo::attribute;
use crate::bytecode::{Block, Malformed, Module};

const SORT: &[u8] = b"sort_v1";

/// Make the sorts stable.
pub fn replace(module: &mut Module<'_>) -> Result<(), Malformed> {
    let mut body = std::mem::take(&mut module.body);
    let done = replace_in(module, &mut body);
    module.body = body;
    done
}

fn replace_in(module: &mut Module<'_>, block: &mut Block) -> Result<(), Malformed> {
    for operation in &mut block.operations {
        for inner in operation
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.blocks)
        {
            replace_in(module, inner)?;
        }
        if module.name(operation) != Some(SORT) {
            continue;
        }
        let &[dimension, stable] = module.property_list(operation)?.as_slice() else {
            return Err(Malformed);
        };
        let (code, mut value) = module.open(stable)?;
        if code != attribute::BOOLEAN {
            return Err(Malformed);
        }
        if value.number()? != 0 {
            continue;
        }
        let yes = module.attribute(|writer| {
            writer.number(attribute::BOOLEAN);
            writer.number(1);
        })?;
        operation.properties = Some(module.property(&[dimension, yes]));
    }
    Ok(())
}
