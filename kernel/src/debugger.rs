//! The debugger's side that needs no Python: `debug_request` on the control channel, relayed to the
//! debugger in the interpreter (pydevd, which speaks the Debug Adapter Protocol) over TCP, and its
//! events as `debug_event`. It works while the main thread stands at a breakpoint or holds the GIL.
//!
//! - `cells`: the file names cells are compiled under, and `dumpCell`
//! - `dap`: requests, responses, and how they are framed
//! - `hidden`: names that are no variables of the user's
//! - `link`: the connection to the debugger in the interpreter
//! - `purpose`: what a request to the debugger is for
//! - `relay`: what happens to each request, response and event
//!
//! What needs Python's objects (`tpu_kernel.debugging.debugger`) goes to the service thread as it is.

mod cells;
mod dap;
mod hidden;
mod link;
mod purpose;
mod relay;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::mpsc;

use crate::kernel::Kernel;
use crate::lock::lock;
use crate::request::Request;

pub use hidden::is_hidden;

use cells::CellFiles;
use link::Link;
use relay::Relay;

/// What arrives at the relay. One queue, so that what belongs together stays in order.
#[derive(Debug)]
enum Input {
    Request(Request),
    /// The interpreter's debugger has connected, and proved that it is ours.
    Connected(Link),
    /// It will not connect, for this reason; or it has, and these are the rules of what stepping
    /// passes over.
    Started(Result<Value, String>),
    /// A response or an event from it.
    Message(Value),
    /// The connection has ended.
    Gone,
}

/// The debugger as the rest of the kernel sees it.
#[derive(Debug)]
pub struct Debugger {
    inputs: mpsc::UnboundedSender<Input>,
    waiting: Mutex<Option<mpsc::UnboundedReceiver<Input>>>,
    cells: CellFiles,
    active: AtomicBool,
}

impl Default for Debugger {
    fn default() -> Self {
        let (inputs, waiting) = mpsc::unbounded_channel();
        Self {
            inputs,
            waiting: Mutex::new(Some(waiting)),
            cells: CellFiles::default(),
            active: AtomicBool::new(false),
        }
    }
}

impl Debugger {
    /// A `debug_request` came. Exactly one reply will go out for it.
    pub(crate) fn ask(&self, request: Request) {
        // The relay lives as long as the process.
        let _ = self.inputs.send(Input::Request(request));
    }

    /// Python has started its debugger, or could not.
    pub fn started(&self, outcome: Result<Value, String>) {
        let _ = self.inputs.send(Input::Started(outcome));
    }

    /// The file name the cell with this source is compiled under.
    pub fn cell_file(&self, source: &str) -> String {
        self.cells.path(source)
    }

    /// A front end debugs now.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::Relaxed);
    }

    /// Remove what was written for it.
    pub(crate) fn clean(&self) {
        self.cells.remove();
    }
}

/// Serve the debugger; a task of the io thread.
pub(crate) async fn run(kernel: Arc<Kernel>) {
    let inputs = lock(&kernel.debugger.waiting).take();
    let Some(mut inputs) = inputs else { return };
    let mut relay = Relay::new(Arc::clone(&kernel), kernel.debugger.inputs.clone());
    while let Some(input) = inputs.recv().await {
        relay.handle(input);
    }
}
