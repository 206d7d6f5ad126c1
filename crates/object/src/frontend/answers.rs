//! Memory for the documents of answers until their clients have taken them.
//!
//! A listing is a document of a thousand keys. Each has up to 1024 bytes, and XML may carry each
//! of these as a reference of six. A client that asks and does not read keeps that in memory.
//!
//! A request takes room for the largest answer that it can get before the answer is made: its act
//! is never followed by a refusal. When the answer is made, what it does not need is given back.
//! The rest lives as long as the document's memory: until its last byte is sent, or the client is
//! gone.

use super::Frontend;
use super::keyed::{KeyedPermit, KeyedSemaphore};
use super::turns::DOCUMENT_UNIT;
use crate::query::Query;
use crate::settings::Settings;
use bytes::Bytes;
use hyper::{Method, Response};
use s3s::{Body, S3Result};
use stele_archive::Actor;

/// One access key has the memory for answers divided by this, but room for the largest one.
const ANSWERS_OF_KEY: u64 = 4;
/// Bytes of one entry of a listing at most: its key in references, and its other fields.
const ENTRY_BYTES: u64 = 8 * 1024;
const ENTRIES_MAX: u64 = 1000;
/// The document of a DeleteObjects has the key of an error twice, and a request's at least once.
const ERRORS_PER_BYTE: u64 = 16;
const ERRORS_BYTES_MAX: u64 = 16 << 20;
/// Lists of parts and of buckets.
const PARTS_BYTES: u64 = 1 << 20;
const BUCKETS_BYTES: u64 = 2 << 20;
/// Documents of a bucket that clients make, as large as all its settings may be.
const SETTINGS: [&str; 5] = ["cors", "inventory", "lifecycle", "notification", "policy"];
const SETTINGS_BYTES: u64 = 8 << 20;

/// A document, and the room that it takes.
struct Accounted {
    document: Bytes,
    _room: KeyedPermit,
}

impl AsRef<[u8]> for Accounted {
    fn as_ref(&self) -> &[u8] {
        &self.document
    }
}

pub(super) fn answer_memory(settings: &Settings) -> KeyedSemaphore {
    let all = settings.answers_bytes_max / DOCUMENT_UNIT;
    let of_key = (all / ANSWERS_OF_KEY).max(ERRORS_BYTES_MAX / DOCUMENT_UNIT).min(all);
    KeyedSemaphore::new(all as usize, of_key as usize).bounding_strangers()
}

/// The most bytes of the document that answers a request. 0: it is small.
pub(super) fn bytes_of_answer(method: &Method, (bucket, object): (bool, bool), query: &Query, document: u64) -> u64 {
    match (method, bucket, object) {
        (&Method::GET, false, _) => BUCKETS_BYTES,
        (&Method::GET, true, false) if SETTINGS.iter().any(|name| query.has(name)) => SETTINGS_BYTES,
        (&Method::GET, true, false) if super::subresource::lists(query) => {
            let most = ["max-keys", "max-uploads"].iter().find_map(|name| query.get(name));
            let most = most.and_then(|most| most.parse().ok()).unwrap_or(ENTRIES_MAX);
            most.clamp(1, ENTRIES_MAX) * ENTRY_BYTES
        }
        (&Method::GET, true, true) if query.has("uploadId") || query.has("attributes") => PARTS_BYTES,
        (&Method::POST, true, false) if query.has("delete") => {
            document.saturating_mul(ERRORS_PER_BYTE).min(ERRORS_BYTES_MAX)
        }
        _ => 0,
    }
}

impl Frontend {
    /// Waits for the memory of an answer of at most so many bytes, for the queue's patience.
    pub(super) async fn answer_room(&self, actor: &Actor, bytes: u64) -> S3Result<Option<KeyedPermit>> {
        let all = self.settings.answers_bytes_max / DOCUMENT_UNIT;
        match u32::try_from(bytes.div_ceil(DOCUMENT_UNIT).min(all)) {
            Ok(0) | Err(_) => Ok(None),
            Ok(units) => self.patiently(&self.answers, actor, units).await.map(Some),
        }
    }
}

/// Lets the document of an answer keep the room that it needs, for as long as it is in memory.
pub(super) fn account(response: &mut Response<Body>, room: Option<KeyedPermit>) {
    let (Some(mut room), Some(document)) = (room, response.body().bytes()) else { return };
    let units = (document.len() as u64).div_ceil(DOCUMENT_UNIT);
    if units == 0 {
        return;
    }
    room.shrink(units as usize);
    *response.body_mut() = Body::from(Bytes::from_owner(Accounted { document, _room: room }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_room_for_all_that_it_may_list() {
        let check = |method: Method, at: (bool, bool), query: &str, document: u64, bytes: u64| {
            let parsed = Query::parse(Some(query)).unwrap();
            assert_eq!(bytes_of_answer(&method, at, &parsed, document), bytes, "{method} {query}");
        };
        let (root, bucket, object) = ((false, false), (true, false), (true, true));
        check(Method::GET, root, "", 0, BUCKETS_BYTES);
        check(Method::GET, bucket, "", 0, 1000 * ENTRY_BYTES);
        check(Method::GET, bucket, "list-type=2&max-keys=7&prefix=cors", 0, 7 * ENTRY_BYTES);
        check(Method::GET, bucket, "versions&max-keys=0", 0, ENTRY_BYTES);
        check(Method::GET, bucket, "uploads&max-uploads=9999", 0, 1000 * ENTRY_BYTES);
        check(Method::GET, bucket, "max-keys=x", 0, 1000 * ENTRY_BYTES);
        check(Method::GET, bucket, "versioning", 0, 0);
        check(Method::GET, bucket, "lifecycle", 0, SETTINGS_BYTES);
        check(Method::GET, object, "uploadId=1", 0, PARTS_BYTES);
        check(Method::GET, object, "tagging", 0, 0);
        check(Method::GET, object, "", 0, 0);
        check(Method::PUT, bucket, "lifecycle", 1000, 0);
        check(Method::POST, bucket, "delete", 1000, 16_000);
        check(Method::POST, bucket, "delete", 8 << 20, ERRORS_BYTES_MAX);
    }
}
