//! The formats in the data directory: the configuration, exports, reservations, signed heads.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stele_server::config::{Config, Site};
use stele_server::exports;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::node::heads;

use super::{AS_SERVER, FormatFinding, FormatVerdict};

/// The beginning of a reservation file: seven letters, and its version as a digit.
const RESERVATIONS: &[u8; 8] = b"STELEPR1";

/// Also returns the configuration, if it can be parsed.
pub fn look(site: &Site) -> Outcome<(Vec<FormatFinding>, Option<Config>)> {
    let place = site.config_path.display().to_string();
    let config = match Config::read(&site.config_path) {
        Err(failure) if failure.kind == Kind::Missing => return Err(failure),
        Err(failure) if failure.kind == Kind::Refused => {
            return Err(failure.next(AS_SERVER));
        }
        read => read,
    };
    let mut findings = vec![match &config {
        Ok(_) => FormatFinding::new("configuration", place, "every key is known", ""),
        Err(Failure { error, .. }) => FormatFinding::new("configuration", place, error.clone(), "").is(
            FormatVerdict::Unknown,
            "take out what only another version knows, and check again: the drives are not looked at",
        ),
    }];
    findings.extend(exports(site));
    findings.extend(reservations(site)?);
    if let Ok(config) = &config {
        findings.extend(signed_heads(&heads::places(site, config)));
    }
    Ok((findings, config.ok()))
}

/// Heads have one version so far.
fn signed_heads(places: &[PathBuf]) -> Vec<FormatFinding> {
    let found = heads::all(places).into_iter().zip(places).filter_map(|(heads, place)| {
        let finding = |found| FormatFinding::new("heads", place.display().to_string(), found, "version 1");
        match heads {
            Ok(heads) if heads.is_empty() => None,
            Ok(heads) => Some(finding(format!("{} signed heads of version 1", heads.len()))),
            Err(failure) => Some(finding(failure.error).is(FormatVerdict::Unknown, failure.next)),
        }
    });
    found.collect()
}

fn exports(site: &Site) -> Option<FormatFinding> {
    let path = site.dir.join("exports.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(unread("exports", &path, &error)),
    };
    let version = serde_json::from_slice::<serde_json::Value>(&text).ok().and_then(|value| value["version"].as_u64());
    let found = version.map_or("nothing that is understood".to_owned(), |version| format!("version {version}"));
    let finding =
        FormatFinding::new("exports", path.display().to_string(), found, format!("version {}", exports::VERSION));
    Some(match (version, exports::understood(&path, &text)) {
        (Some(version), _) if version > u64::from(exports::VERSION) => finding.newer(),
        (_, Ok(_)) => finding,
        (_, Err(Failure { error, next, .. })) => {
            FormatFinding { found: error, ..finding }.is(FormatVerdict::Damaged, next)
        }
    })
}

fn reservations(site: &Site) -> Outcome<Vec<FormatFinding>> {
    let folder = site.dir.join("reservations");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_failure("read", &folder, &error))?,
    };
    let files = entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_none());
    Ok(files.map(|path| of_reservations(&path)).collect())
}

fn of_reservations(path: &Path) -> FormatFinding {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return unread("reservations", path, &error),
    };
    let (head, own) = (bytes.get(..8).unwrap_or_default(), String::from("version 1"));
    let version = head.strip_prefix(&RESERVATIONS[..7]).and_then(|digit| digit.first());
    let found =
        version.map_or("nothing that is understood".to_owned(), |digit| format!("version {}", char::from(*digit)));
    let finding = FormatFinding::new("reservations", path.display().to_string(), found, own);
    match version {
        Some(digit) if *digit > RESERVATIONS[7] => finding.newer(),
        Some(_) => finding,
        None => finding.is(FormatVerdict::Damaged, "stop all initiators, remove the file, and log in again"),
    }
}

/// A file that is there and cannot be read. Nothing is known of its format, and it may be whole.
fn unread(format: &'static str, path: &Path, error: &std::io::Error) -> FormatFinding {
    let Failure { kind, error, .. } = io_failure("read", path, error);
    let next = if kind == Kind::Refused { AS_SERVER } else { "keep the file, and look why it cannot be read" };
    FormatFinding::new(format, path.display().to_string(), error, "").is(FormatVerdict::Unknown, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its advice would be to remove it.
    #[test]
    fn a_file_that_cannot_be_read_is_not_called_damaged() {
        let dir = std::env::temp_dir().join(format!("stele-upgrade-unread-{}", std::process::id()));
        let site = Site { dir: dir.clone(), config_path: dir.join("stele.toml") };
        fs::create_dir_all(dir.join("reservations")).unwrap();
        assert!(exports(&site).is_none() && reservations(&site).unwrap().is_empty());
        // Not even root reads a directory as a file.
        fs::create_dir(dir.join("exports.json")).unwrap();
        fs::create_dir(dir.join("reservations/0123")).unwrap();
        let found: Vec<FormatFinding> = exports(&site).into_iter().chain(reservations(&site).unwrap()).collect();
        let verdicts: Vec<FormatVerdict> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [FormatVerdict::Unknown; 2], "{found:?}");
        assert!(found.iter().all(|finding| finding.next.starts_with("keep the file")), "{found:?}");
        fs::remove_dir_all(dir).unwrap();
    }
}
