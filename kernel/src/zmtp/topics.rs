//! The topics of one subscriber: prefixes, each as often as it was asked for.
//!
//! A new prefix is dormant until the publisher's owner has heard of it, so that the owner's welcome
//! is the first message under it.

use bytes::Bytes;

use super::error::PeerError;
use super::limits::{SUBSCRIPTION_BYTES, SUBSCRIPTIONS};

/// What a subscriber wants. Nearly always one empty prefix.
#[derive(Debug, Default)]
pub(crate) struct Topics {
    prefixes: Vec<Prefix>,
    bytes: usize,
}

#[derive(Debug)]
struct Prefix {
    text: Bytes,
    count: u32,
    awake: bool,
}

impl Topics {
    /// Adds `text`; true when it is new, and dormant.
    pub(crate) fn add(&mut self, text: &Bytes) -> Result<bool, PeerError> {
        if let Some(prefix) = self.find(text) {
            prefix.count = prefix.count.saturating_add(1);
            return Ok(false);
        }
        if self.prefixes.len() >= SUBSCRIPTIONS {
            return Err(PeerError::TooManySubscriptions {
                bound: SUBSCRIPTIONS,
            });
        }
        if self.bytes + text.len() > SUBSCRIPTION_BYTES {
            return Err(PeerError::TooManySubscriptions {
                bound: SUBSCRIPTION_BYTES,
            });
        }
        self.bytes += text.len();
        self.prefixes.push(Prefix {
            text: text.clone(),
            count: 1,
            awake: false,
        });
        Ok(true)
    }

    /// Lets messages under `text` pass from now on; false when it was taken back, or awake already.
    pub(crate) fn wake(&mut self, text: &Bytes) -> bool {
        self.find(text)
            .is_some_and(|prefix| !std::mem::replace(&mut prefix.awake, true))
    }

    /// Takes back one request for `text`.
    pub(crate) fn remove(&mut self, text: &Bytes) {
        if let Some(index) = self.prefixes.iter().position(|prefix| prefix.text == text) {
            self.prefixes[index].count -= 1;
            if self.prefixes[index].count == 0 {
                self.bytes -= text.len();
                self.prefixes.swap_remove(index);
            }
        }
    }

    /// Whether a message with this first frame is wanted.
    pub(crate) fn match_topic(&self, topic: &[u8]) -> bool {
        self.prefixes
            .iter()
            .any(|prefix| prefix.awake && topic.starts_with(&prefix.text))
    }

    fn find(&mut self, text: &Bytes) -> Option<&mut Prefix> {
        self.prefixes.iter_mut().find(|prefix| prefix.text == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_prefix() {
        let mut topics = Topics::default();
        assert!(!topics.match_topic(b"stream"));
        let prefix = Bytes::from_static(b"str");
        assert!(topics.add(&prefix).unwrap());
        assert!(!topics.match_topic(b"stream"));
        assert!(topics.wake(&prefix));
        assert!(topics.match_topic(b"stream") && topics.match_topic(b"str"));
        assert!(!topics.match_topic(b"st"));
        topics.add(&Bytes::new()).unwrap();
        assert!(topics.wake(&Bytes::new()));
        assert!(topics.match_topic(b""));
    }

    #[test]
    fn asked_for_twice_it_must_be_cancelled_twice() {
        let topic = Bytes::from_static(b"a");
        let mut topics = Topics::default();
        assert!(topics.add(&topic).unwrap());
        assert!(!topics.add(&topic).unwrap());
        assert!(topics.wake(&topic));
        assert!(!topics.wake(&topic));
        topics.remove(&topic);
        assert!(topics.match_topic(b"a"));
        topics.remove(&topic);
        topics.remove(&topic);
        assert!(!topics.match_topic(b"a"));
        assert!(!topics.wake(&topic));
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
