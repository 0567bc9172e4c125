//! Shapes as XLA writes them: `f32[4,8]{1,0:T(8,128)}`.

use std::fmt::Write as _;
use std::fmt::{self, Display, Formatter};

use super::proto::{Layout, Shape};

/// `PRED` and so on, by number.
pub const PRED: i32 = 1;
const TUPLE: i32 = 13;

pub fn type_name(number: i32) -> &'static str {
    match number {
        PRED => "pred",
        2 => "s8",
        3 => "s16",
        4 => "s32",
        5 => "s64",
        6 => "u8",
        7 => "u16",
        8 => "u32",
        9 => "u64",
        10 => "f16",
        11 => "f32",
        12 => "f64",
        14 => "opaque",
        15 => "c64",
        16 => "bf16",
        17 => "token",
        18 => "c128",
        19 => "f8e5m2",
        20 => "f8e4m3fn",
        21 => "s4",
        22 => "u4",
        23 => "f8e4m3b11fnuz",
        24 => "f8e5m2fnuz",
        25 => "f8e4m3fnuz",
        26 => "s2",
        27 => "u2",
        28 => "f8e4m3",
        29 => "f8e3m4",
        30 => "s1",
        31 => "u1",
        32 => "f4e2m1fn",
        33 => "f8e8m0fnu",
        34 => "b",
        _ => "unknown",
    }
}

/// Items between commas.
pub struct List<'a, T>(pub &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{item}")?;
        }
        Ok(())
    }
}

/// Items between commas, the sixth, eleventh and so on with their numbers.
pub fn counted(items: &[String]) -> String {
    let mut out = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
            if index % 5 == 0 {
                let _ = write!(out, "/*index={index}*/");
            }
        }
        out.push_str(item);
    }
    out
}

impl Shape {
    /// Number of its elements.
    pub fn elements(&self) -> i64 {
        self.dimensions
            .iter()
            .fold(1, |product: i64, size| product.saturating_mul(*size))
    }

    /// Write it, with how it lies in memory or without.
    pub fn write(&self, out: &mut String, with_layout: bool) {
        if self.element_type == TUPLE {
            let parts = self.tuple_shapes.iter();
            let parts: Vec<String> = parts.map(|it| it.text(with_layout)).collect();
            let _ = write!(out, "({})", counted(&parts));
            return;
        }
        out.push_str(type_name(self.element_type));
        out.push('[');
        for (index, size) in self.dimensions.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let dynamic = self.is_dynamic_dimension.get(index) == Some(&true);
            let _ = match (dynamic, *size) {
                (true, i64::MIN) => write!(out, "{comma}?"),
                (true, size) => write!(out, "{comma}<={size}"),
                (false, size) => write!(out, "{comma}{size}"),
            };
        }
        out.push(']');
        if let (true, Some(layout)) = (with_layout, &self.layout) {
            let layout = layout.to_string();
            if !self.dimensions.is_empty() || layout != "{}" {
                out.push_str(&layout);
            }
        }
    }

    pub fn text(&self, with_layout: bool) -> String {
        let mut out = String::new();
        self.write(&mut out, with_layout);
        out
    }
}

impl Display for Layout {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut details = String::new();
        if !self.tiles.is_empty() {
            details.push('T');
            for tile in &self.tiles {
                // The least number there is stands for dimensions that are taken together.
                let sizes: Vec<String> = (tile.dimensions.iter())
                    .map(|size| match *size {
                        i64::MIN => "*".to_owned(),
                        size => size.to_string(),
                    })
                    .collect();
                let _ = write!(details, "({})", List(&sizes));
            }
        }
        if self.tail_padding_alignment_in_elements > 1 {
            let _ = write!(details, "L({})", self.tail_padding_alignment_in_elements);
        }
        if self.element_size_in_bits != 0 {
            let _ = write!(details, "E({})", self.element_size_in_bits);
        }
        if self.memory_space != 0 {
            let _ = write!(details, "S({})", self.memory_space);
        }
        let colon = if details.is_empty() { "" } else { ":" };
        write!(out, "{{{}{colon}{details}}}", List(&self.minor_to_major))
    }
}
