//! An output under a cell that is shown once and then brought up to date: what an interrupt waits
//! for, how far a long compile is. Made on the io thread, so that it changes while Python or C++
//! holds the GIL. Whoever has one decides when it changes, twice a second at most.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::outbox::{Entry, Publication};
use crate::parent::Parent;
use crate::wire::EMPTY_OBJECT;

/// One such output of one cell.
#[derive(Debug)]
pub struct Standing {
    id: String,
    parent: Arc<Parent>,
    shown: bool,
}

impl Standing {
    /// Nothing is shown yet. `kind` tells it from others of the same cell.
    pub fn new(kind: &str, parent: Arc<Parent>) -> Self {
        Self {
            id: format!("{kind}-{}", parent.msg_id),
            parent,
            shown: false,
        }
    }

    pub fn parent(&self) -> &Arc<Parent> {
        &self.parent
    }

    /// Show a line of text.
    pub fn show(&mut self, text: &str) -> Entry {
        self.show_data(&json!({"text/plain": text}))
    }

    /// Show a bundle of MIME types.
    pub fn show_data(&mut self, data: &Value) -> Entry {
        let first = !std::mem::replace(&mut self.shown, true);
        let msg_type = if first {
            self.parent.tally.add_piece();
            "display_data"
        } else {
            "update_display_data"
        };
        let content = json!({"data": data, "metadata": {}, "transient": {"display_id": self.id}});
        Entry::Publish(Publication {
            msg_type: msg_type.into(),
            parent: self.parent.header.clone(),
            metadata: EMPTY_OBJECT,
            content: content.to_string().into(),
            buffers: Vec::new(),
        })
    }
}
