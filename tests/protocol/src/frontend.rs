//! A front end without a screen: it starts the installed kernel and talks to it over real ZeroMQ.
//!
//! What the kernel publishes is collected by request; [`FrontEnd::close`] fails when something was
//! published that no test looked at.

use std::collections::VecDeque;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::timeout;
use tpu_kernel::wire::Wire;
use zeromq::util::PeerIdentity;
use zeromq::{
    DealerSocket, ReqSocket, Socket, SocketOptions, SocketRecv, SocketSend, SubSocket, ZmqMessage,
};

/// No answer in this time is a fault.
const PATIENCE: Duration = Duration::from_secs(30);

/// A message from the kernel.
#[derive(Debug, Clone, Default)]
pub struct Received {
    pub header: Value,
    pub parent: Value,
    pub metadata: Value,
    pub content: Value,
}

impl Received {
    pub fn msg_type(&self) -> &str {
        self.header["msg_type"].as_str().unwrap_or_default()
    }

    fn answers(&self, msg_id: &str) -> bool {
        self.parent["msg_id"] == msg_id
    }
}

/// What one request brought.
#[derive(Debug)]
pub struct Answer {
    pub reply: Received,
    /// Everything published for it, `busy` first and `idle` last.
    pub published: Vec<Received>,
}

impl Answer {
    /// The types of what was published, the state for a status.
    pub fn sequence(&self) -> Vec<String> {
        self.published
            .iter()
            .map(
                |message| match message.content["execution_state"].as_str() {
                    Some(state) if message.msg_type() == "status" => state.to_owned(),
                    _ => message.msg_type().to_owned(),
                },
            )
            .collect()
    }

    /// All text of one stream.
    pub fn text(&self, stream: &str) -> String {
        let of_stream = |m: &&Received| m.msg_type() == "stream" && m.content["name"] == stream;
        let texts = self.published.iter().filter(of_stream);
        texts
            .map(|message| message.content["text"].as_str().unwrap_or_default())
            .collect()
    }
}

/// A running kernel and the sockets to it.
pub struct FrontEnd {
    pub kernel: Child,
    pub info: Value,
    folder: PathBuf,
    wire: Wire,
    shell: DealerSocket,
    control: DealerSocket,
    stdin: DealerSocket,
    iopub: SubSocket,
    session: String,
    count: u64,
    unread: VecDeque<Received>,
}

/// The `tpu-kernel` under test.
fn program() -> Result<PathBuf> {
    let path = std::env::var_os("TPU_KERNEL_PROGRAM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/tpu-kernel"),
        PathBuf::from,
    );
    ensure!(
        path.exists(),
        "no kernel at `{}`: run `make setup` first",
        path.display()
    );
    Ok(path)
}

/// A port that is free now.
fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}

impl FrontEnd {
    /// Start a kernel and connect to it.
    pub async fn start() -> Result<Self> {
        let session = format!("front-end-{}-{}", std::process::id(), free_port()?);
        let folder = std::env::temp_dir().join(&session);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("kernel.json");
        let info = json!({
            "ip": "127.0.0.1", "transport": "tcp", "key": session, "signature_scheme": "hmac-sha256",
            "shell_port": free_port()?, "iopub_port": free_port()?, "stdin_port": free_port()?,
            "control_port": free_port()?, "hb_port": free_port()?,
        });
        std::fs::write(&file, info.to_string())?;
        let log = std::fs::File::create(folder.join("log"))?;
        let mut command = Command::new(program()?);
        command
            .arg("start")
            .arg("-f")
            .arg(&file)
            .env("IPYTHONDIR", folder.join("ipython"));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // SAFETY: `setsid` is async-signal-safe; a server starts kernels so too.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            });
        }
        let kernel = command.spawn()?;
        let at = |port: &str| format!("tcp://127.0.0.1:{}", info[port]);
        let iopub = {
            let mut socket = SubSocket::new();
            connect(&mut socket, &at("iopub_port")).await?;
            socket.subscribe("").await?;
            socket
        };
        let dealer = |port: &'static str| {
            let (endpoint, identity) = (at(port), session.clone());
            async move {
                let mut options = SocketOptions::default();
                options.peer_identity(PeerIdentity::try_from(identity.into_bytes())?);
                let mut socket = DealerSocket::with_options(options);
                connect(&mut socket, &endpoint).await?;
                anyhow::Ok(socket)
            }
        };
        let (shell, control, stdin) = (
            dealer("shell_port").await?,
            dealer("control_port").await?,
            dealer("stdin_port").await?,
        );
        let wire = Wire::new(&session, &session);
        let unread = VecDeque::new();
        let mut this = Self {
            kernel,
            info,
            folder,
            wire,
            shell,
            control,
            stdin,
            iopub,
            session,
            count: 0,
            unread,
        };
        let welcome = this.next_published().await?;
        ensure!(
            welcome.msg_type() == "iopub_welcome",
            "the first message is {welcome:?}"
        );
        ensure!(
            welcome.content == json!({"subscription": ""}),
            "{welcome:?}"
        );
        Ok(this)
    }

    /// A header as front ends make them, with what `extra` adds.
    pub fn header(&mut self, msg_type: &str, extra: Value) -> Value {
        self.count += 1;
        let mut header = json!({
            "msg_id": format!("{}_{}", self.session, self.count), "msg_type": msg_type,
            "session": self.session, "username": "tester", "version": "5.4",
            "date": tpu_kernel::wire::now(),
        });
        if let (Value::Object(header), Value::Object(extra)) = (&mut header, extra) {
            header.extend(extra);
        }
        header
    }

    /// The signed frames of a message.
    pub fn frames(&self, header: &Value, content: &[u8]) -> Vec<Bytes> {
        let header = Bytes::from(header.to_string());
        let (empty, content) = (Bytes::from_static(b"{}"), Bytes::copy_from_slice(content));
        self.wire
            .assemble(&[], [&header, &empty, &empty, &content], &[])
    }

    /// Send frames on shell.
    pub async fn send_frames(&mut self, frames: Vec<Bytes>) -> Result<()> {
        Ok(self.shell.send(multipart(frames)?).await?)
    }

    /// Send a request on shell; its message id.
    pub async fn send(&mut self, msg_type: &str, content: Value) -> Result<String> {
        let header = self.header(msg_type, json!({}));
        let frames = self.frames(&header, content.to_string().as_bytes());
        self.send_frames(frames).await?;
        Ok(header["msg_id"].as_str().unwrap_or_default().to_owned())
    }

    /// Send a cell; its message id.
    pub async fn send_cell(&mut self, code: &str) -> Result<String> {
        self.send(
            "execute_request",
            json!({"code": code, "silent": false, "stop_on_error": true, "allow_stdin": true}),
        )
        .await
    }

    /// Run a cell.
    pub async fn run(&mut self, code: &str) -> Result<Answer> {
        let msg_id = self.send_cell(code).await?;
        self.answer(&msg_id).await
    }

    /// Send a request on shell and collect what it brings.
    pub async fn request(&mut self, msg_type: &str, content: Value) -> Result<Answer> {
        let msg_id = self.send(msg_type, content).await?;
        self.answer(&msg_id).await
    }

    /// The next reply on shell, and everything published for it.
    pub async fn answer(&mut self, msg_id: &str) -> Result<Answer> {
        let reply = self.next_reply().await?;
        ensure!(
            reply.answers(msg_id),
            "expected the reply to {msg_id}, got {reply:?}"
        );
        Ok(Answer {
            reply,
            published: self.published_for(msg_id).await?,
        })
    }

    /// The next reply on shell.
    pub async fn next_reply(&mut self) -> Result<Received> {
        let message = timeout(PATIENCE, self.shell.recv())
            .await
            .context("no reply on shell")??;
        self.decode(message)
    }

    /// Everything published for a request, up to its idle.
    pub async fn published_for(&mut self, msg_id: &str) -> Result<Vec<Received>> {
        let mut published = Vec::new();
        let (ours, others) = std::mem::take(&mut self.unread)
            .into_iter()
            .partition(|m| m.answers(msg_id));
        self.unread = others;
        published.extend::<VecDeque<_>>(ours);
        while !published.last().is_some_and(is_idle) {
            let message = self.next_published().await?;
            if message.answers(msg_id) {
                published.push(message);
            } else {
                self.unread.push_back(message);
            }
        }
        Ok(published)
    }

    /// Wait until a request has published a message of this type.
    pub async fn wait_for(&mut self, msg_id: &str, msg_type: &str) -> Result<Received> {
        loop {
            let message = self.next_published().await?;
            self.unread.push_back(message.clone());
            if message.answers(msg_id) && message.msg_type() == msg_type {
                return Ok(message);
            }
        }
    }

    /// Wait for text of a request on stdout.
    pub async fn wait_for_text(&mut self, msg_id: &str, text: &str) -> Result<()> {
        let mut so_far = String::new();
        while !so_far.contains(text) {
            so_far += self.wait_for(msg_id, "stream").await?.content["text"]
                .as_str()
                .unwrap_or_default();
        }
        Ok(())
    }

    async fn next_published(&mut self) -> Result<Received> {
        let message = timeout(PATIENCE, self.iopub.recv())
            .await
            .context("nothing on iopub")??;
        self.decode(message)
    }

    /// Send a request on control and wait for its reply.
    pub async fn control(&mut self, msg_type: &str, content: Value) -> Result<Answer> {
        let header = self.header(msg_type, json!({}));
        let frames = self.frames(&header, content.to_string().as_bytes());
        self.control.send(multipart(frames)?).await?;
        let message = timeout(PATIENCE, self.control.recv())
            .await
            .context("no reply on control")??;
        let reply = self.decode(message)?;
        let msg_id = header["msg_id"].as_str().unwrap_or_default();
        ensure!(reply.answers(msg_id), "{reply:?} does not answer {header}");
        Ok(Answer {
            reply,
            published: self.published_for(msg_id).await?,
        })
    }

    /// The next question on stdin.
    pub async fn question(&mut self) -> Result<Received> {
        let message = timeout(PATIENCE, self.stdin.recv())
            .await
            .context("no question on stdin")??;
        self.decode(message)
    }

    /// Answer a question.
    pub async fn reply_to(&mut self, question: &Received, value: &str) -> Result<()> {
        let header = Bytes::from(self.header("input_reply", json!({})).to_string());
        let parent = Bytes::from(question.header.to_string());
        let content = Bytes::from(json!({"value": value}).to_string());
        let frames = self.wire.assemble(
            &[],
            [&header, &parent, &Bytes::from_static(b"{}"), &content],
            &[],
        );
        Ok(self.stdin.send(multipart(frames)?).await?)
    }

    /// What a heartbeat brings back.
    pub async fn heartbeat(&self, beat: &'static [u8]) -> Result<Vec<Bytes>> {
        let mut socket = ReqSocket::new();
        connect(
            &mut socket,
            &format!("tcp://127.0.0.1:{}", self.info["hb_port"]),
        )
        .await?;
        socket
            .send(ZmqMessage::from(Bytes::from_static(beat)))
            .await?;
        Ok(timeout(PATIENCE, socket.recv()).await??.into_vec())
    }

    /// Shut the kernel down and check that nothing was published that no test looked at.
    pub async fn close(mut self) -> Result<()> {
        let answer = self
            .control("shutdown_request", json!({"restart": false}))
            .await?;
        ensure!(
            answer.reply.content == json!({"status": "ok", "restart": false}),
            "{:?}",
            answer.reply
        );
        ensure!(
            answer.sequence() == ["busy", "shutdown_reply", "idle"],
            "{:?}",
            answer.sequence()
        );
        self.wait_for_end().await?;
        ensure!(
            self.unread.is_empty(),
            "published, and nobody looked at it: {:#?}",
            self.unread
        );
        Ok(())
    }

    /// Wait until the process has ended.
    pub async fn wait_for_end(&mut self) -> Result<Duration> {
        let start = Instant::now();
        while self.kernel.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                bail!("the kernel still runs {PATIENCE:?} after its shutdown");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(start.elapsed())
    }

    /// What the kernel wrote to the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    fn decode(&self, message: ZmqMessage) -> Result<Received> {
        let message = self
            .wire
            .decode(message.into_vec())
            .context("the kernel's signature")?;
        let received = || {
            anyhow::Ok(Received {
                header: serde_json::from_slice(&message.header.raw)?,
                parent: serde_json::from_slice(&message.parent_header)?,
                metadata: serde_json::from_slice(&message.metadata)?,
                content: serde_json::from_slice(&message.content)?,
            })
        };
        // What another front end caused may hold what serde cannot: a lone surrogate in its header.
        let ours = String::from_utf8_lossy(&message.parent_header).contains(&self.session);
        received().or_else(|error| {
            if ours {
                Err(error)
            } else {
                Ok(Received::default())
            }
        })
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        let _ = self.kernel.kill();
        let _ = self.kernel.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_idle(message: &Received) -> bool {
    message.msg_type() == "status" && message.content["execution_state"] == "idle"
}

fn multipart(frames: Vec<Bytes>) -> Result<ZmqMessage> {
    ZmqMessage::try_from(frames).map_err(|error| anyhow::anyhow!("{error}"))
}

/// Connect, waiting for the kernel to bind.
async fn connect(socket: &mut impl Socket, endpoint: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        match socket.connect(endpoint).await {
            Ok(()) => return Ok(()),
            Err(error) if start.elapsed() > PATIENCE => bail!("no kernel at {endpoint}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
