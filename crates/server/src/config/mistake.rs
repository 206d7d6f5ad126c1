//! Mistakes in `stele.toml`, told with the line, the key and what an operator can write instead.

use std::io::ErrorKind;
use std::path::Path;

use crate::failure::{Failure, io_failure};

/// What the parsers say, and what an operator needs. The types are those of the keys.
const SAID: [(&str, &str); 8] = [
    ("invalid socket address syntax", "write IP:PORT, as in 127.0.0.1:9000 or [::1]:9000"),
    (" as i128,", ","),
    (" as u128,", ","),
    ("expected u64", "expected a whole number from 0 on"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u8", "expected a whole number from 0 to 255"),
    ("expected a sequence", "expected a list, as in [\"a\", \"b\"]"),
    ("expected path string", "expected a path in quotes"),
];

/// The file cannot be read at all.
pub(super) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let failure = io_failure("read the configuration", path, error);
    match error.kind() {
        ErrorKind::NotFound if is_lost(path) => {
            failure.next("restore it, as with `stele config import`: a server had its files in this directory")
        }
        ErrorKind::NotFound => failure.next(
            "start one with `stele up --dir DIR`, make a pool with `stele pool create --dir DIR`, or name its directory with --dir or STELE_DIR",
        ),
        ErrorKind::IsADirectory | ErrorKind::NotADirectory => {
            failure.next("--config names the file, and --dir the directory that has a stele.toml")
        }
        ErrorKind::InvalidData => {
            Failure::usage(format!("the configuration {} is no text in UTF-8", path.display()))
                .next("write it anew with a text editor, or restore it")
        }
        _ => failure,
    }
}

/// Whether a server that had this configuration left signed heads or counters beside it.
fn is_lost(path: &Path) -> bool {
    path.parent().is_some_and(|dir| ["heads", "history.json"].iter().any(|left| dir.join(left).exists()))
}

/// The file is text, and no configuration.
pub(super) fn misunderstood(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let number = before.matches('\n').count() + 1;
    let mut said = error.message().trim_end().to_owned();
    for (raw, plain) in SAID {
        said = said.replace(raw, plain);
    }
    // Other messages name the key themselves, or stand for a whole section.
    let names_key = ["missing field", "unknown field", "duplicate"].iter().any(|start| said.starts_with(start));
    let key = text.lines().nth(number - 1).and_then(key_of).filter(|_| !names_key);
    let key = key.map(|key| format!("{key}: ")).unwrap_or_default();
    Failure::usage(format!("{}, line {number}: {key}{said}", path.display()))
        .next("OPERATIONS.md lists every key; a comment in a packaged stele.toml explains each")
}

/// The key that a line sets.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!key.is_empty() && key.chars().all(is_plain)).then_some(key)
}
