//! Where the drives are: `PATH[@enclosure]` as an operator writes it, and the files behind it.

use std::io::Read;
use std::path::{Path, PathBuf};

use stele_media::{Access, DriveFile, MediaError, MediaFault};

use super::NewDrives;
use super::drives::Source;
use crate::model::ArrayError;

/// One drive of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DrivePlace {
    pub path: PathBuf,
    /// The failure domain; none: it fails alone.
    pub enclosure: Option<u32>,
}

impl DrivePlace {
    pub fn new(path: impl Into<PathBuf>, enclosure: u32) -> DrivePlace {
        DrivePlace { path: path.into(), enclosure: Some(enclosure) }
    }

    /// Parses `PATH` or `PATH@NUMBER`. What follows the last `@` counts as an enclosure only if it
    /// is a number, so that a path may hold the sign. A path that ends like that is written `PATH@`
    /// with an empty enclosure.
    pub fn parse(text: &str) -> Result<DrivePlace, ArrayError> {
        let text = text.trim();
        let (path, enclosure) = match text.rsplit_once('@') {
            Some((path, "")) => (path, None),
            Some((path, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                let enclosure = number.parse().map_err(|_| {
                    ArrayError::Invalid(format!("{text}: enclosure {number} is too large; use numbers below 2^32"))
                })?;
                (path, Some(enclosure))
            }
            _ => (text, None),
        };
        if path.is_empty() {
            return Err(ArrayError::Invalid(format!("'{text}' names no drive; write PATH or PATH@ENCLOSURE")));
        }
        Ok(DrivePlace { path: PathBuf::from(path), enclosure })
    }

    /// Parses a list with one drive a line. Empty lines and what follows `#` at a line's start or
    /// after a space are skipped. Every drive says its enclosure or none does, and no path comes
    /// twice.
    pub fn parse_list(text: &str) -> Result<Vec<DrivePlace>, ArrayError> {
        let mut places = Vec::new();
        for line in text.lines() {
            let line = if line.trim_start().starts_with('#') { "" } else { line };
            let line = line.split(" #").next().unwrap_or_default().trim();
            if !line.is_empty() {
                places.push(DrivePlace::parse(line)?);
            }
        }
        check_list(&places)?;
        Ok(places)
    }
}

/// Refuses an empty list, a path named twice, and enclosures given for some only.
pub fn check_list(places: &[DrivePlace]) -> Result<(), ArrayError> {
    let Some(first) = places.first() else {
        return Err(ArrayError::Invalid("no drives are named; write PATH[@ENCLOSURE] for each".to_owned()));
    };
    for (index, place) in places.iter().enumerate() {
        if places[..index].iter().any(|other| same(&other.path, &place.path)) {
            return Err(ArrayError::Invalid(format!("{} is named twice; name each drive once", place.path.display())));
        }
        if place.enclosure.is_some() != first.enclosure.is_some() {
            let (with, without) = if first.enclosure.is_some() { (first, place) } else { (place, first) };
            return Err(ArrayError::Invalid(format!(
                "{} has an enclosure and {} has none; give every drive its enclosure, or none",
                with.path.display(),
                without.path.display()
            )));
        }
    }
    Ok(())
}

fn same(left: &Path, right: &Path) -> bool {
    left == right || matches!((left.canonicalize(), right.canonicalize()), (Ok(left), Ok(right)) if left == right)
}

/// A drive without an enclosure is one by itself.
fn enclosure(place: &DrivePlace, index: usize) -> u32 {
    place.enclosure.unwrap_or(index as u32)
}

/// Opens what exists and, with `new`, creates what does not; `made` lists what it created, also
/// when it fails.
pub fn create_files(
    places: &[DrivePlace],
    new: Option<NewDrives>,
    made: &mut Vec<PathBuf>,
) -> Result<Vec<Source>, ArrayError> {
    check_list(places)?;
    let mut sources = Vec::with_capacity(places.len());
    for (index, place) in places.iter().enumerate() {
        let file = match new {
            Some(NewDrives { size, space }) if !place.path.exists() => {
                let file = DriveFile::create(&place.path, size, space).map_err(refusal)?;
                made.push(place.path.clone());
                file
            }
            _ => DriveFile::open(&place.path, Access::Exclusive).map_err(refusal)?,
        };
        sources.push(Source::file(file, enclosure(place, index)));
    }
    Ok(sources)
}

/// Opens the drives that are there. What exists and cannot be used is left out too, and the second
/// list says why: a dying disk must not keep the others from serving.
pub fn open_files(places: &[DrivePlace], read_only: bool) -> Result<(Vec<Source>, Vec<String>), ArrayError> {
    check_list(places)?;
    let access = if read_only { Access::ReadOnly } else { Access::Exclusive };
    let mut sources = Vec::with_capacity(places.len());
    let mut unusable = Vec::new();
    let mut missing = None;
    for (index, place) in places.iter().enumerate() {
        let error = match DriveFile::open(&place.path, access) {
            Ok(file) => {
                sources.push(Source::file(file, enclosure(place, index)));
                continue;
            }
            Err(error) => error,
        };
        match error.fault {
            MediaFault::Gone => tracing::warn!("a drive is not there: {error}"),
            MediaFault::Damaged | MediaFault::Invalid => {
                tracing::warn!("a drive cannot be used: {error}");
                unusable.push(error.message.to_string());
            }
            MediaFault::Full | MediaFault::Refused | MediaFault::Retry => return Err(refusal(error)),
        }
        missing = Some(error);
    }
    match (sources.is_empty(), missing) {
        (true, Some(error)) => {
            // Not `Missing`: drives that come late at a start are tried again.
            Err(ArrayError::Degraded(format!("none of the drives is there; the last tried: {error}")))
        }
        _ => Ok((sources, unusable)),
    }
}

/// A drive that cannot be had, as the array's answer.
pub fn refusal(error: MediaError) -> ArrayError {
    let message = error.message.into_owned();
    match error.fault {
        MediaFault::Invalid => ArrayError::Invalid(message),
        MediaFault::Full => ArrayError::Full(message),
        MediaFault::Damaged => ArrayError::Damaged(message),
        MediaFault::Gone => ArrayError::Missing(message),
        MediaFault::Refused => ArrayError::Refused(message),
        MediaFault::Retry => ArrayError::Busy(message),
    }
}

/// 128 bits from the system: for identities of pools and drives.
pub fn fresh_identity() -> Result<[u8; 16], ArrayError> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| ArrayError::Stopped(format!("/dev/urandom gives no identity: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
