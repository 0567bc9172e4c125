//! Questions to the person: `input` and `getpass`. Owns which answer belongs to which question.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::request::Signal;
use crate::wire::{LossyString, Message, Part};

#[derive(Debug)]
enum Question {
    None,
    /// The question's own message id, and that of the request it was asked for.
    Asked {
        ids: [String; 2],
    },
    Answered(String),
}

/// At most one question is open; a new one supersedes it.
#[derive(Debug)]
pub struct Input {
    question: Mutex<Question>,
    answered: Signal,
}

impl Input {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            question: Mutex::new(Question::None),
            answered: Signal::new()?,
        })
    }

    /// A question with this message id goes out, for the request `cause`.
    pub fn ask(&self, msg_id: &str, cause: &str) {
        self.set(Question::Asked {
            ids: [msg_id.into(), cause.into()],
        });
        self.answered.clear();
    }

    /// Nobody waits any more; a late answer is dropped.
    pub fn withdraw(&self) {
        self.set(Question::None);
    }

    /// Wait for the answer, at most `patience` or until a signal arrives.
    pub fn answer(&self, patience: Duration) -> Option<String> {
        self.answered.wait(patience);
        let mut question = self.question.lock().unwrap_or_else(PoisonError::into_inner);
        if let Question::Answered(text) = &mut *question {
            let text = std::mem::take(text);
            *question = Question::None;
            self.answered.clear();
            return Some(text);
        }
        None
    }

    /// An `input_reply` came. It counts when a question is open and it names that one, or its
    /// cause, or nothing (`jupyter_client` sends no parent).
    pub fn deliver(&self, reply: &Message) {
        #[derive(serde::Deserialize)]
        struct Named {
            msg_id: String,
        }
        #[derive(serde::Deserialize)]
        struct Content {
            value: LossyString,
        }
        let parent = reply.parse::<Named>(Part::ParentHeader).ok();
        let mut question = self.question.lock().unwrap_or_else(PoisonError::into_inner);
        let Question::Asked { ids } = &*question else {
            return;
        };
        if parent.is_some_and(|parent| !ids.contains(&parent.msg_id)) {
            return;
        }
        let Ok(content) = reply.parse::<Content>(Part::Content) else {
            return;
        };
        *question = Question::Answered(content.value.0);
        self.answered.set();
    }

    fn set(&self, question: Question) {
        *self.question.lock().unwrap_or_else(PoisonError::into_inner) = question;
    }
}
