//! Numbers and sections as MLIR's bytecode writes them.

use super::Malformed;

/// Read access to bytes, from front to back.
pub struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number whose first byte says, in its trailing zeros, how many bytes follow it.
    pub fn number(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        let more = first.trailing_zeros() as usize;
        let mut wide = [0; 16];
        wide[0] = first;
        wide[1..=more].copy_from_slice(self.bytes(more)?);
        // Behind a whole byte of zeros the number stands as it is.
        Ok((u128::from_le_bytes(wide) >> (more + 1).min(8)) as u64)
    }

    pub fn index(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    /// A number of things that take at least a byte each, so that no count makes us reserve more
    /// than the bytes at hand.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.index()?;
        if count > self.rest.len() {
            return Err(Malformed);
        }
        Ok(count)
    }

    pub fn indices(&mut self) -> Result<Vec<usize>, Malformed> {
        (0..self.count()?).map(|_| self.index()).collect()
    }

    /// A signed number, its sign in the lowest bit.
    pub fn signed(&mut self) -> Result<i64, Malformed> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// An index and the flag in its lowest bit.
    pub fn flagged(&mut self) -> Result<(usize, bool), Malformed> {
        let value = self.index()?;
        Ok((value >> 1, value & 1 == 1))
    }
}

/// Write access to bytes, as the reader expects them.
#[derive(Default)]
pub struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub fn number(&mut self, value: u64) {
        let bits = 64 - value.leading_zeros() as usize;
        let more = bits.max(1).div_ceil(7) - 1;
        if more >= 8 {
            self.bytes.push(0);
            self.bytes.extend_from_slice(&value.to_le_bytes());
        } else {
            let wide = (u128::from(value) << 1 | 1) << more;
            self.bytes.extend_from_slice(&wide.to_le_bytes()[..=more]);
        }
    }

    pub fn index(&mut self, value: usize) {
        self.number(value as u64);
    }

    pub fn indices(&mut self, values: &[usize]) {
        self.index(values.len());
        for value in values {
            self.index(*value);
        }
    }

    pub fn signed(&mut self, value: i64) {
        self.number((value << 1 ^ value >> 63) as u64);
    }

    pub fn flagged(&mut self, value: usize, flag: bool) {
        self.index(value << 1 | usize::from(flag));
    }
}

/// Marks a section that starts at a multiple of some number of bytes.
const ALIGNED: u8 = 0x80;
/// Fills the gap before it.
const PADDING: u8 = 0xcb;

/// A numbered run of bytes.
pub struct Section<'a> {
    pub id: u8,
    pub alignment: usize,
    pub data: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The next section; `whole` bytes are those the alignment counts from.
    pub fn section(&mut self, whole: usize) -> Result<Section<'a>, Malformed> {
        let id = self.byte()?;
        let length = self.index()?;
        let mut alignment = 1;
        if id & ALIGNED != 0 {
            alignment = self.index()?;
            if !alignment.is_power_of_two() {
                return Err(Malformed);
            }
            let position = whole.checked_sub(self.rest.len()).ok_or(Malformed)?;
            self.bytes(position.next_multiple_of(alignment) - position)?;
        }
        Ok(Section {
            id: id & !ALIGNED,
            alignment,
            data: self.bytes(length)?,
        })
    }
}

impl Writer {
    pub fn section(&mut self, id: u8, alignment: usize, data: &[u8]) {
        let aligned = alignment > 1;
        self.bytes.push(id | if aligned { ALIGNED } else { 0 });
        self.index(data.len());
        if aligned {
            self.index(alignment);
            let start = self.bytes.len().next_multiple_of(alignment);
            self.bytes.resize(start, PADDING);
        }
        self.bytes.extend_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_as_written() {
        let mut values: Vec<u64> = (0..64).map(|bit| 1 << bit).collect();
        values.extend(values.clone().iter().map(|value| value - 1));
        values.push(u64::MAX);
        for value in values {
            let mut writer = Writer::default();
            writer.number(value);
            let mut reader = Reader::new(&writer.bytes);
            assert_eq!(reader.number().unwrap(), value);
            assert!(reader.rest.is_empty());
        }
    }

    #[test]
    fn numbers_take_a_byte_for_seven_bits() {
        let written = |value| {
            let mut writer = Writer::default();
            writer.number(value);
            writer.bytes
        };
        assert_eq!(written(0), [1]);
        assert_eq!(written(127), [0xff]);
        assert_eq!(written(128), [0x02, 0x02]);
        assert_eq!(written(u64::MAX).len(), 9);
    }

    #[test]
    fn signs_are_kept() {
        for value in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            let mut writer = Writer::default();
            writer.signed(value);
            assert_eq!(Reader::new(&writer.bytes).signed().unwrap(), value);
        }
    }

    #[test]
    fn bytes_that_end_too_early_are_malformed() {
        assert!(Reader::new(&[]).number().is_err());
        assert!(Reader::new(&[0x02]).number().is_err());
        assert!(Reader::new(&[0, 1, 2]).number().is_err());
        assert!(Reader::new(&[0xff]).count().is_err());
    }
}
