//! The request that caused something: what replies, output and questions refer to.

use std::sync::Arc;

use bytes::Bytes;

use crate::tally::Tally;
use crate::transcript::Transcript;
use crate::wire::{Header, LossyString, Message, Part, WireError};

/// Which socket a request came in on, and its reply goes out on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    Shell,
    Control,
}

impl Channel {
    pub fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Control => "control",
        }
    }
}

/// A request as others refer to it. Shared, immutable.
#[derive(Debug)]
pub struct Parent {
    /// The request's header, byte for byte: the `parent_header` of all it causes.
    pub header: Bytes,
    pub msg_id: String,
    pub msg_type: String,
    /// `metadata.cellId`, where the front end gave one.
    pub cell_id: String,
    /// Route back to the front end that asked; its stdin socket has the same identity.
    pub identities: Vec<Bytes>,
    /// `content.allow_stdin` of an `execute_request`.
    pub allow_stdin: bool,
    /// The subshell it runs in (JEP 91); `None` is the main shell.
    pub subshell_id: Option<String>,
    /// How much it has printed.
    pub tally: Tally,
    /// What it has printed.
    pub transcript: Transcript,
}

impl Parent {
    /// Take what matters from a received message.
    pub fn of(message: &Message, allow_stdin: bool, subshell_id: Option<String>) -> Arc<Self> {
        #[derive(serde::Deserialize)]
        struct Metadata {
            #[serde(rename = "cellId")]
            cell_id: LossyString,
        }
        let metadata = message.parse::<Metadata>(Part::Metadata).ok();
        Arc::new(Self {
            header: message.header.raw.clone(),
            msg_id: message.header.msg_id.clone(),
            msg_type: message.header.msg_type.clone(),
            cell_id: metadata
                .map(|metadata| metadata.cell_id.0)
                .unwrap_or_default(),
            identities: message.identities.clone(),
            allow_stdin,
            subshell_id,
            tally: Tally::default(),
            transcript: Transcript::default(),
        })
    }

    /// A request known by its header only: output can be made to belong to it, nothing can be
    /// asked of who sent it.
    pub fn from_header(header: Bytes) -> Result<Arc<Self>, WireError> {
        let header = Header::parse(header)?;
        Ok(Arc::new(Self {
            header: header.raw,
            msg_id: header.msg_id,
            msg_type: header.msg_type,
            cell_id: String::new(),
            identities: Vec::new(),
            allow_stdin: false,
            subshell_id: header.subshell_id,
            tally: Tally::of_the_past(),
            transcript: Transcript::default(),
        }))
    }

    /// Do both stand for one request?
    pub fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.msg_id == other.msg_id
    }
}
