//! `stele backup key`.

use std::path::Path;

use serde_json::json;
use stele_backup::keyring::{Cost, escrow, parse_escrow};
use stele_backup::repository::Repository;
use stele_ground::Shown;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files;
use stele_server::whole::{self, TEXT_MAX};

use super::tell::tell;
use super::{check_label, closed, machine, open, password, password_file, store};
use crate::cli::backup::{BackupKey, RepositoryArgs};
use crate::commands::print_json;
use crate::output::{Align, Table};

pub fn run(json: bool, command: BackupKey) -> Outcome<()> {
    match command {
        BackupKey::List { place } => {
            let keys = closed(&place)?.keys_listed()?;
            if json {
                let rows = keys.iter().map(|is| {
                    json!({ "key": is.name, "label": is.label, "error": is.damage.as_ref().or(is.newer.as_ref()) })
                });
                return print_json(&rows.collect::<Vec<_>>());
            }
            let mut table = Table::new(&[("KEY", Align::Whole), ("LABEL", Align::Left)]);
            for is in &keys {
                match (&is.damage, &is.newer) {
                    (None, None) => table.row(vec![is.name.clone(), Shown(&is.label).to_string()]),
                    (Some(text), _) => {
                        tell(format_args!("stele: key {} opens nothing: {}", Shown(&is.name), Shown(text)))
                    }
                    (None, Some(text)) => tell(format_args!("stele: key {}: {}", Shown(&is.name), Shown(text))),
                }
            }
            print!("{}", table.render());
            Ok(())
        }
        BackupKey::Add { place, new_password_file, label } => {
            check_label(&label)?;
            let new = password_file(&new_password_file)?;
            let key = open(&place)?.add_key(&new, &label, Cost::STANDARD)?;
            if json {
                return print_json(&json!({ "key": key, "label": label }));
            }
            println!("Key {key} added.");
            Ok(())
        }
        BackupKey::Remove { place, key } => {
            remove(&place, &key)?;
            if json {
                return print_json(&json!({ "removed": key }));
            }
            println!("Key {} removed.", Shown(&key));
            Ok(())
        }
        BackupKey::Export { place, to } => write_escrow(json, &open(&place)?, &to),
        BackupKey::Verify { place, file } => {
            let bytes = whole::read(&file, TEXT_MAX).map_err(|error| io_failure("read", &file, &error))?;
            let (id, secret) = parse_escrow(&String::from_utf8_lossy(&bytes))?;
            let repository = closed(&place)?;
            if id != repository.header.id || Repository::open_with(repository, secret).is_err() {
                return Err(Failure::new(Kind::WrongPassword, "the exported key is that of another repository"));
            }
            if json {
                return print_json(&json!({ "opens": true }));
            }
            println!("The exported key opens the repository.");
            Ok(())
        }
    }
}

/// Removes a key, if the password opens another one.
fn remove(place: &RepositoryArgs, key: &str) -> Outcome<()> {
    closed(place)?;
    let password = password(place)?;
    let repository = Repository::open(store(place)?, machine(), &password)?;
    Ok(repository.remove_key(key, &password)?)
}

fn write_escrow(json: bool, repository: &Repository, to: &Path) -> Outcome<()> {
    let text = escrow(&repository.header.id, repository.keys.secret());
    files::create_private(to, text.as_bytes())?;
    if json {
        return print_json(&json!({ "file": to.display().to_string() }));
    }
    println!(
        "The key is in {}. It opens the repository in the place of a password (--password-file): keep it offline.",
        Shown(&to.display().to_string())
    );
    Ok(())
}
