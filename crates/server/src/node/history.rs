//! Counters of earlier servers: `history.json` in the data directory. The pool itself counts from
//! its opening on. Drive errors and the date of the last scrub are useful only if they survive a
//! restart.
//!
//! Drives are identified by their identities, so that a new drive starts at zero. Failure model:
//! the server replaces the file atomically, once a minute after a change and when it stops. A kill
//! loses the counts of the last minute. An unreadable file counts as missing, and a failure to
//! write it stops no other work.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::api::pool::StatusView;
use crate::files;

const NAME: &str = "history.json";

/// The accumulated counters. Counters of another pool are dropped.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Counts {
    pool: String,
    #[serde(with = "crate::moment::option", default)]
    last_scrub: Option<u64>,
    scrubs_finished: u64,
    scrub_damage_found: u64,
    scrub_damage_repaired: u64,
    rebuilt: u64,
    repaired: u64,
    /// By drive identity.
    drives: BTreeMap<String, DriveCounts>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DriveCounts {
    read_errors: u64,
    write_errors: u64,
    digest_errors: u64,
    repaired: u64,
}

pub struct History {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The counters when the pool was opened.
    before: Counts,
    /// The counters in the file.
    kept: Counts,
    /// The scrubs of this opening that finished, and the time of the last one.
    scrubs: u64,
    last_scrub: Option<u64>,
}

impl History {
    pub fn of(dir: &Path) -> History {
        let path = dir.join(NAME);
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Counts>(&bytes).ok());
        let before = read.unwrap_or_default();
        History { path, inner: Mutex::new(Inner { kept: before.clone(), before, ..Inner::default() }) }
    }

    /// Adds the counters of earlier servers to those of the pool since its opening.
    pub fn add_to(&self, view: &mut StatusView, now: u64) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if view.scrubs_finished > inner.scrubs {
            (inner.scrubs, inner.last_scrub) = (view.scrubs_finished, Some(now));
        }
        view.last_scrub = inner.last_scrub;
        let before = &inner.before;
        if before.pool != view.pool {
            return;
        }
        if view.scrubs_finished == 0 {
            // The damage found is that of the last scrub.
            view.last_scrub = before.last_scrub;
            view.scrub_damage_found = before.scrub_damage_found;
            view.scrub_damage_repaired = before.scrub_damage_repaired;
        }
        view.scrubs_finished += before.scrubs_finished;
        view.rebuilt += before.rebuilt;
        view.repaired += before.repaired;
        for drive in &mut view.drives {
            let Some(counts) = before.drives.get(&drive.identity) else { continue };
            drive.read_errors += counts.read_errors;
            drive.write_errors += counts.write_errors;
            drive.digest_errors += counts.digest_errors;
            drive.repaired += counts.repaired;
        }
    }

    /// Writes the counters of a status if the file does not have them yet.
    pub fn keep(&self, view: &StatusView) {
        let drives = view.drives.iter().map(|drive| {
            let counts = DriveCounts {
                read_errors: drive.read_errors,
                write_errors: drive.write_errors,
                digest_errors: drive.digest_errors,
                repaired: drive.repaired,
            };
            (drive.identity.clone(), counts)
        });
        let counts = Counts {
            pool: view.pool.clone(),
            last_scrub: view.last_scrub,
            scrubs_finished: view.scrubs_finished,
            scrub_damage_found: view.scrub_damage_found,
            scrub_damage_repaired: view.scrub_damage_repaired,
            rebuilt: view.rebuilt,
            repaired: view.repaired,
            drives: drives.filter(|(_, counts)| *counts != DriveCounts::default()).collect(),
        };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if counts == inner.kept {
            return;
        }
        let text = serde_json::to_vec_pretty(&counts).unwrap_or_default();
        match files::replace(&self.path, &text) {
            Ok(()) => inner.kept = counts,
            Err(failure) => tracing::warn!("the counters cannot be written to history.json: {}", failure.on_one_line()),
        }
    }
}
