//! `stele config export` and `import`: all that a server needs besides its drives, in one file, for
//! a new machine.
//!
//! An import only writes files into a data directory. It can shorten no retention: retention,
//! holds, the compliance clock and the audit log are on the drives. Opening a pool checks that
//! catalog and data volume belong together. The remaining danger is that an import hides a
//! rolled-back pool by removing the signed heads that would show it. An import therefore overwrites
//! no existing file, and the passphrase authenticates the heads with the rest of the file.
//!
//! Failure model: the import writes the configuration last. An interrupted import leaves a
//! directory in which no server starts. A repeated import accepts the files that the first one
//! wrote.

mod sealed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::sealed::Sealed;
use crate::cli::config::ConfigCommand;
use crate::commands::master_key::refuse_standard_output;
use crate::commands::print_json;
use stele_ground::calendar::moment;
use stele_ground::{Bytes, counted};
use stele_server::api::archive::MasterKeyExportCall;
use stele_server::config::{Config, Site};
use stele_server::connection::Connection;
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files::{self, Draft};
use stele_server::node::heads;
use stele_server::whole;

const FORMAT: &str = "stele-config-1";
/// What every format begins with, before its number.
const FORMAT_KIND: &str = "stele-config-";
/// A passphrase shorter than this is refused.
const PHRASE_MIN: usize = 12;
/// The most that an export writes.
const FILE_MAX: usize = 256 << 20;
/// The most that an import reads: earlier versions exported all heads.
const READ_MAX: Bytes = Bytes(1 << 30);
/// Heads of a place that are exported, the newest ones. A rolled-back pool is behind the newest.
const HEADS_KEPT: usize = 1000;
/// More than the master key and the seal take.
const SEAL_ROOM: usize = 64 << 10;

/// The file: a part that is readable without the passphrase, and a sealed part. The seal covers
/// both.
#[derive(Serialize, Deserialize)]
struct Backup {
    open: Open,
    sealed: Sealed,
}

#[derive(Serialize, Deserialize)]
struct Open {
    format: String,
    made: String,
    version: String,
    /// `stele.toml`, unchanged.
    configuration: String,
    /// Signed heads and counters.
    files: Vec<Kept>,
}

/// The sealed part.
#[derive(Serialize, Deserialize)]
struct Secrets {
    /// `None` if the pool has no archive.
    master_key: Option<String>,
    files: Vec<Kept>,
}

/// A file of the data directory.
#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    /// Relative to the data directory, without `..`.
    path: PathBuf,
    /// In base64.
    content: String,
}

pub async fn run(site: &Site, json: bool, command: ConfigCommand) -> Outcome<()> {
    match command {
        ConfigCommand::Export { to, passphrase_file } => export(site, json, &to, &passphrase_file).await,
        ConfigCommand::Import { file, passphrase_file, drives } => import(site, json, &file, &passphrase_file, &drives),
    }
}

/// Reads a passphrase. A line break at its end does not count.
fn passphrase(path: &Path) -> Outcome<String> {
    let text = whole::read_text(path).map_err(|error| io_failure("read the passphrase in", path, &error))?;
    let phrase = text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r').to_owned();
    if phrase.chars().count() < PHRASE_MIN {
        let message = format!("the passphrase in {} has fewer than {PHRASE_MIN} characters", path.display());
        return Err(Failure::usage(message).next("choose a longer one; five words chosen by dice are good"));
    }
    Ok(phrase)
}

async fn export(site: &Site, json: bool, to: &Path, passphrase_file: &Path) -> Outcome<()> {
    refuse_standard_output(to, "an export")?;
    let phrase = passphrase(passphrase_file)?;
    if to.exists() {
        return Err(Failure::new(Kind::Exists, format!("{} is there already", to.display())).next("name a new file"));
    }
    let gathered = gather(site)?;
    // The master key is asked for last: the call uses up what officers approved, and the log then
    // says that the key left.
    let mut draft = Draft::private(to)?;
    draft.reserve(gathered.room()?)?;
    let connection = Connection::find(site).await?;
    let key = match connection.is_server() {
        true => connection.exact(MasterKeyExportCall {}).await,
        false => Err(Failure::new(Kind::Busy, "no server runs that could record that the master key is handed out")
            .next("start it with `stele serve`, and repeat the command")),
    };
    connection.leave().await?;
    let master_key = match key {
        Ok(key) => Some(key.key),
        // The key opens nothing in a pool for block volumes only.
        Err(failure) if failure.kind == Kind::Missing => None,
        Err(failure) => return Err(failure),
    };
    let Gathered { open, secret, outside, older } = gathered;
    let count = open.files.len() + secret.len();
    let with_key = master_key.is_some();
    let secrets = to_json(&Secrets { master_key, files: secret })?;
    let sealed = Sealed::seal(&phrase, &to_json(&open)?, secrets)?;
    draft.put(&to_json(&Backup { open, sealed })?)?;
    draft.keep()?;
    if json {
        let view = serde_json::json!({
            "file": to, "files": count, "master_key": with_key, "left_out": outside, "heads_left_out": older,
        });
        return print_json(&view);
    }
    println!(
        "{} and the configuration{} are in {}.",
        counted(count as u64, "file"),
        if with_key { ", and the master key," } else { "" },
        to.display()
    );
    outside.iter().for_each(|path| println!("Not in it, since it is outside of the data directory: {path}"));
    if older > 0 {
        println!("Not in it: {older} older files of signed heads; the newest {HEADS_KEPT} of each place are.");
    }
    println!("Keep it away from this machine, and the passphrase away from it.");
    Ok(())
}

/// What an export holds besides the master key.
struct Gathered {
    open: Open,
    secret: Vec<Kept>,
    /// Files and places that are left out since they are elsewhere.
    outside: Vec<String>,
    /// Number of older files of heads that are left out.
    older: usize,
}

impl Gathered {
    /// The bytes that the export takes at most. Refuses what no import would read.
    fn room(&self) -> Outcome<usize> {
        let sealed = to_json(&self.secret)?.len();
        // The sealed part is in base64.
        let room = to_json(&self.open)?.len() + sealed + sealed / 3 + SEAL_ROOM;
        if room > FILE_MAX {
            return Err(Failure::new(
                Kind::Full,
                format!("an export would take {room} bytes, and may take {FILE_MAX}"),
            )
            .next("move old heads out of the data directory"));
        }
        Ok(room)
    }
}

fn gather(site: &Site) -> Outcome<Gathered> {
    let path = &site.config_path;
    let text = whole::read_text(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let config = Config::read(path)?;
    let (mut outside, mut open, mut secret) = (Vec::new(), Vec::new(), Vec::new());
    let mut keep = |path: &Path, into: &mut Vec<Kept>| -> Outcome<()> {
        let bytes = match whole::read(path, Bytes(FILE_MAX as u64)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io_failure("read", path, &error)),
        };
        match path.strip_prefix(&site.dir) {
            Ok(inner) if is_inner(inner) => {
                let content = base64_simd::STANDARD.encode_to_string(bytes);
                into.push(Kept { path: inner.to_owned(), content });
            }
            _ => outside.push(path.display().to_string()),
        }
        Ok(())
    };
    // Places elsewhere are not read: a share that is away would hold the command.
    let (inner, elsewhere): (Vec<PathBuf>, Vec<PathBuf>) =
        heads::places(site, &config).into_iter().partition(|place| place.starts_with(&site.dir));
    let mut older = 0;
    for place in inner {
        let (newest, left) = newest_heads(within(&place)?);
        older += left;
        for file in newest {
            keep(&file, &mut open)?;
        }
    }
    keep(&site.dir.join("history.json"), &mut open)?;
    for name in ["exports.json", "unrecorded-acts"] {
        keep(&site.dir.join(name), &mut secret)?;
    }
    for folder in ["reservations", "tls"] {
        for file in within(&site.dir.join(folder))? {
            keep(&file, &mut secret)?;
        }
    }
    for file in named(&config).into_iter().map(|(path, _)| site.path(path)) {
        if !secret.iter().any(|kept| site.dir.join(&kept.path) == file) {
            keep(&file, &mut secret)?;
        }
    }
    outside.extend(elsewhere.iter().map(|place| place.display().to_string()));
    let open = Open {
        format: FORMAT.to_owned(),
        made: moment(stele_server::node::wall_clock()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        configuration: text,
        files: open,
    };
    Ok(Gathered { open, secret, outside, older })
}

/// The newest heads of a place with what lies beside them, and the number of older files. The names
/// begin with the number of records. After a rebuild of the catalog the log may be shorter than
/// heads from before, so the heads that were written last count as new too.
fn newest_heads(mut files: Vec<PathBuf>) -> (Vec<PathBuf>, usize) {
    let records = |path: &PathBuf| -> Option<u64> { path.file_name()?.to_str()?.get(..20)?.parse().ok() };
    let written = |path: &PathBuf| fs::metadata(path).and_then(|about| about.modified()).ok();
    let numbers: BTreeSet<u64> = files.iter().filter_map(records).collect();
    let mut last: Vec<_> = files.iter().filter_map(|path| Some((written(path), records(path)?))).collect();
    last.sort_unstable();
    let last = last.into_iter().rev().map(|(_, number)| number).take(HEADS_KEPT);
    let kept: BTreeSet<u64> = numbers.into_iter().rev().take(HEADS_KEPT).chain(last).collect();
    let count = files.len();
    files.retain(|path| records(path).is_none_or(|number| kept.contains(&number)));
    let older = count - files.len();
    (files, older)
}

/// The backup in the bytes of a file. The format counts first: a later one may have other fields.
fn understood(file: &Path, bytes: &[u8]) -> Outcome<Backup> {
    let is_none = |error: serde_json::Error| {
        Failure::usage(format!("{} is no backup of a configuration: {error}", file.display()))
            .next("name the file that `stele config export` wrote; if it was cut off, find another copy")
    };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(is_none)?;
    let format = value["open"]["format"].as_str().unwrap_or_default();
    let number = |format: &str| -> Option<u64> { format.strip_prefix(FORMAT_KIND)?.parse().ok() };
    if number(format) > number(FORMAT) {
        let message = format!(
            "{} is of the format '{format}', which a later version of Stele wrote; this one knows '{FORMAT}'",
            file.display()
        );
        return Err(Failure::new(Kind::Refused, message).next("import it with that version, or a later one"));
    }
    let backup: Backup = serde_json::from_slice(bytes).map_err(is_none)?;
    if backup.open.format != FORMAT {
        let message = format!("{} is a backup of another kind: {}", file.display(), backup.open.format);
        return Err(Failure::usage(message).next("name a file that `stele config export` wrote"));
    }
    Ok(backup)
}

fn import(site: &Site, json: bool, file: &Path, passphrase_file: &Path, drives: &[DriveArgument]) -> Outcome<()> {
    // The server has to read what is written here.
    stele_server::node::own(site)?;
    let phrase = passphrase(passphrase_file)?;
    let read = |error: &std::io::Error| io_failure("read the backup", file, error);
    let bytes = whole::read(file, READ_MAX).map_err(|error| read(&error))?;
    let backup = understood(file, &bytes)?;
    let secrets = backup.sealed.open(&phrase, &to_json(&backup.open)?)?;
    let secrets: Secrets = serde_json::from_slice(&secrets)
        .map_err(|error| Failure::usage(format!("what {} holds cannot be understood: {error}", file.display())))?;
    let text = at_home(configuration(&backup.open.configuration, drives)?, site)?;
    let config: Config = toml::from_str(&text)
        .map_err(|error| Failure::usage(format!("the configuration in the backup is wrong: {}", error.message())))?;
    let mut new: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for kept in backup.open.files.iter().chain(&secrets.files) {
        let wrong = || {
            Failure::usage(format!("the backup names a file outside of the data directory: {}", kept.path.display()))
        };
        let path = Some(&kept.path).filter(|path| is_inner(path)).ok_or_else(wrong)?;
        let bytes = base64_simd::STANDARD.decode_to_vec(&kept.content).map_err(|_| wrong())?;
        new.push((site.dir.join(path), bytes));
    }
    let key_file = config.archive.master_key.split_once(':').filter(|(kind, _)| *kind == "file");
    let key_file = key_file.map(|(_, path)| site.path(Path::new(path)));
    let mut key_left_out = false;
    match (&secrets.master_key, key_file) {
        (Some(key), Some(path)) => new.push((path, format!("{key}\n").into_bytes())),
        (Some(_), None) => key_left_out = true,
        (None, _) => {}
    }
    // Check everything before writing anything.
    let replaces = Config::read(&site.config_path).is_ok_and(|config| config.pool.drives.is_empty());
    let taken = |(path, bytes): &&(PathBuf, Vec<u8>)| {
        path.exists() && whole::read(path, Bytes(bytes.len() as u64)).ok().as_ref() != Some(bytes)
    };
    let known = whole::read_text(&site.config_path).is_ok_and(|known| known == text);
    if let Some(path) = new.iter().find(taken).map(|(path, _)| path).or(match site.config_path.exists() {
        true if !replaces && !known => Some(&site.config_path),
        _ => None,
    }) {
        return Err(Failure::new(
            Kind::Exists,
            format!("{} is there already, and says something else", path.display()),
        )
        .next("import into a new directory, which --dir names"));
    }
    fs::create_dir_all(&site.dir).map_err(|error| io_failure("make", &site.dir, &error))?;
    for (path, bytes) in new.iter().filter(|(path, _)| !path.exists()) {
        make_folders(&site.dir, path)?;
        files::create_private(path, bytes)?;
    }
    files::replace(&site.config_path, text.as_bytes())?;
    if json {
        let view = serde_json::json!({
            "dir": site.dir, "config": site.config_path, "files": new.len(), "made": backup.open.made, "key_left_out": key_left_out,
        });
        return print_json(&view);
    }
    println!(
        "{} is as of {}; {} files are in {}.",
        site.config_path.display(),
        backup.open.made,
        new.len(),
        site.dir.display()
    );
    if key_left_out {
        println!(
            "The master key comes from {}: bring it there by hand.",
            config.archive.master_key.split(':').next().unwrap_or_default()
        );
    }
    let place = match site.config_path == site.dir.join("stele.toml") {
        true => format!("--dir {}", site.dir.display()),
        false => format!("--config {}", site.config_path.display()),
    };
    println!("Look at the drives, then serve: stele pool recover --read-only {place}");
    Ok(())
}

/// Makes the folders between the data directory and a file below it, each as the server makes it.
fn make_folders(dir: &Path, file: &Path) -> Outcome<()> {
    let between = file.ancestors().skip(1).take_while(|folder| *folder != dir);
    let folders: Vec<&Path> = between.filter(|folder| folder.starts_with(dir)).collect();
    for folder in folders.into_iter().rev() {
        match folder == dir.join("reservations") {
            true => files::private_folder(folder)?,
            false => files::folder(folder)?,
        }
    }
    Ok(())
}

/// The configuration, with the named drives in place of its own.
fn configuration(text: &str, drives: &[DriveArgument]) -> Outcome<String> {
    if drives.is_empty() {
        return Ok(text.to_owned());
    }
    let absolute = |drive: &DriveArgument| {
        let mut drive = drive.clone();
        drive.0.path = std::path::absolute(&drive.0.path).map_err(|error| io_failure("find", &drive.0.path, &error))?;
        Ok(drive)
    };
    let drives = drives.iter().map(absolute).collect::<Outcome<Vec<_>>>()?;
    stele_server::config::with_drives(text, &drives).ok_or_else(|| {
        Failure::failed("the configuration in the backup cannot be changed to name these drives")
            .next("import without --drive, and edit [pool] drives by hand")
    })
}

/// The configuration, with the directory that the import writes to as its data directory: a server
/// that took another one would find no heads, and would not notice that the pool was rolled back.
fn at_home(text: String, site: &Site) -> Outcome<String> {
    let whole = |path: &Path| std::path::absolute(path).map_err(|error| io_failure("find", path, &error));
    let home = whole(&site.dir)?;
    let is_home = |config: &Config| -> Outcome<bool> {
        Ok(whole(&Site::of(&site.config_path, config.data.as_deref()).dir)? == home)
    };
    let parsed = |text: &str| toml::from_str::<Config>(text);
    match parsed(&text) {
        Ok(config) if !is_home(&config)? => {}
        // The caller names what is wrong.
        _ => return Ok(text),
    }
    let changed = stele_server::config::with_data(&text, &home);
    match parsed(&changed) {
        Ok(config) if is_home(&config)? => Ok(changed),
        _ => Err(Failure::failed(format!(
            "the configuration in the backup cannot be changed to name {}",
            home.display()
        ))
        .next("import with --dir into the directory that its key `data` names")),
    }
}

/// Whether a path stays below the directory that it is joined to.
fn is_inner(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().next().is_some()
}

/// The files that a configuration names and a server needs, besides the master key and the drives,
/// and whether each is a secret.
pub(super) fn named(config: &Config) -> Vec<(&PathBuf, bool)> {
    let (secret, public) = (true, false);
    let files = [
        (&config.s3.tls_certificate, public),
        (&config.s3.tls_key, secret),
        (&config.nbd.tls_certificate, public),
        (&config.nbd.tls_key, secret),
        (&config.nbd.client_authority, public),
        (&config.nfs.tls_certificate, public),
        (&config.nfs.tls_key, secret),
        (&config.nfs.client_authority, public),
        (&config.archive.heads_bucket_key, secret),
        (&config.archive.heads_timestamp_ca, public),
        (&config.archive.heads_witness_key, public),
        (&config.messages.mail_password, secret),
        (&config.smb.include, public),
    ];
    files.into_iter().filter_map(|(path, is_secret)| Some((path.as_ref()?, is_secret))).collect()
}

/// The files of a folder in order; empty if there is no such folder.
fn within(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io_failure("read", folder, &error))?,
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    // Leave out files that a killed process left half written.
    files.retain(|path| path.extension().is_none_or(|ending| ending != "new"));
    files.sort_unstable();
    Ok(files)
}

fn to_json(value: &impl Serialize) -> Outcome<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_configuration_names_is_exported() {
        let text = "[pool]\ndrives = [\"a.img@0\"]\n\
            [s3]\ntls_certificate = \"1.pem\"\ntls_key = \"2.pem\"\n\
            [nbd]\ntls_certificate = \"3.pem\"\ntls_key = \"4.pem\"\nclient_authority = \"5.pem\"\n\
            [nfs]\ntls_certificate = \"6.pem\"\ntls_key = \"7.pem\"\nclient_authority = \"8.pem\"\n\
            [archive]\nheads_bucket_key = \"9.pem\"\nheads_timestamp_ca = \"10.pem\"\n\
            heads_witness_key = \"11.pem\"\n\
            [messages]\nmail_password = \"12.pem\"\n\
            [smb]\ninclude = \"13.pem\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let files: Vec<String> = named(&config).into_iter().map(|(path, _)| path.display().to_string()).collect();
        let expected: Vec<String> = (1..=13).map(|number| format!("{number}.pem")).collect();
        assert_eq!(files, expected);
    }

    #[test]
    fn a_backup_of_a_later_format_is_told_from_no_backup() {
        let kind = |text: &str| understood(Path::new("stele.backup"), text.as_bytes()).map(|_| ()).map_err(|f| f.kind);
        let known = |format: &str, more: &str| {
            format!(
                r#"{{"open":{{"format":"{format}","made":"m","version":"v","configuration":"","files":[]}},
                    "sealed":{{"rounds":1,"salt":"","nonce":"","text":""}}{more}}}"#
            )
        };
        let later = r#"{"open":{"format":"stele-config-2","drives":[]},"sealed":[]}"#;
        for (text, expected) in [
            (known(FORMAT, ""), Ok(())),
            (known("stele-config-10", ""), Err(Kind::Refused)),
            (later.to_owned(), Err(Kind::Refused)),
            (known("stele-config-0", ""), Err(Kind::Usage)),
            (known("other", ""), Err(Kind::Usage)),
            (r#"{"open":{"format":"stele-config-1"}}"#.to_owned(), Err(Kind::Usage)),
            ("[]".to_owned(), Err(Kind::Usage)),
            (String::new(), Err(Kind::Usage)),
        ] {
            assert_eq!(kind(&text), expected, "{text}");
        }
        let cut_off = understood(Path::new("stele.backup"), b"{\"open\":{\"for").err().unwrap();
        assert!(cut_off.next.contains("`stele config export`"), "{cut_off}");
    }

    #[test]
    fn an_import_makes_folders_as_the_server_does() {
        use std::os::unix::fs::MetadataExt;
        let dir = std::env::temp_dir().join(format!("stele-import-folders-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        // `stele doctor` reports a folder of reservations that others may enter.
        for (file, is_private) in [("reservations/0123", true), ("heads/1.head", false), ("a/b/c", false)] {
            make_folders(&dir, &dir.join(file)).unwrap();
            let mode = fs::metadata(dir.join(file).parent().unwrap()).unwrap().mode() & 0o777;
            assert_eq!(mode == 0o700, is_private, "{file}: {mode:o}");
        }
        make_folders(&dir, Path::new("/elsewhere/file")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_newest_heads_are_exported_and_the_others_counted() {
        let folder = std::env::temp_dir().join(format!("stele-export-heads-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let names = |numbers: std::ops::Range<usize>| {
            let endings = ["head", "tsr"];
            numbers.flat_map(move |number| endings.map(|ending| format!("{number:020}.{ending}"))).collect::<Vec<_>>()
        };
        let all = names(1..2 * HEADS_KEPT + 3);
        all.iter().for_each(|name| fs::write(folder.join(name), b"{}").unwrap());
        // From before a rebuild: more records, and written long ago.
        let old = folder.join(format!("{:020}.head", 1_000_000));
        fs::write(&old, b"{}").unwrap();
        fs::File::open(&old).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        let (kept, older) = newest_heads(within(&folder).unwrap());
        let is_kept = |name: &String| kept.contains(&folder.join(name));
        assert!(kept.contains(&old) && names(HEADS_KEPT + 4..2 * HEADS_KEPT + 3).iter().all(is_kept));
        assert!(!is_kept(&all[0]) && kept.len() + older == all.len() + 1 && older > HEADS_KEPT, "{older}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_configuration_is_brought_home() {
        let cases = [
            ("[pool]\ndrives = []\n", "/etc/stele/stele.toml", "/var/lib/stele", true),
            ("data = \"/var/lib/stele\"\n[pool]\ndrives = []\n", "/srv/stele/stele.toml", "/srv/stele", true),
            ("# data = 1\n data=\"/a\" # there\n\n[pool]\ndrives = []\n", "/srv/s.toml", "/b [c", true),
            ("data = \"/var/lib/stele\"\n[pool]\ndrives = []\n", "/etc/stele/stele.toml", "/var/lib/stele", false),
            ("[pool]\ndrives = []\n", "/srv/stele/stele.toml", "/srv/stele", false),
        ];
        for (text, config_path, dir, changes) in cases {
            let site = Site { dir: dir.into(), config_path: config_path.into() };
            let home = at_home(text.to_owned(), &site).unwrap();
            let config: Config = toml::from_str(&home).unwrap();
            assert_eq!(Site::of(&site.config_path, config.data.as_deref()).dir, site.dir, "{home}");
            assert_eq!(home != text, changes, "{home}");
        }
    }
}
