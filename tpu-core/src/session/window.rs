//! How much is launched ahead of the device, so that what waits behind it can still be cancelled.
//!
//! A plug-in cannot take back what it was given. So it is given a quarter of a second of work at
//! most (two programs in any case, which keeps the device busy), judged by how long each took
//! before; the rest waits here, on the caller's own thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::clock::now_ns;
use super::lock;

/// Work that may be in the plug-in's queue at once, as far as it is known how long it takes.
const AHEAD_NS: u64 = 250_000_000;
/// Programs that may be there however long they take: one that runs and one that follows it.
const FEW: u32 = 2;

/// What was launched and has not ended, and whether launches are refused.
pub struct Window {
    state: Mutex<State>,
    freed: Condvar,
    cancelling: AtomicBool,
    cancelled: AtomicU64,
}

struct State {
    launches: u32,
    expected_ns: u64,
    waiting: u32,
}

/// How long a program takes, learnt from its launches; shared by those that are out.
#[derive(Clone, Debug, Default)]
pub struct Cost(Arc<AtomicU64>);

/// A place in the window; given back when dropped.
pub struct Room {
    window: &'static Window,
    expected_ns: u64,
    held_ns: u64,
    cost: Cost,
}

/// The launch was cancelled before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl Cost {
    /// It took this long. One that was fast once does not make it a fast one.
    pub fn learn(&self, took_ns: u64) {
        let before = self.0.load(Ordering::Relaxed);
        let now = took_ns.max(before - before / 8).max(1);
        self.0.store(now, Ordering::Relaxed);
    }

    /// As far as is known; a program that never ran may take any time.
    fn expected_ns(&self) -> u64 {
        match self.0.load(Ordering::Relaxed) {
            0 => AHEAD_NS,
            known => known.min(AHEAD_NS),
        }
    }
}

impl Window {
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                launches: 0,
                expected_ns: 0,
                waiting: 0,
            }),
            freed: Condvar::new(),
            cancelling: AtomicBool::new(false),
            cancelled: AtomicU64::new(0),
        }
    }

    /// Wait for a place. Refused while the queue is being cancelled.
    pub fn enter(&'static self, cost: &Cost) -> Result<Room, Cancelled> {
        let expected_ns = cost.expected_ns();
        let mut held_since = None;
        let mut state = lock(&self.state);
        loop {
            if self.cancelling.load(Ordering::Relaxed) {
                self.cancelled.fetch_add(1, Ordering::Relaxed);
                return Err(Cancelled);
            }
            if state.launches < FEW || state.expected_ns + expected_ns <= AHEAD_NS {
                break;
            }
            held_since.get_or_insert_with(now_ns);
            state.waiting += 1;
            state = self
                .freed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.launches += 1;
        state.expected_ns += expected_ns;
        Ok(Room {
            window: self,
            expected_ns,
            held_ns: held_since.map_or(0, |since| now_ns() - since),
            cost: cost.clone(),
        })
    }

    /// Refuse what waits, and what is launched until [`Self::resume`]. What runs is not stopped.
    pub fn cancel(&self) {
        let _state = lock(&self.state);
        self.cancelling.store(true, Ordering::Relaxed);
        self.freed.notify_all();
    }

    /// Launch again what is launched from now on; how many launches were refused.
    pub fn resume(&self) -> u64 {
        let _state = lock(&self.state);
        self.cancelling.store(false, Ordering::Relaxed);
        self.cancelled.swap(0, Ordering::Relaxed)
    }

    pub fn is_cancelling(&self) -> bool {
        self.cancelling.load(Ordering::Relaxed)
    }
}

impl Room {
    /// How long the launch waited for its place.
    pub fn held_ns(&self) -> u64 {
        self.held_ns
    }

    /// What was launched took this long.
    pub fn learn(&self, took_ns: u64) {
        self.cost.learn(took_ns);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = lock(&self.window.state);
        state.launches -= 1;
        state.expected_ns -= self.expected_ns;
        // Not at every end: to wake for one short program at a time costs more than it takes.
        let half_empty = state.expected_ns <= AHEAD_NS / 2 || state.launches < FEW;
        if state.waiting > 0 && half_empty {
            self.window.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn window() -> &'static Window {
        Box::leak(Box::new(Window::new()))
    }

    fn cost(took_ns: u64) -> Cost {
        let cost = Cost::default();
        cost.learn(took_ns);
        cost
    }

    fn wait_for_one(window: &'static Window) {
        while lock(&window.state).waiting == 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn short_programs_are_launched_far_ahead_and_long_ones_two_at_a_time() {
        let short = window();
        let cost_of_one = cost(1_000_000);
        let rooms: Vec<_> = (0..250)
            .map(|_| short.enter(&cost_of_one).unwrap())
            .collect();
        assert!(rooms.iter().all(|room| room.held_ns() == 0));
        assert_eq!(lock(&short.state).expected_ns, AHEAD_NS);
        drop(rooms);
        assert_eq!(lock(&short.state).expected_ns, 0);

        // nobody knows how long one takes that never ran
        let long = window();
        let first = long.enter(&Cost::default()).unwrap();
        let _second = long.enter(&Cost::default()).unwrap();
        let third = thread::spawn(|| long.enter(&Cost::default()).unwrap().held_ns());
        wait_for_one(long);
        thread::sleep(Duration::from_millis(2));
        drop(first);
        assert!(third.join().unwrap() >= 2_000_000);
    }

    #[test]
    fn what_waits_is_refused_at_once_and_what_comes_later_is_launched_again() {
        let window = window();
        let rooms = [cost(u64::MAX), cost(u64::MAX)].map(|cost| window.enter(&cost).unwrap());
        let waiting = thread::spawn(|| window.enter(&cost(1)).err());
        wait_for_one(window);
        window.cancel();
        assert_eq!(waiting.join().unwrap(), Some(Cancelled));
        assert_eq!(window.enter(&cost(1)).err(), Some(Cancelled));
        assert!(window.is_cancelling());
        assert_eq!(window.resume(), 2);
        assert_eq!(window.resume(), 0);
        drop(rooms);
        assert!(window.enter(&cost(1)).is_ok());
    }

    #[test]
    fn a_program_is_not_taken_for_a_short_one_after_one_short_run() {
        let cost = cost(80_000_000);
        cost.learn(8);
        assert_eq!(cost.expected_ns(), 70_000_000);
    }
}
