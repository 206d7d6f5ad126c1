//! The parameters of a code: its name, its stored form and its display.

use std::fmt;
use std::str::FromStr;

/// `mirror-2` to `mirror-5`, or k+m with 2 to 16 data strips and 1 to 3 parity strips.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code {
    data: u8,
    parity: u8,
}

/// The error for a text that names no code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoSuchCode(String);

impl Code {
    pub const fn mirror(copies: u8) -> Option<Code> {
        if copies >= 2 && copies <= 5 { Some(Code { data: 1, parity: copies - 1 }) } else { None }
    }

    pub const fn parity(data: u8, parity: u8) -> Option<Code> {
        if data >= 2 && data <= 16 && parity >= 1 && parity <= 3 { Some(Code { data, parity }) } else { None }
    }

    /// The code of two stored bytes.
    pub const fn from_parts(data: u8, parity: u8) -> Option<Code> {
        if data == 1 { Code::mirror(parity.saturating_add(1)) } else { Code::parity(data, parity) }
    }

    /// k: the number of data strips.
    pub const fn data(self) -> usize {
        self.data as usize
    }

    /// m: the number of strips that may be lost.
    pub const fn tolerates(self) -> usize {
        self.parity as usize
    }

    /// The number of all strips.
    pub const fn width(self) -> usize {
        self.data as usize + self.parity as usize
    }

    pub const fn is_mirror(self) -> bool {
        self.data == 1
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_mirror() { write!(f, "mirror-{}", self.width()) } else { write!(f, "{}+{}", self.data, self.parity) }
    }
}

impl FromStr for Code {
    type Err = NoSuchCode;

    fn from_str(text: &str) -> Result<Code, NoSuchCode> {
        let code = match text.strip_prefix("mirror-") {
            Some(copies) => copies.parse().ok().and_then(Code::mirror),
            None => text
                .split_once('+')
                .and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)))
                .and_then(|(data, parity)| Code::parity(data, parity)),
        };
        code.ok_or_else(|| NoSuchCode(text.to_owned()))
    }
}

impl fmt::Display for NoSuchCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a code; use mirror-2 to mirror-5, or k+m with k from 2 to 16 and m from 1 to 3, such as 8+2",
            self.0
        )
    }
}

impl std::error::Error for NoSuchCode {}

#[cfg(test)]
mod tests;
