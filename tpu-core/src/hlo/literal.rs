//! Numbers that are built into a program: `{ { 1, 0.5 }, { -inf, 1e-05 } }`.

use super::proto::Literal;
use super::shape::PRED;

/// More elements than this are not written out.
const MOST_ELEMENTS: i64 = 10;

/// A constant in one line; `{...}` where it is too large to be read.
pub fn text(literal: &Literal) -> String {
    let Some(shape) = &literal.shape else {
        return "{...}".into();
    };
    let readable = |size: &i64| (0..=MOST_ELEMENTS).contains(size);
    let nothing = shape.elements() == 0 && shape.dimensions.len() > 1;
    if nothing || shape.elements() > MOST_ELEMENTS || !shape.dimensions.iter().all(readable) {
        return "{...}".into();
    }
    let sizes: Vec<usize> = shape.dimensions.iter().map(|size| *size as usize).collect();
    let values = values(literal, shape.element_type, sizes.is_empty());
    if values.len() as i64 != shape.elements() {
        return "{...}".into();
    }
    nested(&sizes, sizes.len(), None, &mut values.into_iter())
}

/// Braces around each dimension: close ones around a list that stands alone or has one element,
/// and from four dimensions on the number of each block.
fn nested(
    sizes: &[usize],
    rank: usize,
    number: Option<usize>,
    values: &mut impl Iterator<Item = String>,
) -> String {
    match sizes {
        [] => values.next().unwrap_or_default(),
        [size] => {
            let row: Vec<String> = values.take(*size).collect();
            let row = row.join(", ");
            if rank == 1 || *size <= 1 {
                format!("{{{row}}}")
            } else {
                format!("{{ {row} }}")
            }
        }
        [size, rest @ ..] => {
            let blocks: Vec<String> = (0..*size)
                .map(|index| nested(rest, rank, Some(index), values))
                .collect();
            let which = match number {
                Some(number) if rank > 3 => format!("/*i{}={number}*/ ", rank - sizes.len() - 1),
                _ => String::new(),
            };
            format!("{{ {which}{} }}", blocks.join(", "))
        }
    }
}

fn values(literal: &Literal, kind: i32, alone: bool) -> Vec<String> {
    fn each<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }
    let pairs = |bytes: &[u8]| -> Vec<u16> {
        bytes
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .collect()
    };
    match kind {
        PRED if alone => each(&literal.preds),
        PRED => literal
            .preds
            .iter()
            .map(|value| u8::from(*value).to_string())
            .collect(),
        2 => (literal.s8s.iter())
            .map(|byte| (*byte as i8).to_string())
            .collect(),
        3 => (pairs(&literal.s16s).iter())
            .map(|bits| (*bits as i16).to_string())
            .collect(),
        4 => each(&literal.s32s),
        5 => each(&literal.s64s),
        6 => each(&literal.u8s),
        7 => each(&pairs(&literal.u16s)),
        8 => each(&literal.u32s),
        9 => each(&literal.u64s),
        10 => (pairs(&literal.f16s).into_iter())
            .map(|bits| general(half(bits), 5))
            .collect(),
        11 => literal.f32s.iter().map(|value| single(*value)).collect(),
        12 => literal.f64s.iter().map(|value| double(*value)).collect(),
        15 => literal
            .c64s
            .chunks_exact(2)
            .map(|parts| format!("({}, {})", single(parts[0]), single(parts[1])))
            .collect(),
        16 => (pairs(&literal.bf16s).into_iter())
            .map(|bits| general(f64::from(f32::from_bits(u32::from(bits) << 16)), 4))
            .collect(),
        _ => Vec::new(),
    }
}

/// Six digits where they are enough to get the number back, else nine.
pub fn single(value: f32) -> String {
    let short = general(f64::from(value), 6);
    match short.parse::<f32>() {
        Ok(again) if again.to_bits() != value.to_bits() => general(f64::from(value), 9),
        _ => short,
    }
}

fn double(value: f64) -> String {
    let short = general(value, 15);
    match short.parse::<f64>() {
        Ok(again) if again.to_bits() != value.to_bits() => general(value, 17),
        _ => short,
    }
}

/// The number in a half-precision float.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// As C's `%.*g`: the shorter of plain and scientific notation, without zeros at the end.
fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| {
        let short = text.trim_end_matches('0').trim_end_matches('.');
        if text.contains('.') { short } else { text }.to_owned()
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_can_be_read_back() {
        let written = [
            1.0,
            -0.0,
            0.1,
            1.0 / 3.0,
            1e-5,
            123_456.0,
            1e6,
            1e10,
            3.4e38,
        ];
        assert_eq!(
            written.map(single),
            [
                "1",
                "-0",
                "0.1",
                "0.333333343",
                "1e-05",
                "123456",
                "1e+06",
                "1e+10",
                "3.4e+38"
            ]
        );
        assert_eq!(single(f32::NEG_INFINITY), "-inf");
        assert_eq!(single(f32::NAN), "nan");
        assert_eq!(double(0.1), "0.1");
        assert_eq!(double(1.0 / 3.0), "0.33333333333333331");
        let halves = [0x3c00, 0xc000, 0x7c00, 1].map(|bits| general(half(bits), 5));
        assert_eq!(halves, ["1", "-2", "inf", "5.9605e-08"]);
    }

    #[test]
    fn each_dimension_has_its_braces() {
        let literal = |sizes: &[i64]| {
            let elements = sizes.iter().product::<i64>();
            text(&Literal {
                shape: Some(super::super::proto::Shape {
                    element_type: 4,
                    dimensions: sizes.to_vec(),
                    ..Default::default()
                }),
                s32s: (0..elements as i32).collect(),
                ..Literal::default()
            })
        };
        assert_eq!(literal(&[]), "0");
        assert_eq!(literal(&[3]), "{0, 1, 2}");
        assert_eq!(literal(&[2, 2]), "{ { 0, 1 }, { 2, 3 } }");
        assert_eq!(literal(&[1, 1, 1]), "{ { {0} } }");
        assert_eq!(
            literal(&[1, 2, 1, 2]),
            "{ { /*i0=0*/ { /*i1=0*/ { 0, 1 } }, { /*i1=1*/ { 2, 3 } } } }"
        );
        assert_eq!(literal(&[11]), "{...}");
        assert_eq!(literal(&[0]), "{}");
        assert_eq!(literal(&[1 << 40, 0]), "{...}");
        assert_eq!(literal(&[-1, -1]), "{...}");
    }
}
