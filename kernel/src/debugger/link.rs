//! The connection to the debugger in the interpreter. It connects to us, on a port that is open
//! only until then, and proves with a token that it is ours: on a machine that others use too,
//! nobody else can debug this process, or pretend to be it.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Input;
use super::dap;

/// Who does not say the token in this time is not ours.
const PROOF: Duration = Duration::from_secs(10);
/// Nor is who says more than this without it: whatever else is said before stays below.
const PROOF_BYTES: u64 = 64 << 10;

/// The way to the debugger; what comes back arrives at the relay.
#[derive(Debug)]
pub struct Link {
    frames: mpsc::UnboundedSender<Bytes>,
}

impl Link {
    /// Send a message. When the debugger is gone the relay learns it otherwise.
    pub fn send(&self, message: &Value) {
        let _ = self.frames.send(dap::encode(message));
    }
}

/// Where the interpreter's debugger is to connect, and what it must say.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    pub port: u16,
    pub token: String,
}

impl Door {
    pub fn open() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            port: listener.local_addr()?.port(),
            listener: TcpListener::from_std(listener)?,
            token: format!(
                "{}{}",
                uuid::Uuid::new_v4().simple(),
                uuid::Uuid::new_v4().simple()
            ),
        })
    }

    /// Wait for the debugger, then pass on what it says until it ends.
    pub async fn serve(self, inputs: mpsc::UnboundedSender<Input>) {
        let (mut reader, mut writer) = loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                return;
            };
            // In turn, since anyone may connect; the debugger's own attempt waits in the queue.
            if let Ok(Ok(Some(halves))) = timeout(PROOF, prove(stream, &self.token)).await {
                break halves;
            }
        };
        drop(self.listener);
        let (frames, mut waiting) = mpsc::unbounded_channel::<Bytes>();
        tokio::spawn(async move {
            while let Some(frame) = waiting.recv().await {
                if writer.write_all(&frame).await.is_err() {
                    return;
                }
            }
        });
        let _ = inputs.send(Input::Connected(Link { frames }));
        while let Ok(Some(message)) = dap::decode(&mut reader).await {
            let _ = inputs.send(Input::Message(message));
        }
        let _ = inputs.send(Input::Gone);
    }
}

/// Both halves of the stream, if the other end knows the token.
async fn prove(
    stream: TcpStream,
    token: &str,
) -> io::Result<Option<(BufReader<OwnedReadHalf>, OwnedWriteHalf)>> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let question = dap::request(
        0,
        "pydevdAuthorize",
        &json!({"debugServerAccessToken": null}),
    );
    writer.write_all(&dap::encode(&question)).await?;
    let mut proof = (&mut reader).take(PROOF_BYTES);
    // It answers nothing but this question before it was asked another.
    while let Some(answer) = dap::decode(&mut proof).await? {
        if answer["type"] == "response" {
            let ours = answer["body"]["clientAccessToken"] == token;
            return Ok(ours.then_some((reader, writer)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found out about a peer that says `words` and stays.
    fn proven(words: &[u8]) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let door = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let peer = TcpStream::connect(door.local_addr().unwrap());
            let mut peer = peer.await.unwrap();
            let (stream, _) = door.accept().await.unwrap();
            let words = words.to_vec();
            let talk = tokio::spawn(async move {
                // It may be hung up on before it has said all.
                let _ = peer.write_all(&words).await;
                std::future::pending::<()>().await;
            });
            let halves = prove(stream, "secret").await;
            talk.abort();
            matches!(halves, Ok(Some(_)))
        })
    }

    fn answer(token: &str) -> Bytes {
        dap::encode(&json!({"type": "response", "body": {"clientAccessToken": token}}))
    }

    #[test]
    fn only_who_knows_the_token_is_let_in() {
        let event = dap::encode(&json!({"type": "event", "event": "output"}));
        assert!(proven(&[event, answer("secret")].concat()));
        assert!(!proven(&answer("guess")));
    }

    #[test]
    fn who_talks_on_without_the_token_is_hung_up_on() {
        assert!(!proven(&vec![b'x'; 1 << 20]));
        let mut long = b"Content-Length: 1000000\r\n\r\n".to_vec();
        long.resize(1 << 20, b' ');
        assert!(!proven(&long));
    }
}
