//! The formats that files of evidence name: a later version of Stele may write a later one, with
//! other fields.
//!
//! A verifier looks at the format before anything else. A file of a later format is neither changed
//! nor of another store: this version only does not know its fields. It proves nothing here either.

use serde::Deserialize;

use crate::evidence::bundle::PROOF;
use crate::evidence::disposal::DISPOSAL;
use crate::evidence::receipt::{CONSISTENCY, RECEIPT_OF_GROUP};

/// The last format of each kind that this version writes.
const LAST: [&str; 4] = [RECEIPT_OF_GROUP, DISPOSAL, CONSISTENCY, PROOF];

#[derive(Deserialize)]
struct Named {
    format: String,
}

/// The format that a JSON text names, if it is a later one of the kind of `last`. Both end with
/// their number.
pub fn format_after(last: &str, text: &[u8]) -> Option<String> {
    let Named { format } = serde_json::from_slice(text).ok()?;
    let (kind, known) = last.rsplit_once(' ')?;
    let number: u64 = format.strip_prefix(kind)?.strip_prefix(' ')?.parse().ok()?;
    (number > known.parse().ok()?).then_some(format)
}

/// The format of a receipt, certificate or proof that a later version of Stele wrote, and the last
/// one of its kind that this version knows.
pub fn later_format(text: &[u8]) -> Option<(String, &'static str)> {
    LAST.iter().find_map(|last| Some((format_after(last, text)?, *last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_format_is_told_whatever_else_is_there() {
        for (text, later) in [
            (r#"{"new":[1],"format":"stele receipt 3"}"#, Some("stele receipt 3")),
            (r#"{"format":"stele consistency 2","head":7}"#, Some("stele consistency 2")),
            (r#"{"format":"stele disposal 10"}"#, Some("stele disposal 10")),
            (r#"{"format":"stele proof 2","files":{}}"#, Some("stele proof 2")),
            (r#"{"format":"stele receipt 1"}"#, None),
            (r#"{"format":"stele receipt 2"}"#, None),
            (r#"{"format":"stele receipt"}"#, None),
            (r#"{"format":"stele receipt x"}"#, None),
            (r#"{"format":"stele recipe 3"}"#, None),
            (r#"{"format":"stele receipt 1","format":"stele receipt 3"}"#, None),
            (r#"{"format":3}"#, None),
            ("", None),
        ] {
            let found = later_format(text.as_bytes());
            assert_eq!(found.as_ref().map(|(format, _)| format.as_str()), later, "{text}");
        }
    }
}
