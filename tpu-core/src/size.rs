//! Bytes as people read them.

/// With two decimals, in the largest unit that fits: `1.50 GiB`.
pub fn readable(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_largest_unit_that_fits() {
        assert_eq!(
            [0, 1023, 1024, 300 << 20, 3 << 29, 5 << 50].map(readable),
            [
                "0 bytes",
                "1023 bytes",
                "1.00 KiB",
                "300.00 MiB",
                "1.50 GiB",
                "5120.00 TiB"
            ]
        );
    }
}
