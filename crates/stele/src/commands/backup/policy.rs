//! Policies in files: `stele backup policy`, and what `stele backup forget --policy` goes by.
//!
//! The file belongs to the job that may delete. It is not in the repository, where an agent could
//! change it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;
use serde_json::json;
use stele_backup::filter::Filter;
use stele_backup::versions::{Class, VersionPolicy, VersionRetention};
use stele_ground::{Shown, counted};
use stele_lab::error::toml_cause;
use stele_server::failure::{Failure, Outcome, io_failure};
use stele_server::whole;

use super::select::within;
use crate::commands::print_json;
use crate::output::{Align, Table};

/// Days for which every version stays after it ended, unless the file says otherwise.
const LEAST_DAYS: u64 = 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    least_days: Option<u64>,
    #[serde(default)]
    class: Vec<ClassRow>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassRow {
    name: String,
    /// Patterns of paths; none: everything.
    #[serde(default)]
    include: Vec<String>,
    /// While the file exists; missing: without a limit.
    versions: Option<u64>,
    days: Option<u64>,
    /// After it was deleted.
    deleted_versions: Option<u64>,
    deleted_days: Option<u64>,
}

/// The text of a small file.
pub fn text(path: &Path) -> Outcome<String> {
    whole::read_text(path).map_err(|error| io_failure("read", path, &error))
}

fn read(path: &Path) -> Outcome<File> {
    parsed(path, &text(path)?)
}

/// A TOML file. An error names the file, the line and the cause.
pub fn parsed<T: serde::de::DeserializeOwned>(path: &Path, text: &str) -> Outcome<T> {
    let wrong = |error| Failure::usage(format!("{}: {}", path.display(), toml_cause(text, &error)));
    toml::from_str(text).map_err(wrong)
}

fn least_days(file: &File) -> u64 {
    file.least_days.unwrap_or(LEAST_DAYS)
}

fn policy_of(file: &File) -> Outcome<VersionPolicy> {
    let class = |row: &ClassRow| -> Outcome<Class> {
        let mut include = Filter::default();
        row.include.iter().try_for_each(|pattern| include.add(pattern, false))?;
        let exists = VersionRetention { versions: row.versions, days: row.days };
        let deleted = VersionRetention { versions: row.deleted_versions, days: row.deleted_days };
        Ok(Class { name: row.name.clone(), include, exists, deleted })
    };
    let classes = file.class.iter().map(class).collect::<Outcome<Vec<Class>>>()?;
    Ok(VersionPolicy::new(classes, least_days(file))?)
}

pub fn policy(path: &Path) -> Outcome<VersionPolicy> {
    policy_of(&read(path)?)
}

/// Shows the classes of a file, or the classes of paths.
pub fn show(json: bool, path: &Path, paths: &[OsString]) -> Outcome<()> {
    let file = read(path)?;
    let policy = policy_of(&file)?;
    let limit = |number: Option<u64>| number.map_or_else(|| "all".to_owned(), |number| number.to_string());
    if paths.is_empty() {
        let mut table = Table::new(&[
            ("CLASS", Align::Left),
            ("VERSIONS", Align::Right),
            ("DAYS", Align::Right),
            ("DELETED: VERSIONS", Align::Right),
            ("DAYS", Align::Right),
            ("INCLUDE", Align::Left),
        ]);
        for row in &file.class {
            table.row(vec![
                Shown(&row.name).to_string(),
                limit(row.versions),
                limit(row.days),
                limit(row.deleted_versions),
                limit(row.deleted_days),
                if row.include.is_empty() {
                    "everything".to_owned()
                } else {
                    Shown(&row.include.join(" ")).to_string()
                },
            ]);
        }
        if json {
            let row = |row: &ClassRow| {
                json!({
                    "class": row.name, "include": row.include, "versions": row.versions, "days": row.days,
                    "deleted_versions": row.deleted_versions, "deleted_days": row.deleted_days,
                })
            };
            let rows: Vec<serde_json::Value> = file.class.iter().map(row).collect();
            return print_json(&json!({ "least_days": least_days(&file), "classes": rows }));
        }
        print!("{}", table.render());
        println!("Every version stays for {} after it ended.", counted(least_days(&file), "day"));
        return Ok(());
    }
    let mut table = Table::new(&[("CLASS", Align::Left), ("PATH", Align::Left)]);
    let mut rows = Vec::new();
    for path in paths {
        let class = policy.class_of(&within(path.as_bytes())).map(|class| class.name.clone());
        let path = &*path.to_string_lossy();
        rows.push(json!({ "path": path, "class": class }));
        table.row(vec![class.unwrap_or_else(|| "none: all versions stay".to_owned()), Shown(path).to_string()]);
    }
    if json {
        return print_json(&rows);
    }
    print!("{}", table.render());
    Ok(())
}
