//! Listing directories.

use std::sync::Arc;

use std::collections::BTreeSet;

use super::{World, callers, run};
use crate::{Caller, FileError, Files, Removal};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        a_listing_has_every_entry_once,
        a_listing_shows_the_files,
        listing_needs_read,
        a_place_stays_valid_under_changes,
        a_large_directory_is_listed,
    )
}

async fn a_listing_has_every_entry_once<F: Files>(t: &World<F>) {
    t.same("an empty directory has none", t.names(t.root(), 10).await.len(), 0);
    let mut expected = BTreeSet::new();
    for number in 0..25 {
        let name = format!("{}{number}", "long".repeat(number % 7));
        match number % 3 {
            0 => t.directory(t.root(), &name, 0o755).await,
            _ => t.file(t.root(), &name, 0o644).await,
        };
        expected.insert(name);
    }
    for limit in [1, 2, 7, 24, 25, 26, 1000] {
        let names = t.names(t.root(), limit).await;
        t.same("no entry is repeated", names.len(), expected.len());
        t.same("every entry is there", names.into_iter().collect(), expected.clone());
    }
}

async fn a_listing_shows_the_files<F: Files>(t: &World<F>) {
    let kinds = t.every_kind(t.root()).await;
    let listed = t.files.read_directory(&Caller::ROOT, t.root(), 0, 100).await;
    let listing = t.ok("it is listed", listed);
    t.same("that was all", listing.end, true);
    for (name, inode) in &kinds {
        let entry = listing.entries.iter().find(|entry| entry.name == name.as_bytes());
        t.same(name, entry.map(|entry| entry.attributes.clone()), Some(t.attributes(*inode).await));
    }
    let mut cookies: Vec<u64> = listing.entries.iter().map(|entry| entry.cookie).collect();
    t.holds("cookies are above 2", cookies.iter().all(|cookie| *cookie > 2));
    cookies.sort_unstable();
    cookies.dedup();
    t.same("cookies are unique", cookies.len(), kinds.len());
    let rest = t.files.read_directory(&Caller::ROOT, t.root(), 1, 100).await;
    t.same("1 and 2 are the beginning", t.ok("it is listed", rest), listing);
}

async fn listing_needs_read<F: Files>(t: &World<F>) {
    for bits in [0o777, 0o000, 0o333, 0o400, 0o040, 0o004] {
        let directory = t.directory(t.root(), &format!("{bits:o}"), bits).await;
        t.file(directory, "f", 0o644).await;
        for (who, caller) in callers() {
            let class = match who {
                "root" => 7,
                "owner" => bits >> 6 & 7,
                "member" => bits >> 3 & 7,
                _ => bits & 7,
            };
            let rule = format!("{who} at {bits:o}");
            let listed = t.files.read_directory(&caller, directory, 0, 10).await;
            match class & 4 {
                0 => t.fails(&rule, listed, FileError::Denied),
                _ => t.same(&rule, t.ok(&rule, listed).entries.len(), 1),
            }
        }
    }
    let file = t.file(t.root(), "file", 0o777).await;
    let listed = t.files.read_directory(&Caller::ROOT, file, 0, 10).await;
    t.fails("a file is no directory", listed, FileError::NotDirectory);
}

async fn a_place_stays_valid_under_changes<F: Files>(t: &World<F>) {
    let all: BTreeSet<String> = (0..40).map(|number| format!("n{number}")).collect();
    for name in &all {
        t.file(t.root(), name, 0o644).await;
    }
    let (mut seen, mut removed) = (Vec::new(), BTreeSet::new());
    let mut cookie = 0;
    for round in 0.. {
        let listed = t.files.read_directory(&Caller::ROOT, t.root(), cookie, 3).await;
        let listing = t.ok("the place is known", listed);
        for entry in &listing.entries {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            // The entry that the listing stands on goes, and another one comes.
            if all.contains(&name) {
                seen.push(name.clone());
                t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), &name, Removal::File).await);
                removed.insert(name);
            }
            cookie = entry.cookie;
        }
        if listing.end {
            break;
        }
        t.holds("the listing ends", round < 100);
        if round < 10 {
            t.file(t.root(), &format!("later {round}"), 0o644).await;
        }
    }
    t.same("each entry is seen once", seen.len(), all.len());
    t.same("every entry is seen", removed, all);
}

async fn a_large_directory_is_listed<F: Files>(t: &World<F>) {
    for number in 0..1500 {
        t.file(t.root(), &format!("{number:05}"), 0o644).await;
    }
    let names: BTreeSet<String> = t.names(t.root(), 97).await.into_iter().collect();
    t.same("every entry is there", names.len(), 1500);
    t.ok("one is found", t.find(t.root(), "00777").await);
}
