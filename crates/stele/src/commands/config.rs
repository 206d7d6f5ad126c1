//! `stele config export` and `import`: all that a server needs besides its drives, in one file, for a new machine.
//!
//! An import only writes files into a data directory. It can shorten no retention: retention, holds, the compliance
//! clock and the audit log are on the drives. Opening a pool checks that catalog and data volume belong together. The
//! remaining danger is that an import hides a rolled-back pool by removing the signed heads that would show it. An
//! import therefore overwrites no existing file, and the passphrase authenticates the heads with the rest of the file.
//!
//! Failure model: the import writes the configuration last. An interrupted import leaves a directory in which no server
//! starts. A repeated import accepts the files that the first one wrote.

mod sealed;

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::sealed::Sealed;
use crate::api::archive::KeyEscrow;
use crate::cli::config::Config as Arguments;
use crate::commands::print_json;
use crate::config::{Config, Site};
use crate::connection::Connection;
use crate::drives::DriveArgument;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::files;
use crate::node::heads;
use stele_ground::calendar::moment;

const FORMAT: &str = "stele-config-1";
/// A passphrase shorter than this is refused.
const PHRASE_MIN: usize = 12;
/// Far more than the heads of many years take.
const FILE_MAX: u64 = 256 << 20;

/// The file: a part that is readable without the passphrase, and a sealed part. The seal covers both.
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

pub async fn run(site: &Site, json: bool, command: Arguments) -> Outcome<()> {
    match command {
        Arguments::Export { to, passphrase_file } => export(site, json, &to, &passphrase_file).await,
        Arguments::Import { file, passphrase_file, drives } => import(site, json, &file, &passphrase_file, &drives),
    }
}

/// Reads a passphrase. A line break at its end does not count.
fn passphrase(path: &Path) -> Outcome<String> {
    let text = fs::read_to_string(path).map_err(|error| io_failure("read the passphrase in", path, &error))?;
    let phrase = text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r').to_owned();
    if phrase.chars().count() < PHRASE_MIN {
        let message = format!("the passphrase in {} has fewer than {PHRASE_MIN} characters", path.display());
        return Err(Failure::usage(message).next("choose a longer one; five words chosen by dice are good"));
    }
    Ok(phrase)
}

async fn export(site: &Site, json: bool, to: &Path, passphrase_file: &Path) -> Outcome<()> {
    let phrase = passphrase(passphrase_file)?;
    if to.exists() {
        return Err(Failure::new(Kind::Exists, format!("{} is there already", to.display())).next("name a new file"));
    }
    let path = &site.config_path;
    let text = fs::read_to_string(path).map_err(|error| io_failure("read the configuration", path, &error))?;
    let config = Config::read(path)?;
    let connection = Connection::find(site).await?;
    let key = match connection.is_server() {
        true => connection.exact(KeyEscrow {}).await,
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
    let (mut outside, mut open, mut secret) = (Vec::new(), Vec::new(), Vec::new());
    let mut keep = |path: &Path, into: &mut Vec<Kept>| -> Outcome<()> {
        let bytes = match fs::read(path) {
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
    for place in heads::places(site, &config) {
        for file in within(&place)? {
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
    for file in named(&config).into_iter().map(|path| site.path(path)) {
        if !secret.iter().any(|kept| site.dir.join(&kept.path) == file) {
            keep(&file, &mut secret)?;
        }
    }
    let count = open.len() + secret.len();
    let open = Open {
        format: FORMAT.to_owned(),
        made: moment(crate::node::wall_clock()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        configuration: text,
        files: open,
    };
    let with_key = master_key.is_some();
    let secrets = to_json(&Secrets { master_key, files: secret })?;
    let sealed = Sealed::seal(&phrase, &to_json(&open)?, secrets)?;
    files::create_private(to, &to_json(&Backup { open, sealed })?)?;
    if json {
        let view = serde_json::json!({ "file": to, "files": count, "master_key": with_key, "left_out": outside });
        return print_json(&view);
    }
    println!(
        "{} files and the configuration{} are in {}.",
        count,
        if with_key { ", and the master key," } else { "" },
        to.display()
    );
    outside.iter().for_each(|path| println!("Not in it, since it is outside of the data directory: {path}"));
    println!("Keep it away from this machine, and the passphrase away from it.");
    Ok(())
}

fn import(site: &Site, json: bool, file: &Path, passphrase_file: &Path, drives: &[DriveArgument]) -> Outcome<()> {
    let phrase = passphrase(passphrase_file)?;
    let read = |error: &std::io::Error| io_failure("read the backup", file, error);
    let length = fs::metadata(file).map_err(|error| read(&error))?.len();
    if length > FILE_MAX {
        return Err(Failure::usage(format!("{} is no backup of a configuration: it is too long", file.display())));
    }
    let bytes = fs::read(file).map_err(|error| read(&error))?;
    let backup: Backup = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::usage(format!("{} is no backup of a configuration: {error}", file.display())))?;
    if backup.open.format != FORMAT {
        let message = format!("{} is a backup of another kind: {}", file.display(), backup.open.format);
        return Err(Failure::usage(message).next("use the version of Stele that wrote it, or a newer one"));
    }
    let secrets = backup.sealed.open(&phrase, &to_json(&backup.open)?)?;
    let secrets: Secrets = serde_json::from_slice(&secrets)
        .map_err(|error| Failure::usage(format!("what {} holds cannot be understood: {error}", file.display())))?;
    let text = configuration(&backup.open.configuration, drives)?;
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
    let taken = |(path, bytes): &&(PathBuf, Vec<u8>)| path.exists() && fs::read(path).ok().as_ref() != Some(bytes);
    let known = fs::read_to_string(&site.config_path).is_ok_and(|known| known == text);
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
        for folder in
            path.ancestors().skip(1).take_while(|folder| *folder != site.dir).collect::<Vec<_>>().into_iter().rev()
        {
            if folder.starts_with(&site.dir) {
                files::folder(folder)?;
            }
        }
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
    println!("Look at the drives, then serve: stele pool open --read-only --dir {}", site.dir.display());
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
    crate::config::with_drives(text, &drives).ok_or_else(|| {
        Failure::failed("the configuration in the backup cannot be changed to name these drives")
            .next("import without --drive, and edit [pool] drives by hand")
    })
}

/// Whether a path stays below the directory that it is joined to.
fn is_inner(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_))) && path.components().next().is_some()
}

/// The files of a folder; empty if there is no such folder.
/// The files that a configuration names and a server needs, besides the master key and the drives.
fn named(config: &Config) -> Vec<&PathBuf> {
    let files = [
        &config.s3.tls_certificate,
        &config.s3.tls_key,
        &config.nbd.tls_certificate,
        &config.nbd.tls_key,
        &config.nbd.client_authority,
        &config.nfs.tls_certificate,
        &config.nfs.tls_key,
        &config.nfs.client_authority,
        &config.archive.heads_bucket_key,
        &config.archive.heads_timestamp_ca,
        &config.archive.heads_witness_key,
        &config.messages.mail_password,
        &config.smb.include,
    ];
    files.into_iter().flatten().collect()
}

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
        let files: Vec<String> = named(&config).into_iter().map(|path| path.display().to_string()).collect();
        let expected: Vec<String> = (1..=13).map(|number| format!("{number}.pem")).collect();
        assert_eq!(files, expected);
    }
}
