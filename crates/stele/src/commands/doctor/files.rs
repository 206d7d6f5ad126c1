//! The data directory: permissions of the files in it, and free space.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stele_ground::Bytes;
use stele_server::config::{Config, Site};
use stele_server::failure::{Failure, READ_ONLY_NEXT};
use stele_server::node::beneath::{self, FileSystem};
use stele_server::node::data_directory::FREE_MIN;
use stele_server::node::{heads, master};

use super::mounts::is_read_only;
use super::{Finding, Machine, Verdict};

/// Free space for exports, alarms, heads and counters.
const ROOM_MIN: u64 = 256 << 20;

/// Accesses to a path that other users than the owner may have.
enum May {
    /// Read access; other users cannot write.
    Read,
    /// No access, because the file is a secret.
    Nothing,
}

pub fn permissions(site: &Site, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut look = |path: PathBuf, may: May, is_needed: bool| {
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_needed => return,
            Err(error) => {
                let message = format!("{} cannot be looked at: {error}", path.display());
                let next = "bring it back, or run the check as the user that the server runs as";
                return findings.push(Finding::new("permissions", Verdict::Wrong, message, next));
            }
        };
        let mode = about.mode() & 0o777;
        let (bad, right) = match may {
            May::Read => (0o022, "go-w"),
            May::Nothing => (0o077, "go-rwx"),
        };
        if mode & bad != 0 {
            let message = format!("{} has mode {mode:04o}: others than its owner may use it", path.display());
            let next = format!("chmod {right} {}", path.display());
            findings.push(Finding::new("permissions", Verdict::Wrong, message, next));
        }
    };
    look(site.dir.clone(), May::Read, true);
    look(site.config_path.clone(), May::Read, true);
    for name in ["history.json", "alarms.jsonl", "unrecorded-acts"] {
        look(site.dir.join(name), May::Read, false);
    }
    look(site.path(&config.archive.heads), May::Read, false);
    for secret in ["first-key.json", "exports.json", "reservations"] {
        look(site.dir.join(secret), May::Nothing, false);
    }
    // `stele up --tls` makes them.
    look(site.dir.join("tls/key.pem"), May::Nothing, false);
    look(site.dir.join("tls/certificate.pem"), May::Read, false);
    if let Some(("file", path)) = config.archive.master_key.split_once(':') {
        look(site.path(Path::new(path)), May::Nothing, true);
    }
    for (path, is_secret) in crate::commands::config::named(config) {
        look(site.path(path), if is_secret { May::Nothing } else { May::Read }, true);
    }
    for drive in &config.pool.drives {
        let path = drive.placed(site).path;
        // A device has the mode of its group; the members of that group are the system's concern.
        if fs::metadata(&path).is_ok_and(|about| !about.file_type().is_block_device()) {
            look(path, May::Read, true);
        }
    }
    if findings.is_empty() {
        findings.push(Finding::good(
            "permissions",
            format!("no other user can write to {} or read its secrets", site.dir.display()),
        ));
    }
    findings.extend(socket(site, config));
    findings
}

/// The socket for commands. If officers are named, every local user may connect; the server asks
/// for the user's identity.
fn socket(site: &Site, config: &Config) -> Option<Finding> {
    let path = site.admin_socket(config);
    let about = match fs::metadata(&path) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("no server has made {}", path.display());
            return Some(Finding::new("socket", Verdict::Note, message, "`stele serve`, if one should run"));
        }
        Err(error) => return Some(unanswered(&path, &error)),
    };
    let open = about.mode() & 0o077 != 0;
    if !about.file_type().is_socket() || (open && config.admin.officers.is_empty()) {
        let message = format!("{} has mode {:04o}", path.display(), about.mode() & 0o777);
        return Some(Finding::new(
            "socket",
            Verdict::Wrong,
            message,
            "start the server again: it makes the socket anew",
        ));
    }
    if !config.admin.officers.is_empty() && !is_reachable(&path) {
        let message =
            format!("[admin] officers names users who cannot come to {}: a folder above it is closed", path.display());
        return Some(Finding::new(
            "socket",
            Verdict::Warning,
            message,
            "put it elsewhere with [admin] socket, like /run/stele/stele.sock",
        ));
    }
    Some(match std::os::unix::net::UnixStream::connect(&path) {
        Ok(_) => Finding::good("socket", format!("a server answers at {}", path.display())),
        Err(error) => unanswered(&path, &error),
    })
}

/// A socket that takes no connection: of no server, or closed to this user.
pub(super) fn unanswered(path: &Path, error: &std::io::Error) -> Finding {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Finding::new(
            "socket",
            Verdict::Note,
            format!("this user may not ask the server at {}", path.display()),
            "run the doctor as root or as the user that the server runs as",
        ),
        _ => Finding::new(
            "socket",
            Verdict::Note,
            format!("no server answers at {}: {error}", path.display()),
            "`stele serve`, if a server should run",
        ),
    }
}

/// The master key in its file. A server that runs has it in memory, and is the last one to start if
/// the file is damaged. Another source than a file is not asked, and `permissions` tells of a file
/// that is away.
pub fn master_key(site: &Site, config: &Config, server: Option<i32>) -> Option<Finding> {
    let source = &config.archive.master_key;
    let ("file", path) = source.split_once(':')? else { return None };
    let path = site.path(Path::new(path));
    match fs::File::open(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Some(Finding::unknown("master-key", &format!("the master key {}", path.display())));
        }
        Ok(_) | Err(_) => {}
    }
    let Err(failure) = master::read(site, source) else {
        return Some(Finding::good("master-key", format!("{} is a master key", path.display())));
    };
    let next = match server {
        Some(_) => {
            "do not stop the server, which has the key in memory: `stele master-key export --to FILE` writes it; see \
             docs/runbooks/lost-master-key.md"
        }
        None => failure.next.as_str(),
    };
    Some(Finding::new("master-key", Verdict::Wrong, failure.error, next))
}

/// Whether every user may enter the folders above a path, which may be relative.
pub(super) fn is_reachable(path: &Path) -> bool {
    let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|about| about.mode() & 0o001 != 0);
    std::path::absolute(path).is_ok_and(|path| path.ancestors().skip(1).all(is_open))
}

pub fn room(machine: &Machine, site: &Site) -> Finding {
    match is_read_only(machine, &site.dir) {
        Some(false) => {}
        Some(true) => {
            let message = format!("{} is mounted read-only: a server can write nothing there", site.dir.display());
            return Finding::new("room", Verdict::Wrong, message, READ_ONLY_NEXT);
        }
        None => return Finding::unknown("room", "whether the data directory is mounted read-only"),
    }
    match stele_media::system::free_space(&site.dir) {
        Ok(free) if free.0 < ROOM_MIN => Finding::new(
            "room",
            if free < FREE_MIN { Verdict::Wrong } else { Verdict::Warning },
            format!("{} has {free} free; exports, alarms and signed heads could not be written", site.dir.display()),
            format!("make {} of room there", Bytes(ROOM_MIN)),
        ),
        Ok(free) => Finding::good("room", format!("{} has {free} free", site.dir.display())),
        Err(_) => Finding::unknown("room", "the free space of the data directory"),
    }
}

/// The file systems beneath drives that are files, which take room there when they are written.
pub fn beneath(site: &Site, config: &Config) -> Vec<Finding> {
    let drives = config.pool.drives.iter().map(|drive| drive.placed(site).path);
    let found = beneath::look(drives);
    let short: Vec<Finding> = found.iter().filter(|beneath| beneath.is_short()).map(short).collect();
    match found.is_empty() || !short.is_empty() {
        true => short,
        false => {
            vec![Finding::good("drive-room", "the file systems beneath file drives have what the drives may need")]
        }
    }
}

pub(super) fn short(beneath: &FileSystem) -> Finding {
    let verdict = if beneath.is_nearly_full() { Verdict::Wrong } else { Verdict::Warning };
    let next = "free room there, or move drives elsewhere with `stele pool replace`; a full file system stops the pool";
    Finding::new("drive-room", verdict, beneath.said(), next)
}

/// Only heads that were sent elsewhere reveal a pool that was rolled back as a whole.
pub fn heads(machine: &Machine, site: &Site, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let archive = &config.archive;
    let lists = [&archive.heads_syslog, &archive.heads_mail];
    let is_away = archive.heads_bucket.is_some() || archive.heads_witness.is_some();
    if archive.heads_also.is_empty() && !is_away && lists.iter().all(|list| list.is_empty()) {
        findings.push(Finding::new(
            "heads",
            Verdict::Note,
            "signed heads of the audit log are kept on this machine only: a pool set back as a whole would not be noticed",
            "name a place elsewhere with [archive] heads_also or heads_bucket",
        ));
    }
    // The server makes the first place itself where it lies in the data directory.
    let own = usize::from(site.path(&archive.heads).starts_with(&site.dir));
    let places: Vec<PathBuf> = heads::places(site, config).into_iter().skip(own).collect();
    let is_there = |place: &Path| fs::metadata(place).is_ok_and(|about| about.is_dir());
    for (is_there, place) in heads::in_time(&places, is_there, heads::PATIENCE).into_iter().zip(&places) {
        findings.push(match is_there {
            Some(true) if is_read_only(machine, place) == Some(true) => Finding::new(
                "heads",
                Verdict::Warning,
                format!("signed heads are to be sent to {}, which is mounted read-only", place.display()),
                READ_ONLY_NEXT,
            ),
            Some(true) => Finding::good("heads", format!("{} is there", place.display())),
            None => {
                let Failure { error, next, .. } = heads::late(place);
                Finding::new("heads", Verdict::Warning, error, next)
            }
            Some(false) => Finding::new(
                "heads",
                Verdict::Warning,
                format!("signed heads are to be sent to {}, which is not there", place.display()),
                "mount it, or take it out of [archive] heads and heads_also",
            ),
        });
    }
    findings
}
