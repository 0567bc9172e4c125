//! What happens to each request of a front end, and to each response and event of the debugger.
//!
//! The interpreter's debugger leaves a request unanswered when it concerns a thread that goes on
//! meanwhile. Here each gets its reply: what needs a program that stands is refused while it runs,
//! and answered when it goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::kernel::Kernel;
use crate::parent::Parent;
use crate::request::{Request, Service};
use crate::wire::EMPTY_OBJECT;

use super::Input;
use super::dap::{self, Asked};
use super::hidden;
use super::link::{Door, Link};
use super::purpose::{LOOK, Purpose, RESUME};

const NOT_STARTED: &str =
    "no debugging goes on: switch the debugger on first (`initialize`, then `attach`)";
const NOT_STOPPED: &str = "nothing stands at a breakpoint: run a cell that reaches one first";
const WENT_ON: &str = "the program has gone on meanwhile";
const GONE: &str = "the connection to the debugger has ended: restart the kernel to debug again";

#[derive(Debug)]
enum Debuggee {
    /// Nobody has debugged yet.
    None,
    /// Python starts its debugger; these wait for it.
    Starting {
        link: Option<Link>,
        rules: Option<Value>,
        waiting: Vec<Asked>,
    },
    Here {
        link: Link,
        rules: Value,
    },
}

pub struct Relay {
    kernel: Arc<Kernel>,
    inputs: mpsc::UnboundedSender<Input>,
    debuggee: Debuggee,
    seq: u64,
    pending: HashMap<u64, Purpose>,
    /// The reply to `initialize` while a session goes on.
    capabilities: Option<Value>,
    attached: bool,
    breakpoints: BTreeMap<String, Vec<Value>>,
    stopped: BTreeSet<i64>,
    /// It was told to go on. Whatever else the debugger is asked of a thread it would keep for the
    /// next stop.
    leaving: bool,
    /// The last request: events belong to it.
    last: Option<Arc<Parent>>,
}

impl Relay {
    pub fn new(kernel: Arc<Kernel>, inputs: mpsc::UnboundedSender<Input>) -> Self {
        Self {
            kernel,
            inputs,
            debuggee: Debuggee::None,
            seq: 0,
            pending: HashMap::new(),
            capabilities: None,
            attached: false,
            breakpoints: BTreeMap::new(),
            stopped: BTreeSet::new(),
            leaving: false,
            last: None,
        }
    }

    pub fn handle(&mut self, input: Input) {
        match input {
            Input::Request(request) => self.request(request),
            Input::Connected(link) => self.starting(Some(link), None),
            Input::Started(Ok(rules)) => self.starting(None, Some(rules)),
            Input::Started(Err(reason)) => self.end(&reason),
            Input::Message(message) => match message["type"].as_str() {
                Some("response") => self.response(message),
                Some("event") => self.event(&message),
                _ => {}
            },
            Input::Gone => self.end(GONE),
        }
    }

    // -- requests ---------------------------------------------------------------------------------

    fn request(&mut self, request: Request) {
        let asked = match Asked::read(request) {
            Ok(asked) => asked,
            Err(request) => {
                self.kernel.answer_now(
                    &request,
                    &json!({
                        "type": "response",
                        "request_seq": 0,
                        "success": false,
                        "command": "",
                        "message": "a debug request needs a `command`",
                        "body": {},
                    }),
                );
                return;
            }
        };
        self.last = Some(Arc::clone(&asked.request.parent));
        let stands = self.stands();
        match asked.command.as_str() {
            // Python's objects, while nothing stands: the service thread answers.
            "inspectVariables" | "modules" | "source" => return self.hand_over(asked),
            "variables" | "richInspectVariables" if !stands => return self.hand_over(asked),
            _ => self.kernel.begin(&asked.request),
        }
        match asked.command.as_str() {
            "debugInfo" => self.answer(&asked, &self.debug_info(&asked)),
            "dumpCell" => self.answer(&asked, &self.dump_cell(&asked)),
            "initialize" => self.initialize(asked),
            "disconnect" if self.capabilities.is_none() => {
                self.answer(&asked, &asked.success(&json!({})));
            }
            "launch" | "terminate" | "restart" | "runInTerminal" => {
                let fault = format!("a kernel debugs itself: `{}` is not for it", asked.command);
                self.answer(&asked, &asked.failure(&fault));
            }
            _ if self.capabilities.is_none() => match &mut self.debuggee {
                Debuggee::Starting { waiting, .. } => waiting.push(asked),
                _ => self.answer(&asked, &asked.failure(NOT_STARTED)),
            },
            _ => self.in_session(asked),
        }
    }

    /// A request while a session goes on.
    fn in_session(&mut self, mut asked: Asked) {
        match asked.command.as_str() {
            "attach" if self.attached => self.answer(&asked, &asked.success(&json!({}))),
            "attach" => self.attach(asked),
            // Done when the session began; front ends that follow the protocol still ask.
            "configurationDone" => self.answer(&asked, &asked.success(&json!({}))),
            "disconnect" => {
                let arguments = json!({"restart": false, "terminateDebuggee": false});
                self.send("disconnect", &arguments, Purpose::Disconnect(asked));
            }
            "setBreakpoints" => {
                let arguments = asked.arguments.clone();
                self.send("setBreakpoints", &arguments, Purpose::Breakpoints(asked));
            }
            command if !self.stands() && (LOOK.contains(&command) || RESUME.contains(&command)) => {
                self.answer(&asked, &asked.failure(NOT_STOPPED));
            }
            "copyToGlobals" => self.copy_to_globals(asked),
            "richInspectVariables" => self.rich(asked),
            _ => {
                self.leaving |= RESUME.contains(&asked.command.as_str());
                let arguments = mem::take(&mut asked.arguments);
                self.send(&asked.command.clone(), &arguments, Purpose::Pass(asked));
            }
        }
    }

    fn stands(&self) -> bool {
        !self.stopped.is_empty() && !self.leaving
    }

    fn hand_over(&mut self, asked: Asked) {
        self.kernel.service.push(Service::Answer(asked.request));
    }

    fn answer(&self, asked: &Asked, response: &Value) {
        self.kernel.answer(&asked.request, response);
    }

    fn debug_info(&self, asked: &Asked) -> Value {
        let mut body = self.kernel.debugger.cells.rules();
        let breakpoints: Vec<Value> = self
            .breakpoints
            .iter()
            .map(|(source, breakpoints)| json!({"source": source, "breakpoints": breakpoints}))
            .collect();
        body["isStarted"] = json!(self.capabilities.is_some());
        body["breakpoints"] = json!(breakpoints);
        body["stoppedThreads"] = json!(self.stopped);
        body["richRendering"] = json!(true);
        body["exceptionPaths"] = json!(["Python Exceptions"]);
        body["copyToGlobals"] = json!(true);
        asked.success(&body)
    }

    fn dump_cell(&self, asked: &Asked) -> Value {
        let Some(code) = asked.arguments["code"].as_str() else {
            return asked.failure("`dumpCell` needs the cell's source in `code`");
        };
        let cells = &self.kernel.debugger.cells;
        match cells.write(code) {
            Ok(path) => asked.success(&json!({"sourcePath": path})),
            Err(error) => asked.failure(&format!(
                "the cell cannot be written to `{}`: {error}",
                cells.folder().display()
            )),
        }
    }

    /// Assign in the notebook what a name means in a frame.
    fn copy_to_globals(&mut self, asked: Asked) {
        let name = |key: &str| {
            let name = asked.arguments[key].as_str().unwrap_or_default();
            is_identifier(name).then(|| name.to_owned())
        };
        let (Some(source), Some(target)) = (name("srcVariableName"), name("dstVariableName"))
        else {
            let fault = "`srcVariableName` and `dstVariableName` must be names of variables";
            return self.answer(&asked, &asked.failure(fault));
        };
        let arguments = json!({
            "expression": format!("globals()['{target}']"),
            "value": source,
            "frameId": asked.arguments["srcFrameId"],
        });
        self.send("setExpression", &arguments, Purpose::Pass(asked));
    }

    /// The representations of a variable of a frame, made by the thread that stands there.
    fn rich(&mut self, asked: Asked) {
        let name = asked.arguments["variableName"].as_str().unwrap_or_default();
        if !is_identifier(name) {
            // Front ends ask it of headings too (`special variables`).
            let nothing = json!({"data": {}, "metadata": {}});
            return self.answer(&asked, &asked.success(&nothing));
        }
        let expression =
            format!("__import__('tpu_kernel.debugging.debugger', fromlist=['rich']).rich({name})");
        let arguments = json!({
            "expression": expression,
            "frameId": asked.arguments["frameId"],
            "context": "clipboard",
        });
        self.send("evaluate", &arguments, Purpose::Rich(asked));
    }

    // -- a session --------------------------------------------------------------------------------

    fn initialize(&mut self, asked: Asked) {
        if let Some(capabilities) = &self.capabilities {
            // Another front end, or the same one after a page reload, joins.
            return self.answer(&asked, &asked.success(capabilities));
        }
        match &mut self.debuggee {
            Debuggee::Here { .. } => {
                let mut arguments = asked.arguments.clone();
                if arguments["adapterID"].is_null() {
                    arguments["adapterID"] = json!("tpu-kernel");
                }
                self.send("initialize", &arguments, Purpose::Initialize(asked));
            }
            Debuggee::Starting { waiting, .. } => waiting.push(asked),
            Debuggee::None => match Door::open() {
                Ok(door) => {
                    self.kernel.service.push(Service::StartDebugger {
                        port: door.port,
                        token: door.token.clone(),
                    });
                    tokio::spawn(door.serve(self.inputs.clone()));
                    self.debuggee = Debuggee::Starting {
                        link: None,
                        rules: None,
                        waiting: vec![asked],
                    };
                }
                Err(error) => {
                    let fault = format!("no port for the debugger can be had: {error}");
                    self.answer(&asked, &asked.failure(&fault));
                }
            },
        }
    }

    /// One half of the start is done.
    fn starting(&mut self, new_link: Option<Link>, new_rules: Option<Value>) {
        let Debuggee::Starting { link, rules, .. } = &mut self.debuggee else {
            return;
        };
        *link = new_link.or(link.take());
        *rules = new_rules.or(rules.take());
        if link.is_none() || rules.is_none() {
            return;
        }
        if let Debuggee::Starting {
            link: Some(link),
            rules: Some(rules),
            waiting,
        } = mem::replace(&mut self.debuggee, Debuggee::None)
        {
            self.debuggee = Debuggee::Here { link, rules };
            // In order: `initialize` is first. Who did not wait for its response is refused.
            for asked in waiting {
                self.resume_request(asked);
            }
        }
    }

    fn resume_request(&mut self, asked: Asked) {
        if asked.command == "initialize" {
            self.initialize(asked);
        } else if self.capabilities.is_some() {
            self.in_session(asked);
        } else {
            self.answer(&asked, &asked.failure(NOT_STARTED));
        }
    }

    fn attach(&mut self, asked: Asked) {
        let Debuggee::Here { rules, .. } = &self.debuggee else {
            return self.answer(&asked, &asked.failure(NOT_STARTED));
        };
        let mut arguments = asked.arguments.clone();
        if arguments["rules"].is_null() {
            arguments["rules"] = rules.clone();
        }
        if arguments["justMyCode"] != json!(true) {
            arguments["justMyCode"] = json!(false);
            arguments["debugOptions"] = json!(["DebugStdLib"]);
        }
        self.send("attach", &arguments, Purpose::Attach(asked));
    }

    /// Attached: set again what an earlier session left, then let it begin.
    fn configure(&mut self, asked: Asked) {
        for (source, breakpoints) in self.breakpoints.clone() {
            let arguments = json!({
                "source": {"path": source},
                "breakpoints": breakpoints,
                "sourceModified": false,
            });
            self.send("setBreakpoints", &arguments, Purpose::Own);
        }
        self.send("configurationDone", &json!({}), Purpose::Configured(asked));
    }

    /// No debugger is connected any more, or the session is over: answer all who wait.
    fn end(&mut self, reason: &str) {
        let mut waiting = Vec::new();
        if let Debuggee::Starting { waiting: them, .. } =
            mem::replace(&mut self.debuggee, Debuggee::None)
        {
            waiting = them;
        }
        let had_session = self.attached;
        self.end_session(reason);
        for asked in waiting {
            self.answer(&asked, &asked.failure(reason));
        }
        if had_session {
            self.publish(&json!({"type": "event", "seq": 0, "event": "terminated", "body": {}}));
        }
    }

    fn end_session(&mut self, reason: &str) {
        self.capabilities = None;
        self.attached = false;
        self.stopped.clear();
        self.leaving = false;
        self.kernel.debugger.set_active(false);
        for (_, purpose) in mem::take(&mut self.pending) {
            if let Some(asked) = purpose.asked() {
                self.answer(&asked, &asked.failure(reason));
            }
        }
    }

    // -- the debugger -----------------------------------------------------------------------------

    fn send(&mut self, command: &str, arguments: &Value, purpose: Purpose) {
        let Debuggee::Here { link, .. } = &self.debuggee else {
            if let Some(asked) = purpose.asked() {
                self.answer(&asked, &asked.failure(NOT_STARTED));
            }
            return;
        };
        self.seq += 1;
        link.send(&dap::request(self.seq, command, arguments));
        self.pending.insert(self.seq, purpose);
    }

    fn response(&mut self, response: Value) {
        let seq = response["request_seq"].as_u64().unwrap_or_default();
        let Some(purpose) = self.pending.remove(&seq) else {
            return;
        };
        let succeeded = response["success"] == true;
        match purpose {
            Purpose::Own => {}
            Purpose::Threads => {
                let threads = response["body"]["threads"].as_array();
                let ids = threads.into_iter().flatten();
                self.stopped
                    .extend(ids.filter_map(|thread| thread["id"].as_i64()));
            }
            Purpose::Initialize(asked) => {
                let mut response = asked.response(response);
                if succeeded {
                    // It would end the kernel.
                    response["body"]["supportsTerminateRequest"] = json!(false);
                    response["body"]["supportTerminateDebuggee"] = json!(false);
                    self.capabilities = Some(response["body"].clone());
                }
                self.answer(&asked, &response);
            }
            Purpose::Attach(asked) if succeeded => self.configure(asked),
            Purpose::Configured(asked) => {
                self.attached = succeeded;
                self.kernel.debugger.set_active(succeeded);
                self.answer(&asked, &asked.response(response));
            }
            Purpose::Breakpoints(asked) => {
                if succeeded {
                    self.keep_breakpoints(&asked, &response);
                }
                self.answer(&asked, &asked.response(response));
            }
            Purpose::Rich(asked) => self.answer(&asked, &rich_response(&asked, &response)),
            Purpose::Disconnect(asked) => {
                self.end_session(WENT_ON);
                self.answer(&asked, &asked.response(response));
            }
            Purpose::Pass(asked) | Purpose::Attach(asked) => {
                let mut response = response;
                if asked.command == "variables" {
                    hidden::hide(&mut response);
                }
                if RESUME.contains(&asked.command.as_str()) && !succeeded {
                    self.leaving = false;
                }
                self.answer(&asked, &asked.response(response));
            }
        }
    }

    /// Remember breakpoints as they were asked for, on the lines they really are.
    fn keep_breakpoints(&mut self, asked: &Asked, response: &Value) {
        let Some(source) = asked.arguments["source"]["path"].as_str() else {
            return;
        };
        let mut kept = asked.arguments["breakpoints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let set = response["body"]["breakpoints"].as_array();
        for (breakpoint, set) in kept.iter_mut().zip(set.into_iter().flatten()) {
            if let Some(breakpoint) = breakpoint.as_object_mut()
                && set["line"].is_u64()
            {
                breakpoint.insert("line".into(), set["line"].clone());
            }
        }
        if kept.is_empty() {
            self.breakpoints.remove(source);
        } else {
            self.breakpoints.insert(source.to_owned(), kept);
        }
    }

    fn event(&mut self, event: &Value) {
        let body = &event["body"];
        match event["event"].as_str() {
            Some("stopped") => {
                self.stopped.extend(body["threadId"].as_i64());
                self.leaving = false;
                if body["allThreadsStopped"] == true {
                    self.send("threads", &json!({}), Purpose::Threads);
                }
            }
            Some("continued") => {
                if body["allThreadsContinued"] == true {
                    self.stopped.clear();
                } else if let Some(thread) = body["threadId"].as_i64() {
                    self.stopped.remove(&thread);
                }
                if self.stopped.is_empty() {
                    self.went_on();
                }
            }
            // It speaks of the interpreter, and follows the end of the kernel.
            Some("exited" | "terminated") => return,
            _ => {}
        }
        self.publish(event);
    }

    /// Nothing stands any more: what waits for a thread that did is answered.
    fn went_on(&mut self) {
        self.leaving = false;
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, purpose)| purpose.needs_stop())
            .map(|(seq, _)| *seq)
            .collect();
        for seq in late {
            if let Some(asked) = self.pending.remove(&seq).and_then(Purpose::asked) {
                let response = if RESUME.contains(&asked.command.as_str()) {
                    asked.success(&json!({"allThreadsContinued": true}))
                } else {
                    asked.failure(WENT_ON)
                };
                self.answer(&asked, &response);
            }
        }
    }

    fn publish(&self, event: &Value) {
        let content = Bytes::from(event.to_string());
        let parent = self.last.as_deref();
        self.kernel
            .publish("debug_event", parent, EMPTY_OBJECT, content, Vec::new());
    }
}

/// The debugger gives the text `rich` returned as Python writes a string of ASCII letters.
fn rich_response(asked: &Asked, response: &Value) -> Value {
    let text = response["body"]["result"].as_str().unwrap_or_default();
    if response["success"] != true {
        return asked.failure(response["message"].as_str().unwrap_or(text));
    }
    match hex(text.trim_matches(['\'', '"'])).and_then(|bytes| serde_json::from_slice(&bytes).ok())
    {
        Some(Value::Object(body)) => asked.success(&Value::Object(body)),
        _ => asked.failure("the variable could not be shown"),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    rest.is_empty().then_some(())?;
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first == '_' || first.is_alphabetic())
        && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
}
