//! Tells of text that was dropped after its cell had ended: a thread or a child went on printing
//! past the cap.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::kernel::Kernel;
use crate::outbox::Entry;
use crate::parent::Parent;

/// How often the counts are looked at while some change.
const LOOK: Duration = Duration::from_secs(1);
/// One that goes on growing is told of this often; one that stays as it is, at once.
const TELL_AGAIN: Duration = Duration::from_secs(60);

struct Watched {
    parent: Arc<Parent>,
    dropped: u64,
    told: Instant,
}

/// Runs on the io thread; sleeps while nothing is dropped.
pub async fn report(kernel: Arc<Kernel>) {
    let mut watched: Vec<Watched> = Vec::new();
    loop {
        let new = if watched.is_empty() {
            kernel.outbox.late().await
        } else {
            kernel.outbox.late_now()
        };
        for parent in new {
            if !watched.iter().any(|known| known.parent.is(&parent)) {
                watched.push(Watched {
                    dropped: parent.tally.dropped(),
                    told: Instant::now(),
                    parent,
                });
            }
        }
        tokio::time::sleep(LOOK).await;
        watched.retain_mut(|one| {
            let dropped = one.parent.tally.dropped();
            let grows = std::mem::replace(&mut one.dropped, dropped) != dropped;
            if !grows || one.told.elapsed() >= TELL_AGAIN {
                one.told = Instant::now();
                kernel.outbox.push(Entry::Dropped(Arc::clone(&one.parent)));
            }
            grows
        });
    }
}
