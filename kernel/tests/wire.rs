//! Messages on the wire, as a front end makes them and as it may spoil them.

use bytes::Bytes;
use tpu_kernel::wire::{EMPTY_OBJECT, Part, PartError, Wire, WireError};

const KEY: &str = "a0436f6c-1916-498b-8eb9-e81ab9368e84";

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn frames(texts: &[&'static str]) -> Vec<Bytes> {
    texts.iter().copied().map(bytes).collect()
}

/// As `printf '%s' "$header{}{}{\"code\":\"1\"}" | openssl dgst -sha256 -hmac "$KEY"` signs it.
const HEADER: &str =
    r#"{"msg_id": "m-1", "msg_type": "execute_request", "subshell_id": "s1", "new": [1.0]}"#;
const SIGNATURE: &str = "15bbdf7d9c5395d8394d08df350851c4e9604faec49e5fcce1933ee06f9f0eed";

fn signed() -> Vec<Bytes> {
    frames(&[
        "id1",
        "id2",
        "<IDS|MSG>",
        SIGNATURE,
        HEADER,
        "{}",
        "{}",
        r#"{"code":"1"}"#,
        "buffer",
    ])
}

#[test]
fn a_signed_request_is_read_and_its_header_kept_byte_for_byte() {
    let message = Wire::new(KEY, "kernel").decode(signed()).unwrap();
    assert_eq!(message.identities, ["id1", "id2"]);
    assert_eq!(message.header.msg_id, "m-1");
    assert_eq!(message.header.msg_type, "execute_request");
    assert_eq!(message.header.subshell_id.as_deref(), Some("s1"));
    assert_eq!(message.header.raw, HEADER);
    assert_eq!(message.parent_header, "{}");
    assert_eq!(message.metadata, "{}");
    assert_eq!(message.content, r#"{"code":"1"}"#);
    assert_eq!(message.buffers, ["buffer"]);
}

#[test]
fn what_was_changed_after_it_was_signed_is_refused() {
    let wire = Wire::new(KEY, "kernel");
    for index in 4..8 {
        let mut changed = signed();
        changed[index] = bytes("{ }");
        assert_eq!(wire.decode(changed), Err(WireError::SignatureWrong));
    }
    for signature in ["", "00", "zz", "é", "<IDS|MSG>"] {
        let mut changed = signed();
        changed[3] = bytes(signature);
        assert_eq!(wire.decode(changed), Err(WireError::SignatureMalformed));
    }
    assert_eq!(
        Wire::new("another key", "kernel").decode(signed()),
        Err(WireError::SignatureWrong)
    );
    // Buffers are not signed, by the protocol, and none of the refused has used up the signature.
    let mut other_buffer = signed();
    other_buffer[8] = bytes("another");
    assert!(wire.decode(other_buffer).is_ok());
}

#[test]
fn a_message_sent_again_is_refused() {
    let wire = Wire::new(KEY, "kernel");
    assert!(wire.decode(signed()).is_ok());
    assert_eq!(wire.decode(signed()), Err(WireError::Replayed));
    let mut as_another = signed();
    as_another[0] = bytes("id9");
    assert_eq!(wire.decode(as_another), Err(WireError::Replayed));
}

#[test]
fn frames_that_are_no_message_are_refused() {
    let wire = Wire::new("", "kernel");
    let decode = |texts: &[&'static str]| wire.decode(frames(texts)).map(|_| ());
    assert_eq!(decode(&[]), Err(WireError::NoDelimiter));
    assert_eq!(decode(&["id", "", HEADER]), Err(WireError::NoDelimiter));
    assert_eq!(decode(&["<IDS|MSG>"]), Err(WireError::TooFewFrames(0)));
    assert_eq!(
        decode(&["<IDS|MSG>", "", HEADER, "{}", "{}"]),
        Err(WireError::TooFewFrames(4))
    );
    assert_eq!(
        decode(&["<IDS|MSG>", "", "[]", "", "", ""]),
        Err(WireError::HeaderMalformed)
    );
    assert_eq!(
        decode(&["<IDS|MSG>", "", r#"{"msg_id":"1"}"#, "", "", ""]),
        Err(WireError::HeaderIncomplete("msg_type"))
    );
}

#[test]
fn a_request_whose_other_parts_make_no_sense_can_still_be_answered() {
    let wire = Wire::new("", "kernel");
    let message = wire
        .decode(frames(&[
            "id",
            "<IDS|MSG>",
            "",
            HEADER,
            "oops",
            "{\"a\": NaN}",
            "[1]",
        ]))
        .unwrap();
    assert_eq!(message.header.msg_id, "m-1");
    for part in [Part::ParentHeader, Part::Metadata, Part::Content] {
        assert!(matches!(
            message.object(part),
            Err(PartError::NotObject { .. })
        ));
    }
    let raw = &message.header.raw;
    let reply = wire.encode(
        &message.identities,
        "execute_reply",
        raw,
        &EMPTY_OBJECT,
        &bytes(r#"{"status":"error"}"#),
        &[],
    );
    assert_eq!(reply[..2], ["id", "<IDS|MSG>"]);
    assert_eq!(reply[4], HEADER);
}

#[test]
fn without_a_key_nothing_is_signed_and_nothing_is_a_replay() {
    let wire = Wire::new("", "kernel");
    let sent = wire.encode(
        &[],
        "status",
        &EMPTY_OBJECT,
        &EMPTY_OBJECT,
        &EMPTY_OBJECT,
        &[],
    );
    assert_eq!(sent[..2], ["<IDS|MSG>", ""]);
    assert!(wire.decode(sent.clone()).is_ok());
    assert!(wire.decode(sent).is_ok());
}

#[test]
fn what_is_encoded_is_decoded() {
    let (kernel, front_end) = (Wire::new(KEY, "session-k"), Wire::new(KEY, "session-f"));
    let buffers = [bytes("b1"), Bytes::from(vec![0xff; 100_000])];
    let content = bytes(r#"{"text":"é"}"#);
    let parent = bytes(HEADER);
    let metadata = bytes(r#"{"m":1}"#);
    let sent = kernel.encode(
        &[bytes("topic")],
        "stream",
        &parent,
        &metadata,
        &content,
        &buffers,
    );
    assert_eq!(sent[2].len(), 64);
    let message = front_end.decode(sent).unwrap();
    assert_eq!(message.identities, ["topic"]);
    assert_eq!(message.header.msg_type, "stream");
    assert_eq!(message.header.session.as_deref(), Some("session-k"));
    assert_eq!(message.header.version.as_deref(), Some("5.5"));
    assert_eq!(message.parent_header, HEADER);
    assert_eq!(message.metadata, metadata);
    assert_eq!(message.content, content);
    assert_eq!(message.buffers, buffers);
    let question = kernel.encode_as("my-id", "input_request", &parent, &content);
    assert_eq!(front_end.decode(question).unwrap().header.msg_id, "my-id");
}
