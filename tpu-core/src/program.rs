//! Program and option bytes: what can be read and must be changed without understanding them all.

/// Field of the compile options that carries per-platform overrides.
const OVERRIDES_FIELD: u64 = 7;

/// 64-bit FNV-1a: stable across builds, short enough for a table.
#[derive(Clone, Copy)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    }

    pub fn number(&mut self, value: u64) {
        self.add(&value.to_le_bytes());
    }

    /// Bytes and their number, so that what follows does not run into them.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.add(bytes);
    }

    pub fn finish(self) -> u64 {
        self.0
    }
}

/// Hash of `bytes` alone.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hash = Hash::default();
    hash.add(bytes);
    hash.finish()
}

/// Where the compile options have a map: field of the options, of the build options in it, of the
/// debug options in that. A map's entries are written in any order, each time another.
const MAP: [u64; 3] = [3, 3, 357];

/// Hash of compile options, the same for the same options.
pub fn options_hash(options: &[u8]) -> u64 {
    let mut hash = Hash::default();
    add_options(options, &MAP, &mut hash);
    hash.finish()
}

fn add_options(options: &[u8], map: &[u64], hash: &mut Hash) {
    let mut entries = Vec::new();
    let mut rest = options;
    while !rest.is_empty() {
        let Some((field, size)) = next_field(rest) else {
            return hash.bytes(rest);
        };
        let (whole, behind) = rest.split_at(size);
        rest = behind;
        match map {
            [last] if field == *last => entries.push(whole),
            [next, inner @ ..] if field == *next && !inner.is_empty() => {
                add_options(content(whole), inner, hash);
            }
            _ => hash.bytes(whole),
        }
    }
    entries.sort_unstable();
    for entry in entries {
        hash.bytes(entry);
    }
}

/// What is inside a field that holds a message.
fn content(field: &[u8]) -> &[u8] {
    let start = varint(field).map_or(0, |(_, used)| used);
    let size = varint(&field[start..]).map_or(0, |(_, used)| used);
    &field[start + size..]
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
const SEAL: [u8; 8] = *b"tpucore3";
const SEAL_BYTES: usize = 24;

/// A serialised program with a header that says who made it and that it is whole, and a note about
/// what it was made from.
///
/// Caches know programs by what they compute, not by which plug-in compiled them, and machine code
/// of one CPU plug-in run by another gives wrong numbers.
pub fn seal(code: &[u8], note: &[u8], maker: u64) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(SEAL_BYTES + 8 + note.len() + code.len());
    sealed.extend_from_slice(&SEAL);
    sealed.extend_from_slice(&maker.to_le_bytes());
    sealed.extend_from_slice(&[0; 8]);
    sealed.extend_from_slice(&(note.len() as u64).to_le_bytes());
    sealed.extend_from_slice(note);
    sealed.extend_from_slice(code);
    let whole = hash(&sealed[SEAL_BYTES..]);
    sealed[SEAL_BYTES - 8..SEAL_BYTES].copy_from_slice(&whole.to_le_bytes());
    sealed
}

/// The serialised program inside and its note, when `maker` made it and nothing of it is lost.
pub fn unseal(sealed: &[u8], maker: u64) -> Option<(&[u8], &[u8])> {
    let (header, rest) = sealed.split_at_checked(SEAL_BYTES)?;
    let expected = [SEAL, maker.to_le_bytes(), hash(rest).to_le_bytes()].concat();
    let (size, rest) = rest.split_first_chunk()?;
    let (note, code) = rest.split_at_checked(u64::from_le_bytes(*size) as usize)?;
    (header == expected).then_some((code, note))
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
    fn the_order_of_a_map_is_no_other_option() {
        let field = |number: u64, content: &[u8]| {
            let mut bytes = Vec::new();
            let mut tag = number << 3 | 2;
            while tag >= 0x80 {
                bytes.push(tag as u8 | 0x80);
                tag >>= 7;
            }
            bytes.push(tag as u8);
            bytes.push(content.len() as u8);
            bytes.extend_from_slice(content);
            bytes
        };
        let options = |entries: [&[u8]; 2], other: u64| {
            let map = entries.map(|entry| field(357, entry)).concat();
            let debug = [field(2, b"level"), map].concat();
            field(3, &[field(other, b"x"), field(3, &debug)].concat())
        };
        let hash = |entries, other| options_hash(&options(entries, other));
        assert_eq!(hash([b"a", b"b"], 1), hash([b"b", b"a"], 1));
        assert_ne!(hash([b"a", b"b"], 1), hash([b"a", b"c"], 1));
        assert_ne!(hash([b"a", b"b"], 1), hash([b"a", b"b"], 2));
        assert_ne!(options_hash(b"\xff"), options_hash(b"\xfe"));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_sealed_program_opens_only_whole_and_for_its_maker() {
        let sealed = seal(b"code", b"note", 7);
        assert_eq!(unseal(&sealed, 7), Some((&b"code"[..], &b"note"[..])));
        assert_eq!(unseal(&sealed, 8), None);
        assert_eq!(unseal(&sealed[..sealed.len() - 1], 7), None);
        assert_eq!(unseal(b"code", 7), None);
    }
}
