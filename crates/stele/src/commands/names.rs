//! Names of objects and versions: `BUCKET/KEY` or `BUCKET/KEY@VERSION`, one on each line of a list.
//!
//! A key may hold line breaks, and characters that act on a terminal. Such a name is written as a
//! string of JSON, in double quotes. Commands take both forms: no bucket's name begins with a
//! quote, so the two cannot be confused, and a list that was printed is read back exactly.

use std::fmt::Write;
use std::io::BufRead;
use std::path::Path;

use stele_ground::shown::is_unsafe;
use stele_server::api::matters::Named;
use stele_server::failure::{Failure, Outcome, io_failure};

/// A name as one line that [`object_named`] reads back.
pub fn written(name: &str) -> String {
    if !name.contains(is_unsafe) && name.trim() == name && !name.starts_with('"') {
        return name.to_owned();
    }
    let mut text = String::with_capacity(name.len() + 2);
    text.push('"');
    for character in name.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            other if is_unsafe(other) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// The bucket, key and version that a name stands for.
pub fn object_named(object: &str) -> Outcome<(String, String, Option<String>)> {
    let plain = match object.starts_with('"') {
        true => serde_json::from_str::<String>(object).map_err(|_| {
            Failure::usage(format!("{object} is no string of JSON"))
                .next("write the name as `stele find` prints it, or without quotes")
        })?,
        false => object.to_owned(),
    };
    let (name, version) = match plain.rsplit_once('@') {
        Some((name, version))
            if version == "null" || (version.len() == 32 && version.bytes().all(|byte| byte.is_ascii_hexdigit())) =>
        {
            (name, Some(version.to_owned()))
        }
        _ => (plain.as_str(), None),
    };
    let (bucket, key) =
        name.split_once('/').filter(|(bucket, key)| !bucket.is_empty() && !key.is_empty()).ok_or_else(|| {
            Failure::usage(format!("'{object}' names no object")).next("write BUCKET/KEY or BUCKET/KEY@VERSION")
        })?;
    Ok((bucket.to_owned(), key.to_owned(), version))
}

/// A list of names, read page by page.
pub struct NameList<'a> {
    /// Where it comes from, for messages.
    path: &'a Path,
    lines: std::io::Lines<Box<dyn BufRead + 'a>>,
    line: u64,
}

impl<'a> NameList<'a> {
    pub fn new(path: &'a Path, text: impl BufRead + 'a) -> NameList<'a> {
        NameList { path, lines: (Box::new(text) as Box<dyn BufRead>).lines(), line: 0 }
    }

    /// At most `most` names, each with the number of its line; none at the end. Lines without text
    /// are skipped.
    pub fn page(&mut self, most: usize) -> Outcome<Vec<(u64, Named)>> {
        let mut page = Vec::new();
        while page.len() < most
            && let Some(line) = self.lines.next()
        {
            self.line += 1;
            let place = || match self.path == Path::new("-") {
                true => format!("standard input, line {}", self.line),
                false => format!("{}, line {}", self.path.display(), self.line),
            };
            let line = line.map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => Failure::usage(format!("{}: it is not UTF-8", place()))
                    .next("write BUCKET/KEY or BUCKET/KEY@VERSION, as `stele find` prints them"),
                _ => io_failure("read", self.path, &error),
            })?;
            // A key may end with spaces; another system's lines end with a carriage return.
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() {
                continue;
            }
            let (bucket, key, version) = object_named(line)
                .map_err(|failure| Failure { error: format!("{}: {}", place(), failure.error), ..failure })?;
            page.push((self.line, Named { bucket, key, version }));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "7f3a09c2e4b1d8650193f3c2aa57e01b";

    #[test]
    fn printed_names_are_read_back_exactly() {
        for (key, line) in [
            ("2026/Prüfung №1.pdf", "mail/2026/Prüfung №1.pdf"),
            ("back\\nslash", "mail/back\\nslash"),
            ("say \"x\"", "mail/say \"x\""),
            ("two\nlines", "\"mail/two\\nlines\""),
            ("two\r\nlines\\n", "\"mail/two\\r\\nlines\\\\n\""),
            ("\u{1b}[2J\"\t", "\"mail/\\u001b[2J\\\"\\t\""),
            ("a\u{e0041}\u{202e}", "\"mail/a\\udb40\\udc41\\u202e\""),
            ("a space ", "\"mail/a space \""),
            ("a@null", "mail/a@null"),
        ] {
            let name = format!("mail/{key}");
            assert_eq!(written(&name), line);
            let versioned = written(&format!("{name}@{VERSION}"));
            assert!(!versioned.contains(is_unsafe), "{versioned}");
            let read = object_named(&versioned).unwrap();
            assert_eq!(read, ("mail".into(), key.into(), Some(VERSION.into())), "{versioned}");
            let list = format!("\n{versioned}\r\n");
            let page = NameList::new(Path::new("list"), list.as_bytes()).page(10).unwrap();
            assert_eq!((page[0].0, &*page[0].1.key, page.len()), (2, key, 1), "{list}");
        }
    }

    #[test]
    fn a_wrong_line_of_a_list_is_named_by_file_and_number() {
        for (list, error) in [
            (&b"mail/a\n\nmail\n"[..], "found.txt, line 3: 'mail' names no object"),
            (b"mail/a\n/b\n", "found.txt, line 2: '/b' names no object"),
            (b"\"mail/a\n", "found.txt, line 1: \"mail/a is no string of JSON"),
            (b"mail/a\nmail/\xff\n", "found.txt, line 2: it is not UTF-8"),
        ] {
            let failure = NameList::new(Path::new("found.txt"), list).page(10).unwrap_err();
            assert_eq!(failure.error, error);
            assert_eq!(failure.kind, stele_server::failure::Kind::Usage);
            assert!(!failure.next.is_empty());
        }
    }

    #[test]
    fn a_list_is_read_in_pages() {
        let mut list = NameList::new(Path::new("-"), &b"m/a\nm/b\nm/c\n"[..]);
        let mut numbers = |most| list.page(most).unwrap().iter().map(|(line, _)| *line).collect::<Vec<_>>();
        assert_eq!((numbers(2), numbers(2), numbers(2)), (vec![1, 2], vec![3], vec![]));
    }
}
