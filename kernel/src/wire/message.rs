//! A message that arrived, its parts still the bytes they were.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::header::Header;

/// Which part of a message is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    ParentHeader,
    Metadata,
    Content,
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ParentHeader => "parent header",
            Self::Metadata => "metadata",
            Self::Content => "content",
        })
    }
}

/// A part that is not what it should be. The message can still be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Not UTF-8.
    #[error("the message's {0} is not UTF-8")]
    NotUtf8(Part),
    /// Not one JSON object, or not of the expected shape.
    #[error("the message's {part} is not what it must be: {problem}")]
    NotObject { part: Part, problem: String },
}

/// A verified message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Frames before the delimiter: what the reply must begin with.
    pub identities: Vec<Bytes>,
    pub header: Header,
    pub parent_header: Bytes,
    pub metadata: Bytes,
    pub content: Bytes,
    pub buffers: Vec<Bytes>,
}

impl Message {
    /// The text of a part, once it is known to be one JSON object.
    pub fn object(&self, part: Part) -> Result<&str, PartError> {
        let bytes = self.part(part);
        let text = std::str::from_utf8(bytes).map_err(|_| PartError::NotUtf8(part))?;
        serde_json::from_str::<AnyObject>(text).map_err(|error| PartError::NotObject {
            part,
            problem: error.to_string(),
        })?;
        Ok(text)
    }

    /// Reads a part as `T`. Strings that may hold lone surrogates are read as
    /// [`LossyString`](super::LossyString).
    pub fn parse<'a, T: Deserialize<'a>>(&'a self, part: Part) -> Result<T, PartError> {
        let text = self.object(part)?;
        serde_json::from_str(text).map_err(|error| PartError::NotObject {
            part,
            problem: error.to_string(),
        })
    }

    fn part(&self, part: Part) -> &[u8] {
        match part {
            Part::ParentHeader => &self.parent_header,
            Part::Metadata => &self.metadata,
            Part::Content => &self.content,
        }
    }
}

/// Any JSON object, looked through and not kept.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = AnyObject;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyObject, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(AnyObject)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::LossyString;

    fn message(content: &'static [u8]) -> Message {
        let header = br#"{"msg_id":"1","msg_type":"t"}"#;
        Message {
            identities: Vec::new(),
            header: Header::parse(Bytes::from_static(header)).unwrap(),
            parent_header: Bytes::from_static(b"{}"),
            metadata: Bytes::from_static(b"{\"a\":NaN}"),
            content: Bytes::from_static(content),
            buffers: Vec::new(),
        }
    }

    #[test]
    fn an_object_is_given_as_it_is() {
        let text = r#" {"code":"\ud800", "a":[{},1e400]} "#;
        assert_eq!(message(text.as_bytes()).object(Part::Content), Ok(text));
        assert_eq!(message(b"{}").object(Part::ParentHeader), Ok("{}"));
    }

    #[test]
    fn what_is_no_object_is_an_error_of_that_part_only() {
        for bad in [
            &b""[..],
            b"[]",
            b"3",
            b"{",
            b"{}{}",
            b"{\"a\":}",
            b"{\"a\":NaN}",
        ] {
            let error = message(bad).object(Part::Content).unwrap_err();
            assert!(
                matches!(
                    error,
                    PartError::NotObject {
                        part: Part::Content,
                        ..
                    }
                ),
                "{bad:?}"
            );
        }
        assert_eq!(
            message(b"{\"a\":\"\xff\"}").object(Part::Content),
            Err(PartError::NotUtf8(Part::Content))
        );
        assert!(message(b"{}").object(Part::Metadata).is_err());
        assert!(message(b"{}").object(Part::Content).is_ok());
    }

    #[test]
    fn nesting_without_end_is_no_danger() {
        let deep = [
            b"{\"a\":".repeat(100_000),
            b"1".to_vec(),
            b"}".repeat(100_000),
        ]
        .concat();
        assert!(message(deep.leak()).object(Part::Content).is_ok());
    }

    #[test]
    fn a_part_is_read_as_a_type() {
        #[derive(Deserialize)]
        struct Code {
            code: LossyString,
        }
        let message = message(br#"{"code":"a\udc00b","more":1}"#);
        let code: Code = message.parse(Part::Content).unwrap();
        assert_eq!(code.code.0, "a\u{fffd}b");
    }
}
