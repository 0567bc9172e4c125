//! Text out of a byte stream that is cut anywhere.

/// Keeps the bytes of a character that has not arrived whole.
#[derive(Debug, Default)]
pub struct Utf8Tail {
    rest: Vec<u8>,
}

impl Utf8Tail {
    /// Hand on the text in `bytes`. What is not UTF-8 becomes U+FFFD; an incomplete character at
    /// the end waits for its rest.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&str)) {
        let joined;
        let mut bytes = if self.rest.is_empty() {
            bytes
        } else {
            self.rest.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.rest);
            &joined
        };
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => {
                    if !text.is_empty() {
                        sink(text);
                    }
                    return;
                }
                Err(error) => {
                    let (good, bad) = bytes.split_at(error.valid_up_to());
                    if let Ok(text) = std::str::from_utf8(good)
                        && !text.is_empty()
                    {
                        sink(text);
                    }
                    let Some(length) = error.error_len() else {
                        self.rest = bad.to_vec();
                        return;
                    };
                    sink("\u{fffd}");
                    bytes = &bad[length..];
                }
            }
        }
    }

    /// The stream pauses here: hand on what is incomplete as U+FFFD.
    pub fn finish(&mut self, mut sink: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            self.rest.clear();
            sink("\u{fffd}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Utf8Tail;

    fn decode(pieces: &[&[u8]]) -> String {
        let (mut tail, mut text) = (Utf8Tail::default(), String::new());
        for piece in pieces {
            tail.push(piece, |t| text.push_str(t));
        }
        tail.finish(|t| text.push_str(t));
        text
    }

    #[test]
    fn a_character_cut_by_the_pipe_arrives_whole() {
        let bytes = "aä€😀z".as_bytes();
        for cut in 0..=bytes.len() {
            assert_eq!(decode(&[&bytes[..cut], &bytes[cut..]]), "aä€😀z");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&single), "aä€😀z");
    }

    #[test]
    fn what_is_not_utf8_becomes_a_replacement_character_and_the_rest_survives() {
        assert_eq!(decode(&[b"a\xffb\xc3("]), "a\u{fffd}b\u{fffd}(");
        assert_eq!(decode(&[b"end\xe2\x82"]), "end\u{fffd}");
    }
}
