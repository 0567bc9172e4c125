//! Windows, paddings, slices and the names of a convolution's dimensions.

use super::proto::WindowDimension;
use super::proto::{ConvolutionDimensions, OperandAlias, Padding, SliceDimensions, Window};
use super::shape::List;
use std::fmt::Write as _;

/// `{size=3x3 stride=2x2 pad=1_1x1_1}`: only what is not as usual.
pub fn window(window: &Window) -> String {
    let sides = window.dimensions.as_slice();
    let each = |write: fn(&WindowDimension) -> String| -> String {
        let parts: Vec<String> = sides.iter().map(write).collect();
        parts.join("x")
    };
    let mut out = format!("{{size={}", each(|it| it.size.to_string()));
    if sides.iter().any(|it| it.stride != 1) {
        let _ = write!(out, " stride={}", each(|it| it.stride.to_string()));
    }
    if sides
        .iter()
        .any(|it| (it.padding_low, it.padding_high) != (0, 0))
    {
        let _ = write!(
            out,
            " pad={}",
            each(|it| format!("{}_{}", it.padding_low, it.padding_high))
        );
    }
    if sides.iter().any(|it| it.base_dilation != 1) {
        let _ = write!(
            out,
            " lhs_dilate={}",
            each(|it| it.base_dilation.to_string())
        );
    }
    if sides.iter().any(|it| it.window_dilation != 1) {
        let _ = write!(
            out,
            " rhs_dilate={}",
            each(|it| it.window_dilation.to_string())
        );
    }
    if sides.iter().any(|it| it.window_reversal) {
        let _ = write!(
            out,
            " rhs_reversal={}",
            each(|it| u8::from(it.window_reversal).to_string())
        );
    }
    out + "}"
}

/// `1_1x0_2`, before and behind; a third number where something goes between elements.
pub fn padding(padding: &Padding) -> String {
    let between = padding.dimensions.iter().any(|it| it.interior_padding != 0);
    let parts: Vec<String> = (padding.dimensions.iter())
        .map(|it| {
            let edges = format!("{}_{}", it.edge_padding_low, it.edge_padding_high);
            if between {
                format!("{edges}_{}", it.interior_padding)
            } else {
                edges
            }
        })
        .collect();
    parts.join("x")
}

/// `{[0:4], [1:7:2]}`.
pub fn slice(sides: &[SliceDimensions]) -> String {
    let strided = sides.iter().any(|it| it.stride != 1);
    let parts: Vec<String> = (sides.iter())
        .map(|it| {
            if strided {
                format!("[{}:{}:{}]", it.start, it.limit, it.stride)
            } else {
                format!("[{}:{}]", it.start, it.limit)
            }
        })
        .collect();
    format!("{{{}}}", parts.join(", "))
}

/// `bf01_oi01->bf01`: what each dimension of input, kernel and output is.
pub fn labels(numbers: &ConvolutionDimensions) -> String {
    let part = |named: [(i64, char); 2], spatial: &[i64]| -> String {
        let mut letters = vec!["?".to_owned(); spatial.len() + 2];
        let counted = spatial.iter().enumerate();
        let counted = counted.map(|(number, at)| (*at, number.to_string()));
        for (at, letter) in named
            .map(|(at, letter)| (at, letter.to_string()))
            .into_iter()
            .chain(counted)
        {
            if let Some(place) = usize::try_from(at).ok().and_then(|at| letters.get_mut(at)) {
                *place = letter;
            }
        }
        letters.concat()
    };
    let input = [
        (numbers.input_batch_dimension, 'b'),
        (numbers.input_feature_dimension, 'f'),
    ];
    let kernel = [
        (numbers.kernel_input_feature_dimension, 'i'),
        (numbers.kernel_output_feature_dimension, 'o'),
    ];
    let output = [
        (numbers.output_batch_dimension, 'b'),
        (numbers.output_feature_dimension, 'f'),
    ];
    format!(
        "{}_{}->{}",
        part(input, &numbers.input_spatial_dimensions),
        part(kernel, &numbers.kernel_spatial_dimensions),
        part(output, &numbers.output_spatial_dimensions),
    )
}

/// `{0}: (1, {})`: which part of the result lies in which operand.
pub fn aliases(aliases: &[OperandAlias]) -> Vec<String> {
    (aliases.iter())
        .map(|it| {
            format!(
                "{{{}}}: ({}, {{{}}})",
                List(&it.output_shape_index),
                it.operand_index,
                List(&it.operand_shape_index)
            )
        })
        .collect()
}
