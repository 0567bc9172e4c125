//! The way out, on the io thread: what stands in the outbox becomes signed messages on the right
//! socket. Owns how far printed text may run ahead of a front end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::kernel::Kernel;
use crate::outbox::{Entry, Outbox, Publication, Reply, StreamName};
use crate::parent::{Channel, Parent};
use crate::wire::{EMPTY_OBJECT, Wire};
use crate::zmtp::{PublisherSender, RouterSender, SubscriberId};

/// A print loop makes one message in this time; the first line of a pause goes out at once.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes that may wait at the socket of a slow reader. The rest waits in the outbox, where it holds
/// its writer up, and an interrupt can still drop text.
const AHEAD: usize = 2 << 20;
/// The most text of one stream message.
const STREAM_PIECE_BYTES: usize = 2 << 20;
/// How long a reader that is behind has before it is looked at again.
const BEHIND_PAUSE: Duration = Duration::from_millis(1);

/// Send what stands in the outbox, in order.
pub async fn publish(kernel: Arc<Kernel>, outlet: Arc<Outlet>) {
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

/// The way out: entries to signed frames on the right socket.
pub struct Outlet {
    pub wire: Arc<Wire>,
    pub shell: RouterSender,
    pub control: RouterSender,
    pub stdin: RouterSender,
    pub iopub: PublisherSender,
    pub topic: String,
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
            if self.took(&frames).await {
                return;
            }
        }
    }

    /// Publish, or else wait until it is worth another try.
    async fn took(&self, frames: &[Bytes]) -> bool {
        if self.iopub.is_behind(AHEAD) {
            tokio::time::sleep(BEHIND_PAUSE).await;
            return false;
        }
        if self.iopub.publish(frames).is_ok() {
            return true;
        }
        self.iopub.ready().await;
        false
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

    pub async fn publish(&self, publication: Publication) {
        let Publication {
            msg_type,
            parent,
            metadata,
            content,
            buffers,
        } = publication;
        let frames = self.frames(&msg_type, &parent, &metadata, &content, &buffers);
        while !self.took(&frames).await {}
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
    pub fn welcome(&self, peer: SubscriberId, topic: &Bytes) {
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

    pub async fn flush(&self, deadline: Instant) {
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
