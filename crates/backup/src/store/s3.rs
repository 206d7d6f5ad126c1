//! What a store over S3 needs and what needs no connection: reading listings, and how long and how
//! often to try.
//!
//! A listing decides what prune removes and what a backup stores. So a listing that is cut short,
//! or of which a part cannot be read, is an error, and never a shorter list.

use std::time::Duration;

use stele_ground::calendar::parse_moment;

use super::{Folder, Listed, Name};
use crate::error::{BackupError, Result};

/// Attempts of a request that the server could answer later, or whose connection breaks.
pub const ATTEMPTS: u32 = 5;
/// A server that sends nothing for so long does not answer any more.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a second that the slowest connection carries.
const RATE_LEAST: u64 = 64 << 10;

/// How long a request with so many bytes may take.
pub fn patience(bytes: u64) -> Duration {
    PATIENCE + Duration::from_secs(bytes / RATE_LEAST)
}

/// The pause behind an attempt, from 0 on: a quarter of a second, and then four times as long each.
pub fn pause(attempt: u32) -> Duration {
    Duration::from_millis(250 << (2 * attempt.min(ATTEMPTS)))
}

/// Whether the same request can succeed later: the server is busy or restarts, or another request
/// was in its way.
pub fn is_transient(status: u16, code: &str) -> bool {
    matches!(status, 409 | 429 | 500 | 502 | 503 | 504) || (status == 400 && code == "RequestTimeout")
}

/// A part of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub listed: Vec<Listed>,
    /// Where the next part begins. None: this is the last one.
    pub next: Option<String>,
}

impl Page {
    /// Reads an answer to ListObjectsV2. Objects that no repository has are passed over.
    pub fn parse(text: &str, folder: Folder, prefix: &str) -> Result<Page> {
        let (entries, next) = entries(text, folder.name())?;
        let listed = entries.into_iter().filter_map(|entry| {
            let name = Name::parse(folder, entry.key.strip_prefix(prefix)?)?;
            Some(Listed { name, size: entry.size, stored: entry.stored })
        });
        Ok(Page { listed: listed.collect(), next })
    }
}

/// An object in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// Seconds since 1970.
    pub stored: u64,
}

/// Reads an answer to ListObjectsV2: its objects, and where the next part begins. `what` names the
/// listing in errors.
pub fn entries(text: &str, what: &str) -> Result<(Vec<ListedObject>, Option<String>)> {
    let wrong = |why: &str| BackupError::Failed(format!("the listing of {what} {why}"));
    if !text.trim_end().ends_with("</ListBucketResult>") {
        return Err(wrong("is cut short"));
    }
    let mut entries = Vec::new();
    for part in text.split("<Contents>").skip(1) {
        let (entry, _) = part.split_once("</Contents>").ok_or_else(|| wrong("has an entry without an end"))?;
        let key = tag(entry, "Key").ok_or_else(|| wrong("has an entry without a key"))?;
        let size = tag(entry, "Size").and_then(|size| size.parse().ok());
        let stored = tag(entry, "LastModified").and_then(|moment| seconds(&moment));
        let (Some(size), Some(stored)) = (size, stored) else {
            return Err(wrong(&format!("has no size or time of {key}")));
        };
        entries.push(ListedObject { key, size, stored });
    }
    if tag(text, "KeyCount").is_some_and(|keys| keys.parse() != Ok(entries.len())) {
        return Err(wrong("has another number of entries than it says"));
    }
    let next = match tag(text, "IsTruncated").as_deref() {
        Some("false") => None,
        Some("true") => Some(
            tag(text, "NextContinuationToken")
                .filter(|token| !token.is_empty())
                .ok_or_else(|| wrong("goes on, and does not say where"))?,
        ),
        _ => return Err(wrong("does not say whether it is complete")),
    };
    Ok((entries, next))
}

/// The text of the first element of this name.
pub fn tag(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = inside.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    Some(plain.replace("&amp;", "&"))
}

/// Seconds since 1970 of a time as S3 writes it.
pub fn seconds(moment: &str) -> Option<u64> {
    let whole = moment.split_once('.').map_or(moment.to_owned(), |(whole, _)| format!("{whole}Z"));
    parse_moment(&whole)
}

#[cfg(test)]
mod tests;
