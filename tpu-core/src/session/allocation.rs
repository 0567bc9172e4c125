//! Pieces of device memory and who shares them: a piece is counted once, from the first buffer
//! that has it to the last.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::cells::CellId;
use super::residency::Place;
use super::{SESSION, lock};

/// A piece of memory.
struct Allocation {
    bytes: u64,
    place: Place,
    cell: CellId,
    holders: AtomicU32,
}

/// One holder's part in a piece of memory; dropping it lets go.
pub struct Share(Arc<Allocation>);

impl Share {
    /// New memory of `bytes`, made by the cell that runs now.
    pub fn new(place: Place, bytes: u64) -> Self {
        let cell = SESSION.cells.current();
        SESSION.residency.add(place, cell, bytes);
        Self(Arc::new(Allocation {
            bytes,
            place,
            cell,
            holders: AtomicU32::new(1),
        }))
    }

    /// A part for a further holder.
    pub fn another(&self) -> Self {
        // Above zero as long as `self` is.
        self.0.holders.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }

    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// Let go because a program or a donation took the memory over.
    pub fn donate(self) {
        SESSION.residency.donated(self.0.place);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Allocation {
            bytes,
            place,
            cell,
            holders,
        } = &*self.0;
        if holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            SESSION.residency.release(*place, *cell, *bytes);
        }
    }
}

/// What a buffer has of the device's memory.
pub enum Hold {
    /// Its part in a piece, until it is deleted or taken over.
    Now(Mutex<Option<Share>>),
    /// None before somebody keeps a promise: an alias of a buffer that is still to come.
    Later(Arc<Promise>),
}

/// A promise of memory, between the buffer it was given to and whoever keeps it.
pub struct Promise(Mutex<Promised>);

enum Promised {
    Open,
    Kept(Share),
    /// The buffer is gone, or what should have been its memory never came.
    Over,
}

impl Promise {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Promised::Open)))
    }

    /// The memory is here; `None` when there will be none.
    pub fn settle(&self, share: Option<Share>) {
        let mut promised = lock(&self.0);
        if matches!(*promised, Promised::Open) {
            *promised = share.map_or(Promised::Over, Promised::Kept);
        }
    }
}

impl Hold {
    pub fn of(share: Share) -> Self {
        Self::Now(Mutex::new(Some(share)))
    }

    /// Memory of somebody else, or none: not counted here.
    pub fn nothing() -> Self {
        Self::Now(Mutex::new(None))
    }

    fn read<T>(&self, look: impl FnOnce(&Share) -> T) -> Option<T> {
        match self {
            Self::Now(share) => lock(share).as_ref().map(look),
            Self::Later(promise) => match &*lock(&promise.0) {
                Promised::Kept(share) => Some(look(share)),
                Promised::Open | Promised::Over => None,
            },
        }
    }

    /// Bytes of the memory; 0 where there is none.
    pub fn bytes(&self) -> u64 {
        self.read(Share::bytes).unwrap_or(0)
    }

    /// There is no memory and there will be none.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Now(share) => lock(share).is_none(),
            Self::Later(promise) => matches!(*lock(&promise.0), Promised::Over),
        }
    }

    /// A part in the same memory for somebody else.
    pub fn another(&self) -> Option<Share> {
        self.read(Share::another)
    }

    /// Give the part up, for good.
    pub fn end(&self) -> Option<Share> {
        match self {
            Self::Now(share) => lock(share).take(),
            Self::Later(promise) => {
                match std::mem::replace(&mut *lock(&promise.0), Promised::Over) {
                    Promised::Kept(share) => Some(share),
                    Promised::Open | Promised::Over => None,
                }
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond all devices: nothing is counted, so that tests do not disturb each other.
    const NOWHERE: Place = Place::Device(u16::MAX);

    fn holders(share: &Share) -> u32 {
        share.0.holders.load(Ordering::Relaxed)
    }

    #[test]
    fn memory_is_there_until_the_last_holder_lets_go() {
        let first = Hold::of(Share::new(NOWHERE, 64));
        let second = Hold::of(first.another().unwrap());
        let watch = first.another().unwrap();
        assert_eq!(holders(&watch), 3);
        drop(first.end());
        assert!(first.is_over() && first.another().is_none());
        assert_eq!((holders(&watch), second.bytes()), (2, 64));
        drop(second);
        assert_eq!(holders(&watch), 1);
    }

    #[test]
    fn a_promise_holds_nothing_until_it_is_kept_and_nothing_when_it_is_kept_too_late() {
        let promise = Promise::new();
        let alias = Hold::Later(Arc::clone(&promise));
        assert_eq!(alias.bytes(), 0);
        let memory = Share::new(NOWHERE, 32);
        promise.settle(Some(memory.another()));
        promise.settle(Some(memory.another()));
        assert_eq!((alias.bytes(), holders(&memory)), (32, 2));
        drop(alias);
        assert_eq!(holders(&memory), 1);
        let late = Promise::new();
        drop(Hold::Later(Arc::clone(&late)));
        late.settle(Some(memory.another()));
        assert_eq!(holders(&memory), 1);
    }
}
