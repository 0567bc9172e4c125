//! Message headers: those that arrive, read tolerantly and kept byte for byte, and those made here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;

use super::WireError;
use super::date::now;
use super::text::LossyString;
use crate::PROTOCOL_VERSION;

/// A header that arrived. What is missing, `null` or of another type is `None`; only the identity and
/// the type of the message are needed to answer it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Unique to the message.
    pub msg_id: String,
    /// Such as `execute_request`.
    pub msg_type: String,
    /// The front end's session.
    pub session: Option<String>,
    /// The front end's user.
    pub username: Option<String>,
    /// The protocol version of the front end.
    pub version: Option<String>,
    /// When the front end says it sent the message.
    pub date: Option<String>,
    /// The subshell the request is for (JEP 91); `None` is the main one.
    pub subshell_id: Option<String>,
    /// The header as it came: the `parent_header` of everything that answers it.
    pub raw: Bytes,
}

impl Header {
    /// Reads a header frame.
    pub fn parse(raw: Bytes) -> Result<Self, WireError> {
        // Python encodes with `surrogateescape`: bytes that are not UTF-8 do occur.
        let text = String::from_utf8_lossy(&raw);
        let mut fields: BTreeMap<LossyString, &RawValue> =
            serde_json::from_str(&text).map_err(|_| WireError::HeaderMalformed)?;
        let mut take = |name: &str| {
            let value = fields.remove(&LossyString(name.to_owned()))?;
            serde_json::from_str::<LossyString>(value.get())
                .ok()
                .map(|text| text.0)
        };
        let msg_id = take("msg_id").ok_or(WireError::HeaderIncomplete("msg_id"))?;
        let msg_type = take("msg_type").ok_or(WireError::HeaderIncomplete("msg_type"))?;
        let (session, username) = (take("session"), take("username"));
        let (version, date, subshell_id) = (take("version"), take("date"), take("subshell_id"));
        // It goes out to every front end, and others do not decode what is not UTF-8.
        let raw = match text {
            Cow::Borrowed(_) => raw,
            Cow::Owned(text) => text.into(),
        };
        Ok(Self {
            msg_id,
            msg_type,
            session,
            username,
            version,
            date,
            subshell_id,
            raw,
        })
    }
}

/// Makes the headers of one kernel session; may be shared by threads.
#[derive(Debug)]
pub(crate) struct HeaderFactory {
    session: String,
    username: String,
    count: AtomicU64,
}

#[derive(Serialize)]
struct Fields<'a> {
    msg_id: &'a str,
    msg_type: &'a str,
    username: &'a str,
    session: &'a str,
    date: &'a str,
    version: &'a str,
}

impl HeaderFactory {
    /// Headers of `session` in the name of `username`.
    pub(crate) fn new(session: &str, username: &str) -> Self {
        let (session, username) = (session.to_owned(), username.to_owned());
        Self {
            session,
            username,
            count: AtomicU64::new(0),
        }
    }

    /// A new header of type `msg_type`, dated now.
    pub(crate) fn compose(&self, msg_type: &str) -> Bytes {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let msg_id = format!("{}_{count}", self.session);
        self.compose_as(&msg_id, msg_type)
    }

    /// A header with the given id, which the caller keeps unique.
    pub(crate) fn compose_as(&self, msg_id: &str, msg_type: &str) -> Bytes {
        let fields = Fields {
            msg_id,
            msg_type,
            username: &self.username,
            session: &self.session,
            date: &now(),
            version: PROTOCOL_VERSION,
        };
        // Strings always serialise.
        serde_json::to_vec(&fields).unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &'static str) -> Result<Header, WireError> {
        Header::parse(Bytes::from_static(json.as_bytes()))
    }

    #[test]
    fn unknown_fields_and_formatting_survive_in_raw() {
        let json = r#"{ "msg_id":"1","x":[1.50, {"y":null}], "msg_type":"t", "subshell_id":"s" }"#;
        let header = parse(json).unwrap();
        assert_eq!(header.raw, json);
        assert_eq!(header.msg_id, "1");
        assert_eq!(header.msg_type, "t");
        assert_eq!(header.subshell_id.as_deref(), Some("s"));
        assert_eq!(header.session, None);
    }

    #[test]
    fn null_missing_and_mistyped_fields_are_none() {
        let header = parse(
            r#"{"msg_id":"1","msg_type":"t","username":null,"session":7,"version":{},"date":[]}"#,
        )
        .unwrap();
        assert_eq!(header.username, None);
        assert_eq!(header.session, None);
        assert_eq!(header.version, None);
        assert_eq!(header.date, None);
    }

    #[test]
    fn lone_surrogates_repeated_keys_and_bad_utf8_do_not_make_it_unreadable() {
        let header = parse(
            r#"{"msg_id":"1","msg_type":"t","username":"\ud800u","msg_id":"2","\ud801":"\udfff"}"#,
        )
        .unwrap();
        assert_eq!(header.username.as_deref(), Some("\u{fffd}u"));
        assert_eq!(header.msg_id, "2");
        let raw = b"{\"msg_id\":\"1\",\"msg_type\":\"t\",\"username\":\"\xe9\"}";
        let header = Header::parse(Bytes::from_static(raw)).unwrap();
        assert_eq!(header.username.as_deref(), Some("\u{fffd}"));
        assert_eq!(
            header.raw,
            "{\"msg_id\":\"1\",\"msg_type\":\"t\",\"username\":\"\u{fffd}\"}"
        );
    }

    #[test]
    fn without_id_or_type_there_is_nothing_to_answer() {
        assert_eq!(
            parse(r#"{"msg_type":"t"}"#),
            Err(WireError::HeaderIncomplete("msg_id"))
        );
        assert_eq!(
            parse(r#"{"msg_id":"1","msg_type":null}"#),
            Err(WireError::HeaderIncomplete("msg_type"))
        );
        for json in [
            "",
            "{",
            "[]",
            "null",
            "\"x\"",
            "{\"msg_id\":\"1\",\"msg_type\":\"t\"}x",
        ] {
            assert_eq!(parse(json), Err(WireError::HeaderMalformed), "{json}");
        }
    }

    #[test]
    fn made_headers_are_read_again() {
        let factory = HeaderFactory::new("session-1", "ada \"l\"");
        let (first, second) = (factory.compose("status"), factory.compose("stream"));
        let (first, header) = (
            Header::parse(first).unwrap(),
            Header::parse(second).unwrap(),
        );
        assert_ne!(first.msg_id, header.msg_id);
        assert_eq!(header.msg_type, "stream");
        assert_eq!(header.username.as_deref(), Some("ada \"l\""));
        assert_eq!(header.session.as_deref(), Some("session-1"));
        assert_eq!(header.version.as_deref(), Some("5.5"));
        assert_eq!(header.date.unwrap().len(), 27);
    }
}
