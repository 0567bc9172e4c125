//! What runs beside the main shell: the requests of subshells.

use std::sync::Arc;

use serde_json::json;

use super::{Kernel, lock, reply_to, status};
use crate::device;
use crate::outbox::Reply;
use crate::parent::{Channel, Parent};
use crate::process;
use crate::request::{Request, Service};
use crate::subshells::Subshell;
use crate::wire::EMPTY_OBJECT;

impl Kernel {
    /// The next request for a subshell; `status: busy` goes out for it.
    ///
    /// Of a deleted one there are comm messages only: what else waits is answered here.
    pub fn next_of(&self, subshell: &Subshell) -> Option<Request> {
        if self.is_stopping() || self.rests_after_crash() {
            return None;
        }
        let mut request = subshell.queue.pop()?;
        while subshell.is_deleted() && request.parent.msg_type.ends_with("_request") {
            self.answer_aborted(&request);
            request = subshell.queue.pop()?;
        }
        self.feed.begin(&request.parent);
        let mut running = lock(&self.running);
        running
            .last
            .get_or_insert_with(|| Arc::clone(&request.parent));
        running.beside.push(Arc::clone(&request.parent));
        self.outbox.push(status("busy", &request.parent));
        Some(request)
    }

    /// The next comm message of a shell (`None`: the main one) whose cell lets them have their turn
    /// while it runs. With `rest`, and none there, what else waits does not wake the shell's thread.
    pub fn next_comm(&self, subshell: Option<&Subshell>, rest: bool) -> Option<Request> {
        let queue = subshell.map_or(&self.main, |subshell| &subshell.queue);
        let request = queue.pop_comm(rest)?;
        self.outbox.push(status("busy", &request.parent));
        Some(request)
    }

    /// With nothing to interrupt on the main shell, it is what the subshells run that is meant.
    pub(super) fn interrupt_subshells(&self, running: &[Arc<Parent>]) {
        if !running.is_empty() {
            for parent in running {
                parent.tally.interrupt();
            }
            process::send(&process::descendants(), libc::SIGINT);
            self.service.push(Service::Interrupt);
        }
    }

    /// Cancel what waits for the device. The end of the main shell's cell says what was lost; with
    /// none running, the service thread does.
    pub(super) fn cancel_device_work(&self, idle: bool) {
        let Some(session) = device::session() else {
            return;
        };
        if session.snapshot().is_some() {
            session.cancel();
            self.feed
                .note("cancelled", "what waited for the device was cancelled");
            if idle {
                self.service.push(Service::Cancelled);
            }
        }
    }

    /// Answer a cell that has nowhere to run. The person sees why: front ends show no bare reply.
    pub fn refuse_cell(&self, request: &Request, name: &str, value: &str) {
        self.outbox.push(status("busy", &request.parent));
        let mut content = json!({"ename": name, "evalue": value, "traceback": [value]});
        let shown = content.to_string().into();
        let parent = &request.parent;
        self.publish("error", Some(parent), EMPTY_OBJECT, shown, Vec::new());
        content["status"] = "error".into();
        let reply = reply_to(request, EMPTY_OBJECT, content.to_string().into());
        self.end_request(parent, Some(reply));
    }

    /// The process is about to end: answer what subshells run and what waits there. False when
    /// none runs anything.
    pub(super) fn end_subshells(&self, signal: &str, lines: &[String]) -> bool {
        let running = lock(&self.running).beside.clone();
        for parent in &running {
            let mut content = json!({"ename": signal, "evalue": lines.first(), "traceback": lines});
            let shown = content.to_string().into();
            self.publish("error", Some(parent), EMPTY_OBJECT, shown, Vec::new());
            content["status"] = "error".into();
            let reply = parent.msg_type.strip_suffix("_request").map(|kind| Reply {
                channel: Channel::Shell,
                parent: Arc::clone(parent),
                msg_type: format!("{kind}_reply"),
                metadata: EMPTY_OBJECT,
                content: content.to_string().into(),
            });
            self.end_request(parent, reply);
        }
        for waiting in self.subshells.take_all() {
            self.answer_aborted(&waiting);
        }
        !running.is_empty()
    }
}
