//! The kernel as its two sides share it: the io thread and Python. Owns what runs now, and the
//! rule that busy and idle surround every request.

mod beside;
mod crashed;
mod lines;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Notify;

use crate::capture::{Capture, Owner};
use crate::connection::Connection;
use crate::crash::LogTail;
use crate::debugger::Debugger;
use crate::feed::Feed;
use crate::felt::Felt;
use crate::input::{Asked, Input};
use crate::interrupt::{self, Pending, Watch};
use crate::language::Language;
use crate::lock::lock;
use crate::offer::Offer;
use crate::outbox::{Entry, Outbox, Publication, Reply, StreamName};
use crate::parent::Parent;
use crate::process::{self, Thread};
use crate::progress::Progress;
use crate::request::{Request, Service, ServiceQueue, ShellQueue};
use crate::subshells::Subshells;
use crate::tally::{self, Cap};
use crate::usage::Usage;
use crate::widget_control::WidgetControl;
use crate::wire::EMPTY_OBJECT;

/// How long an interrupted cell's output may take to reach the front end.
const INTERRUPTED_OUTPUT: Duration = Duration::from_secs(1);
/// After `exit` a front end must have read the answer before it sees that the kernel is gone: some
/// look for answers twenty times a second.
const LAST_WORD: Duration = Duration::from_millis(150);

#[derive(Debug, Default)]
struct Running {
    /// What the main thread works on.
    current: Option<Arc<Parent>>,
    /// The last cell: late output belongs to it.
    last: Option<Arc<Parent>>,
    /// What the subshells work on.
    beside: Vec<Arc<Parent>>,
    /// An interrupt that `current` has not obeyed yet.
    interrupt: Option<Pending>,
    /// The line of `current` about what takes long.
    progress: Option<Progress>,
    /// The last interrupt somebody asked for, and the cell that ran or had run.
    interrupted: Option<(Instant, Option<String>)>,
    /// Number of the last cell, as it is shown.
    execution_count: i64,
}

/// Everything both sides need. One per process.
#[derive(Debug)]
pub struct Kernel {
    pub connection: Connection,
    /// This kernel's session id, in every header it makes.
    pub session_id: String,
    pub outbox: Outbox,
    pub main: ShellQueue,
    pub subshells: Subshells,
    pub service: ServiceQueue,
    pub input: Input,
    pub debugger: Debugger,
    pub language: Language,
    pub watch: Watch,
    pub felt: Felt,
    /// The main thread has taken a cell.
    pub(crate) cell_began: Notify,
    pub(crate) widget_control: WidgetControl,
    pub usage: Usage,
    pub feed: Feed,
    pub(crate) offer: Offer,
    pub(crate) log_tail: LogTail,
    pub(crate) capture: Capture,
    owner: PathBuf,
    pub(crate) stopping: AtomicBool,
    /// The process dies of a signal: nothing runs any more.
    crashed: AtomicBool,
    /// The order to stop was given.
    pub(crate) stop: Notify,
    pub(crate) leaving: Mutex<Option<Instant>>,
    pub(crate) exit_code: AtomicI32,
    pub(crate) exit: Notify,
    exit_wanted: AtomicBool,
    pub(crate) main_thread: Thread,
    running: Mutex<Running>,
}

/// A `status` message.
fn status(state: &str, parent: &Parent) -> Entry {
    Entry::Publish(Publication {
        msg_type: "status".into(),
        parent: parent.header.clone(),
        metadata: EMPTY_OBJECT,
        content: format!(r#"{{"execution_state":"{state}"}}"#).into(),
        buffers: Vec::new(),
    })
}

/// A reply to a request.
fn reply_to(request: &Request, metadata: Bytes, content: Bytes) -> Reply {
    let msg_type = request.parent.msg_type.replace("_request", "_reply");
    Reply {
        channel: request.channel,
        parent: Arc::clone(&request.parent),
        msg_type,
        metadata,
        content,
    }
}

/// What the environment says, else the default.
fn output_cap(capture: &Capture) -> Cap {
    let Some(text) = std::env::var_os(tally::VARIABLE) else {
        return Cap::default();
    };
    let text = text.to_string_lossy();
    Cap::parse(&text).unwrap_or_else(|| {
        let name = tally::VARIABLE;
        let fault = format!(
            "{name}=`{text}` is not understood and not used: give a number of bytes such as `64MiB`, or `off`\n"
        );
        capture.log(StreamName::Stderr, &fault);
        Cap::default()
    })
}

impl Kernel {
    /// The calling thread becomes the main thread: the one that interrupts go to.
    pub fn new(connection: Connection, python: &str, capture: Capture) -> io::Result<Self> {
        let owner = std::path::absolute(&connection.path)?;
        Ok(Self {
            connection,
            session_id: uuid::Uuid::new_v4().simple().to_string(),
            outbox: Outbox::new(output_cap(&capture)),
            main: ShellQueue::new()?,
            subshells: Subshells::default(),
            service: ServiceQueue::default(),
            input: Input::default(),
            debugger: Debugger::default(),
            language: Language::new(python),
            watch: Watch::default(),
            felt: Felt::default(),
            cell_began: Notify::new(),
            widget_control: WidgetControl::default(),
            usage: Usage::default(),
            feed: Feed::default(),
            offer: Offer::default(),
            log_tail: LogTail::default(),
            capture,
            owner,
            stopping: AtomicBool::new(false),
            crashed: AtomicBool::new(false),
            stop: Notify::new(),
            leaving: Mutex::new(None),
            exit_code: AtomicI32::new(0),
            exit: Notify::new(),
            exit_wanted: AtomicBool::new(false),
            main_thread: Thread::current(),
            running: Mutex::default(),
        })
    }

    // -- requests on the main thread ------------------------------------------------------------

    /// The next request for the main thread; `status: busy` goes out for it.
    ///
    /// While the kernel stops there is none, and that the main thread asked counts as leaving.
    pub fn next_main(&self) -> Option<Request> {
        if self.is_stopping() {
            lock(&self.leaving).get_or_insert_with(Instant::now);
            while self.main.pop().is_some() {}
            return None;
        }
        if self.rests_after_crash() {
            return None;
        }
        let request = self.main.pop()?;
        let last = self.output_parent();
        self.capture.begin_cell(last.as_ref(), |name, owner, text| {
            self.write_captured(name, owner, text);
        });
        self.log_tail.clear();
        self.feed.begin(&request.parent);
        let mut running = lock(&self.running);
        running.current = Some(Arc::clone(&request.parent));
        running.last = Some(Arc::clone(&request.parent));
        self.outbox.push(status("busy", &request.parent));
        self.cell_began.notify_one();
        Some(request)
    }

    /// Announce the cell that runs.
    pub fn execute_input(&self, request: &Request, code: &str, execution_count: i64) {
        self.feed.number(&request.parent, execution_count);
        if request.subshell.is_none() {
            lock(&self.running).execution_count = execution_count;
        }
        let content = json!({"code": code, "execution_count": execution_count});
        let content = content.to_string().into();
        self.publish(
            "execute_input",
            Some(&request.parent),
            EMPTY_OBJECT,
            content,
            Vec::new(),
        );
    }

    /// Answer `request` and end it. `abort` answers every cell that waits in the same shell with
    /// `aborted`.
    pub fn reply(&self, request: &Request, metadata: Bytes, content: Bytes, abort: bool) {
        self.drain_capture_for(Some(&request.parent), true);
        if self.is_told_by_crash(&request.parent) {
            return;
        }
        // Taken before the reply goes out: what the front end sends after it saw the reply is a new run.
        // What it sent before is here, for the io thread reads while the cell runs.
        let aborted = if abort {
            let subshell = request.subshell.as_ref();
            subshell
                .map_or(&self.main, |subshell| &subshell.queue)
                .take_executes()
        } else {
            Vec::new()
        };
        self.end_request(&request.parent, Some(reply_to(request, metadata, content)));
        for waiting in &aborted {
            self.answer_aborted(waiting);
        }
        if self.exit_wanted.load(Ordering::Acquire) {
            std::thread::sleep(LAST_WORD);
            self.begin_stop();
        }
    }

    /// End a message that has no reply.
    pub fn finish(&self, request: &Request) {
        self.drain_capture_for(Some(&request.parent), true);
        self.end_request(&request.parent, None);
    }

    fn end_request(&self, parent: &Arc<Parent>, reply: Option<Reply>) {
        self.feed.end(parent, &self.outbox);
        let mut running = lock(&self.running);
        let ours = running
            .current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, parent));
        let settled = if ours {
            running.current = None;
            running.settle(parent, reply.as_ref())
        } else {
            Vec::new()
        };
        running.beside.retain(|other| !Arc::ptr_eq(other, parent));
        // The last word a front end hears is what it shows.
        let still_busy = running
            .current
            .as_ref()
            .or(running.beside.first())
            .map(|busy| status("busy", busy));
        parent.tally.end();
        let interrupted = parent.tally.was_interrupted();
        if interrupted {
            let from = Instant::now() + INTERRUPTED_OUTPUT;
            self.outbox.abandon(parent, from);
        }
        let dropped = interrupted || parent.tally.dropped() > 0;
        // Under the lock: else a cell that ends meanwhile would be left shown as busy.
        self.outbox.push_all(
            settled
                .into_iter()
                .chain(dropped.then(|| Entry::Dropped(Arc::clone(parent))))
                .chain(reply.map(Entry::Reply))
                .chain([status("idle", parent)])
                .chain(still_busy),
        );
    }

    // -- requests elsewhere -----------------------------------------------------------------------

    /// The next request for the service thread; `status: busy` goes out for it.
    pub fn next_service(&self, patience: Duration) -> Option<Service> {
        let service = self.service.pop(patience)?;
        if let Service::Answer(request) = &service {
            self.outbox.push(status("busy", &request.parent));
        }
        Some(service)
    }

    /// Answer from the io thread, at once, whatever runs.
    pub fn answer_now(&self, request: &Request, content: &serde_json::Value) {
        self.begin(request);
        self.answer(request, content);
    }

    /// Work on a request begins that `answer` will end.
    pub(crate) fn begin(&self, request: &Request) {
        self.outbox.push(status("busy", &request.parent));
    }

    pub(crate) fn answer(&self, request: &Request, content: &serde_json::Value) {
        let reply = reply_to(request, EMPTY_OBJECT, content.to_string().into());
        self.end_request(&request.parent, Some(reply));
    }

    /// As `answer_now`, and tell all front ends: a shutdown concerns each of them.
    pub fn answer_to_all(&self, request: &Request, content: &serde_json::Value) {
        self.outbox.push(status("busy", &request.parent));
        let content = Bytes::from(content.to_string());
        let reply = reply_to(request, EMPTY_OBJECT, content.clone());
        self.publish(
            &reply.msg_type,
            Some(&request.parent),
            EMPTY_OBJECT,
            content,
            Vec::new(),
        );
        self.end_request(&request.parent, Some(reply));
    }

    /// A message that asks nothing of us: busy and idle, no reply.
    pub fn pass_over(&self, request: &Request) {
        self.outbox.push(status("busy", &request.parent));
        self.end_request(&request.parent, None);
    }

    /// End a request that does not run, because the cell before it failed or its shell is gone.
    pub(crate) fn answer_aborted(&self, request: &Request) {
        if !request.parent.msg_type.ends_with("_request") {
            return self.pass_over(request);
        }
        self.outbox.push(status("busy", &request.parent));
        let metadata = json!({
            "started": crate::wire::now(),
            "dependencies_met": true,
            "engine": self.session_id,
            "status": "aborted",
        });
        let content = json!({"status": "aborted"}).to_string().into();
        let reply = reply_to(request, metadata.to_string().into(), content);
        self.end_request(&request.parent, Some(reply));
    }

    // -- output -----------------------------------------------------------------------------------

    /// Publish on iopub, after all that was written before. Returns false when the caller should
    /// wait for space.
    pub fn publish(
        &self,
        msg_type: &str,
        parent: Option<&Parent>,
        metadata: Bytes,
        content: Bytes,
        buffers: Vec<Bytes>,
    ) -> bool {
        match (msg_type, parent) {
            ("clear_output", Some(parent)) => {
                parent.tally.clear();
                parent.tally.add_piece();
            }
            ("display_data" | "execute_result" | "error", Some(parent)) => parent.tally.add_piece(),
            ("comm_open" | "comm_msg" | "comm_close", parent) => {
                let by = parent.and_then(|parent| parent.subshell_id.as_deref());
                self.subshells.comm_sent(msg_type, &content, by);
            }
            _ => {}
        }
        self.outbox.push(Entry::Publish(Publication {
            msg_type: msg_type.into(),
            parent: parent.map_or(EMPTY_OBJECT, |parent| parent.header.clone()),
            metadata,
            content,
            buffers,
        }))
    }

    /// What runs on the main thread now.
    pub fn running(&self) -> Option<Arc<Parent>> {
        lock(&self.running).current.clone()
    }

    /// Where output goes that names no cell: what runs now, else what ran last.
    pub fn output_parent(&self) -> Option<Arc<Parent>> {
        let running = lock(&self.running);
        running.current.clone().or_else(|| running.last.clone())
    }

    /// Write to a stream. Before the first cell there is no one to show it: then the server's log.
    /// Returns false when the caller should wait for space.
    pub fn write(&self, name: StreamName, parent: Option<&Arc<Parent>>, text: &str) -> bool {
        if let Some(parent) = parent {
            return self.outbox.write(name, Some(parent), text);
        }
        if let Some(parent) = self.output_parent() {
            return self.outbox.write(name, Some(&parent), text);
        }
        self.capture.log(name, text);
        true
    }

    /// Put what C code and children of the running cell wrote behind what Python wrote before. Any
    /// thread.
    pub fn drain_capture(&self, complete: bool) -> usize {
        self.capture.drain(complete, |name, owner, text| {
            self.write_captured(name, owner, text);
        })
    }

    /// Has the running cell written below Python?
    pub fn writes_below_python(&self) -> bool {
        self.capture.is_used()
    }

    /// As `drain_capture`, and what children wrote that were started for `parent` elsewhere.
    pub fn drain_capture_for(&self, parent: Option<&Parent>, complete: bool) {
        self.drain_capture(complete);
        if let Some(parent) = parent {
            self.capture
                .drain_of(parent, complete, |name, owner, text| {
                    self.write_captured(name, owner, text);
                });
        }
    }

    pub(crate) fn write_captured(&self, name: StreamName, owner: &Owner, text: &str) {
        if name == StreamName::Stderr {
            self.log_tail.push(text);
        }
        match owner {
            Owner::Running => self.write(name, None, text),
            Owner::Cell(Some(parent)) => self.write(name, Some(parent), text),
            Owner::Cell(None) => {
                self.capture.log(name, text);
                true
            }
        };
    }

    /// Where a child started for `parent` is to write, unless that is where fd 1 and 2 lead now.
    pub fn output_fds(&self, parent: &Arc<Parent>) -> Option<[OwnedFd; 2]> {
        if self.output_parent().is_none_or(|now| now.is(parent)) {
            return None;
        }
        self.capture.writers_for(parent).ok()
    }

    /// A duplicate of what fd 1 or 2 was before it was captured.
    pub fn original_fd(&self, name: StreamName) -> io::Result<OwnedFd> {
        self.capture.original(name).try_clone_to_owned()
    }

    /// Ask the person who sent `parent`.
    pub fn ask(&self, parent: &Arc<Parent>, prompt: &str, password: bool) -> io::Result<Asked<'_>> {
        let msg_id = uuid::Uuid::new_v4().to_string();
        self.drain_capture_for(Some(parent), false);
        let asked = self.input.ask(&msg_id, parent)?;
        let content = json!({"prompt": prompt, "password": password});
        self.outbox.push(Entry::Input {
            parent: Arc::clone(parent),
            msg_id,
            content: content.to_string().into(),
        });
        Ok(asked)
    }

    // -- life -------------------------------------------------------------------------------------

    /// Somebody asks to interrupt the cell that runs: do so, and say what it waits for if it must.
    /// Asked again soon after, cancel what the device has not begun.
    pub fn interrupt_for_user(&self) {
        let mut running = lock(&self.running);
        let meant = running.current.as_ref().or(running.last.as_ref());
        let now = (Instant::now(), meant.map(|cell| cell.msg_id.clone()));
        let again = running
            .interrupted
            .replace(now.clone())
            .is_some_and(|(at, cell)| cell == now.1 && at.elapsed() < interrupt::AGAIN);
        if again {
            self.cancel_device_work(running.current.is_none());
        }
        let Some(current) = running.current.clone() else {
            return self.interrupt_subshells(&running.beside);
        };
        let known = running
            .interrupt
            .take_if(|interrupt| interrupt.concerns(&current));
        if known.is_none() {
            self.watch.begin();
        }
        running.interrupt = Some(known.unwrap_or_else(|| Pending::new(current)));
        drop(running);
        self.interrupt();
    }

    /// Interrupt the cell that runs, and the processes it started.
    pub fn interrupt(&self) {
        if let Some(running) = self.running() {
            running.tally.interrupt();
            let children = process::descendants();
            // First: when a child ends before, the cell may end as well, as if nobody had interrupted it.
            self.main_thread.interrupt();
            self.felt.begin();
            process::send(&children, libc::SIGINT);
        }
    }

    /// Number of the cell that runs on the main thread.
    pub(crate) fn running_cell(&self) -> Option<i64> {
        let running = lock(&self.running);
        let current = running.current.as_ref()?;
        (current.msg_type == "execute_request").then_some(running.execution_count)
    }

    /// What the processes of this kernel are known by: its connection file, as an absolute path.
    pub fn owner(&self) -> &Path {
        &self.owner
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Shut down once the running request is answered, and the answer is read.
    pub fn request_exit(&self) {
        self.exit_wanted.store(true, Ordering::Release);
    }

    /// Start to shut down. The io thread watches over it; see `lifecycle`.
    pub fn begin_stop(&self) {
        if !self.stopping.swap(true, Ordering::AcqRel) {
            self.stop.notify_one();
            self.main.wake();
            self.subshells.wake();
        }
    }

    /// Python has finished: send what is left, then end the process. Does not return.
    pub fn leave(&self, code: i32) -> ! {
        // A signal that asked for the end has set it already.
        let _ = self
            .exit_code
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
        self.drain_capture(true);
        self.begin_stop();
        self.exit.notify_one();
        // The io thread ends the process; this is for the case that it cannot.
        std::thread::sleep(Duration::from_secs(2));
        process::end(code)
    }
}
