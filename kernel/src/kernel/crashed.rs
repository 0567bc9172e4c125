//! The process is about to end by a signal: what runs and waits is answered, so that no front end
//! waits for ever, and nothing runs any more. `crash` says when.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::{Kernel, lock};
use crate::outbox::{Reply, StreamName};
use crate::parent::{Channel, Parent};
use crate::wire::EMPTY_OBJECT;

/// A thread that asks for work after a crash is kept so long: the process ends meanwhile.
const REST: Duration = Duration::from_secs(1);

impl Kernel {
    /// Tell the server's log, and answer what runs and waits; cells that come from now on are
    /// answered as aborted.
    pub(crate) fn announce_crash(&self, signal: &str, lines: &[String]) {
        self.crashed.store(true, Ordering::Release);
        let text = lines.join("\n") + "\n";
        self.capture
            .log(StreamName::Stderr, &format!("tpu-kernel: {text}"));
        let waiting = self.main.take_executes();
        if !self.is_stopping() {
            let told = self.end_subshells(signal, lines);
            if let Some(parent) = self.running() {
                self.tell_crash_in(&parent, signal, lines);
            } else if !told {
                let content = json!({"name": "stderr", "text": text}).to_string().into();
                let last = self.output_parent();
                self.publish("stream", last.as_deref(), EMPTY_OBJECT, content, Vec::new());
            }
        }
        for request in &waiting {
            self.answer_aborted(request);
        }
    }

    /// Answer what the main thread runs.
    fn tell_crash_in(&self, parent: &Arc<Parent>, signal: &str, lines: &[String]) {
        let cell = self.running_cell();
        let mut content = json!({"ename": signal, "evalue": lines.first(), "traceback": lines});
        let error = content.to_string().into();
        self.publish("error", Some(parent), EMPTY_OBJECT, error, Vec::new());
        content["status"] = "error".into();
        content["execution_count"] = cell.into();
        let reply = cell.map(|_| Reply {
            channel: Channel::Shell,
            parent: Arc::clone(parent),
            msg_type: "execute_reply".into(),
            metadata: EMPTY_OBJECT,
            content: content.to_string().into(),
        });
        self.end_request(parent, reply);
    }

    /// No cell is run any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_stopping() || self.crashed.load(Ordering::Acquire)
    }

    /// Another thread has crashed: nothing more is run in this one.
    pub(super) fn rests_after_crash(&self) -> bool {
        let crashed = self.crashed.load(Ordering::Acquire);
        if crashed {
            std::thread::sleep(REST);
        }
        crashed
    }

    /// The crash of another thread was the answer to this cell, which ended meanwhile.
    pub(super) fn is_told_by_crash(&self, parent: &Arc<Parent>) -> bool {
        let running = lock(&self.running);
        let mut unanswered = running.current.iter().chain(&running.beside);
        self.crashed.load(Ordering::Acquire) && !unanswered.any(|one| Arc::ptr_eq(one, parent))
    }
}
