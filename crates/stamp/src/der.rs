//! Reads DER (ITU-T X.690), as far as time stamps use it.
//!
//! The bytes come from the network. A length never reaches behind its surroundings, every step
//! consumes bytes, and the reader calls nothing recursively; each caller goes down a fixed number
//! of levels. Lengths that are indefinite or longer than necessary are refused, and so are tags of
//! several bytes, which time stamps do not have.

use crate::Finding;

pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const OCTETS: u8 = 0x04;
pub const OBJECT: u8 = 0x06;
pub const UTF8: u8 = 0x0c;
pub const UTC_TIME: u8 = 0x17;
pub const TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// The tag of a field `[number]` with fields in it.
pub const fn field(number: u8) -> u8 {
    0xa0 | number
}

/// One value.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// With its tag and its length.
    pub whole: &'a [u8],
}

/// Values one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    pub fn of(bytes: &'a [u8]) -> Values<'a> {
        Values(bytes)
    }

    /// The next value; None at the end.
    pub fn next(&mut self) -> Result<Option<Value<'a>>, Finding> {
        let Some((tag, rest)) = self.0.split_first() else { return Ok(None) };
        if tag & 0x1f == 0x1f {
            return Err("a tag has several bytes".into());
        }
        let (length, rest) = length(rest)?;
        let (content, after) = rest.split_at_checked(length).ok_or("a value is cut short")?;
        let whole = self.0.get(..self.0.len() - after.len()).ok_or("a value is cut short")?;
        self.0 = after;
        Ok(Some(Value { tag: *tag, content, whole }))
    }

    /// The next value, which has this tag.
    pub fn take(&mut self, tag: u8, what: &str) -> Result<Value<'a>, Finding> {
        match self.next()? {
            Some(value) if value.tag == tag => Ok(value),
            _ => Err(format!("{what} is missing")),
        }
    }

    /// The next value, if it has this tag. Another one stays.
    pub fn optional(&mut self, tag: u8) -> Result<Option<Value<'a>>, Finding> {
        match self.0.first() {
            Some(next) if *next == tag => self.next(),
            _ => Ok(None),
        }
    }

    /// The fields of the next value, which is a sequence.
    pub fn sequence(&mut self, what: &str) -> Result<Values<'a>, Finding> {
        Ok(Values(self.take(SEQUENCE, what)?.content))
    }

    pub fn end(&self, what: &str) -> Result<(), Finding> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("bytes follow {what}")),
        }
    }
}

impl<'a> Value<'a> {
    pub fn values(&self) -> Values<'a> {
        Values(self.content)
    }
}

/// A length, and what follows it.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), Finding> {
    let (first, rest) = bytes.split_first().ok_or("a length is missing")?;
    if *first < 0x80 {
        return Ok((usize::from(*first), rest));
    }
    let count = usize::from(first & 0x7f);
    let (digits, rest) = rest.split_at_checked(count).ok_or("a length is cut short")?;
    let is_minimal = match digits {
        [] => return Err("a length is indefinite: this is BER, not DER".into()),
        [one] => *one >= 0x80,
        [most, ..] => *most > 0,
    };
    if !is_minimal || count > 4 {
        return Err("a length is not written as DER does".into());
    }
    let length = digits.iter().fold(0_usize, |length, digit| length << 8 | usize::from(*digit));
    Ok((length, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_form_and_stay_inside() {
        let read = |bytes: &[u8]| Values::of(bytes).next().map(|value| value.map(|value| value.content.len()));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[4, 0]), Ok(Some(0)));
        assert_eq!(read(&[&[4, 0x81, 0x80][..], &[0; 128]].concat()), Ok(Some(128)));
        assert_eq!(read(&[&[4, 0x82, 1, 0][..], &[0; 256]].concat()), Ok(Some(256)));
        let wrong: [&[u8]; 8] = [
            &[4],
            &[4, 1],
            &[4, 0x80, 0, 0],
            &[4, 0x81, 1, 0],
            &[4, 0x82, 0, 0x80],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[4, 0x88, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[0x1f, 1, 0],
        ];
        for bytes in wrong {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
