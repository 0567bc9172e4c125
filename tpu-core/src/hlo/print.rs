//! A program as XLA writes it: its computations, one instruction a line.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::Detail;
use super::attributes::{self, Attributes};
use super::literal;
use super::proto::{Computation, Instruction, Module, ProgramShape};
use super::shape::{List, counted};

/// Names of computations and of instructions, by number.
pub struct Names<'a> {
    computations: HashMap<i64, &'a str>,
    instructions: HashMap<i64, &'a str>,
}

impl Names<'_> {
    pub fn computation(&self, id: i64) -> String {
        named(self.computations.get(&id), id)
    }

    pub fn instruction(&self, id: i64) -> String {
        named(self.instructions.get(&id), id)
    }
}

/// What has no name here is called by its number.
fn named(name: Option<&&str>, id: i64) -> String {
    name.map_or_else(|| format!("%{id}"), |name| format!("%{name}"))
}

/// The whole program.
pub fn module(module: &Module, detail: Detail) -> String {
    let mut out = header(module);
    for computation in &module.computations {
        out.push('\n');
        self::computation(module, computation, detail, &mut out);
    }
    out
}

fn header(module: &Module) -> String {
    let mut out = format!("HloModule {}", module.name);
    if module.schedule.is_some() {
        out.push_str(", is_scheduled=true");
    }
    let aliases = module.input_output_alias.iter().flat_map(|it| &it.entries);
    let aliases: Vec<String> = aliases
        .map(|entry| {
            format!(
                "{{{}}}: ({}, {{{}}}, {})",
                List(&entry.output_shape_index),
                entry.parameter_number,
                List(&entry.parameter_shape_index),
                if entry.kind == 2 {
                    "must-alias"
                } else {
                    "may-alias"
                },
            )
        })
        .collect();
    if !aliases.is_empty() {
        let _ = write!(out, ", input_output_alias={{ {} }}", aliases.join(", "));
    }
    if let Some(shape) = &module.host_program_shape {
        let parameters: Vec<String> = shape.parameters.iter().map(|it| it.text(true)).collect();
        let result = shape.result.as_ref().map(|it| it.text(true));
        let _ = write!(
            out,
            ", entry_computation_layout={{({})->{}}}",
            counted(&parameters),
            result.unwrap_or_default()
        );
    }
    if let Some(attributes) = &module.frontend_attributes
        && !attributes.map.is_empty()
    {
        let _ = write!(
            out,
            ", frontend_attributes={}",
            attributes::frontend(attributes)
        );
    }
    out.push('\n');
    out
}

fn computation(module: &Module, computation: &Computation, detail: Detail, out: &mut String) {
    let names = Names {
        computations: (module.computations.iter())
            .map(|it| (it.id, it.name.as_str()))
            .collect(),
        instructions: (computation.instructions.iter())
            .map(|it| (it.id, it.name.as_str()))
            .collect(),
    };
    if computation.id == module.entry_computation_id {
        out.push_str("ENTRY ");
    }
    let _ = write!(out, "%{}", computation.name);
    if let Some(shape) = &computation.program_shape {
        let _ = write!(out, " {}", signature(shape));
    }
    out.push_str(" {\n");
    for instruction in in_order(module, computation) {
        let root = instruction.id == computation.root_id;
        out.push_str(if root { "  ROOT " } else { "  " });
        self::instruction(module, computation, instruction, &names, detail, out);
        out.push('\n');
    }
    out.push('}');
    if !matches!(computation.execution_thread.as_str(), "" | "main") {
        let _ = write!(
            out,
            ", execution_thread=\"{}\"",
            computation.execution_thread
        );
    }
    out.push('\n');
}

/// Instructions as they are run, where that is decided; else as they are kept, operands first.
fn in_order<'a>(module: &Module, computation: &'a Computation) -> Vec<&'a Instruction> {
    let kept: Vec<&Instruction> = computation.instructions.iter().collect();
    let sequences = module.schedule.as_ref().map(|it| &it.sequences);
    let Some(sequence) = sequences.and_then(|it| it.get(&computation.id)) else {
        return kept;
    };
    let by_id: HashMap<i64, &Instruction> = kept.iter().map(|it| (it.id, *it)).collect();
    let scheduled: Vec<&Instruction> = (sequence.instruction_ids.iter())
        .filter_map(|id| by_id.get(id).copied())
        .collect();
    if scheduled.len() == kept.len() {
        scheduled
    } else {
        kept
    }
}

fn signature(shape: &ProgramShape) -> String {
    let parameters: Vec<String> = (shape.parameters.iter().enumerate())
        .map(|(index, parameter)| {
            let name = shape.parameter_names.get(index);
            let name = name.cloned().unwrap_or_else(|| format!("p{index}"));
            format!("{name}: {}", parameter.text(false))
        })
        .collect();
    let result = shape.result.as_ref().map(|it| it.text(false));
    format!(
        "({}) -> {}",
        parameters.join(", "),
        result.unwrap_or_default()
    )
}

fn instruction(
    module: &Module,
    computation: &Computation,
    instruction: &Instruction,
    names: &Names<'_>,
    detail: Detail,
    out: &mut String,
) {
    let _ = write!(out, "%{} = ", instruction.name);
    if let Some(shape) = &instruction.shape {
        shape.write(out, true);
        out.push(' ');
    }
    let operands = match instruction.opcode.as_str() {
        "parameter" => instruction.parameter_number.to_string(),
        "constant" => (instruction.literal.as_ref()).map_or_else(|| "{...}".into(), literal::text),
        _ => {
            let operands = instruction.operand_ids.iter();
            let operands: Vec<String> = operands.map(|id| names.instruction(*id)).collect();
            counted(&operands)
        }
    };
    let _ = write!(out, "{}({operands})", instruction.opcode);
    let mut attributes = Attributes::new(out);
    attributes.of(instruction, computation, names);
    if detail == Detail::All {
        attributes.origin(module, instruction);
    }
}
