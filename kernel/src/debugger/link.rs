//! The connection to the debugger in the interpreter. It connects to us, on a port that is open
//! only until then, and proves with a token that it is ours: on a machine that others use too,
//! nobody else can debug this process, or pretend to be it.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Input;
use super::dap;

/// Who does not say the token in this time is not ours.
const PROOF: Duration = Duration::from_secs(10);

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
    // It answers nothing but this question before it was asked another.
    while let Some(answer) = dap::decode(&mut reader).await? {
        if answer["type"] == "response" {
            let ours = answer["body"]["clientAccessToken"] == token;
            return Ok(ours.then_some((reader, writer)));
        }
    }
    Ok(None)
}
