//! What stands behind the operands of an instruction: `dimensions={1}, to_apply=%add`.
//!
//! Where a field is there it is written, whatever the operation, so that operations nobody thought
//! of here say what they have.

use std::fmt::Display;
use std::fmt::Write as _;

use super::dimensions;
use super::literal::single;
use super::print::Names;
use super::proto::{
    Computation, FrontendAttributes, Instruction, Metadata, Module, ReplicaGroup, Sharding,
};
use super::shape::{List, PRED};

/// Writes attributes, each with a comma in front.
pub struct Attributes<'a> {
    out: &'a mut String,
}

impl<'a> Attributes<'a> {
    pub fn new(out: &'a mut String) -> Self {
        Self { out }
    }

    fn put(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.out, ", {name}={value}");
    }

    fn put_set<T: Display>(&mut self, name: &str, values: &[T]) {
        self.put(name, format_args!("{{{}}}", List(values)));
    }

    /// Lists that are left out when empty.
    fn put_some<T: Display>(&mut self, name: &str, values: &[T]) {
        if !values.is_empty() {
            self.put_set(name, values);
        }
    }

    fn put_flag(&mut self, name: &str, value: bool) {
        if value {
            self.put(name, true);
        }
    }

    fn put_text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.put(name, quoted(value));
        }
    }

    /// All that says what is computed.
    pub fn of(&mut self, it: &Instruction, computation: &Computation, names: &Names<'_>) {
        self.of_structure(it);
        self.of_numbers(it);
        self.of_devices(it);
        self.of_custom_calls(it);
        self.calls(it, computation, names);
        if let Some(sharding) = &it.sharding
            && let Some(text) = sharding_text(sharding)
        {
            self.put("sharding", text);
        }
        if let Some(attributes) = &it.frontend_attributes
            && !attributes.map.is_empty()
        {
            self.put("frontend_attributes", frontend(attributes));
        }
        let before = it.control_predecessor_ids.iter();
        let before: Vec<String> = before.map(|id| names.instruction(*id)).collect();
        if !before.is_empty() {
            self.put(
                "control-predecessors",
                format_args!("{{{}}}", before.join(", ")),
            );
        }
    }

    /// Dimensions and windows.
    fn of_structure(&mut self, it: &Instruction) {
        match it.opcode.as_str() {
            "iota" => self.put("iota_dimension", it.dimensions.first().unwrap_or(&0)),
            "broadcast" | "concatenate" | "map" | "reduce" | "reverse" | "sort" | "transpose" => {
                self.put_set("dimensions", &it.dimensions);
            }
            "get-tuple-element" => self.put("index", it.tuple_index),
            "fft" => {
                let kind = ["FFT", "IFFT", "RFFT", "IRFFT"].get(it.fft_type as usize);
                self.put("fft_type", kind.unwrap_or(&"?"));
                self.put_set("fft_length", &it.fft_length);
            }
            // Its dimensions stand behind the groups of devices.
            "all-gather" | "all-to-all" | "reduce-scatter" => {}
            _ => self.put_some("dimensions", &it.dimensions),
        }
        if !it.slice_dimensions.is_empty() {
            self.put("slice", dimensions::slice(&it.slice_dimensions));
        }
        self.put_some("dynamic_slice_sizes", &it.dynamic_slice_sizes);
        if let Some(padding) = &it.padding_config {
            self.put("padding", dimensions::padding(padding));
        }
        if let Some(window) = &it.window
            && !window.dimensions.is_empty()
        {
            self.put("window", dimensions::window(window));
        }
        if let Some(numbers) = &it.convolution_dimension_numbers {
            self.put("dim_labels", dimensions::labels(numbers));
        }
        for (name, count) in [
            ("feature_group_count", it.feature_group_count),
            ("batch_group_count", it.batch_group_count),
        ] {
            if count > 1 {
                self.put(name, count);
            }
        }
        if let Some(numbers) = &it.dot_dimension_numbers {
            self.put_some("lhs_batch_dims", &numbers.lhs_batch_dimensions);
            self.put_set("lhs_contracting_dims", &numbers.lhs_contracting_dimensions);
            self.put_some("rhs_batch_dims", &numbers.rhs_batch_dimensions);
            self.put_set("rhs_contracting_dims", &numbers.rhs_contracting_dimensions);
        }
        if let Some(numbers) = &it.gather_dimension_numbers {
            self.put_set("offset_dims", &numbers.offset_dims);
            self.put_set("collapsed_slice_dims", &numbers.collapsed_slice_dims);
            self.put_set("start_index_map", &numbers.start_index_map);
            self.put_some("operand_batching_dims", &numbers.operand_batching_dims);
            self.put_some(
                "start_indices_batching_dims",
                &numbers.start_indices_batching_dims,
            );
            self.put("index_vector_dim", numbers.index_vector_dim);
            self.put_set("slice_sizes", &it.gather_slice_sizes);
        }
        if let Some(numbers) = &it.scatter_dimension_numbers {
            self.put_set("update_window_dims", &numbers.update_window_dims);
            self.put_set("inserted_window_dims", &numbers.inserted_window_dims);
            self.put_set(
                "scatter_dims_to_operand_dims",
                &numbers.scatter_dims_to_operand_dims,
            );
            self.put_some("input_batching_dims", &numbers.input_batching_dims);
            self.put_some(
                "scatter_indices_batching_dims",
                &numbers.scatter_indices_batching_dims,
            );
            self.put("index_vector_dim", numbers.index_vector_dim);
        }
        self.put_flag("indices_are_sorted", it.indices_are_sorted);
        self.put_flag("unique_indices", it.unique_indices);
    }

    /// Numbers and choices.
    fn of_numbers(&mut self, it: &Instruction) {
        if !it.comparison_direction.is_empty() {
            self.put("direction", &it.comparison_direction);
            if it.comparison_type == "TOTALORDER" {
                self.put("type", &it.comparison_type);
            }
        }
        self.put_flag("is_stable", it.is_stable);
        match it.opcode.as_str() {
            "rng" => {
                let kinds = ["rng_invalid", "rng_uniform", "rng_normal"];
                self.put(
                    "distribution",
                    kinds.get(it.distribution as usize).unwrap_or(&"?"),
                );
            }
            "rng-bit-generator" => {
                let kinds = ["rng_default", "rng_three_fry", "rng_philox"];
                self.put(
                    "algorithm",
                    kinds.get(it.rng_algorithm as usize).unwrap_or(&"?"),
                );
            }
            "rng-get-and-update-state" => self.put("delta", it.delta),
            "reduce-precision" => {
                self.put("exponent_bits", it.exponent_bits);
                self.put("mantissa_bits", it.mantissa_bits);
            }
            "topk" => {
                self.put("k", it.k);
                self.put("largest", it.largest);
            }
            "scan" => {
                self.put_flag("is_reverse", it.is_reverse);
                self.put("num_carries", it.num_carries);
                // Left out where nobody said.
                if let 1 | 2 = it.is_associative {
                    self.put("is_associative", it.is_associative == 1);
                }
            }
            name if name.starts_with("batch-norm") => {
                self.put("epsilon", single(it.epsilon));
                self.put("feature_index", it.feature_index);
            }
            _ => {}
        }
        if let Some(options) = &it.triangular_solve_options {
            self.put_flag("left_side", options.left_side);
            self.put_flag("lower", options.lower);
            self.put_flag("unit_diagonal", options.unit_diagonal);
            let kinds = ["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"];
            self.put(
                "transpose_a",
                kinds.get(options.transpose_a as usize).unwrap_or(&"?"),
            );
        }
        if let Some(options) = &it.cholesky_options {
            self.put_flag("lower", options.lower);
        }
        let precision = it.precision_config.as_ref();
        let precision = precision.map_or(&[][..], |it| &it.operand_precision);
        if precision.iter().any(|value| *value != 0) {
            let names = ["default", "high", "highest"];
            let names: Vec<&str> = (precision.iter())
                .map(|value| *names.get(*value as usize).unwrap_or(&"?"))
                .collect();
            self.put_set("operand_precision", &names);
        }
    }

    /// Who talks to whom.
    fn of_devices(&mut self, it: &Instruction) {
        if it.channel_id > 0 {
            self.put("channel_id", it.channel_id);
        }
        if let Some(iota) = &it.iota_collective_device_list {
            let shape = [iota.num_replica_groups, iota.num_devices_per_group];
            let order = iota_order(&iota.iota_reshape_dims, &iota.iota_transpose_perm);
            self.put("replica_groups", format_args!("[{}]{order}", List(&shape)));
        } else if let Some(list) = &it.collective_device_list {
            self.put("replica_groups", groups(&list.replica_groups));
        } else if !it.replica_groups.is_empty() {
            self.put("replica_groups", groups(&it.replica_groups));
        }
        self.put_flag("use_global_device_ids", it.use_global_device_ids);
        if matches!(
            it.opcode.as_str(),
            "all-gather" | "all-to-all" | "reduce-scatter"
        ) {
            self.put_some("dimensions", &it.dimensions);
        }
        let pairs = it.source_target_pairs.iter();
        let pairs: Vec<String> = pairs
            .map(|it| format!("{{{},{}}}", it.source, it.target))
            .collect();
        self.put_some("source_target_pairs", &pairs);
        self.put_flag("is_host_transfer", it.is_host_transfer);
        if !matches!(it.async_execution_thread.as_str(), "" | "main") {
            self.put_text("async_execution_thread", &it.async_execution_thread);
        }
    }

    fn of_custom_calls(&mut self, it: &Instruction) {
        if it.opcode != "custom-call" {
            let aliases = dimensions::aliases(&it.output_operand_aliasing);
            return self.put_some("output_to_operand_aliasing", aliases.as_slice());
        }
        self.put("custom_call_target", quoted(&it.custom_call_target));
        let shapes: Vec<String> = (it.operand_shapes_with_layout.iter())
            .map(|shape| shape.text(true))
            .collect();
        if !shapes.is_empty() {
            self.put(
                "operand_layout_constraints",
                format_args!("{{{}}}", shapes.join(", ")),
            );
        }
        self.put_flag(
            "custom_call_has_side_effect",
            it.custom_call_has_side_effect,
        );
        let aliases = dimensions::aliases(&it.output_operand_aliasing);
        if !aliases.is_empty() {
            self.put(
                "output_to_operand_aliasing",
                format_args!("{{{}}}", aliases.join(", ")),
            );
        }
        let versions = [
            "API_VERSION_STATUS_RETURNING",
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_TYPED_FFI",
        ];
        // The first two need no word.
        let version = usize::try_from(it.custom_call_api_version - 2);
        if let Some(name) = version.ok().and_then(|index| versions.get(index)) {
            self.put("api_version", name);
        }
    }

    /// The computations it runs.
    fn calls(&mut self, it: &Instruction, computation: &Computation, names: &Names<'_>) {
        if !it.fusion_kind.is_empty() {
            self.put("kind", &it.fusion_kind);
        }
        let called = it.called_computation_ids.iter();
        let called: Vec<String> = called.map(|id| names.computation(*id)).collect();
        match (it.opcode.as_str(), called.as_slice()) {
            (_, []) => {}
            ("while", [body, condition]) => {
                self.put("condition", condition);
                self.put("body", body);
            }
            ("select-and-scatter", [select, scatter]) => {
                self.put("select", select);
                self.put("scatter", scatter);
            }
            ("conditional", [yes, no]) if chosen_by_flag(it, computation) => {
                self.put("true_computation", yes);
                self.put("false_computation", no);
            }
            ("conditional", branches) => {
                self.put(
                    "branch_computations",
                    format_args!("{{{}}}", branches.join(", ")),
                );
            }
            ("fusion" | "async-start" | "async-update" | "async-done", [one]) => {
                self.put("calls", one);
            }
            ("custom-call", several) => {
                self.put(
                    "called_computations",
                    format_args!("{{{}}}", several.join(", ")),
                );
            }
            (_, [one]) => self.put("to_apply", one),
            (_, several) => {
                self.put(
                    "called_computations",
                    format_args!("{{{}}}", several.join(", ")),
                );
            }
        }
    }

    /// Where it comes from, and what the compiler noted for itself.
    pub fn origin(&mut self, module: &Module, it: &Instruction) {
        if let Some(metadata) = &it.metadata {
            let parts = origin_parts(metadata);
            if !parts.is_empty() {
                self.put("metadata", format_args!("{{{}}}", parts.join(" ")));
            }
        }
        let payload = it.backend_config_payload.as_ref();
        let shared = payload.and_then(|it| it.id);
        let shared = shared.and_then(|id| module.payloads.get(usize::try_from(id).ok()?));
        let own = payload.and_then(|it| it.value.as_ref());
        let config = own.or(shared).unwrap_or(&it.backend_config);
        match std::str::from_utf8(config) {
            Ok("") => {}
            Ok(text) if text.starts_with('{') => self.put("backend_config", text),
            Ok(text) => self.put("backend_config", quoted(text)),
            // Machine code or the like: nothing to read.
            Err(_) => self.put("backend_config", "\"...\""),
        }
    }
}

/// Not its frames on the stack: those are of the tracer, and the same for all.
fn origin_parts(metadata: &Metadata) -> Vec<String> {
    let mut parts = Vec::new();
    for (name, value) in [
        ("op_type", &metadata.op_type),
        ("op_name", &metadata.op_name),
        ("source_file", &metadata.source_file),
    ] {
        if !value.is_empty() {
            parts.push(format!("{name}={}", quoted(value)));
        }
    }
    if metadata.source_line != 0 {
        parts.push(format!("source_line={}", metadata.source_line));
    }
    parts
}

/// Whether a conditional has a flag in front, and not the number of a branch.
fn chosen_by_flag(it: &Instruction, computation: &Computation) -> bool {
    let first = it.operand_ids.first();
    let chooser = first.and_then(|id| computation.instructions.iter().find(|it| it.id == *id));
    let shape = chooser.and_then(|it| it.shape.as_ref());
    shape.is_none_or(|shape| shape.element_type == PRED)
}

fn groups(groups: &[ReplicaGroup]) -> String {
    let groups: Vec<String> = (groups.iter())
        .map(|group| format!("{{{}}}", List(&group.replica_ids)))
        .collect();
    format!("{{{}}}", List(&groups))
}

/// `<=[2,4]T(1,0)`: numbers counted up, in another order.
fn iota_order(reshape: &[i64], permutation: &[i32]) -> String {
    let order = format!("<=[{}]", List(reshape));
    if permutation.len() > 1
        && permutation
            .iter()
            .enumerate()
            .any(|(at, to)| at as i32 != *to)
    {
        return format!("{order}T({})", List(permutation));
    }
    order
}

fn sharding_text(sharding: &Sharding) -> Option<String> {
    Some(match sharding.kind {
        // A device numbers 0 is left out.
        1 => {
            let device = sharding.tile_assignment_devices.first().unwrap_or(&0);
            format!("{{maximal device={device}}}")
        }
        2 => {
            let parts: Option<Vec<String>> =
                sharding.tuple_shardings.iter().map(sharding_text).collect();
            format!("{{{}}}", parts?.join(", "))
        }
        3 => {
            let order = if sharding.iota_reshape_dims.is_empty() {
                List(&sharding.tile_assignment_devices).to_string()
            } else {
                iota_order(&sharding.iota_reshape_dims, &sharding.iota_transpose_perm)
            };
            let last = if sharding.replicate_on_last_tile_dim {
                " last_tile_dim_replicate"
            } else {
                ""
            };
            let shape = List(&sharding.tile_assignment_dimensions);
            format!("{{devices=[{shape}]{order}{last}}}")
        }
        0 => "{replicated}".into(),
        4 => "{manual}".into(),
        5 => "{unknown}".into(),
        6 => "{unreduced}".into(),
        _ => return None,
    })
}

pub fn frontend(attributes: &FrontendAttributes) -> String {
    let parts: Vec<String> = (attributes.map.iter())
        .map(|(key, value)| {
            if value.starts_with('{') {
                format!("{key}={value}")
            } else {
                format!("{key}={}", quoted(value))
            }
        })
        .collect();
    format!("{{{}}}", List(&parts))
}

/// Text in quotes, in one line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
