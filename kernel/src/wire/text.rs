//! JSON strings as Python writes them: with lone surrogates, which no Rust string can hold.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A string in which what is not Unicode (an escape like `\ud800` alone) became U+FFFD.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LossyString(pub String);

impl<'de> Deserialize<'de> for LossyString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As bytes, because only so does serde_json let a lone surrogate pass.
        deserializer.deserialize_bytes(LossyVisitor)
    }
}

struct LossyVisitor;

impl Visitor<'_> for LossyVisitor {
    type Value = LossyString;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LossyString, E> {
        Ok(LossyString(text.to_owned()))
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<LossyString, E> {
        Ok(LossyString(decode(bytes)))
    }
}

/// Decodes UTF-8 in which a surrogate may stand encoded in three bytes; one U+FFFD for each.
fn decode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, invalid) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push(char::REPLACEMENT_CHARACTER);
                let skip = match invalid {
                    [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] => 3,
                    _ => error.error_len().unwrap_or(invalid.len()),
                };
                rest = &invalid[skip..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> String {
        serde_json::from_str::<LossyString>(json).unwrap().0
    }

    #[test]
    fn a_lone_surrogate_becomes_one_replacement_character() {
        assert_eq!(parse(r#""a\ud800b""#), "a\u{fffd}b");
        assert_eq!(parse(r#""\udc80""#), "\u{fffd}");
        assert_eq!(parse(r#""\ud800\ud800x""#), "\u{fffd}\u{fffd}x");
    }

    #[test]
    fn everything_else_is_kept() {
        assert_eq!(parse(r#""\ud83d\ude00 é\n\u0041""#), "😀 é\nA");
        assert_eq!(parse(r#""""#), "");
    }

    #[test]
    fn other_types_are_no_strings() {
        for json in ["1", "null", "[97]", "{}"] {
            assert!(serde_json::from_str::<LossyString>(json).is_err(), "{json}");
        }
    }
}
