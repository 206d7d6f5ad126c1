//! Folders of a crate import only from folders below them, as crates do. Tests may import
//! everything.
//!
//! A folder is a module that `lib.rs` declares: `x.rs` with the files under `x/`. The rule reads
//! paths that begin with `crate::`. It also demands that no path of `super` leaves its folder, so
//! that there is no other way.

use super::source::is_test;

/// The folders of each crate, lowest first. Each may import those before it.
const CRATES: &[(&str, &[&str])] = &[("crates/array/src/", ARRAY), ("crates/archive/src/", ARCHIVE)];

const ARRAY: &[&str] = &[
    // What the pool is made of and what is said of it.
    "model",   // What flows run on: the executor, waiting, the way to a drive.
    "runtime", // Blocks in memory.
    "cache",   // Bytes of the table's pages.
    "formats", // Drives and their labels: who belongs to the pool.
    "drives",  // Rows, cells and slots.
    "space",   // The log, its records, and the table.
    "durable", // Volumes and their layers.
    "volumes", // What each flow knows.
    "state",   // What all flows share, and what each record does to it.
    "engine",  // One stripe: finding, reading, writing, repairing it.
    "stripe",  // From the log to the strips, and checkpoints.
    "destage", // Snapshots and clones.
    "layers",  // What hosts ask.
    "hosts",   // What the pool does by itself.
    "upkeep",  // Drives that come and go.
    "members", // Opening, commands and status.
    "pool",    // The thread that drives a pool.
    "reactor", // The shards of a pool as one.
    "server",
];

const ARCHIVE: &[&str] = &[
    "model",     // ids, settings, rights, errors, alarms
    "cache",     // a bounded cache
    "seal",      // encryption and the derivation of keys
    "record",    // rows of the catalog
    "space",     // the data volume: segments, records, the key table, the superblock
    "state",     // what tasks share in memory, one owner each
    "store",     // the parts put together: commits, notes, leases, lookups
    "audit",     // the audit log
    "changes",   // changes of versions, buckets and access keys, with their notes
    "evidence",  // receipts, and proofs from the audit log
    "retention", // rules, legal holds, the compliance clock, approval by two officers
    "removal",   // the one deletion path, and disposal
    "access",    // access keys and the master key
    "buckets",   // making, changing and removing buckets
    "objects",   // put, get, copy, list, delete, multipart
    "shares",    // the seam by which S3 reaches the files of shares
    "upkeep",    // background work: expiration, reclamation, scrub
    "opening",   // making, opening and closing a store
    "rebuild",   // the catalog from the data volume alone
    "inspect",   // records as text
];

/// Folders for tests alone.
const TESTING: &[&str] = &["testing"];

pub fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    let Some((inside, folders)) = CRATES.iter().find_map(|(root, folders)| Some((name.strip_prefix(root)?, *folders)))
    else {
        return;
    };
    let path: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    let own = path[0];
    if own == "lib" || TESTING.contains(&own) || is_test(name) {
        return;
    }
    let Some(floor) = folders.iter().position(|folder| *folder == own) else {
        faults.push(format!("{name}: the folder '{own}' has no place; list it in xtask/src/tidy/folders.rs"));
        return;
    };
    for (number, line) in text.lines().enumerate() {
        if line.trim() == "mod tests {" {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        for used in imported(code) {
            let allowed = folders[..=floor].contains(&used);
            if !allowed {
                faults.push(format!(
                    "{name}:{}: '{own}' may not import from '{used}': folders import only from those below \
                     (xtask/src/tidy/folders.rs)",
                    number + 1
                ));
            }
        }
        if climbs(code) >= path.len() {
            faults
                .push(format!("{name}:{}: this path of 'super' leaves its folder; begin it with crate::", number + 1));
        }
    }
}

/// The first names of the paths that begin with `crate::`; a group counts as its first name.
fn imported(code: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_alphanumeric() || c == '_');
    let begins = |at: &usize| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let places = code.match_indices("crate::").map(|(at, _)| at).filter(move |at| begins(at));
    places.map(move |at| code[at + "crate::".len()..].split(word).next().unwrap_or_default())
}

/// Largest number of consecutive `super::` in the code.
fn climbs(code: &str) -> usize {
    (1..).take_while(|count| code.contains(&"super::".repeat(*count))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_import_from_those_below() {
        for (name, text, expected) in [
            ("engine/apply.rs", "use crate::durable::log::Log;", None),
            ("engine/apply.rs", "use crate::engine::Engine;", None),
            ("engine/apply.rs", "use crate::hosts::write;", Some("'engine' may not import from 'hosts'")),
            ("engine.rs", "let a = crate::stripe::runs([]);", Some("'engine' may not import from 'stripe'")),
            // Re-exports of lib.rs must not circumvent the rule.
            ("engine.rs", "use crate::{Alarm, Pool};", Some("may not import from ''")),
            ("engine.rs", "use crate::Pool;", Some("may not import from 'Pool'")),
            ("engine/apply.rs", "use super::super::pool::Pool;", Some("leaves its folder")),
            ("engine/apply.rs", "use super::Work;", None),
            ("engine.rs", "use super::pool::Pool;", Some("leaves its folder")),
            ("engine.rs", "//! [`crate::hosts`] is above.", None),
            ("engine/tests.rs", "use crate::pool::Pool;", None),
            ("engine.rs", "mod tests {\n    use crate::pool::Pool;", None),
            ("drawer.rs", "", Some("'drawer' has no place")),
            ("lib.rs", "pub use crate::hosts::write;", None),
        ] {
            let mut faults = Vec::new();
            check(&format!("crates/array/src/{name}"), text, &mut faults);
            let found = faults.first().map(String::as_str);
            assert_eq!(found.is_some(), expected.is_some(), "{name}: {text}: {faults:?}");
            assert!(expected.is_none_or(|part| found.unwrap_or_default().contains(part)), "{text}: {faults:?}");
        }
    }

    #[test]
    fn the_architecture_has_a_row_for_each_folder() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md");
        let text = std::fs::read_to_string(page).unwrap();
        for (crate_name, folders) in [("array", ARRAY), ("archive", ARCHIVE)] {
            let after = text.split(&format!("## Folders of the {crate_name}\n")).nth(1).unwrap_or_default();
            let part = after.split("\n## ").next().unwrap_or_default();
            let rows = part.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
            assert_eq!(rows.collect::<Vec<_>>(), folders, "{crate_name}");
        }
    }

    #[test]
    fn each_crate_has_folders_of_its_own() {
        for (name, text, refused) in [
            ("crates/archive/src/store/notes.rs", "use crate::state::shared::Shared;", false),
            ("crates/archive/src/state/caches.rs", "use crate::store::Store;", true),
            ("crates/archive/src/objects/put.rs", "use crate::upkeep::scrub;", true),
            ("crates/archive/src/hosts/write.rs", "", true),
            ("crates/catalog/src/journal.rs", "use crate::upkeep::scrub;", false),
        ] {
            let mut faults = Vec::new();
            check(name, text, &mut faults);
            assert_eq!(!faults.is_empty(), refused, "{name}: {text}: {faults:?}");
        }
    }
}
