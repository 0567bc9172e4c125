//! What happens to each message that comes in on shell or control. Runs on the io thread, never
//! waits: it answers at once, or hands the request to Python.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::kernel::Kernel;
use crate::parent::Channel;
use crate::request::{Request, Service};
use crate::subshells::{Subshell, UnknownSubshell};
use crate::usage;
use crate::wire::{LossyString, Message, Part};

/// For how long a deleted subshell takes comm messages: a page that goes away deletes it first.
const LAST_COMMS: Duration = Duration::from_secs(10);

/// Handle one message. Whatever it holds, the kernel goes on: after a fault of ours too, which Rust has
/// written to fd 2.
pub fn handle(kernel: &Arc<Kernel>, channel: Channel, message: Message) {
    let copy = message.clone();
    unless_panicked(
        || dispatch(kernel, channel, message),
        || {
            let request = Request::of(copy, channel, false, None);
            if request.parent.msg_type.ends_with("_request") {
                let fault = "the kernel failed at this request, and goes on: please report it";
                refuse(kernel, &request, "InternalError", fault);
            } else {
                kernel.pass_over(&request);
            }
        },
    );
}

/// Do `work`, and where it panics, `otherwise`. The thread goes on.
fn unless_panicked(work: impl FnOnce(), otherwise: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        let _ = catch_unwind(AssertUnwindSafe(otherwise));
    }
}

fn dispatch(kernel: &Arc<Kernel>, channel: Channel, message: Message) {
    // Strings are passed over here, not decoded: a lone surrogate in a cell is no fault.
    let content_fault = message.object(Part::Content).err();
    let allow_stdin = allows_stdin(&message);
    let session = message.header.session.clone();
    let (subshell, unknown) = match shell_of(kernel, channel, &message) {
        Ok(subshell) => (subshell, None),
        Err(unknown) => (None, Some(unknown)),
    };
    let request = Request::of(message, channel, allow_stdin, subshell);
    let msg_type = Arc::clone(&request.parent);
    let msg_type = msg_type.msg_type.as_str();
    if let Some(fault) = content_fault {
        if msg_type.ends_with("_request") {
            refuse(kernel, &request, "MalformedRequest", &fault.to_string());
        } else {
            kernel.pass_over(&request);
        }
        return;
    }
    if let Some(unknown) = unknown {
        if msg_type == "execute_request" {
            kernel.refuse_cell(&request, "UnknownSubshell", &unknown.to_string());
        } else {
            refuse(kernel, &request, "UnknownSubshell", &unknown.to_string());
        }
        return;
    }
    match msg_type {
        "kernel_info_request" => kernel.answer_now(&request, &kernel.language.kernel_info()),
        "connect_request" => {
            let info = &kernel.connection.info;
            let ports = json!({
                "status": "ok",
                "shell_port": info.shell_port,
                "iopub_port": info.iopub_port,
                "stdin_port": info.stdin_port,
                "control_port": info.control_port,
                "hb_port": info.hb_port,
            });
            kernel.answer_now(&request, &ports);
        }
        "interrupt_request" => {
            kernel.interrupt_for_user();
            kernel.answer_now(&request, &json!({"status": "ok"}));
        }
        "usage_request" => usage::answer(kernel, request),
        "shutdown_request" => shut_down(kernel, &request),
        "create_subshell_request" => create_subshell(kernel, &request),
        "delete_subshell_request" => delete_subshell(kernel, &request),
        "list_subshell_request" => {
            let ids = kernel.subshells.ids();
            kernel.answer_now(&request, &json!({"status": "ok", "subshell_id": ids}));
        }
        "execute_request" if kernel.is_ending() => kernel.answer_aborted(&request),
        "comm_open" | "comm_msg" | "comm_close"
            if kernel.feed.takes(kernel, &request, session.as_deref()) =>
        {
            kernel.pass_over(&request);
        }
        "comm_open" | "comm_msg" | "comm_close"
            if kernel.widget_control.takes(msg_type, &request.content) =>
        {
            kernel.service.push(Service::Answer(request));
        }
        "execute_request" | "comm_open" | "comm_msg" | "comm_close" => {
            shell_queue(kernel, request);
        }
        "complete_request"
        | "inspect_request"
        | "is_complete_request"
        | "history_request"
        | "comm_info_request" => {
            if request.subshell.is_some() {
                shell_queue(kernel, request);
            } else {
                kernel.service.push(Service::Answer(request));
            }
        }
        "debug_request" => kernel.debugger.ask(request),
        other if other.ends_with("_request") => {
            let fault = format!("this kernel does not know the message type `{other}`");
            refuse(kernel, &request, "UnknownMessageType", &fault);
        }
        _ => kernel.pass_over(&request),
    }
}

/// Where a message is to run; `None` is the main shell.
fn shell_of(
    kernel: &Kernel,
    channel: Channel,
    message: &Message,
) -> Result<Option<Arc<Subshell>>, UnknownSubshell> {
    let named = message.header.subshell_id.as_deref();
    let named = named.filter(|id| channel == Channel::Shell && !id.is_empty());
    let shells = &kernel.subshells;
    match message.header.msg_type.as_str() {
        // These have no reply that could tell of a subshell that is gone.
        "comm_open" => Ok(named.and_then(|id| shells.find_for_comm(id))),
        msg_type @ ("comm_msg" | "comm_close") => {
            Ok(shells.shell_of_comm(msg_type, &message.content, named))
        }
        _ => named.map(|id| shells.find(id)).transpose(),
    }
}

fn shell_queue(kernel: &Kernel, request: Request) {
    match request.subshell.clone() {
        Some(subshell) => subshell.queue.push(request),
        None => kernel.main.push(request),
    }
}

fn create_subshell(kernel: &Kernel, request: &Request) {
    match kernel.subshells.create() {
        Ok(subshell) => {
            let reply = json!({"status": "ok", "subshell_id": subshell.id});
            kernel.service.push(Service::Start(subshell));
            kernel.answer_now(request, &reply);
        }
        Err(fault) => refuse(kernel, request, "OSError", &fault.to_string()),
    }
}

fn delete_subshell(kernel: &Arc<Kernel>, request: &Request) {
    #[derive(serde::Deserialize)]
    struct Content {
        subshell_id: LossyString,
    }
    let Ok(content) = serde_json::from_slice::<Content>(&request.content) else {
        let fault = "delete_subshell_request needs a `subshell_id`";
        return refuse(kernel, request, "MalformedRequest", fault);
    };
    match kernel.subshells.delete(&content.subshell_id.0) {
        Ok(subshell) => {
            kernel.answer_now(request, &json!({"status": "ok"}));
            let kernel = Arc::clone(kernel);
            tokio::spawn(async move {
                sleep(LAST_COMMS).await;
                kernel.subshells.end(&subshell);
            });
        }
        Err(unknown) => refuse(kernel, request, "UnknownSubshell", &unknown.to_string()),
    }
}

fn shut_down(kernel: &Kernel, request: &Request) {
    #[derive(serde::Deserialize, Default)]
    struct Content {
        #[serde(default)]
        restart: Option<bool>,
    }
    let content: Content = serde_json::from_slice(&request.content).unwrap_or_default();
    let reply = json!({"status": "ok", "restart": content.restart.unwrap_or(false)});
    kernel.answer_to_all(request, &reply);
    kernel.begin_stop();
}

fn refuse(kernel: &Kernel, request: &Request, name: &str, value: &str) {
    kernel.answer_now(
        request,
        &json!({"status": "error", "ename": name, "evalue": value, "traceback": []}),
    );
}

fn allows_stdin(message: &Message) -> bool {
    #[derive(serde::Deserialize)]
    struct Content {
        #[serde(default)]
        allow_stdin: Option<bool>,
    }
    message
        .parse::<Content>(Part::Content)
        .is_ok_and(|content| content.allow_stdin.unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::{EMPTY_OBJECT, Header};

    fn message(content: &'static [u8]) -> Message {
        Message {
            identities: Vec::new(),
            header: Header::parse(Bytes::from_static(
                br#"{"msg_id":"1","msg_type":"execute_request"}"#,
            ))
            .unwrap(),
            parent_header: EMPTY_OBJECT,
            metadata: EMPTY_OBJECT,
            content: Bytes::from_static(content),
            buffers: Vec::new(),
        }
    }

    #[test]
    fn a_panic_at_a_message_is_answered_and_ends_nothing() {
        let mut answers = 0;
        unless_panicked(|| {}, || answers += 1);
        assert_eq!(answers, 0);
        unless_panicked(|| panic!("a fault"), || answers += 1);
        assert_eq!(answers, 1);
        unless_panicked(|| panic!("a fault"), || panic!("another"));
    }

    #[test]
    fn stdin_is_allowed_unless_the_front_end_says_no() {
        assert!(allows_stdin(&message(br#"{"code":""}"#)));
        assert!(allows_stdin(&message(br#"{"code":"","allow_stdin":null}"#)));
        assert!(!allows_stdin(&message(
            br#"{"code":"'\ud800'","allow_stdin":false}"#
        )));
    }
}
