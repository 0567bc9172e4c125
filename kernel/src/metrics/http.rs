//! One request, one answer, and the connection is closed. What a peer can make grow is bounded here,
//! its time by the caller.

use std::io;

use subtle::ConstantTimeEq;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Longest head of a request.
const HEAD_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    more: &'static str,
    body: String,
}

impl Answer {
    fn refuse(status: &'static str, more: &'static str) -> Self {
        let words = status.split_once(' ').map_or("", |(_, words)| words);
        Self {
            status,
            more,
            body: format!("{words}\n"),
        }
    }
}

/// Read a request from `stream` and answer it; `metrics` is asked for only by who has the token.
pub async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    token: &str,
    metrics: impl FnOnce() -> String,
) -> io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    while !ends(&head) && head.len() < HEAD_BYTES {
        let room = (HEAD_BYTES - head.len()) as u64;
        if (&mut stream)
            .take(room.min(1024))
            .read_buf(&mut head)
            .await?
            == 0
        {
            return Ok(());
        }
    }
    let answer = decide(&head, token, metrics);
    let text = format!(
        "HTTP/1.1 {}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{}Connection: close\r\n\r\n{}",
        answer.status,
        answer.body.len(),
        answer.more,
        answer.body
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|four| four == b"\r\n\r\n")
}

fn decide(head: &[u8], token: &str, metrics: impl FnOnce() -> String) -> Answer {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => {
            return Answer::refuse("431 Request Header Fields Too Large", "");
        }
        Err(_) => return Answer::refuse("400 Bad Request", ""),
    }
    let allowed = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("authorization"))
        .any(|header| is_bearer(header.value, token));
    if !allowed {
        return Answer::refuse("401 Unauthorized", "WWW-Authenticate: Bearer\r\n");
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Answer::refuse("404 Not Found", "");
    }
    if request.method != Some("GET") {
        return Answer::refuse("405 Method Not Allowed", "Allow: GET\r\n");
    }
    Answer {
        status: "200 OK",
        more: "",
        body: metrics(),
    }
}

fn is_bearer(value: &[u8], token: &str) -> bool {
    let Some((scheme, given)) = value.split_at_checked(7) else {
        return false;
    };
    scheme.eq_ignore_ascii_case(b"bearer ")
        && bool::from(given.trim_ascii().ct_eq(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> &'static str {
        decide(head.as_bytes(), "secret", || "numbers".to_owned()).status
    }

    #[test]
    fn only_who_has_the_token_learns_anything() {
        let with = |value: &str| format!("GET /metrics HTTP/1.1\r\nAuthorization: {value}\r\n\r\n");
        assert_eq!(status(&with("Bearer secret")), "200 OK");
        assert_eq!(status(&with("bearer  secret ")), "200 OK");
        for value in [
            "",
            "secret",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
        ] {
            assert_eq!(status(&with(value)), "401 Unauthorized", "{value}");
        }
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "401 Unauthorized");
        assert_eq!(status("GET /nothing HTTP/1.1\r\n\r\n"), "401 Unauthorized");
    }

    #[test]
    fn other_requests_are_refused_in_words() {
        let with = |line: &str| format!("{line}\r\nauthorization: Bearer secret\r\n\r\n");
        assert_eq!(status(&with("GET /metrics?name=x HTTP/1.0")), "200 OK");
        assert_eq!(status(&with("GET / HTTP/1.1")), "404 Not Found");
        assert_eq!(
            status(&with("POST /metrics HTTP/1.1")),
            "405 Method Not Allowed"
        );
        assert_eq!(status("\u{1}\u{2}\r\n\r\n"), "400 Bad Request");
        assert_eq!(
            status(&format!("GET /metrics HTTP/1.1\r\nx: {}", "y".repeat(9000))),
            "431 Request Header Fields Too Large"
        );
    }

    #[tokio::test]
    async fn a_request_that_comes_in_pieces_is_answered_whole() {
        let (mut front, back) = tokio::io::duplex(64);
        let served = tokio::spawn(async move { answer(back, "secret", || "x 1\n".into()).await });
        for piece in [
            "GET /metrics HTT",
            "P/1.1\r\nAuthorization: Be",
            "arer secret\r\n\r",
            "\n",
        ] {
            front.write_all(piece.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut text = String::new();
        front.read_to_string(&mut text).await.unwrap();
        served.await.unwrap().unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"));
        assert!(text.ends_with(
            "Content-Length: 4\r\nCache-Control: no-store\r\nConnection: close\r\n\r\nx 1\n"
        ));
    }
}
