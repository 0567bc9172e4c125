//! Programs made fit for the wrapped CPU plug-in, with the same results.

mod scan;
mod vhlo;

use std::borrow::Cow;

use crate::bytecode::{Malformed, Module};

/// Name of the composite for a scan: a program without these bytes holds none.
const SCAN: &[u8] = b"chlo.scan";

/// The program with each scan replaced by operations that every plug-in compiles.
pub fn without_scans(code: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    if !code.windows(SCAN.len()).any(|window| window == SCAN) {
        return Ok(Cow::Borrowed(code));
    }
    let mut module = Module::read(code)?;
    scan::replace(&mut module)?;
    Ok(Cow::Owned(module.write()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUMSUM: &[u8] = include_bytes!("../programs/cumsum.mlirbc");
    const CUMMAX: &[u8] = include_bytes!("../programs/cummax.mlirbc");
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
        assert_eq!(
            without_scans(b"anything"),
            Ok(Cow::Borrowed(&b"anything"[..]))
        );
    }

    #[test]
    fn each_scan_becomes_a_call_of_a_loop_over_whole_tensors() {
        for (program, scans) in [(CUMSUM, 1), (CUMMAX, 1), (COMPILED, 2)] {
            let bytes = without_scans(program).unwrap();
            let module = Module::read(&bytes).unwrap();
            let counted = |name| count(&module, &module.body, name);
            assert_eq!(counted("composite_v2"), 0);
            assert_eq!(counted("call_v1"), scans);
            assert_eq!(counted("while_v1"), scans);
            assert_eq!(counted("dynamic_update_slice_v1"), 0);
        }
    }

    #[test]
    fn broken_programs_are_refused_without_a_panic() {
        for at in 0..CUMMAX.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = CUMMAX.to_vec();
                broken[at] = value;
                let _ = without_scans(&broken);
            }
        }
    }
}
