//! Questions to the person: `input` and `getpass`. Owns which answer belongs to which question;
//! the main shell and each subshell may have one open.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use crate::lock::lock;
use crate::parent::Parent;
use crate::request::Signal;
use crate::wire::{LossyString, Message, Part};

#[derive(Debug)]
struct Question {
    /// The question's own message id, and that of the request it was asked for.
    ids: [String; 2],
    /// The front end that was asked.
    peer: Option<Bytes>,
    answer: Mutex<Option<String>>,
    answered: Signal,
}

/// The questions that are open, oldest first.
#[derive(Debug, Default)]
pub struct Input {
    open: Mutex<Vec<Arc<Question>>>,
}

/// A question somebody waits for. Dropped, it is withdrawn: a late answer is no one's.
#[derive(Debug)]
pub struct Asked<'a> {
    input: &'a Input,
    question: Arc<Question>,
}

impl Input {
    /// A question with this message id goes out, for the request `cause`.
    pub fn ask(&self, msg_id: &str, cause: &Parent) -> io::Result<Asked<'_>> {
        let question = Arc::new(Question {
            ids: [msg_id.into(), cause.msg_id.clone()],
            peer: cause.identities.first().cloned(),
            answer: Mutex::default(),
            answered: Signal::new()?,
        });
        lock(&self.open).push(Arc::clone(&question));
        Ok(Asked {
            input: self,
            question,
        })
    }

    /// An `input_reply` came. It is for the question it names, itself or its cause; where it names
    /// nothing (`jupyter_client` sends no parent), for the oldest that its front end was asked.
    pub fn deliver(&self, reply: &Message) {
        #[derive(serde::Deserialize)]
        struct Named {
            msg_id: String,
        }
        #[derive(serde::Deserialize)]
        struct Content {
            value: LossyString,
        }
        let named = reply.parse::<Named>(Part::ParentHeader).ok();
        let Ok(content) = reply.parse::<Content>(Part::Content) else {
            return;
        };
        let peer = reply.identities.first();
        let open = lock(&self.open);
        let mut waiting = open
            .iter()
            .filter(|question| lock(&question.answer).is_none());
        let question = match named {
            Some(named) => waiting.find(|question| question.ids.contains(&named.msg_id)),
            None => waiting
                .clone()
                .find(|question| question.peer.as_ref() == peer)
                .or_else(|| waiting.next()),
        };
        if let Some(question) = question {
            *lock(&question.answer) = Some(content.value.0);
            question.answered.set();
        }
    }
}

impl Asked<'_> {
    /// Wait for the answer, at most `patience` or until a signal arrives.
    pub fn answer(&self, patience: Duration) -> Option<String> {
        self.question.answered.wait(patience);
        lock(&self.question.answer).take()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.input.open).retain(|other| !Arc::ptr_eq(other, &self.question));
    }
}
