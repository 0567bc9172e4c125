//! Program and option bytes: what can be read and must be changed without understanding them all.

/// Field of the compile options that carries per-platform overrides.
const OVERRIDES_FIELD: u64 = 7;

/// 64-bit FNV-1a of `bytes`: stable across builds, short enough for a table.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Compile options without their per-platform overrides, which name options that only libtpu has.
/// Bytes that are not a well-formed message come back unchanged, for the compiler to judge.
pub fn without_overrides(options: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(options.len());
    let mut rest = options;
    while !rest.is_empty() {
        let Some((field, size)) = next_field(rest) else {
            return options.to_vec();
        };
        if field != OVERRIDES_FIELD {
            kept.extend_from_slice(&rest[..size]);
        }
        rest = &rest[size..];
    }
    kept
}

/// Number and whole size of the field at the start of a protocol buffer message.
fn next_field(bytes: &[u8]) -> Option<(u64, usize)> {
    let (tag, start) = varint(bytes)?;
    let size = match tag & 7 {
        0 => start + varint(&bytes[start..])?.1,
        1 => start.checked_add(8)?,
        2 => {
            let (length, used) = varint(&bytes[start..])?;
            (start + used).checked_add(usize::try_from(length).ok()?)?
        }
        5 => start.checked_add(4)?,
        _ => return None,
    };
    (size <= bytes.len()).then_some((tag >> 3, size))
}

/// A variable-length integer and the bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// The name of the module in program bytes, found without parsing them: tracers call it `jit_f` or
/// `tt_jit_mm`, and it stands there as it is, whatever the encoding.
pub fn name(code: &[u8]) -> Option<&str> {
    const MARK: &[u8] = b"jit_";
    const LONGEST: usize = 80;
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    let at = code.windows(MARK.len()).position(|bytes| bytes == MARK)?;
    let before = code[..at]
        .iter()
        .rev()
        .take(LONGEST)
        .take_while(|b| part(b));
    let start = at - before.count();
    let length = code[start..].iter().take(LONGEST).take_while(|b| part(b));
    std::str::from_utf8(&code[start..start + length.count()]).ok()
}

/// What a sealed program begins with.
const SEAL: [u8; 8] = *b"tpucore2";
const SEAL_BYTES: usize = 24;

/// A serialised program with a header that says who made it and that it is whole.
///
/// Caches know programs by what they compute, not by which plug-in compiled them, and machine code
/// of one CPU plug-in run by another gives wrong numbers.
pub fn seal(code: &[u8], maker: u64) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(SEAL_BYTES + code.len());
    sealed.extend_from_slice(&SEAL);
    sealed.extend_from_slice(&maker.to_le_bytes());
    sealed.extend_from_slice(&hash(code).to_le_bytes());
    sealed.extend_from_slice(code);
    sealed
}

/// The serialised program inside, when `maker` made it and nothing of it is lost.
pub fn unseal(sealed: &[u8], maker: u64) -> Option<&[u8]> {
    let (header, code) = sealed.split_at_checked(SEAL_BYTES)?;
    let expected = [SEAL, maker.to_le_bytes(), hash(code).to_le_bytes()].concat();
    (header == expected).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field 3 of 2 bytes, field 7 of 3 bytes, field 4 as an integer.
    const OPTIONS: &[u8] = &[0x1a, 2, 9, 9, 0x3a, 3, 1, 2, 3, 0x20, 0x96, 0x01];

    #[test]
    fn the_name_of_a_program_is_found_in_its_bytes() {
        assert_eq!(name(b"ML\xefR\x01\0tt_jit_mm\0main\0"), Some("tt_jit_mm"));
        assert_eq!(name(b"module @jit_f attributes {}"), Some("jit_f"));
        assert_eq!(
            name(b"\0tt_jit__input-4__L4C0_f\0"),
            Some("tt_jit__input-4__L4C0_f")
        );
        assert_eq!(name(b"module @main {}"), None);
        assert_eq!(name(&b"x".repeat(10_000)), None);
    }

    #[test]
    fn only_the_overrides_are_left_out() {
        assert_eq!(
            without_overrides(OPTIONS),
            [0x1a, 2, 9, 9, 0x20, 0x96, 0x01]
        );
    }

    #[test]
    fn every_override_is_left_out() {
        let twice = [OPTIONS, OPTIONS].concat();
        assert_eq!(without_overrides(&twice).len(), 14);
    }

    #[test]
    fn malformed_options_come_back_as_they_were() {
        for bad in [
            &[0x3a, 200][..],
            &[0x3a][..],
            &[0x3b, 1][..],
            &[0xff; 12][..],
            &[0x3a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f][..],
        ] {
            assert_eq!(without_overrides(bad), bad);
        }
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_sealed_program_opens_only_whole_and_for_its_maker() {
        let sealed = seal(b"code", 7);
        assert_eq!(unseal(&sealed, 7), Some(&b"code"[..]));
        assert_eq!(unseal(&sealed, 8), None);
        assert_eq!(unseal(&sealed[..sealed.len() - 1], 7), None);
        assert_eq!(unseal(b"code", 7), None);
    }
}
