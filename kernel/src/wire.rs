//! Jupyter messages on the wire: frames, signatures, headers. No sockets.
//!
//! A message in is verified, its header read, and everything else left as raw bytes: so unknown fields
//! survive, and a request whose content makes no sense can still be answered.
//!
//! ```text
//! identities … <IDS|MSG> signature header parent_header metadata content buffers …
//! ```

mod date;
mod header;
mod history;
mod message;
mod signer;
mod text;

use std::sync::Mutex;

use bytes::Bytes;

pub use date::now;
pub use header::Header;
pub use history::REMEMBERED_SIGNATURES;
pub use message::{Message, Part, PartError};
pub use signer::{SIGNATURE, Signer};
pub use text::LossyString;

use header::HeaderFactory;
use history::History;

use crate::lock::lock;

/// Separates identities from the message.
pub const DELIMITER: &[u8] = b"<IDS|MSG>";
/// An empty parent header, metadata or content.
pub const EMPTY_OBJECT: Bytes = Bytes::from_static(b"{}");

/// Why frames are no message that can be answered. Such frames are dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("no `<IDS|MSG>` among the message's frames")]
    NoDelimiter,
    #[error("{0} frames after `<IDS|MSG>`, at least 5 are needed")]
    TooFewFrames(usize),
    #[error("the message's signature is not 64 hexadecimal digits")]
    SignatureMalformed,
    #[error("the message's signature is wrong; is the key of the connection file the right one?")]
    SignatureWrong,
    #[error("the message was received before")]
    Replayed,
    #[error("the message's header is not a JSON object")]
    HeaderMalformed,
    #[error("the message's header has no `{0}`")]
    HeaderIncomplete(&'static str),
}

/// Encodes and decodes the messages of one kernel. One for all its sockets, so that a message replayed
/// on another socket is known too; may be shared by threads.
#[derive(Debug)]
pub struct Wire {
    signer: Signer,
    headers: HeaderFactory,
    history: Mutex<History>,
}

impl Wire {
    /// A wire for the connection file's `key` (empty is unsigned); headers made here are of `session`
    /// and of the user who runs this process.
    pub fn new(key: impl AsRef<[u8]>, session: &str) -> Self {
        let username = std::env::var("USER").unwrap_or_else(|_| "kernel".to_owned());
        Self {
            signer: Signer::new(key.as_ref()),
            headers: HeaderFactory::new(session, &username),
            history: Mutex::new(History::new(REMEMBERED_SIGNATURES)),
        }
    }

    /// Verifies `frames` and reads their header.
    pub fn decode(&self, frames: Vec<Bytes>) -> Result<Message, WireError> {
        let delimiter = frames
            .iter()
            .position(|frame| frame == DELIMITER)
            .ok_or(WireError::NoDelimiter)?;
        let mut identities = frames;
        let mut parts = identities.split_off(delimiter);
        let [_, signature, header, parent_header, metadata, content, ..] = &parts[..] else {
            return Err(WireError::TooFewFrames(parts.len() - 1));
        };
        let signature = self
            .signer
            .verify(signature, &[header, parent_header, metadata, content])?;
        if let Some(signature) = signature {
            let mut history = lock(&self.history);
            if !history.remember(&signature) {
                return Err(WireError::Replayed);
            }
        }
        Ok(Message {
            identities,
            header: Header::parse(header.clone())?,
            parent_header: parent_header.clone(),
            metadata: metadata.clone(),
            content: content.clone(),
            buffers: parts.split_off(6),
        })
    }

    /// A signed message with a new header. `identities` are those of the request, or the topic on
    /// iopub; `parent_header` is the raw header of what it answers, or [`EMPTY_OBJECT`].
    pub fn encode(
        &self,
        identities: &[Bytes],
        msg_type: &str,
        parent_header: &Bytes,
        metadata: &Bytes,
        content: &Bytes,
        buffers: &[Bytes],
    ) -> Vec<Bytes> {
        let header = self.headers.compose(msg_type);
        self.assemble(
            identities,
            [&header, parent_header, metadata, content],
            buffers,
        )
    }

    /// A signed message whose id the caller chose, without identities, metadata and buffers.
    pub fn encode_as(
        &self,
        msg_id: &str,
        msg_type: &str,
        parent_header: &Bytes,
        content: &Bytes,
    ) -> Vec<Bytes> {
        let header = self.headers.compose_as(msg_id, msg_type);
        self.assemble(&[], [&header, parent_header, &EMPTY_OBJECT, content], &[])
    }

    /// Signs `parts` (header, parent header, metadata, content) and puts the frames in order.
    pub fn assemble(
        &self,
        identities: &[Bytes],
        parts: [&Bytes; 4],
        buffers: &[Bytes],
    ) -> Vec<Bytes> {
        let mut frames = Vec::with_capacity(identities.len() + 6 + buffers.len());
        frames.extend_from_slice(identities);
        frames.push(Bytes::from_static(DELIMITER));
        frames.push(self.signer.sign(&parts.map(|part| &part[..])));
        frames.extend(parts.map(Bytes::clone));
        frames.extend_from_slice(buffers);
        frames
    }
}
