//! Which files are left out: patterns as restic has them.
//!
//! A pattern is compared with whole components of the path. `*`, `?` and `[a-z]` match within a
//! component, `**` matches any number of components. A pattern that begins with `/` must match from
//! the top, another one anywhere. Components `.` count for nothing: `./a` is `a`. No path of a
//! snapshot has a component `..`, so a pattern with one is refused. A pattern that matches a
//! directory leaves out all below it. A pattern that begins with `!` takes back what earlier ones
//! left out; it has no effect below a directory that is left out.

use crate::error::{BackupError, Result};

/// Bytes of a pattern, and patterns of a backup.
const PATTERN_MAX: usize = 4096;
const PATTERNS_MAX: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    negated: bool,
    from_top: bool,
    ignore_case: bool,
    parts: Vec<Vec<u8>>,
}

/// What editors of Windows write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The patterns of a backup.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Filter(Vec<Pattern>);

impl Filter {
    /// Adds a pattern. It may have any bytes, as names of files have.
    pub fn add(&mut self, text: impl AsRef<[u8]>, ignore_case: bool) -> Result<()> {
        let text = text.as_ref();
        let wrong = |why: &str| BackupError::Invalid(format!("pattern '{}': {why}", String::from_utf8_lossy(text)));
        if text.len() > PATTERN_MAX || self.0.len() >= PATTERNS_MAX {
            return Err(wrong("there are too many patterns, or it is too long"));
        }
        let (negated, rest) = text.strip_prefix(b"!").map_or((false, text), |rest| (true, rest));
        let from_top = rest.starts_with(b"/");
        let folded = |part: &[u8]| if ignore_case { fold(part) } else { part.to_vec() };
        // No path of a snapshot has such components.
        let is_name = |part: &&[u8]| !part.is_empty() && *part != b".";
        let parts: Vec<Vec<u8>> = rest.split(|byte| *byte == b'/').filter(is_name).map(folded).collect();
        if parts.is_empty() {
            return Err(wrong("it names nothing"));
        }
        if parts.iter().any(|part| part == b"..") {
            return Err(wrong("no path in a snapshot has '..'; write it from the top, as /home/user/tmp"));
        }
        if parts.iter().any(|part| has_open_class(part)) {
            return Err(wrong("a '[' has no ']'"));
        }
        self.0.push(Pattern { negated, from_top, ignore_case, parts });
        Ok(())
    }

    /// The patterns of a file: one on each line. Empty lines, and those that begin with `#`, count
    /// for nothing.
    pub fn add_lines(&mut self, text: impl AsRef<[u8]>, ignore_case: bool) -> Result<()> {
        let text = text.as_ref();
        let lines = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text).split(|byte| *byte == b'\n');
        let mut lines = lines.map(<[u8]>::trim_ascii).filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        lines.try_for_each(|line| self.add(line, ignore_case))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the path, relative to the top and without a slash before it, is left out.
    pub fn excludes(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let lower = if self.0.iter().any(|pattern| pattern.ignore_case) { fold(path) } else { Vec::new() };
        let lower_parts: Vec<&[u8]> = lower.split(|byte| *byte == b'/').collect();
        self.0.iter().fold(false, |excluded, pattern| {
            let parts = if pattern.ignore_case { &lower_parts } else { &parts };
            if pattern.matches(parts) { !pattern.negated } else { excluded }
        })
    }
}

/// The text without case, for patterns and paths alike. What is no UTF-8 stays as it is.
fn fold(text: &[u8]) -> Vec<u8> {
    let mut folded = Vec::with_capacity(text.len());
    for part in text.utf8_chunks() {
        folded.extend_from_slice(part.valid().to_lowercase().as_bytes());
        folded.extend_from_slice(part.invalid());
    }
    folded
}

impl Pattern {
    /// Whether the pattern matches the end of the path. What is below a match was never reached.
    fn matches(&self, path: &[&[u8]]) -> bool {
        let starts = if self.from_top { 0..1 } else { 0..path.len() };
        starts.into_iter().any(|from| match_parts(&self.parts, path.get(from..).unwrap_or_default()))
    }
}

/// Whether the pattern's parts match the whole path. A table of both lengths, so that no pattern
/// takes exponential time.
fn match_parts(pattern: &[Vec<u8>], path: &[&[u8]]) -> bool {
    // reach[i]: the parts so far match the first i components.
    let mut reach = vec![false; path.len() + 1];
    if let Some(first) = reach.first_mut() {
        *first = true;
    }
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == b"**" {
            let mut any = false;
            for (into, from) in next.iter_mut().zip(&reach) {
                any |= *from;
                *into = any;
            }
        } else {
            for ((into, from), component) in next.iter_mut().skip(1).zip(&reach).zip(path) {
                *into = *from && match_name(part, component);
            }
        }
        reach = next;
    }
    reach.last() == Some(&true)
}

/// Whether a part of a pattern matches a name.
fn match_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The last star, and the place in the name up to which it matches.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        let step = match (pattern.get(at), name.get(place)) {
            (Some(b'*'), _) => {
                star = Some((at, place));
                at += 1;
                continue;
            }
            (Some(b'?'), _) => Some(1),
            (Some(b'['), Some(byte)) => match_class(pattern.get(at..).unwrap_or_default(), *byte),
            (Some(b'\\'), Some(byte)) => (pattern.get(at + 1) == Some(byte)).then_some(2),
            (Some(literal), Some(byte)) => (literal == byte).then_some(1),
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => (at, place) = (at + length, place + 1),
            (None, Some((star_at, up_to))) => {
                star = Some((star_at, up_to + 1));
                (at, place) = (star_at + 1, up_to + 1);
            }
            (None, None) => return false,
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

/// The length of the class at the beginning of the pattern, if it contains the byte.
fn match_class(pattern: &[u8], byte: u8) -> Option<usize> {
    let length = pattern.iter().skip(2).position(|byte| *byte == b']')? + 3;
    let inside = pattern.get(1..length - 1)?;
    let (negated, inside) = match inside.strip_prefix(b"^").or_else(|| inside.strip_prefix(b"!")) {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, inside),
    };
    let (mut found, mut at) = (false, 0);
    while let Some(first) = inside.get(at) {
        match (inside.get(at + 1), inside.get(at + 2)) {
            (Some(b'-'), Some(last)) => {
                found |= (*first..=*last).contains(&byte);
                at += 3;
            }
            _ => {
                found |= *first == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(length)
}

/// Whether a class has no end. A bracket behind a backslash begins none.
fn has_open_class(part: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = part.get(at) {
        at += match byte {
            b'\\' => 2,
            b'[' => match part.iter().skip(at + 2).position(|byte| *byte == b']') {
                Some(length) => length + 3,
                None => return true,
            },
            _ => 1,
        };
    }
    false
}

#[cfg(test)]
mod tests;
