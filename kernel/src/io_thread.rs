//! The io thread: every socket, the outbox's way out, the captured pipes. It never takes the GIL
//! and no signal is delivered to it.
//!
//! Tasks on it: `shell`, `control`, `stdin` (receive), `publish` (send), `welcome` (JEP 65),
//! `crash`, `interrupt`, `captures` (one task for each pipe), `late`, `parent`, `sigterm`, `lifecycle`; the heartbeat is the echo's own.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime;
use tokio::time::Instant;

use crate::capture::{self, Capture};
use crate::connection::{Connection, ConnectionError};
use crate::crash;
use crate::interrupt;
use crate::kernel::Kernel;
use crate::late;
use crate::lifecycle;
use crate::outbox::{Entry, Outbox, Publication, Reply, StreamName};
use crate::parent::{Channel, Parent};
use crate::process;
use crate::session;
use crate::wire::{EMPTY_OBJECT, Message, Wire};
use crate::zmtp::{
    Echo, Incoming, Limits, Publisher, PublisherSender, Router, RouterSender, SubscriberId,
};

/// A print loop makes one message in this time; the first line of a pause goes out at once.
const GATHER: Duration = Duration::from_millis(5);

/// Printed bytes that may wait at the socket of a slow reader; the rest waits in the outbox, where an
/// interrupt can still drop it.
const PRINTED_AHEAD: usize = 2 << 20;
/// The most text of one stream message.
const STREAM_PIECE_BYTES: usize = 2 << 20;
/// How long a reader that is behind has before it is looked at again.
const BEHIND_PAUSE: Duration = Duration::from_millis(1);

/// Why a kernel does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(
        "cannot bind the {channel} socket to `{endpoint}`: {source}. Another process holds it: \
         start the kernel again, the server picks new ports"
    )]
    Bind {
        channel: &'static str,
        endpoint: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot start the kernel's io thread: {0}")]
    System(#[from] io::Error),
}

struct Sockets {
    shell: Router,
    control: Router,
    stdin: Router,
    iopub: Publisher,
    _heartbeat: Echo,
}

/// Read the connection file, bind the sockets, capture fd 1 and 2 and start the io thread. The
/// calling thread becomes the main thread. `python` is the interpreter's version.
pub fn start(connection_file: &Path, python: &str) -> Result<Arc<Kernel>, StartError> {
    let connection = Connection::read(connection_file)?;
    let sigterm = process::install_handlers()?.duplicate()?;
    crash::install()?;
    let (bound_sender, bound) = mpsc::channel();
    let (kernel_sender, kernel_receiver) = mpsc::channel::<Arc<Kernel>>();
    let for_thread = connection.clone();
    std::thread::Builder::new()
        .name("tpu-kernel-io".into())
        .spawn(move || {
            process::block_signals();
            let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return bound_sender.send(Err(error.into())).unwrap_or(()),
            };
            runtime.block_on(async {
                match bind(&for_thread).await {
                    Err(error) => bound_sender.send(Err(error)).unwrap_or(()),
                    Ok(sockets) => {
                        let _ = bound_sender.send(Ok(()));
                        if let Ok(kernel) = kernel_receiver.recv() {
                            serve(kernel, sockets, sigterm).await;
                        }
                    }
                }
            });
        })?;
    let gone = || io::Error::other("it ended before it had bound its sockets");
    bound.recv().map_err(|_| gone())??;
    // Only now: until here errors go to the real stderr.
    let kernel = Arc::new(Kernel::new(connection, python, Capture::install()?)?);
    kernel_sender
        .send(Arc::clone(&kernel))
        .map_err(|_| gone())?;
    let owner = kernel.owner().to_owned();
    std::thread::Builder::new()
        .name("tpu-kernel-sweep".into())
        .spawn(move || {
            process::block_signals();
            process::end_left_over(&owner);
        })?;
    Ok(kernel)
}

async fn bind(connection: &Connection) -> Result<Sockets, StartError> {
    let info = &connection.info;
    let at = |channel: &'static str, port: u16| (channel, connection.endpoint(port));
    let failed = |(channel, endpoint): (&'static str, String)| {
        move |source| StartError::Bind {
            channel,
            endpoint,
            source,
        }
    };
    let security = &connection.security;
    // iopub first: who has an answer on shell may subscribe and must be heard.
    let place = at("iopub", info.iopub_port);
    let iopub = Publisher::bind_with(&place.1, Limits::PUBLISHER, security)
        .await
        .map_err(failed(place))?;
    let place = at("control", info.control_port);
    let control = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    let place = at("stdin", info.stdin_port);
    let stdin = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    let place = at("heartbeat", info.hb_port);
    let heartbeat = Echo::bind_with(&place.1, Limits::ECHO, security)
        .await
        .map_err(failed(place))?;
    let place = at("shell", info.shell_port);
    let shell = Router::bind_with(&place.1, Limits::ROUTER, security)
        .await
        .map_err(failed(place))?;
    Ok(Sockets {
        shell,
        control,
        stdin,
        iopub,
        _heartbeat: heartbeat,
    })
}

/// What is not signed with our key, or was seen before, is dropped: it may be anyone's.
fn decode(wire: &Wire, incoming: Incoming) -> Option<Message> {
    let mut message = wire.decode(incoming.frames).ok()?;
    message.identities.insert(0, incoming.peer);
    Some(message)
}

async fn serve(kernel: Arc<Kernel>, sockets: Sockets, sigterm: OwnedFd) {
    let Sockets {
        shell,
        control,
        mut stdin,
        mut iopub,
        ..
    } = sockets;
    let wire = Arc::new(Wire::new(&kernel.connection.info.key, &kernel.session_id));
    let outlet = Arc::new(Outlet {
        wire: Arc::clone(&wire),
        shell: shell.sender(),
        control: control.sender(),
        stdin: stdin.sender(),
        iopub: iopub.sender(),
        topic: format!("kernel.{}", kernel.session_id),
    });
    for (channel, router) in [(Channel::Shell, shell), (Channel::Control, control)] {
        tokio::spawn(receive(
            Arc::clone(&kernel),
            Arc::clone(&wire),
            channel,
            router,
        ));
    }
    {
        let (kernel, wire) = (Arc::clone(&kernel), Arc::clone(&wire));
        tokio::spawn(async move {
            loop {
                let incoming = stdin.recv().await;
                if let Some(reply) = decode(&wire, incoming)
                    && reply.header.msg_type == "input_reply"
                {
                    kernel.input.deliver(&reply);
                }
            }
        });
    }
    {
        let outlet = Arc::clone(&outlet);
        tokio::spawn(async move {
            loop {
                let subscribed = iopub.next_subscription().await;
                outlet.welcome(subscribed.peer, &subscribed.topic);
            }
        });
    }
    {
        let outlet = Arc::clone(&outlet);
        let flush = move |deadline| async move { outlet.flush(deadline).await };
        tokio::spawn(crash::watch(Arc::clone(&kernel), flush));
    }
    tokio::spawn(interrupt::watch(Arc::clone(&kernel)));
    tokio::spawn(publish(Arc::clone(&kernel), Arc::clone(&outlet)));
    tokio::spawn(capture::watch(Arc::clone(&kernel)));
    tokio::spawn(late::report(Arc::clone(&kernel)));
    tokio::spawn(stop_on(Arc::clone(&kernel), sigterm));
    match process::watch_parent() {
        Ok(Some(parent)) => drop(tokio::spawn(stop_on(Arc::clone(&kernel), parent))),
        Ok(None) => {}
        Err(_) => kernel.begin_stop(),
    }
    outlet
        .publish(Publication {
            msg_type: "status".into(),
            parent: EMPTY_OBJECT,
            metadata: EMPTY_OBJECT,
            content: Bytes::from_static(br#"{"execution_state":"starting"}"#),
            buffers: Vec::new(),
        })
        .await;

    lifecycle::run(Arc::clone(&kernel)).await;
    kernel.capture.drain_all(|name, owner, text| {
        kernel.write_captured(name, owner, text);
    });
    let deadline = Instant::now() + lifecycle::LAST_FLUSH;
    while !kernel.outbox.is_empty() && Instant::now() < deadline {
        kernel.outbox.hurry();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    outlet.flush(deadline).await;
    lifecycle::end(&kernel).await;
}

async fn receive(kernel: Arc<Kernel>, wire: Arc<Wire>, channel: Channel, mut router: Router) {
    loop {
        let incoming = router.recv().await;
        if let Some(message) = decode(&wire, incoming) {
            session::dispatch(&kernel, channel, message);
        }
    }
}

/// Send what stands in the outbox, in order.
async fn publish(kernel: Arc<Kernel>, outlet: Arc<Outlet>) {
    loop {
        let batch = kernel.outbox.take().await;
        let mut streams = false;
        for entry in batch {
            streams |= matches!(entry, Entry::Stream { .. });
            outlet.send(&kernel.outbox, entry).await;
        }
        kernel.outbox.sent();
        if streams {
            kernel.outbox.gather(GATHER).await;
        }
    }
}

/// Stop the kernel when `fd` becomes readable.
async fn stop_on(kernel: Arc<Kernel>, fd: OwnedFd) {
    // SAFETY: the descriptor is owned and open until the watcher is dropped.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    if let Ok(watched) = watched
        && watched.readable().await.is_ok()
    {
        let signal = process::terminated_by();
        if signal != 0 {
            kernel.exit_code.store(128 + signal, Ordering::Release);
        }
        kernel.begin_stop();
    }
}

/// The way out: entries to signed frames on the right socket.
struct Outlet {
    wire: Arc<Wire>,
    shell: RouterSender,
    control: RouterSender,
    stdin: RouterSender,
    iopub: PublisherSender,
    topic: String,
}

impl Outlet {
    /// Send printed text, unless its cell was interrupted and no front end takes it.
    async fn send_text(
        &self,
        outbox: &Outbox,
        name: StreamName,
        parent: Option<&Parent>,
        text: &str,
    ) {
        let content = stream_content(name, text);
        let header = parent.map_or(EMPTY_OBJECT, |p| p.header.clone());
        let frames = self.frames("stream", &header, &EMPTY_OBJECT, &content, &[]);
        loop {
            if let Some(parent) = parent
                && outbox.is_abandoned(parent)
            {
                parent.tally.drop_bytes(text.len());
                return;
            }
            if self.iopub.is_behind(PRINTED_AHEAD) {
                tokio::time::sleep(BEHIND_PAUSE).await;
            } else if self.iopub.publish(&frames).is_ok() {
                return;
            } else {
                self.iopub.ready().await;
            }
        }
    }

    /// Send one entry; waits while a front end that reads has a full queue.
    async fn send(&self, outbox: &Outbox, entry: Entry) {
        match entry {
            Entry::Stream { name, parent, text } => {
                for piece in pieces(&text) {
                    self.send_text(outbox, name, parent.as_deref(), piece).await;
                }
            }
            Entry::Dropped(parent) => {
                outbox.came_to_end_of(&parent);
                if let Some(told) = parent.tally.report() {
                    let (name, parent) = (StreamName::Stderr, Some(&*parent));
                    self.send_text(outbox, name, parent, &told).await;
                }
            }
            Entry::Publish(publication) => self.publish(publication).await,
            Entry::Reply(Reply {
                channel,
                parent,
                msg_type,
                metadata,
                content,
            }) => {
                let socket = match channel {
                    Channel::Shell => &self.shell,
                    Channel::Control => &self.control,
                };
                let frames =
                    self.wire
                        .encode(&[], &msg_type, &parent.header, &metadata, &content, &[]);
                route(socket, &parent, frames);
            }
            Entry::Input {
                parent,
                msg_id,
                content,
            } => {
                let frames =
                    self.wire
                        .encode_as(&msg_id, "input_request", &parent.header, &content);
                route(&self.stdin, &parent, frames);
            }
        }
    }

    async fn publish(&self, publication: Publication) {
        let Publication {
            msg_type,
            parent,
            metadata,
            content,
            buffers,
        } = publication;
        let frames = self.frames(&msg_type, &parent, &metadata, &content, &buffers);
        while self.iopub.publish(&frames).is_err() {
            self.iopub.ready().await;
        }
    }

    /// A message on iopub.
    fn frames(
        &self,
        msg_type: &str,
        parent: &Bytes,
        metadata: &Bytes,
        content: &Bytes,
        buffers: &[Bytes],
    ) -> Vec<Bytes> {
        let topic = Bytes::from(format!("{}.{msg_type}", self.topic));
        self.wire
            .encode(&[topic], msg_type, parent, metadata, content, buffers)
    }

    /// JEP 65: the first message of a subscription, to that subscriber alone.
    fn welcome(&self, peer: SubscriberId, topic: &Bytes) {
        let content = serde_json::json!({"subscription": String::from_utf8_lossy(topic)})
            .to_string()
            .into();
        let first = std::slice::from_ref(topic);
        let frames = self.wire.encode(
            first,
            "iopub_welcome",
            &EMPTY_OBJECT,
            &EMPTY_OBJECT,
            &content,
            &[],
        );
        self.iopub.publish_to(peer, &frames);
    }

    async fn flush(&self, deadline: Instant) {
        self.shell.flush(deadline).await;
        self.control.flush(deadline).await;
        self.iopub.flush(deadline).await;
    }
}

/// Send along the way the request came. A front end that has gone needs no answer.
fn route(socket: &RouterSender, parent: &Parent, mut frames: Vec<Bytes>) {
    if let Some((peer, rest)) = parent.identities.split_first() {
        frames.splice(0..0, rest.iter().cloned());
        let _ = socket.send(peer, &frames);
    }
}

/// Text that was written at once, in parts that front ends take while the next is made.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.len().min(STREAM_PIECE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

fn stream_content(name: StreamName, text: &str) -> Bytes {
    #[derive(serde::Serialize)]
    struct Content<'a> {
        name: &'a str,
        text: &'a str,
    }
    let mut content = Vec::with_capacity(text.len() + text.len() / 16 + 64);
    let name = name.as_str();
    // Strings always serialise.
    let _ = serde_json::to_writer(&mut content, &Content { name, text });
    content.into()
}
