//! What a request to the interpreter's debugger is for, while its response is awaited.

use super::dap::Asked;

/// Answered when the program goes on, if the debugger has not yet.
pub const RESUME: [&str; 6] = [
    "continue",
    "goto",
    "next",
    "reverseContinue",
    "stepIn",
    "stepOut",
];
/// These look at a thread that stands.
pub const LOOK: [&str; 12] = [
    "completions",
    "copyToGlobals",
    "evaluate",
    "exceptionInfo",
    "gotoTargets",
    "restartFrame",
    "scopes",
    "setExpression",
    "setVariable",
    "stackTrace",
    "stepInTargets",
    "variables",
];

/// What a request to the debugger was for.
#[derive(Debug)]
pub enum Purpose {
    /// Its response is the reply.
    Pass(Asked),
    Initialize(Asked),
    Attach(Asked),
    /// The session begins once this is answered.
    Configured(Asked),
    Breakpoints(Asked),
    /// A value with its rich representation.
    Rich(Asked),
    Disconnect(Asked),
    /// Which threads stand.
    Threads,
    /// Nobody waits for it.
    Own,
}

impl Purpose {
    /// The request that waits for the reply, if anybody does.
    pub fn asked(self) -> Option<Asked> {
        match self {
            Self::Pass(asked)
            | Self::Initialize(asked)
            | Self::Attach(asked)
            | Self::Configured(asked)
            | Self::Breakpoints(asked)
            | Self::Rich(asked)
            | Self::Disconnect(asked) => Some(asked),
            Self::Threads | Self::Own => None,
        }
    }

    /// It makes sense only while a thread stands.
    pub fn needs_stop(&self) -> bool {
        match self {
            Self::Pass(asked) => {
                let command = asked.command.as_str();
                LOOK.contains(&command) || RESUME.contains(&command)
            }
            Self::Rich(_) => true,
            _ => false,
        }
    }
}
