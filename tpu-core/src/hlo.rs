//! Optimised programs as XLA keeps them (`HloProto`), and their text in XLA's own notation.
//!
//! The text is that of XLA's `HloModule::ToString` with names of operands and without their shapes:
//! what XLA's tools print, and read.

mod attributes;
mod dimensions;
mod literal;
mod print;
#[allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the fields are XLA's"
)]
mod proto;
mod shape;

use prost::Message;

/// How much of a program its text has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What is computed.
    Computed,
    /// Where each instruction comes from too, and what the compiler noted for itself.
    All,
}

/// Why a program has no text.
#[derive(Debug, thiserror::Error)]
pub enum HloError {
    #[error("it is no HloProto: {0}")]
    Damaged(#[from] prost::DecodeError),
    #[error("it has no module")]
    Empty,
}

/// The text of a serialised `HloProto`.
pub fn text(program: &[u8], detail: Detail) -> Result<String, HloError> {
    let proto = proto::HloProto::decode(program)?;
    let module = proto.hlo_module.ok_or(HloError::Empty)?;
    Ok(print::module(&module, detail))
}

/// A serialised `HloProto` of what a plug-in gave in `format`; None for a format that is none.
pub fn as_proto(format: &str, code: Vec<u8>) -> Option<Vec<u8>> {
    match format {
        // `HloModuleProtoWithConfig` has the module where `HloProto` has it, and its configuration
        // where that has nothing.
        "hlo_with_config" => Some(code),
        "hlo" => {
            // Field 1, with its length in front.
            let mut proto = vec![0x0a];
            prost::encoding::encode_varint(code.len() as u64, &mut proto);
            proto.extend(code);
            Some(proto)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::proto::{
        Computation, DotDimensions, HloProto, Instruction, Layout, Metadata, Module, ProgramShape,
        Schedule, Sequence, Shape,
    };
    use super::*;

    fn shape(sizes: &[i64]) -> Shape {
        Shape {
            element_type: 11,
            dimensions: sizes.to_vec(),
            layout: Some(Layout {
                minor_to_major: (0..sizes.len() as i64).rev().collect(),
                ..Layout::default()
            }),
            ..Shape::default()
        }
    }

    fn instruction(id: i64, opcode: &str, sizes: &[i64], operands: &[i64]) -> Instruction {
        Instruction {
            id,
            name: format!("{opcode}.{id}"),
            opcode: opcode.into(),
            shape: Some(shape(sizes)),
            operand_ids: operands.to_vec(),
            ..Instruction::default()
        }
    }

    /// `fusion(x @ w)`, with the fusion's computation in front.
    fn program() -> HloProto {
        let parameter = |id, sizes: &[i64]| Instruction {
            parameter_number: id - 1,
            ..instruction(id, "parameter", sizes, &[])
        };
        let computation = |name: &str, id, instructions: Vec<Instruction>| Computation {
            name: name.into(),
            id,
            root_id: instructions.last().map_or(0, |last| last.id),
            instructions,
            program_shape: Some(ProgramShape {
                parameters: vec![shape(&[4, 8]), shape(&[8, 3])],
                result: Some(shape(&[4, 3])),
                parameter_names: vec!["x".into()],
            }),
            ..Computation::default()
        };
        let dot = Instruction {
            dot_dimension_numbers: Some(DotDimensions {
                lhs_contracting_dimensions: vec![1],
                rhs_contracting_dimensions: vec![0],
                ..DotDimensions::default()
            }),
            metadata: Some(Metadata {
                op_name: "mm/\"mm\"".into(),
                ..Metadata::default()
            }),
            ..instruction(3, "dot", &[4, 3], &[1, 2])
        };
        let fusion = Instruction {
            fusion_kind: "kLoop".into(),
            called_computation_ids: vec![7],
            backend_config: b"{\"n\":1}".to_vec(),
            ..instruction(3, "fusion", &[4, 3], &[1, 9])
        };
        let fused = vec![parameter(1, &[4, 8]), parameter(2, &[8, 3]), dot];
        let entry = vec![fusion, parameter(1, &[4, 8])];
        let mut entry = computation("main", 8, entry);
        entry.root_id = 3;
        let order = Sequence {
            instruction_ids: vec![1, 3],
        };
        HloProto {
            hlo_module: Some(Module {
                name: "jit_f".into(),
                computations: vec![computation("fused", 7, fused), entry],
                entry_computation_id: 8,
                schedule: Some(Schedule {
                    sequences: [(8, order)].into(),
                }),
                ..Module::default()
            }),
        }
    }

    #[test]
    fn a_program_reads_as_xla_writes_it() {
        let bytes = program().encode_to_vec();
        assert_eq!(
            text(&bytes, Detail::All).unwrap(),
            r#"HloModule jit_f, is_scheduled=true

%fused (x: f32[4,8], p1: f32[8,3]) -> f32[4,3] {
  %parameter.1 = f32[4,8]{1,0} parameter(0)
  %parameter.2 = f32[8,3]{1,0} parameter(1)
  ROOT %dot.3 = f32[4,3]{1,0} dot(%parameter.1, %parameter.2), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="mm/\"mm\""}
}

ENTRY %main (x: f32[4,8], p1: f32[8,3]) -> f32[4,3] {
  %parameter.1 = f32[4,8]{1,0} parameter(0)
  ROOT %fusion.3 = f32[4,3]{1,0} fusion(%parameter.1, %9), kind=kLoop, calls=%fused, backend_config={"n":1}
}
"#
        );
        let short = text(&bytes, Detail::Computed).unwrap();
        assert!(!short.contains("metadata") && !short.contains("backend_config"));
    }

    #[test]
    fn what_a_newer_compiler_adds_is_skipped_and_what_is_broken_refused() {
        let mut bytes = program().encode_to_vec();
        let whole = text(&bytes, Detail::All).unwrap();
        // Field 2000, a number; field 2001, bytes.
        bytes.extend([0x80, 0x7d, 0x05, 0x8a, 0x7d, 0x02, 0xff, 0xfe]);
        assert_eq!(text(&bytes, Detail::All).unwrap(), whole);
        assert!(matches!(text(&[], Detail::All), Err(HloError::Empty)));
        for end in 1..bytes.len() - 8 {
            assert!(
                matches!(text(&bytes[..end], Detail::All), Err(HloError::Damaged(_))),
                "{end}"
            );
        }
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x55;
            // An answer of either kind.
            let _ = text(&changed, Detail::All);
        }
    }

    #[test]
    fn each_form_in_which_a_plug_in_gives_it_becomes_one() {
        let program = program();
        let module = program.hlo_module.as_ref().unwrap().encode_to_vec();
        let whole = program.encode_to_vec();
        assert_eq!(as_proto("hlo", module).as_ref(), Some(&whole));
        assert_eq!(as_proto("hlo_with_config", whole.clone()), Some(whole));
        assert_eq!(as_proto("mlir", Vec::new()), None);
    }
}
