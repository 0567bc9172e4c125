//! Messages of the Debug Adapter Protocol: what a front end asks, what it is answered, and how
//! messages are framed on a stream.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::request::Request;

/// Far beyond what a debugger says; a length above it is no length.
const LONGEST: usize = 1 << 30;

/// A request of a front end, read.
#[derive(Debug)]
pub struct Asked {
    pub request: Request,
    pub seq: Value,
    pub command: String,
    pub arguments: Value,
}

impl Asked {
    /// None when the content names no command.
    pub fn read(request: Request) -> Result<Self, Request> {
        let Ok(Value::Object(mut content)) = serde_json::from_slice(&request.content) else {
            return Err(request);
        };
        let Some(Value::String(command)) = content.remove("command") else {
            return Err(request);
        };
        let arguments = match content.remove("arguments") {
            Some(arguments @ Value::Object(_)) => arguments,
            _ => json!({}),
        };
        Ok(Self {
            seq: content.remove("seq").unwrap_or(json!(0)),
            request,
            command,
            arguments,
        })
    }

    /// The answer that it went well.
    pub fn success(&self, body: &Value) -> Value {
        json!({
            "type": "response",
            "request_seq": self.seq,
            "success": true,
            "command": self.command,
            "body": body,
        })
    }

    /// The answer that it did not.
    pub fn failure(&self, message: &str) -> Value {
        json!({
            "type": "response",
            "request_seq": self.seq,
            "success": false,
            "command": self.command,
            "message": message,
            "body": {},
        })
    }

    /// The debugger's response as the answer to this request.
    pub fn response(&self, mut response: Value) -> Value {
        response["request_seq"] = self.seq.clone();
        response["command"] = Value::String(self.command.clone());
        // Front ends read it without looking whether it is there.
        if response["body"].is_null() {
            response["body"] = json!({});
        }
        response
    }
}

/// A request for the debugger.
pub fn request(seq: u64, command: &str, arguments: &Value) -> Value {
    json!({"type": "request", "seq": seq, "command": command, "arguments": arguments})
}

/// A message as it goes over a stream.
pub fn encode(message: &Value) -> Bytes {
    let body = message.to_string();
    let mut frame = BytesMut::with_capacity(body.len() + 32);
    frame.put_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    frame.put_slice(body.as_bytes());
    frame.freeze()
}

/// The next message of a stream; None at its end.
pub async fn decode(stream: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Value>> {
    let mut length = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        if stream.read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&line).map_err(io::Error::other)?.trim();
        if text.is_empty() {
            break;
        }
        if let Some((name, value)) = text.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok().filter(|length| *length < LONGEST);
        }
    }
    let Some(length) = length else {
        return Err(io::Error::other("a message has no length"));
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    serde_json::from_slice(&body)
        .map(Some)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut bytes: &[u8]) -> Vec<Result<Option<Value>, String>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut found = Vec::new();
            loop {
                let message = decode(&mut bytes).await.map_err(|error| error.to_string());
                let over = !matches!(message, Ok(Some(_)));
                found.push(message);
                if over {
                    return found;
                }
            }
        })
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (one, two) = (json!({"a": "größe"}), json!({"b": [1, 2]}));
        let bytes = [encode(&one), encode(&two)].concat();
        assert_eq!(read(&bytes), [Ok(Some(one)), Ok(Some(two)), Ok(None)]);
    }

    #[test]
    fn what_has_no_length_ends_the_stream_with_an_error() {
        let fault = || [Err("a message has no length".to_owned())];
        assert_eq!(read(b"Content-Length: x\r\n\r\n{}"), fault());
        assert_eq!(read(b"Content-Length: 99999999999999\r\n\r\n{}"), fault());
        assert_eq!(read(b"\r\n{}"), fault());
        assert!(read(b"Content-Length: 20\r\n\r\n{}")[0].is_err());
    }
}
