//! Lines that stand under the running cell: what an interrupt waits for, what takes long. All of
//! it under the lock of what runs, so that nothing comes after a cell's last word.

use std::sync::Arc;
use std::time::Instant;

use super::{Kernel, Running, lock};
use crate::interrupt::Pending;
use crate::outbox::{Entry, Reply};
use crate::parent::Parent;
use crate::progress::Progress;

impl Running {
    /// The cell of `parent` ends: the last words of its lines.
    pub(super) fn settle(&mut self, parent: &Arc<Parent>, reply: Option<&Reply>) -> Vec<Entry> {
        let progress = self
            .progress
            .take_if(|progress| progress.concerns(parent))
            .and_then(Progress::settle);
        let interrupt = self
            .interrupt
            .take_if(|interrupt| interrupt.concerns(parent))
            .and_then(|interrupt| interrupt.settle(reply.map(|reply| &reply.content)));
        progress.into_iter().chain(interrupt).collect()
    }
}

impl Kernel {
    /// Since when an interrupt waits for the cell that runs; None when none does.
    pub(crate) fn interrupted_since(&self) -> Option<Instant> {
        lock(&self.running).interrupt.as_ref().map(Pending::since)
    }

    /// Publish what `line` makes of the interrupt of `since`, unless its cell has ended meanwhile.
    pub(crate) fn show_interrupt(&self, since: Instant, line: impl FnOnce(&mut Pending) -> Entry) {
        let mut running = lock(&self.running);
        if let Some(interrupt) = &mut running.interrupt
            && interrupt.since() == since
        {
            self.outbox.push(line(interrupt));
        }
    }

    /// Publish what `line` makes of the progress of the cell of `parent`, unless it has ended
    /// meanwhile. `begin`: where there is no line yet there is one now.
    pub(crate) fn show_progress(
        &self,
        parent: &Arc<Parent>,
        begin: bool,
        line: impl FnOnce(&mut Progress) -> Option<Entry>,
    ) {
        let mut running = lock(&self.running);
        let now = running.current.as_ref();
        if now.is_none_or(|current| !Arc::ptr_eq(current, parent)) {
            return;
        }
        if begin && running.progress.is_none() {
            running.progress = Some(Progress::new(Arc::clone(parent)));
        }
        if let Some(entry) = running.progress.as_mut().and_then(line) {
            self.outbox.push(entry);
        }
    }
}
