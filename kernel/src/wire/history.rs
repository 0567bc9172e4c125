//! Signatures seen before: a message recorded on its way and sent again must not run again.

use std::collections::{HashSet, VecDeque};

use super::signer::SIGNATURE;

/// Signatures remembered; the oldest goes first.
pub const REMEMBERED_SIGNATURES: usize = 65_536;

/// Half a signature tells messages apart as surely, in half the memory.
type Mark = [u8; SIGNATURE / 2];

/// The last signatures seen.
#[derive(Debug)]
pub(crate) struct History {
    bound: usize,
    seen: HashSet<Mark>,
    order: VecDeque<Mark>,
}

impl History {
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            bound,
            seen: HashSet::new(),
            order: VecDeque::new(),
        }
    }

    /// Remembers `signature`; false when it was there already.
    pub(crate) fn remember(&mut self, signature: &[u8; SIGNATURE]) -> bool {
        let mut mark = Mark::default();
        mark.copy_from_slice(&signature[..SIGNATURE / 2]);
        if !self.seen.insert(mark) {
            return false;
        }
        self.order.push_back(mark);
        if self.order.len() > self.bound
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut history = History::new(2);
        let [one, two, three] = [[1; SIGNATURE], [2; SIGNATURE], [3; SIGNATURE]];
        assert!(history.remember(&one));
        assert!(!history.remember(&one));
        assert!(history.remember(&two));
        assert!(history.remember(&three));
        assert!(!history.remember(&two));
        assert!(history.remember(&one));
        assert_eq!((history.seen.len(), history.order.len()), (2, 2));
    }
}
