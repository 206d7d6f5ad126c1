//! What the file gateway asks before a file loses a name: whether retention or a hold keeps any
//! version of it.
//!
//! The answer counts for as long as the keys are held: each change of a version waits for them. A
//! matter is put on versions by their keys and knows of no file; without that it could be
//! acknowledged before the name goes.

use stele_catalog::{Direction, KeyRange};

use crate::model::error::Result;
use crate::model::principal::Caller;
use crate::model::time::Timestamp;
use crate::record::{MATTER_HOLDS, VERSIONS, keys};
use crate::retention::rules::holds_in_words;
use crate::state::key_locks::KeyLock;
use crate::store::Archive;
use crate::store::lookup::Found;
use crate::store::scan::Scan;

/// Keys of which no version is kept, and none comes to be kept as long as this lives.
pub struct Unkept {
    _locks: Vec<KeyLock>,
}

impl Archive {
    /// Holds keys until their names are gone, unless a version of one is kept: then it answers why.
    /// The holder asks the archive for no change of these keys.
    pub async fn unkept(
        &self,
        caller: &Caller,
        bucket: &str,
        keys: &[String],
    ) -> Result<std::result::Result<Unkept, String>> {
        let store = self.store();
        let number = store.buckets().by_name(bucket)?.number;
        let locks = store.lock_all(number, keys).await?;
        for key in keys {
            if let Some(reason) = self.keeps(caller, bucket, key)? {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(Unkept { _locks: locks }))
    }

    /// Why a version of the key is kept. None: the archive keeps no version of it. Every version
    /// counts, not only the newest: a hold stays on a version that others have followed. Reads each
    /// version's row once, where the bucket has Object Lock or the store has a version under a
    /// matter.
    pub(crate) fn keeps(&self, caller: &Caller, bucket: &str, key: &str) -> Result<Option<String>> {
        let store = &self.store();
        let bucket = store.buckets().by_name(bucket)?;
        bucket.reached_through(caller)?;
        let doubt = store.check_doubt(&bucket).err();
        let now = store.compliance_now();
        let snapshot = store.snapshot()?;
        // Retention and legal holds take Object Lock, which no bucket loses. Matters do not.
        let matters = !snapshot.range(MATTER_HOLDS, &KeyRange::all(), 1, Direction::Forward)?.is_empty();
        if bucket.row.lock.is_none() && doubt.is_none() && !matters {
            return Ok(None);
        }
        let mut scan = Scan::new(&*snapshot, VERSIONS, KeyRange::prefix(keys::all_of(bucket.number, key)));
        while let Some((record_key, value)) = scan.next()? {
            let found = Found::of(&record_key, &value, false)?;
            if let Some(reason) = doubt.clone().or_else(|| kept(&found, now)) {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }
}

/// Why this version is kept, by its own row.
fn kept(found: &Found, now: Timestamp) -> Option<String> {
    let version = found.id();
    if let Some(holds) = holds_in_words(found) {
        return Some(format!("its version {version} is under {holds}"));
    }
    if found.row.awaits_event() {
        return Some(format!("its version {version} waits for the event from which its retention counts"));
    }
    let retention = found.row.retention.filter(|retention| retention.until > now)?;
    Some(format!("its version {version} is retained in {} mode until {}", retention.mode, retention.until))
}
