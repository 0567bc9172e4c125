//! The topics of one subscriber: prefixes, each as often as it was asked for.

use bytes::Bytes;

use super::error::PeerError;
use super::limits::{SUBSCRIPTION_BYTES, SUBSCRIPTIONS};

/// What a subscriber wants. Nearly always one empty prefix.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    prefixes: Vec<(Bytes, u32)>,
    bytes: usize,
}

impl Topics {
    /// Adds `prefix`; true when it is new.
    pub(crate) fn add(&mut self, prefix: &Bytes) -> Result<bool, PeerError> {
        if let Some((_, count)) = self.prefixes.iter_mut().find(|(found, _)| found == prefix) {
            *count = count.saturating_add(1);
            return Ok(false);
        }
        if self.prefixes.len() >= SUBSCRIPTIONS {
            return Err(PeerError::TooManySubscriptions {
                bound: SUBSCRIPTIONS,
            });
        }
        if self.bytes + prefix.len() > SUBSCRIPTION_BYTES {
            return Err(PeerError::TooManySubscriptions {
                bound: SUBSCRIPTION_BYTES,
            });
        }
        self.bytes += prefix.len();
        self.prefixes.push((prefix.clone(), 1));
        Ok(true)
    }

    /// Takes back one request for `prefix`.
    pub(crate) fn remove(&mut self, prefix: &Bytes) {
        if let Some(index) = self.prefixes.iter().position(|(found, _)| found == prefix) {
            self.prefixes[index].1 -= 1;
            if self.prefixes[index].1 == 0 {
                self.bytes -= prefix.len();
                self.prefixes.swap_remove(index);
            }
        }
    }

    /// Whether a message with this first frame is wanted.
    pub(crate) fn match_topic(&self, topic: &[u8]) -> bool {
        self.prefixes
            .iter()
            .any(|(prefix, _)| topic.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_prefix() {
        let mut topics = Topics::default();
        assert!(!topics.match_topic(b"stream"));
        assert!(topics.add(&Bytes::from_static(b"str")).unwrap());
        assert!(topics.match_topic(b"stream") && topics.match_topic(b"str"));
        assert!(!topics.match_topic(b"st"));
        topics.add(&Bytes::new()).unwrap();
        assert!(topics.match_topic(b""));
    }

    #[test]
    fn asked_for_twice_it_must_be_cancelled_twice() {
        let topic = Bytes::from_static(b"a");
        let mut topics = Topics::default();
        assert!(topics.add(&topic).unwrap());
        assert!(!topics.add(&topic).unwrap());
        topics.remove(&topic);
        assert!(topics.match_topic(b"a"));
        topics.remove(&topic);
        topics.remove(&topic);
        assert!(!topics.match_topic(b"a"));
    }

    #[test]
    fn topics_are_bounded_in_number_and_bytes() {
        let mut topics = Topics::default();
        for number in 0..SUBSCRIPTIONS {
            topics.add(&Bytes::from(number.to_string())).unwrap();
        }
        assert!(topics.add(&Bytes::from_static(b"one more")).is_err());
        let mut topics = Topics::default();
        assert!(
            topics
                .add(&Bytes::from(vec![1; SUBSCRIPTION_BYTES + 1]))
                .is_err()
        );
    }
}
