//! That an interrupt is felt. Python's handler of SIGINT leaves a flag, and Python looks at it between
//! instructions: a signal that lands after the look and before a system call begins does not end that
//! call, which may wait for ever. So until Python has looked again the main thread is woken now and
//! then, with a signal that does nothing else: a system call that ends so makes Python look, and where
//! it finds nothing it calls again. Nobody who caught the interrupt has a second one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::kernel::Kernel;

/// Python has looked by then, unless it is inside of a call. Each pause is twice as long as the last.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);
/// From then on only another interrupt helps.
const ENOUGH: Duration = Duration::from_secs(120);

/// Which interrupts were sent to the main thread, and which of them Python has looked for.
#[derive(Debug, Default)]
pub struct Felt {
    sent: AtomicU64,
    looked: AtomicU64,
    begun: Notify,
    ask: OnceLock<fn()>,
}

impl Felt {
    /// How Python is asked to say when it has looked: any thread may call it, with or without the GIL.
    pub fn ask_with(&self, ask: fn()) {
        let _ = self.ask.set(ask);
    }

    /// One was sent just now.
    pub fn begin(&self) {
        self.sent.fetch_add(1, Ordering::SeqCst);
        self.ask();
        self.begun.notify_one();
    }

    /// How many were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// Python has looked for the first `sent`.
    pub fn looked_for(&self, sent: u64) {
        self.looked.fetch_max(sent, Ordering::SeqCst);
    }

    fn ask(&self) {
        if let Some(ask) = self.ask.get() {
            ask();
        }
    }

    fn is_felt(&self) -> bool {
        self.looked.load(Ordering::SeqCst) >= self.sent()
    }
}

/// Wake the main thread until it has felt what was sent, as long as the kernel lives.
pub async fn watch(kernel: Arc<Kernel>) {
    loop {
        kernel.felt.begun.notified().await;
        wake(&kernel).await;
    }
}

/// Until the interrupt is felt, its cell has ended, or there is another.
async fn wake(kernel: &Kernel) {
    let Some(cell) = kernel.running() else {
        return;
    };
    let begun = Instant::now();
    let mut pause = FIRST;
    while begun.elapsed() < ENOUGH {
        if timeout(pause, kernel.felt.begun.notified()).await.is_ok() {
            return kernel.felt.begun.notify_one();
        }
        let runs = kernel.running().is_some_and(|now| Arc::ptr_eq(&now, &cell));
        if !runs || kernel.felt.is_felt() {
            return;
        }
        kernel.felt.ask(); // Python may have had no room for the question
        kernel.main_thread.wake();
        pause = (pause * 2).min(LONGEST);
    }
}
