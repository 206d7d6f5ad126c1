//! Makes untrusted text safe to show on a terminal or to write into a log.
//!
//! A name with a line break forges lines of a listing, an escape sequence controls the terminal,
//! and direction marks show words in another order. [`Shown`] writes such characters as `\n`,
//! `\u{1b}` and the like, so that one value stays in its place on one line. It is for people; JSON
//! carries the exact bytes.

use std::fmt;

/// A text that is safe to display. Applying it twice gives the same text as once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let mut rest = self.0;
        while let Some(at) = rest.find(is_unsafe) {
            let (plain, from) = rest.split_at(at);
            f.write_str(plain)?;
            let mut characters = from.chars();
            match characters.next() {
                Some('\n') => f.write_str("\\n")?,
                Some('\r') => f.write_str("\\r")?,
                Some('\t') => f.write_str("\\t")?,
                Some(other) => write!(f, "\\u{{{:x}}}", u32::from(other))?,
                None => f.write_char('\\')?,
            }
            rest = characters.as_str();
        }
        f.write_str(rest)
    }
}

/// Whether a character acts on the display instead of being visible: controls, line separators,
/// direction marks, and characters without width.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The text in a form that is safe to display.
pub fn shown(text: &str) -> String {
    Shown(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_something_instead_of_being_seen_is_written_out() {
        for (text, expected) in [
            ("", ""),
            ("records/2026/Prüfung №1 – 年度.pdf", "records/2026/Prüfung №1 – 年度.pdf"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[2J\u{7f}\u{9b}1m", "\\u{1b}[2J\\u{7f}\\u{9b}1m"),
            ("fdp.\u{202e}exe", "fdp.\\u{202e}exe"),
            ("a\u{200b}\u{2028}\u{e0041}", "a\\u{200b}\\u{2028}\\u{e0041}"),
            ("back\\slash", "back\\slash"),
        ] {
            let seen = shown(text);
            assert_eq!(seen, expected);
            assert_eq!(shown(&seen), seen, "showing twice changes nothing more");
            assert!(!seen.chars().any(is_unsafe));
        }
    }
}
