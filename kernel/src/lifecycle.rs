//! From the request to stop to the end of the process, within the time a Jupyter server waits.
//! Also: what makes the kernel stop that is no request (SIGTERM, the death of the parent).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use crate::kernel::Kernel;
use crate::lock::lock;
use crate::process;
use crate::request::Service;
use std::sync::atomic::Ordering;

/// `jupyter_client` sends SIGTERM 2.5 s after its request; with the last messages and the children
/// ended, the process is gone by 2.2 s.
const BUDGET: Duration = Duration::from_millis(1_750);
/// A cell that runs is interrupted again after each of these.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(200);
/// Children had SIGINT at once; those left are ended now.
const CHILDREN_END: Duration = Duration::from_millis(500);
/// The main thread has not come back by now: the service thread runs the exit handlers.
const MAIN_LATE: Duration = Duration::from_millis(700);
/// What exit handlers may take.
const EXIT_HANDLERS: Duration = Duration::from_secs(1);
/// What those that are left may take to obey SIGTERM, and to be gone after SIGKILL.
const TERMINATION: Duration = Duration::from_millis(100);
const KILLED: Duration = Duration::from_millis(50);
/// What the last messages may take to reach the front ends.
pub const LAST_FLUSH: Duration = Duration::from_millis(300);

/// Wait for the order to stop, then see it through. Returns when the process should end.
pub async fn run(kernel: Arc<Kernel>) {
    kernel.stop.notified().await;
    process::adopt_orphans();
    let start = Instant::now();
    let mut next_interrupt = start;
    let (mut children_told, mut service_told) = (false, false);
    loop {
        if timeout(Duration::from_millis(50), kernel.exit.notified())
            .await
            .is_ok()
        {
            return;
        }
        let leaving = *lock(&kernel.leaving);
        let elapsed = start.elapsed();
        match leaving {
            Some(since) if since.elapsed() > EXIT_HANDLERS => return,
            None if Instant::now() >= next_interrupt => {
                next_interrupt += INTERRUPT_AGAIN;
                kernel.interrupt();
            }
            None if elapsed > MAIN_LATE && !service_told => {
                service_told = true;
                kernel.service.push(Service::Exit);
            }
            _ => {}
        }
        if elapsed > CHILDREN_END && !children_told {
            children_told = true;
            process::send(&process::own_processes(kernel.owner()), libc::SIGTERM);
        }
        if elapsed > BUDGET {
            return;
        }
    }
}

/// End the processes that are left and this one.
pub async fn end(kernel: &Kernel) -> ! {
    kernel.debugger.clean();
    kernel.offer.withdraw();
    let left = process::own_processes(kernel.owner());
    process::send(&left, libc::SIGTERM);
    gone(left, TERMINATION).await;
    // What started others meanwhile needs another look.
    for _ in 0..3 {
        let left = process::own_processes(kernel.owner());
        if left.is_empty() {
            break;
        }
        process::send(&left, libc::SIGKILL);
        gone(left, KILLED).await;
    }
    process::end(kernel.exit_code.load(Ordering::Acquire))
}

/// Wait until these have ended, at most `patience`.
async fn gone(mut processes: Vec<i32>, patience: Duration) {
    let deadline = Instant::now() + patience;
    loop {
        process::reap();
        processes.retain(|pid| process::alive(*pid));
        if processes.is_empty() || Instant::now() >= deadline {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}
