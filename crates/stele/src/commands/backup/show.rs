//! Snapshots and their files, as tables and lines.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use stele_backup::BackupError;
use stele_backup::diff::{self, Change};
use stele_backup::filter::Filter;
use stele_backup::repository::trees::{Found, Walk};
use stele_backup::repository::{Indexed, Repository};
use stele_backup::snapshot::{Description, Snapshot, SnapshotId};
use stele_backup::store::{Folder, Name};
use stele_backup::tree::Content;
use stele_ground::calendar::moment;
use stele_ground::{Bytes, Shown, counted, counted_are};
use stele_server::failure::{Failure, Kind, Outcome};

use super::select::{self, Chosen};
use super::tell::tell;
use super::{index, index_for, issues_json, shown_path};
use crate::cli::backup::LatestArgs;
use crate::commands::print_json;
use crate::output::{Align, Table};

fn paths(description: &Description) -> Vec<String> {
    description.paths.iter().map(|path| shown_path(path)).collect()
}

/// A snapshot that cannot be read is told, and the listing goes on. A store that fails, or is not
/// reached, ends it: a shorter list would pass for a whole one.
fn passed_over(error: BackupError) -> Outcome<()> {
    match error {
        BackupError::Damaged(_) | BackupError::Newer(_) => tell(format_args!("stele: {}", Shown(&error.to_string()))),
        // It was forgotten meanwhile.
        BackupError::Missing(_) => {}
        error => return Err(error.into()),
    }
    Ok(())
}

pub fn snapshots(json: bool, repository: &Repository, host: Option<String>) -> Outcome<()> {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let wanted = LatestArgs { host, at: None };
    // A lock of a snapshot is one of the header too. A later date that a snapshot has comes from
    // the bucket's default, which reaches none of the segments that were stored before.
    let header = repository.store.locked_until(&Name::repository())?;
    for dated in repository.snapshots()? {
        let is = match repository.snapshot(&dated.id) {
            Ok(snapshot) => snapshot.description,
            Err(error) => {
                passed_over(error)?;
                continue;
            }
        };
        if !wanted.admits(&dated, &is.host) {
            continue;
        }
        if let Some(doubt) = is.doubt(dated.stored) {
            tell(format_args!("stele: snapshot {}: {doubt}", dated.id.short()));
        }
        let counts = &is.counts;
        let own = || repository.store.locked_until(&Name::of(Folder::Snapshots, &dated.id.0));
        // Without a lock of the header nothing is locked, and the server is not asked.
        let locked = header.map_or(Ok(None), |_| own())?.min(header).map(moment);
        if json {
            rows.push(json!({
                "snapshot": dated.id.to_string(), "stored": moment(dated.stored), "begun": moment(is.begun),
                "host": is.host, "user": is.user, "program": is.program, "paths": paths(&is), "tags": is.tags,
                "excludes": is.excludes, "files": counts.files, "directories": counts.directories,
                "others": counts.others, "bytes": counts.bytes, "new_bytes": counts.bytes_new,
                "stored_bytes": counts.bytes_stored, "problems": is.problems, "issues": issues_json(&is.issues),
                "locked_until": locked,
            }));
            continue;
        }
        lines.push([
            dated.id.short(),
            moment(dated.stored),
            Shown(&is.host).to_string(),
            Shown(&is.tags.join(" ")).to_string(),
            counts.files.to_string(),
            Bytes(counts.bytes).to_string(),
            Bytes(counts.bytes_new).to_string(),
            is.problems.to_string(),
            locked.unwrap_or_default(),
            Shown(&paths(&is).join(" ")).to_string(),
        ]);
    }
    if wanted.host.is_some() && rows.is_empty() && lines.is_empty() {
        return Err(wanted.nothing());
    }
    match json {
        true => print_json(&rows),
        false => {
            print!("{}", table_of(lines).render());
            Ok(())
        }
    }
}

/// The place of the tags in a line of a snapshot.
const TAGS: usize = 3;

/// A table of snapshots, without the tags if there are none.
fn table_of(lines: Vec<[String; 10]>) -> Table {
    let heads = [
        ("SNAPSHOT", Align::Whole),
        ("STORED", Align::Whole),
        ("HOST", Align::Left),
        ("TAGS", Align::Left),
        ("FILES", Align::Right),
        ("SIZE", Align::Right),
        ("NEW", Align::Right),
        ("PROBLEMS", Align::Right),
        ("LOCKED UNTIL", Align::Whole),
        ("PATHS", Align::Left),
    ];
    let has_tags = lines.iter().any(|line| line.get(TAGS).is_some_and(|tags| !tags.is_empty()));
    let shown = |place: usize| has_tags || place != TAGS;
    let heads: Vec<_> =
        heads.into_iter().enumerate().filter(|(place, _)| shown(*place)).map(|(_, head)| head).collect();
    let mut table = Table::new(&heads);
    for line in lines {
        table.row(line.into_iter().enumerate().filter(|(place, _)| shown(*place)).map(|(_, cell)| cell).collect());
    }
    table
}

fn entry_json(found: &Found) -> serde_json::Value {
    let (is, content) = (&found.entry.metadata, &found.entry.content);
    let target = match content {
        Content::Symlink(target) => Some(String::from_utf8_lossy(target).into_owned()),
        _ => None,
    };
    json!({
        "path": shown_path(&found.path), "kind": kind(content), "mode": format!("{:04o}", is.mode), "user": is.user,
        "group": is.group, "bytes": content.size(), "modified": modified(found), "target": target,
    })
}

fn kind(content: &Content) -> &'static str {
    match content {
        Content::Directory => "directory",
        Content::File { volume: Some(_), .. } => "volume",
        Content::File { volume: None, .. } => "file",
        Content::Symlink(_) => "link",
        Content::Fifo => "pipe",
        Content::Socket => "socket",
        Content::CharacterDevice(_) => "character-device",
        Content::BlockDevice(_) => "block-device",
    }
}

fn modified(found: &Found) -> String {
    moment_of(found.entry.metadata.modified.seconds)
}

/// Seconds of 400 years, after which the calendar repeats itself.
const CYCLE_SECONDS: u64 = 146_097 * 86_400;

/// A moment by seconds since 1970, also one before.
fn moment_of(seconds: i64) -> String {
    let until = match u64::try_from(seconds) {
        Ok(seconds) => return moment(seconds),
        Err(_) => seconds.unsigned_abs(),
    };
    // The same day so many times 400 years later.
    let cycles = until.div_ceil(CYCLE_SECONDS);
    let later = moment(cycles * CYCLE_SECONDS - until);
    let (year, rest) = later.split_once('-').unwrap_or_default();
    format!("{:04}-{rest}", year.parse::<i64>().unwrap_or_default() - 400 * cycles as i64)
}

fn entry_line(found: &Found) -> String {
    let is = &found.entry.metadata;
    let size = Bytes(found.entry.content.size()).to_string();
    let path = shown_path(&found.path);
    let letter = found.entry.content.letter();
    format!("{letter}{:04o} {:>6} {:>6} {size:>10} {} {}", is.mode, is.user, is.group, modified(found), Shown(&path))
}

/// Calls `each` for all entries at and below `within`. Where a part of the tree is lost, it says so
/// and goes on. Gives the number of entries, and whether these were all.
fn walk(
    indexed: &Indexed,
    id: &SnapshotId,
    description: &Description,
    within: &[u8],
    each: &mut dyn FnMut(&Found) -> Outcome<()>,
) -> Outcome<(u64, bool)> {
    let (mut walk, mut count, mut is_whole) = (Walk::new(indexed, description, within), 0, true);
    loop {
        match walk.step() {
            Ok(Some(found)) => {
                count += 1;
                each(&found)?;
            }
            Ok(None) => return Ok((count, is_whole)),
            // The walk goes on with the next part of the tree.
            Err(error @ (BackupError::Damaged(_) | BackupError::Missing(_))) => {
                let (id, error) = (id.short(), error.to_string());
                tell(format_args!("stele: snapshot {id}: a part of the tree is lost: {}", Shown(&error)));
                is_whole = false;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

pub fn ls(json: bool, repository: &Repository, name: &OsStr, latest: &LatestArgs) -> Outcome<()> {
    let Chosen { dated, snapshot: chosen, within } = select::chosen(repository, name, latest)?;
    let indexed = index_for(repository, &chosen)?;
    let mut print = |found: &Found| match json {
        true => print_json(&entry_json(found)),
        false => {
            println!("{}", entry_line(found));
            Ok(())
        }
    };
    match walk(&indexed, &dated.id, &chosen.description, &within, &mut print)? {
        (_, false) => Err(Failure::new(Kind::Damaged, "the snapshot could not be listed as a whole").next(LOST)),
        (0, true) if !within.is_empty() => {
            Err(Failure::missing(format!("the snapshot has no {}", shown_path(&within))))
        }
        _ => Ok(()),
    }
}

const LOST: &str = "`stele backup verify` names what is lost";

pub fn find(
    json: bool,
    repository: &Repository,
    pattern: &OsStr,
    only: Option<&str>,
    latest: &LatestArgs,
) -> Outcome<()> {
    let mut filter = Filter::default();
    filter.add(pattern.as_bytes(), false)?;
    let Admitted { wanted, mut lost, newer } = match only {
        Some(name) => {
            let why = "--snapshot takes a whole snapshot";
            let Chosen { dated, snapshot, .. } = select::whole(repository, name, latest, why)?;
            Admitted { wanted: vec![(dated.id, snapshot.description)], lost: 0, newer: 0 }
        }
        None => admitted(repository, latest)?,
    };
    let indexed = index(repository)?;
    for (id, description) in &wanted {
        let mut print = |found: &Found| match filter.excludes(&found.path) {
            true => found_line(json, id, found),
            false => Ok(()),
        };
        let (_, is_whole) = walk(&indexed, id, description, b"", &mut print)?;
        lost += u64::from(!is_whole);
    }
    match (lost, newer) {
        (0, 0) => Ok(()),
        (0, newer) => {
            let text = format!("{} of a later version of Stele and not searched", counted_are(newer, "snapshot"));
            Err(Failure::new(Kind::Incomplete, text).next("search them by that version"))
        }
        (lost, _) => {
            let text = format!("{} could not be searched as a whole", counted(lost, "snapshot"));
            Err(Failure::new(Kind::Damaged, text).next(LOST))
        }
    }
}

/// The snapshots that the options let pass.
struct Admitted {
    wanted: Vec<(SnapshotId, Description)>,
    /// Those that cannot be read, and those of a later version. Both are listed: they may be of any
    /// host.
    lost: u64,
    newer: u64,
}

fn admitted(repository: &Repository, latest: &LatestArgs) -> Outcome<Admitted> {
    let (mut all, mut lost, mut newer) = (Vec::new(), 0, 0);
    for dated in repository.snapshots()?.into_iter().filter(|dated| latest.is_by(dated)) {
        match repository.snapshot(&dated.id) {
            Ok(Snapshot { description, .. }) if latest.admits(&dated, &description.host) => {
                all.push((dated.id, description));
            }
            // It was forgotten meanwhile.
            Ok(_) | Err(BackupError::Missing(_)) => {}
            Err(error @ (BackupError::Damaged(_) | BackupError::Newer(_))) => {
                tell(format_args!("stele: snapshot {}: {}", dated.id.short(), Shown(&error.to_string())));
                let is_newer = matches!(error, BackupError::Newer(_));
                lost += u64::from(!is_newer);
                newer += u64::from(is_newer);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if all.is_empty() && lost + newer == 0 && *latest != LatestArgs::default() {
        return Err(latest.nothing());
    }
    Ok(Admitted { wanted: all, lost, newer })
}

fn found_line(json: bool, id: &SnapshotId, found: &Found) -> Outcome<()> {
    if !json {
        println!("{} {}", id.short(), entry_line(found));
        return Ok(());
    }
    let mut value = entry_json(found);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("snapshot".to_owned(), id.to_string().into());
    }
    print_json(&value)
}

pub fn diff(
    json: bool,
    repository: &Repository,
    first: &Snapshot,
    second: &Snapshot,
    path: Option<&Path>,
) -> Outcome<()> {
    let within = path.map(|path| select::within(path.as_os_str().as_bytes())).unwrap_or_default();
    let mut failed = None;
    let is_there =
        diff::run(&index(repository)?, &first.description, &second.description, &within, &mut |change, found| {
            let (letter, word) = match change {
                Change::Added => ('+', "added"),
                Change::Removed => ('-', "removed"),
                Change::Content => ('M', "content"),
                Change::Metadata => ('U', "metadata"),
            };
            let path = shown_path(&found.path);
            if !json {
                println!("{letter} {}", Shown(&path));
            } else if let Err(failure) = print_json(&json!({ "change": word, "path": path })) {
                failed.get_or_insert(failure);
            }
            Ok(())
        })?;
    match failed {
        Some(failure) => Err(failure),
        None if !is_there && !within.is_empty() => {
            Err(Failure::missing(format!("neither snapshot has {}", shown_path(&within))))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_a_column_where_there_are_any() {
        let line =
            |tags: &str| std::array::from_fn(|place| if place == TAGS { tags.to_owned() } else { "x".to_owned() });
        let words = |lines: Vec<[String; 10]>, word: &str| table_of(lines).render().contains(word);
        assert!(!words(vec![line(""), line("")], "TAGS"));
        assert!(words(vec![line(""), line("nightly")], "TAGS") && words(vec![line("nightly")], "nightly"));
    }

    #[test]
    fn a_store_that_fails_makes_no_shorter_list() {
        let text = || "cause".to_owned();
        for error in [BackupError::Damaged(text()), BackupError::Newer(text()), BackupError::Missing(text())] {
            assert_eq!(passed_over(error), Ok(()));
        }
        for error in [BackupError::Failed(text()), BackupError::Unreachable(text()), BackupError::Refused(text())] {
            assert_eq!(passed_over(error.clone()), Err(error.into()));
        }
    }

    #[test]
    fn times_before_1970_are_shown_as_they_are() {
        for (seconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (-86_400 * 365, "1969-01-01T00:00:00Z"),
            (-2_147_483_648, "1901-12-13T20:45:52Z"),
            (-12_622_780_800, "1570-01-01T00:00:00Z"),
            (-12_622_780_801, "1569-12-31T23:59:59Z"),
        ] {
            assert_eq!(moment_of(seconds), shown, "{seconds}");
        }
    }
}
