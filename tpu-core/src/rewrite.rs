//! Programs made fit for the wrapped CPU plug-in, with the same results.

mod lu;
mod scan;
mod sort;
pub mod vhlo;

use std::borrow::Cow;

use crate::bytecode::{Malformed, Module};

/// Name of the composite for a scan: a program without these bytes holds none.
const SCAN: &[u8] = b"chlo.scan";
/// Name of the operation that sorts.
const SORT: &[u8] = b"sort_v1";
/// Name of the custom call for a decomposition.
const LU: &[u8] = b"LuDecomposition";
/// Name of the custom call for a kernel in Mosaic, the machine code of a TPU.
const KERNEL: &[u8] = b"tpu_custom_call";

/// Why a program cannot be made fit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unfit {
    #[error(
        "the emulated TPU cannot run kernels written for a TPU (Pallas, flash attention): \
         use plain operations, or `sdpa_kernel(SDPBackend.MATH)` for attention"
    )]
    Kernel,
    #[error(
        "the emulated TPU cannot read a program with a scan (cumsum and what is built on it), a sort or an LU \
         decomposition of this version: move the tensor to the CPU for this step"
    )]
    Unread(#[from] Malformed),
}

/// The program with what CPU plug-ins lack replaced by operations that each of them compiles.
pub fn fit(code: &[u8]) -> Result<Cow<'_, [u8]>, Unfit> {
    let holds = |name: &[u8]| code.windows(name.len()).any(|window| window == name);
    if holds(KERNEL) {
        return Err(Unfit::Kernel);
    }
    let (scan, lu, sort) = (holds(SCAN), holds(LU), holds(SORT));
    if !scan && !lu && !sort {
        return Ok(Cow::Borrowed(code));
    }
    let mut module = Module::read(code)?;
    if sort {
        sort::replace(&mut module)?;
    }
    if scan {
        scan::replace(&mut module, SCAN)?;
    }
    if lu {
        lu::replace(&mut module, LU)?;
    }
    Ok(Cow::Owned(module.write()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUMSUM: &[u8] = include_bytes!("../programs/cumsum.mlirbc");
    const CUMMAX: &[u8] = include_bytes!("../programs/cummax.mlirbc");
    const SORT_OF_UNIQUE: &[u8] = include_bytes!("../programs/sort.mlirbc");
    const COMPILED: &[u8] = include_bytes!("../programs/compiled.mlirbc");

    /// How often each operation stands in a program.
    fn count(module: &Module<'_>, block: &crate::bytecode::Block, name: &str) -> usize {
        let inner = |operation: &crate::bytecode::Operation| {
            let blocks = operation.regions.iter().flat_map(|region| &region.blocks);
            blocks
                .map(|block| count(module, block, name))
                .sum::<usize>()
        };
        let own = |operation| usize::from(module.name(operation) == Some(name.as_bytes()));
        block
            .operations
            .iter()
            .map(|operation| own(operation) + inner(operation))
            .sum()
    }

    #[test]
    fn a_program_without_a_scan_stays_as_it_is() {
        assert_eq!(fit(b"anything"), Ok(Cow::Borrowed(&b"anything"[..])));
    }

    #[test]
    fn a_kernel_for_a_tpu_is_refused_with_what_to_do() {
        let error = fit(b"..tpu_custom_call..").unwrap_err();
        assert!(error.to_string().contains("SDPBackend.MATH"));
    }

    #[test]
    fn each_scan_becomes_a_call_of_a_loop_over_whole_tensors() {
        for (program, scans) in [(CUMSUM, 1), (CUMMAX, 1), (COMPILED, 2)] {
            let bytes = fit(program).unwrap();
            let module = Module::read(&bytes).unwrap();
            let counted = |name| count(&module, &module.body, name);
            assert_eq!(counted("composite_v2"), 0);
            assert_eq!(counted("call_v1"), scans);
            assert_eq!(counted("while_v1"), scans);
            assert_eq!(counted("dynamic_update_slice_v1"), 0);
        }
    }

    #[test]
    fn each_sort_becomes_a_stable_one_and_nothing_else_changes() {
        let bytes = fit(SORT_OF_UNIQUE).unwrap();
        let (before, after) = (
            Module::read(SORT_OF_UNIQUE).unwrap(),
            Module::read(&bytes).unwrap(),
        );
        let stable = |module: &Module<'_>| {
            let is_sort =
                |operation: &&crate::bytecode::Operation| module.name(operation) == Some(SORT);
            let mut found = Vec::new();
            let mut blocks = vec![&module.body];
            while let Some(block) = blocks.pop() {
                for sort in block.operations.iter().filter(is_sort) {
                    let list = module.property_list(sort).unwrap();
                    found.push(module.open(list[1]).unwrap().1.number().unwrap());
                }
                let regions = block
                    .operations
                    .iter()
                    .flat_map(|operation| &operation.regions);
                blocks.extend(regions.flat_map(|region| &region.blocks));
            }
            found
        };
        assert_eq!((stable(&before), stable(&after)), (vec![0], vec![1]));
        assert_eq!(fit(&bytes).unwrap(), bytes, "a stable one stays as it is");
    }

    #[test]
    fn broken_programs_are_refused_without_a_panic() {
        for at in 0..CUMMAX.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = CUMMAX.to_vec();
                broken[at] = value;
                let _ = fit(&broken);
            }
        }
    }
}
