//! Work that has begun on the device and not ended: the queue a drain waits for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::journal::EventKind;
use super::lock;

/// Number of a piece of work, in the order of issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u64);

/// What an open ticket is for.
#[derive(Clone, Debug)]
pub struct Open {
    pub kind: EventKind,
    pub started_ns: u64,
    pub bytes: u64,
    pub name: Option<Arc<str>>,
}

/// Tickets that are out, oldest first; each knows whether its work has ended.
pub struct Pending {
    queue: Mutex<Queue>,
    progress: Condvar,
}

struct Queue {
    /// Ticket of the front of `tickets`.
    first: u64,
    /// None where the work has ended.
    tickets: VecDeque<Option<Open>>,
    open: u64,
    waiters: u32,
}

impl Pending {
    pub const fn new() -> Self {
        let queue = Queue {
            first: 0,
            tickets: VecDeque::new(),
            open: 0,
            waiters: 0,
        };
        Self {
            queue: Mutex::new(queue),
            progress: Condvar::new(),
        }
    }

    pub fn issue(&self, work: Open) -> Ticket {
        let mut queue = lock(&self.queue);
        let ticket = queue.first + queue.tickets.len() as u64;
        queue.tickets.push_back(Some(work));
        queue.open += 1;
        Ticket(ticket)
    }

    pub fn complete(&self, ticket: Ticket) {
        let mut queue = lock(&self.queue);
        let index = ticket.0.wrapping_sub(queue.first) as usize;
        if let Some(open) = queue.tickets.get_mut(index)
            && open.take().is_some()
        {
            queue.open -= 1;
        }
        while let Some(None) = queue.tickets.front() {
            queue.tickets.pop_front();
            queue.first += 1;
        }
        if queue.waiters > 0 {
            self.progress.notify_all();
        }
    }

    /// Wait for all that was issued before the call. Work issued meanwhile is not waited for.
    pub fn wait(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut queue = lock(&self.queue);
        let goal = queue.first + queue.tickets.len() as u64;
        queue.waiters += 1;
        while queue.first < goal {
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(3600),
            };
            if left.is_zero() {
                break;
            }
            queue = match self.progress.wait_timeout(queue, left) {
                Ok((queue, _)) => queue,
                Err(poisoned) => PoisonError::into_inner(poisoned).0,
            };
        }
        queue.waiters -= 1;
        queue.first >= goal
    }

    /// Issued so far, and still open.
    pub fn counts(&self) -> (u64, u64) {
        let queue = lock(&self.queue);
        (queue.first + queue.tickets.len() as u64, queue.open)
    }

    /// The oldest work that has not ended.
    pub fn oldest(&self) -> Option<Open> {
        lock(&self.queue).tickets.iter().flatten().next().cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    fn open(kind: EventKind) -> Open {
        Open {
            kind,
            started_ns: 1,
            bytes: 2,
            name: None,
        }
    }

    #[test]
    fn the_oldest_work_is_the_one_that_is_waited_for() {
        let pending = Pending::new();
        let first = pending.issue(open(EventKind::Execute));
        let _second = pending.issue(open(EventKind::Upload));
        assert_eq!(pending.oldest().unwrap().kind, EventKind::Execute);
        pending.complete(first);
        assert_eq!(pending.oldest().unwrap().kind, EventKind::Upload);
    }

    #[test]
    fn nothing_pending_is_no_wait() {
        assert!(Pending::new().wait(Duration::ZERO));
    }

    #[test]
    fn work_that_ends_out_of_order_is_still_waited_for() {
        let pending = Pending::new();
        let (first, second) = (
            pending.issue(open(EventKind::Execute)),
            pending.issue(open(EventKind::Execute)),
        );
        pending.complete(second);
        assert!(!pending.wait(Duration::from_millis(1)));
        pending.complete(first);
        pending.complete(first);
        assert!(pending.wait(Duration::ZERO));
        assert_eq!(pending.counts(), (2, 0));
    }

    #[test]
    fn work_issued_during_the_wait_does_not_prolong_it() {
        let pending = Arc::new(Pending::new());
        let first = pending.issue(open(EventKind::Execute));
        let waiting = Arc::clone(&pending);
        let waiter = thread::spawn(move || waiting.wait(Duration::from_secs(60)));
        while lock(&pending.queue).waiters == 0 {
            thread::yield_now();
        }
        let _later = pending.issue(open(EventKind::Execute));
        pending.complete(first);
        assert!(waiter.join().unwrap());
        assert_eq!(pending.counts(), (2, 1));
    }
}
