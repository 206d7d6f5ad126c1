//! Signed heads of the audit log: sent to every configured place on schedule, and compared with the log at start.
//!
//! A pool that was rolled back as a whole looks sound from inside, because all its volumes come from the same moment. A
//! head sent elsewhere is not rolled back with it. Before the archive is opened for writing, its log is compared with
//! this store's newest head in each place. If a head is newer, or of another history, the archive is opened read-only.
//!
//! Failure model: a place that cannot be read raises an alarm only, since a network share may be away. A file that this
//! store did not sign is ignored. An attacker who removes the heads from every place can hide that the pool was rolled
//! back.

use std::fs;
use std::path::{Path, PathBuf};

use stele_archive::{Archive, HeadVerdict, SignedHead};

use super::volumes::Trouble;
use crate::config::{Config, Site};
use crate::failure::{Outcome, io_failure};

/// The trouble of a pool that is older than one of its own heads.
pub(super) const ROLLED_BACK: &str = "rolled-back";

/// The directories that heads are sent to.
pub fn places(site: &Site, config: &Config) -> Vec<PathBuf> {
    let also = &config.archive.heads_also;
    std::iter::once(&config.archive.heads).chain(also).map(|place| site.path(place)).collect()
}

/// Heads that the log does not contain, and the places that could not be read.
pub fn compare(archive: &Archive, places: &[PathBuf]) -> Outcome<(Option<Trouble>, Vec<String>)> {
    let (mut trouble, mut unasked) = (None, Vec::new());
    for place in places {
        let files = match files(place) {
            Ok(files) => files,
            Err(failure) => {
                unasked.push(failure.error);
                continue;
            }
        };
        for path in files {
            let Some(head) = read(&path) else {
                unasked.push(format!("{} is not a signed head", path.display()));
                continue;
            };
            let message = match archive.compare_head(&head)? {
                HeadVerdict::Contained => break,
                HeadVerdict::Lost => continue,
                HeadVerdict::Foreign(finding) => {
                    unasked.push(format!("{}: {finding}", path.display()));
                    continue;
                }
                HeadVerdict::Newer { theirs, ours } => format!(
                    "{} was signed at record {theirs} of the audit log, which ends at {ours}: the place is newer, this pool \
                     was set back",
                    path.display()
                ),
                HeadVerdict::Other { records } => format!(
                    "{} was signed at record {records} of another log than this one: the pool is of another history",
                    path.display()
                ),
            };
            let next = "keep this pool as it is, and return the drives that hold the newer state; if they are gone for good, \
                        `stele catalog rebuild --force --accept-losses` goes on from here and holds everything until two \
                        officers decide";
            trouble = trouble.or(Some(Trouble { kind: ROLLED_BACK, message, next: next.to_owned() }));
            break;
        }
    }
    Ok((trouble, unasked))
}

/// All heads of the places: a rebuild learns from them how far the log reached.
pub fn all(places: &[PathBuf]) -> Vec<SignedHead> {
    places.iter().flat_map(|place| files(place).unwrap_or_default()).filter_map(|path| read(&path)).collect()
}

/// The files of a place, newest first. A place that does not exist yet has none.
fn files(place: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = match fs::read_dir(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_failure("read the signed heads in", place, &error))?,
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "head"))
        .collect();
    files.sort_unstable_by(|one, other| other.cmp(one));
    Ok(files)
}

fn read(path: &Path) -> Option<SignedHead> {
    serde_json::from_str(fs::read_to_string(path).ok()?.trim()).ok()
}

/// Writes `DIR/00000000000000001234.head` atomically. The number of records is the name, so that names sort. A head of
/// another history at that number, from before a rebuild, is kept.
pub fn write(dir: &Path, head: &SignedHead) -> Outcome<()> {
    fs::create_dir_all(dir).map_err(|error| io_failure("make", dir, &error))?;
    let mut path = dir.join(format!("{:020}.head", head.records));
    if read(&path).is_some_and(|other| other.link != head.link) {
        path = dir.join(format!("{:020}-{}.head", head.records, head.link.get(..8).unwrap_or_default()));
    }
    let new = path.with_extension("new");
    let text = serde_json::to_string(head).unwrap_or_default();
    let written = fs::write(&new, format!("{text}\n")).and_then(|()| fs::rename(&new, &path));
    written.map_err(|error| io_failure("write", &path, &error))
}
