//! Subshells (JEP 91): which there are, what waits for each, and where comm messages go while there
//! are some. The io thread creates and deletes them; the Python thread of each takes its requests.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;

use crate::lock::lock;
use crate::request::{Request, ShellQueue};
use crate::wire::LossyString;

/// Questions asked over one comm whose answers are awaited in a certain subshell.
const MAX_QUESTIONS: usize = 1024;

/// A shell beside the main one, with a thread and a queue of its own.
#[derive(Debug)]
pub struct Subshell {
    pub id: String,
    pub queue: ShellQueue,
    deleted: AtomicBool,
    over: AtomicBool,
}

impl Subshell {
    /// It was deleted: its thread answers what waits, and takes comm messages for a moment.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Nothing comes any more: its thread ends.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// No subshell has this id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no subshell `{0}`: it was deleted, or the kernel has been restarted; \
     `create_subshell_request` makes a new one"
)]
pub struct UnknownSubshell(pub String);

/// Who used a comm last. `None` is the main shell.
#[derive(Debug, Default)]
struct Used {
    by: Option<String>,
    /// By the id of a question sent over it, who asked.
    questions: HashMap<String, Option<String>>,
}

/// What a comm message names, as far as its way depends on it.
struct Named {
    comm_id: String,
    question: Option<String>,
}

impl Named {
    fn in_content(content: &[u8]) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct Content<'a> {
            comm_id: LossyString,
            #[serde(borrow, default)]
            data: Option<&'a RawValue>,
        }
        #[derive(serde::Deserialize)]
        struct Data {
            content: Question,
        }
        #[derive(serde::Deserialize)]
        struct Question {
            id: LossyString,
        }
        let content: Content<'_> = serde_json::from_slice(content).ok()?;
        let question = content
            .data
            .and_then(|data| serde_json::from_str::<Data>(data.get()).ok());
        Some(Self {
            comm_id: content.comm_id.0,
            question: question.map(|data| data.content.id.0),
        })
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Subshells {
    open: Mutex<Vec<Arc<Subshell>>>,
    /// Deleted ones that still take comm messages.
    closing: Mutex<Vec<Arc<Subshell>>>,
    comms: Mutex<HashMap<String, Used>>,
}

impl Subshells {
    /// A new one. Its thread is the caller's to start.
    pub fn create(&self) -> io::Result<Arc<Subshell>> {
        let subshell = Arc::new(Subshell {
            id: uuid::Uuid::new_v4().to_string(),
            queue: ShellQueue::new()?,
            deleted: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        lock(&self.open).push(Arc::clone(&subshell));
        Ok(subshell)
    }

    /// Delete one: no request is put into its queue any more. Comm messages are, until `end`: the
    /// page that goes away closes its comms, and the main shell may be busy.
    pub fn delete(&self, id: &str) -> Result<Arc<Subshell>, UnknownSubshell> {
        let mut open = lock(&self.open);
        let place = open
            .iter()
            .position(|subshell| subshell.id == id)
            .ok_or_else(|| UnknownSubshell(id.to_owned()))?;
        let subshell = open.remove(place);
        subshell.deleted.store(true, Ordering::Release);
        subshell.queue.wake();
        lock(&self.closing).push(Arc::clone(&subshell));
        Ok(subshell)
    }

    /// Nothing is put into the queue of this deleted one any more. On the io thread, which puts.
    pub fn end(&self, subshell: &Arc<Subshell>) {
        lock(&self.closing).retain(|one| !Arc::ptr_eq(one, subshell));
        subshell.over.store(true, Ordering::Release);
        subshell.queue.wake();
    }

    /// Their ids, oldest first.
    pub fn ids(&self) -> Vec<String> {
        lock(&self.open)
            .iter()
            .map(|subshell| subshell.id.clone())
            .collect()
    }

    /// The subshell a request names.
    pub fn find(&self, id: &str) -> Result<Arc<Subshell>, UnknownSubshell> {
        lock(&self.open)
            .iter()
            .find(|subshell| subshell.id == id)
            .cloned()
            .ok_or_else(|| UnknownSubshell(id.to_owned()))
    }

    /// The subshell a comm message is for: also one that was deleted a moment ago.
    pub fn find_for_comm(&self, id: &str) -> Option<Arc<Subshell>> {
        let open = self.find(id).ok();
        open.or_else(|| {
            let closing = lock(&self.closing);
            closing.iter().find(|subshell| subshell.id == id).cloned()
        })
    }

    fn all(&self) -> Vec<Arc<Subshell>> {
        let open = lock(&self.open);
        open.iter().chain(&*lock(&self.closing)).cloned().collect()
    }

    /// Wake the threads, which then see that the kernel stops.
    pub fn wake(&self) {
        for subshell in self.all() {
            subshell.queue.wake();
        }
    }

    /// Take out all that waits in any of them.
    pub fn take_all(&self) -> Vec<Request> {
        let all = self.all();
        all.iter()
            .flat_map(|subshell| std::iter::from_fn(|| subshell.queue.pop()))
            .collect()
    }

    // -- comms ------------------------------------------------------------------------------------

    /// The shell `by` sends a comm message: what the front end sends back is for that shell, which
    /// may be waiting for it.
    pub fn comm_sent(&self, msg_type: &str, content: &[u8], by: Option<&str>) {
        let Some(named) = Named::in_content(content) else {
            return;
        };
        let mut comms = lock(&self.comms);
        if msg_type == "comm_close" {
            comms.remove(&named.comm_id);
            return;
        }
        let used = comms.entry(named.comm_id).or_default();
        used.by = by.map(str::to_owned);
        if let Some(question) = named.question {
            if used.questions.len() >= MAX_QUESTIONS {
                used.questions.clear();
            }
            used.questions.insert(question, by.map(str::to_owned));
        }
    }

    /// The shell a comm message from a front end is for: the one that used the comm last, else the
    /// one it names; the main shell (`None`) when that one is gone.
    pub fn shell_of_comm(
        &self,
        msg_type: &str,
        content: &[u8],
        named: Option<&str>,
    ) -> Option<Arc<Subshell>> {
        if lock(&self.open).is_empty() && lock(&self.closing).is_empty() {
            return None;
        }
        let id = self.last_user(msg_type, content, named)?;
        self.find_for_comm(&id)
    }

    fn last_user(&self, msg_type: &str, content: &[u8], default: Option<&str>) -> Option<String> {
        let default = default.map(str::to_owned);
        let Some(named) = Named::in_content(content) else {
            return default;
        };
        let mut comms = lock(&self.comms);
        if msg_type == "comm_close" {
            let used = comms.remove(&named.comm_id);
            return used.map_or(default, |used| used.by);
        }
        let Some(used) = comms.get_mut(&named.comm_id) else {
            return default;
        };
        let asked = named.question.and_then(|id| used.questions.remove(&id));
        asked.unwrap_or_else(|| used.by.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(shell: Option<Arc<Subshell>>) -> Option<String> {
        shell.map(|shell| shell.id.clone())
    }

    #[test]
    fn a_deleted_one_is_unknown_and_told() {
        let shells = Subshells::default();
        let (first, second) = (shells.create().unwrap(), shells.create().unwrap());
        assert_eq!(shells.ids(), [first.id.clone(), second.id.clone()]);
        assert_eq!(shells.find(&second.id).unwrap().id, second.id);
        shells.delete(&first.id).unwrap();
        assert!(first.is_deleted());
        assert!(!second.is_deleted());
        assert_eq!(shells.ids(), std::slice::from_ref(&second.id));
        let unknown = UnknownSubshell(first.id.clone());
        assert_eq!(shells.delete(&first.id).unwrap_err(), unknown);
        assert_eq!(shells.find(&first.id).unwrap_err(), unknown);
    }

    #[test]
    fn what_a_front_end_answers_over_a_comm_is_for_the_shell_that_used_it_last() {
        let shells = Subshells::default();
        let own = shells.create().unwrap();
        let other = shells.create().unwrap();
        let content = br#"{"comm_id":"c","data":{"x":1}}"#;
        let to = |named: Option<&str>| id(shells.shell_of_comm("comm_msg", content, named));
        assert_eq!(to(None), None);
        assert_eq!(to(Some(&other.id)), Some(other.id.clone()));
        shells.comm_sent("comm_open", content, Some(&own.id));
        assert_eq!(to(None), Some(own.id.clone()));
        assert_eq!(to(Some(&other.id)), Some(own.id.clone()));
        shells.comm_sent("comm_msg", content, None);
        assert_eq!(to(Some(&other.id)), None, "the main shell used it last");
        shells.comm_sent("comm_msg", content, Some(&own.id));
        let deleted = shells.delete(&own.id).unwrap();
        assert_eq!(to(None), Some(own.id.clone()), "it takes them for a moment");
        shells.end(&deleted);
        assert_eq!(to(None), None, "nothing is lost with the subshell");
    }

    #[test]
    fn the_answer_to_a_question_is_for_the_shell_that_asked() {
        let shells = Subshells::default();
        let own = shells.create().unwrap();
        let question = br#"{"comm_id":"c","data":{"content":{"id":"q1","x":1}}}"#;
        shells.comm_sent("comm_msg", question, Some(&own.id));
        shells.comm_sent("comm_msg", br#"{"comm_id":"c","data":{}}"#, None);
        let to = || id(shells.shell_of_comm("comm_msg", question, None));
        assert_eq!(to(), Some(own.id.clone()));
        assert_eq!(to(), None, "it was answered");
    }

    #[test]
    fn a_closed_comm_is_forgotten() {
        let shells = Subshells::default();
        let own = shells.create().unwrap();
        let content = br#"{"comm_id":"c","data":{}}"#;
        shells.comm_sent("comm_open", content, Some(&own.id));
        let closed = id(shells.shell_of_comm("comm_close", content, None));
        assert_eq!(closed, Some(own.id.clone()));
        assert_eq!(id(shells.shell_of_comm("comm_msg", content, None)), None);
    }
}
