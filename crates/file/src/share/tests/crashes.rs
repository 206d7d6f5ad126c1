//! Power cuts of the cache volume between any two of its operations, and callers that go away.
//!
//! The catalog in memory is durable at once, so that what a cut takes back is content alone: the
//! harder case, since records must never lead to content that is gone.

use std::collections::BTreeMap;

use stele_catalog::{Direction, KeyRange};
use stele_ground::Dice;

use super::stage::{Stage, content, file, read, settle};
use crate::files::Files;
use crate::share::Caching;
use crate::share::records::INODES;
use crate::{Caller, Changes, Creation, Inode, Stability};

#[tokio::test(start_paused = true)]
async fn what_was_committed_survives_a_power_cut_anywhere() {
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let mut stage = Stage::new(seed).with_cache(16 << 20);
        if seed >= 300 {
            stage.settings.caching = Caching::Off;
        }
        let share = stage.share().await;
        let mut files: BTreeMap<u64, History> = BTreeMap::new();
        stage.cache.cut_after(dice.below(120));
        for step in 0..60 {
            if drive(&share, &stage, &mut dice, step, &mut files).await.is_err() {
                break;
            }
        }
        drop(share);
        stage.cache.power_on();
        let share = stage.share().await;
        for (inode, history) in &files {
            check(seed, *inode, &read(&share, Inode(*inode)).await, history);
        }
        settle(&stage, &share).await;
        for (inode, history) in &files {
            check(seed, *inode, &read(&share, Inode(*inode)).await, history);
        }
    }
}

/// Content as it was committed last, and after each write since.
pub type History = Vec<Vec<u8>>;

/// Each byte is one that the file had there since the last commit. A byte that it never had since
/// is one too many.
pub fn check(seed: u64, inode: u64, found: &[u8], history: &History) {
    assert!(history.iter().any(|content| content.len() == found.len()), "seed {seed}: inode {inode} has another size");
    for (at, byte) in found.iter().enumerate() {
        let had = history.iter().any(|content| content.get(at) == Some(byte));
        // A file may have grown durably before the write that fills it.
        let hole = history.iter().any(|content| content.len() <= at) && *byte == 0;
        assert!(had || hole, "seed {seed}: byte {at} of inode {inode} was never written since the last commit");
    }
}

async fn drive(
    share: &crate::Share,
    stage: &Stage,
    dice: &mut Dice,
    step: u64,
    files: &mut BTreeMap<u64, History>,
) -> crate::Result<()> {
    let inodes: Vec<u64> = files.keys().copied().collect();
    match (dice.below(10), dice.pick(&inodes)) {
        (0..=1, _) | (_, None) => {
            let how = Creation::Guarded(Changes { mode: Some(0o644), ..Changes::default() });
            let name = format!("f{step}");
            let made = share.create(&Caller::ROOT, share.root(), name.as_bytes(), how).await?;
            files.insert(made.file.inode.0, vec![Vec::new()]);
        }
        (2..=6, Some(inode)) => {
            let offset = dice.below(200_000) & if dice.one_in(2) { !4095 } else { !0 };
            let length = 1 + dice.below(60_000);
            let length = if dice.one_in(2) { length.next_multiple_of(4096) } else { length };
            let data = content(dice.roll(), length as usize);
            // Where the cache is off, every write is.
            let asked = dice.one_in(4);
            let stable = asked || stage.settings.caching == Caching::Off;
            let known = files.get_mut(inode).expect("the inode was picked from them");
            let end = (offset + length) as usize;
            let mut content = known.last().expect("a file has content").clone();
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(&data);
            known.push(content);
            let stability = if asked { Stability::File } else { Stability::Unstable };
            share.write(&Caller::ROOT, Inode(*inode), offset, vec![data.clone()], stability).await?;
            if stable {
                // Of earlier unstable writes it says nothing.
                for earlier in known {
                    earlier.resize(earlier.len().max(end), 0);
                    earlier[offset as usize..end].copy_from_slice(&data);
                }
            }
        }
        (7, Some(inode)) => {
            share.commit(Inode(*inode)).await?;
            let known = files.get_mut(inode).expect("the inode was picked from them");
            known.drain(..known.len() - 1);
        }
        (8, Some(_)) => {
            stage.pass(dice.below(120));
            share.want_space(dice.below(4) << 16);
            share.work().await?;
        }
        (_, Some(inode)) => {
            let known = files.get(inode).expect("the inode was picked from them");
            let content = known.last().expect("a file has content");
            let offset = dice.below(content.len() as u64 + 1);
            let data = share.read(&Caller::ROOT, Inode(*inode), offset, 50_000).await?;
            let found: Vec<u8> = data.pieces.concat();
            assert!(content[offset as usize..].starts_with(&found), "a read shows bytes that were not written");
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stable_writes_over_recorded_content_leave_the_times_to_the_next_record() {
    let stage = Stage::new(1);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 40_000)).await;
    let stable = async |share: &crate::Share, offset: u64, seed: u64| {
        let data = content(seed, 4096);
        let written = share.write(&Caller::ROOT, inode, offset, vec![data], Stability::File).await;
        written.expect("a stable write").0.after
    };
    stable(&share, 0, 2).await;
    let recorded = share.row(inode).expect("the row");
    stable(&share, 4096, 3).await;
    let last = stable(&share, 8192, 4).await;
    assert_eq!(share.row(inode).expect("the row"), recorded, "a transaction for times alone");
    drop(share);
    stage.cache.power_on();

    let share = stage.share().await;
    let mut expected = content(1, 40_000).to_vec();
    for (offset, seed) in [(0, 2), (4096, 3), (8192, 4)] {
        expected[offset..offset + 4096].copy_from_slice(&content(seed, 4096));
    }
    assert!(read(&share, inode).await == expected, "a stable write is gone");
    let after = share.attributes(inode).await.expect("attributes");
    let late = after.modified.nanoseconds() - last.modified.nanoseconds();
    assert!((0..=1_000_000_000).contains(&late), "the time of the last write is {late} ns late");
    assert!(after.change > last.change, "a client would take its cached content for current");
    settle(&stage, &share).await;
    assert_eq!(share.row(inode).expect("the row").lags, None);
    drop(share);
    let again = stage.share().await.attributes(inode).await.expect("attributes");
    assert_eq!((again.modified, again.change), (after.modified, after.change), "times drift with each start");
}

#[tokio::test(start_paused = true)]
async fn a_stable_write_after_the_slack_is_recorded_and_times_that_are_set_stay() {
    let stage = Stage::new(2);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 40_000)).await;
    let stable = async |share: &crate::Share| {
        let data = content(9, 4096);
        share.write(&Caller::ROOT, inode, 0, vec![data], Stability::File).await.expect("a stable write");
    };
    stable(&share).await;
    stage.pass(2);
    stable(&share).await;
    let seen = share.attributes(inode).await.expect("attributes");
    assert_eq!(crate::Moment::from(share.row(inode).expect("the row").modified), seen.modified);
    stable(&share).await;
    let set = crate::Moment { seconds: 1_000_000, nanoseconds: 5 };
    let changes = Changes { modified: Some(crate::SetTime::At(set)), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("the time is set");
    drop(share);
    stage.cache.power_on();
    let share = stage.share().await;
    assert_eq!(share.attributes(inode).await.expect("attributes").modified, set);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_leaves_a_share_that_works() {
    for polls in 0..40 {
        let stage = Stage::new(polls);
        let share = stage.share().await;
        let data = content(1, 70_000);
        let inode = file(&share, "a", &data).await;
        let root = share.root();
        let mut going = Box::pin(async {
            let how = Creation::Guarded(Changes::default());
            let made = share.create(&Caller::ROOT, root, b"b", how).await?;
            share.write(&Caller::ROOT, made.file.inode, 0, vec![data.clone()], Stability::File).await?;
            share.rename(&Caller::ROOT, (root, b"b"), (root, b"c")).await
        });
        for _ in 0..polls {
            if futures_util::poll!(going.as_mut()).is_ready() {
                break;
            }
        }
        drop(going);
        file(&share, "d", &data).await;
        assert!(read(&share, inode).await == data);
        settle(&stage, &share).await;
        let names = share.read_directory(&Caller::ROOT, root, 0, 100).await.unwrap();
        assert!((2..=3).contains(&names.entries.len()), "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_counter_comes_again_after_a_crash_that_took_writes() {
    let stage = Stage::new(3);
    let mut share = stage.share().await;
    let inode = file(&share, "a", &content(1, 40_000)).await;
    let mut seen = vec![share.attributes(inode).await.unwrap().change];
    for seed in 0..4 {
        super::stage::write(&share, inode, 0, &content(seed, 4096)).await;
        seen.push(share.attributes(inode).await.unwrap().change);
        drop(share);
        stage.cache.power_on();
        share = stage.share().await;
        seen.push(share.attributes(inode).await.unwrap().change);
    }
    assert!(seen.is_sorted_by(|before, after| before < after), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_start_writes_no_row_of_a_file() {
    let stage = Stage::new(4);
    let share = stage.share().await;
    for number in 0..20 {
        file(&share, &format!("{number}"), &content(number, 5000)).await;
    }
    drop(share);
    let records = stage.archive().await.records();
    let rows = || {
        let snapshot = records.snapshot().expect("a snapshot");
        snapshot.range(INODES, &KeyRange::all(), 100, Direction::Forward).expect("the rows")
    };
    let before = rows();
    stage.share().await;
    assert!(before.len() > 20 && before == rows());
}

#[tokio::test(start_paused = true)]
async fn growth_past_recorded_bytes_shows_zeros_after_a_power_cut() {
    let stage = Stage::new(9);
    let share = stage.share().await;
    let data = content(1, 4096);
    let inode = file(&share, "a", &data).await;
    let resize = async |size| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("a new size");
    };
    resize(100).await;
    // The block has the former bytes behind the end, and its record is there already.
    resize(4000).await;
    stage.cache.power_on();
    drop(share);
    let share = stage.share().await;
    let found = read(&share, inode).await;
    assert!(found.len() == 4000 && found[..100] == data[..100]);
    assert!(found[100..].iter().all(|byte| *byte == 0), "bytes behind a former end are shown");
}
