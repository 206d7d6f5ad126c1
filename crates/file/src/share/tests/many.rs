//! A directory of very many names. `STELE_ENTRIES=1000000` makes a million of them.

use std::time::Instant;

use super::stage::Stage;
use crate::files::{Files, Removal};
use crate::{Caller, Changes, Creation, FileError};

const ENTRIES: u64 = 100_000;
/// Creations under way at the same time.
const AT_ONCE: u64 = 256;

/// Kilobytes that this process has in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's own status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test(start_paused = true)]
async fn a_directory_of_very_many_names_is_made_listed_and_removed() {
    let entries = std::env::var("STELE_ENTRIES").map_or(ENTRIES, |text| text.parse().expect("a number of entries"));
    let stage = Stage::new(1).embedded((1 << 30) + entries * 4096);
    let share = stage.share().await;
    let root = share.root();
    let made = share.make(&Caller::ROOT, root, b"d", crate::Node::Directory, Changes::default()).await;
    let directory = made.expect("a directory").file.inode;
    let (began, memory) = (Instant::now(), resident());
    let seconds = |what: &str, began: Instant| {
        eprintln!(
            "{entries} entries, {what}: {:.1} s, {} MiB more",
            began.elapsed().as_secs_f64(),
            resident().saturating_sub(memory) >> 10
        );
    };
    for first in (0..entries).step_by(AT_ONCE as usize) {
        let create = |number: u64| {
            let share = &share;
            async move {
                let how = Creation::Guarded(Changes { mode: Some(0o644), ..Changes::default() });
                share.create(&Caller::ROOT, directory, format!("name-{number}").as_bytes(), how).await
            }
        };
        let made = futures_util::future::join_all((first..(first + AT_ONCE).min(entries)).map(create)).await;
        assert!(made.iter().all(Result::is_ok), "new files");
    }
    seconds("created", began);

    let began = Instant::now();
    let again = Creation::Guarded(Changes::default());
    assert_eq!(share.create(&Caller::ROOT, directory, b"name-77", again).await.err(), Some(FileError::Exists));
    for number in (0..entries).step_by(997) {
        share.lookup(&Caller::ROOT, directory, format!("name-{number}").as_bytes()).await.expect("it is found");
    }
    let (mut cookie, mut count, mut sum) = (0, 0, 0);
    loop {
        let listing = share.read_directory(&Caller::ROOT, directory, cookie, 1000).await.expect("a listing");
        for entry in &listing.entries {
            let name = std::str::from_utf8(&entry.name).expect("a name of ours");
            sum += name.trim_start_matches("name-").parse::<u64>().expect("its number");
            cookie = entry.cookie;
            count += 1;
        }
        if listing.end {
            break;
        }
    }
    assert_eq!((count, sum), (entries, entries * (entries - 1) / 2));
    seconds("looked up and listed", began);

    let began = Instant::now();
    let moved = share.rename(&Caller::ROOT, (root, b"d"), (root, b"moved")).await;
    moved.expect("a rename, however much lies below");
    let refused = share.remove(&Caller::ROOT, root, b"moved", Removal::Directory).await;
    assert_eq!(refused.err(), Some(FileError::NotEmpty));
    for first in (0..entries).step_by(AT_ONCE as usize) {
        let remove = |number: u64| {
            let share = &share;
            async move {
                let name = format!("name-{number}");
                share.remove(&Caller::ROOT, directory, name.as_bytes(), Removal::File).await
            }
        };
        let removed = futures_util::future::join_all((first..(first + AT_ONCE).min(entries)).map(remove)).await;
        assert!(removed.iter().all(Result::is_ok), "removals");
    }
    share.remove(&Caller::ROOT, root, b"moved", Removal::Directory).await.expect("it is empty");
    while share.room_round().await.expect("a round").cleared > 0 {}
    assert_eq!(share.status().expect("status").removing, 0);
    seconds("removed and cleared away", began);
}
