//! `stele backup key`.

use std::path::Path;

use serde_json::json;
use stele_backup::keyring::{Cost, escrow, parse_escrow};
use stele_backup::repository::Repository;
use stele_ground::Shown;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files;

use super::{check_label, closed, open, password_file};
use crate::cli::backup::BackupKey;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub fn run(json: bool, command: BackupKey) -> Outcome<()> {
    match command {
        BackupKey::List { place } => {
            let labels = closed(&place)?.key_labels()?;
            if json {
                let rows = labels.iter().map(|(key, label)| json!({ "key": key, "label": label }));
                return print_json(&rows.collect::<Vec<_>>());
            }
            let mut table = Table::new(&[("KEY", Align::Whole), ("LABEL", Align::Left)]);
            labels.iter().for_each(|(key, label)| table.row(vec![key.clone(), Shown(label).to_string()]));
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
            open(&place)?.remove_key(&key)?;
            if json {
                return print_json(&json!({ "removed": key }));
            }
            println!("Key {} removed.", Shown(&key));
            Ok(())
        }
        BackupKey::Export { place, to } => write_escrow(json, &open(&place)?, &to),
        BackupKey::Verify { place, file } => {
            let text = std::fs::read_to_string(&file).map_err(|error| io_failure("read", &file, &error))?;
            let (id, secret) = parse_escrow(&text)?;
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

fn write_escrow(json: bool, repository: &Repository, to: &Path) -> Outcome<()> {
    let text = escrow(&repository.header.id, repository.keys.secret());
    files::create_private(to, text.as_bytes())?;
    if json {
        return print_json(&json!({ "file": to }));
    }
    println!(
        "The key is in {}. It opens the repository in the place of a password (--password-file): keep it offline.",
        Shown(&to.display().to_string())
    );
    Ok(())
}
