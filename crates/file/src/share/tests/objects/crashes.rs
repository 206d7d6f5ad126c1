//! A crash during a PUT leaves the former file or the new one, and no row names a version that does
//! not exist.

use std::collections::BTreeMap;

use stele_archive::VersionId;
use stele_ground::Dice;

use super::super::crashes::{History, check};
use super::*;
use crate::Stability;
use crate::share::Caching;

/// Stops a put after so many steps of its task, as a crash does, and opens the share anew.
async fn cut(stage: &Stage, former: Option<&Bytes>, data: &Bytes, polls: usize) -> bool {
    let view = View::new(stage.clone()).await;
    let inode = match former {
        Some(former) => Some(file(&view.share, "f", former).await),
        None => None,
    };
    let mut going = Box::pin(view.put("f", data));
    let mut done = false;
    for _ in 0..polls {
        tokio::task::yield_now().await;
        if let std::task::Poll::Ready(answer) = futures_util::poll!(going.as_mut()) {
            answer.expect("a put");
            done = true;
            break;
        }
    }
    drop(going);
    // The task of the change ends in any case: a client that goes away leaves nothing half done.
    // Others use the share on.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let status = view.share.status().expect("a status");
    let kept = match view.find("f") {
        Ok(inode) => Some(read(&view.share, inode).await),
        Err(_) => None,
    };
    drop(view);
    let share = stage.share().await;
    assert_eq!(share.status().expect("a status").cache_used, status.cache_used, "polls {polls}: slots are lost");
    let stored = match share.resolve("f") {
        Ok(inode) => Some(read(&share, inode).await),
        Err(_) => None,
    };
    assert!(kept == stored, "polls {polls}: the share was of another opinion than its records");
    match (share.resolve("f"), inode) {
        (Ok(now), _) => {
            let found = read(&share, now).await;
            assert!(found == *data || former.is_some_and(|former| found == *former), "polls {polls}: other content");
            assert!(!done || found == *data, "polls {polls}: an acknowledged put is not there");
        }
        (Err(_), None) => assert!(!done, "polls {polls}: an acknowledged put is not there"),
        (Err(error), Some(_)) => panic!("polls {polls}: the former file is gone: {error}"),
    }
    settle(stage, &share).await;
    if let Ok(now) = share.resolve("f") {
        let found = read(&share, now).await;
        assert!(found == *data || former.is_some_and(|former| found == *former));
    }
    done
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_cut_short_leaves_the_former_file_or_the_new_one() {
    for versioning in [false, true] {
        for former in [None, Some(content(1, 200_000))] {
            let mut done = false;
            for polls in 0..200 {
                let mut stage = Stage::new(polls as u64).late();
                stage.bucket.versioning = versioning;
                done = cut(&stage, former.as_ref(), &content(2, 90_000), polls).await;
                if done {
                    break;
                }
            }
            assert!(done, "no put came to its end");
        }
    }
}

/// What the file was before the put.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Former {
    Missing,
    Open,
    Archived,
}

/// Power fails after so many operations of the data volume. Answers whether the put was
/// acknowledged.
async fn power_cut(former: Former, versioning: bool, operations: u64) -> bool {
    let mut stage = Stage::new(operations);
    stage.bucket.versioning = versioning;
    let view = View::new(stage.clone()).await;
    let (before, after) = (content(1, 200_000), content(2, 300_000));
    if former != Former::Missing {
        file(&view.share, "f", &before).await;
    }
    if former == Former::Archived {
        settle(&view.stage, &view.share).await;
    }
    stage.data.cut_after(operations);
    let put = view.put("f", &after).await;
    let said = format!("{former:?}, versioning {versioning}, after {operations} operations: {:?}", put.is_ok());
    drop(view);
    stage.data.power_on();
    stage.reopen().await;
    let view = View::new(stage.clone()).await;
    for _ in 0..2 {
        match view.find("f") {
            Ok(inode) => {
                let found = read(&view.share, inode).await;
                let is_former = former != Former::Missing && found == before;
                assert!(found == after || (is_former && put.is_err()), "{said}: other content");
                assert!(view.get("f").await.expect("a version of what is read") == found, "{said}");
            }
            Err(error) => assert!(former == Former::Missing && put.is_err(), "{said}: {error}"),
        }
        settle(&stage, &view.share).await;
    }
    // The path can be written again.
    view.put("f", &before).await.expect("a put after the cut");
    assert!(view.get("f").await.expect("a get") == before, "{said}");
    put.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_put_survives_a_power_cut_after_every_operation() {
    for versioning in [false, true] {
        for former in [Former::Missing, Former::Open, Former::Archived] {
            let mut operations = 0;
            while !power_cut(former, versioning, operations).await {
                operations += 1;
                assert!(operations < 1000, "no put came to its end");
            }
            assert!(operations > 2, "a put took {operations} operations of the data volume");
        }
    }
}

/// What the file of a key may be, and the versions that puts were told of.
#[derive(Default)]
struct Known {
    history: History,
    versions: Vec<(VersionId, Bytes)>,
}

const KEYS: [&str; 3] = ["a", "b", "d/c"];

/// One step over S3, over files or of background work.
async fn step(view: &View, dice: &mut Dice, known: &mut BTreeMap<&str, Known>) -> Result<(), String> {
    let key = *dice.pick(&KEYS).expect("there are keys");
    let about = known.entry(key).or_default();
    let now = about.history.last().cloned();
    match (dice.below(8), now) {
        (0..=2, _) | (_, None) => {
            let data = content(dice.roll(), dice.below(150_000) as usize);
            if about.history.is_empty() {
                // Nothing was there before.
                about.history.push(Vec::new());
            }
            about.history.push(data.to_vec());
            let info = view.put(key, &data).await.map_err(|error| error.to_string())?;
            about.history.drain(..about.history.len() - 1);
            about.versions.push((info.version, data));
        }
        (3..=5, Some(mut after)) => {
            let data = content(dice.roll(), 1 + dice.below(60_000) as usize);
            let offset = dice.below(150_000);
            let end = offset as usize + data.len();
            after.resize(after.len().max(end), 0);
            after[offset as usize..end].copy_from_slice(&data);
            about.history.push(after);
            let inode = view.find(key).map_err(|error| error.to_string())?;
            let written = view.share.write(&Caller::ROOT, inode, offset, vec![data], Stability::Unstable).await;
            written.map_err(|error| error.to_string())?;
        }
        (6, Some(_)) => {
            let inode = view.find(key).map_err(|error| error.to_string())?;
            view.share.commit(inode).await.map_err(|error| error.to_string())?;
            about.history.drain(..about.history.len() - 1);
        }
        (_, Some(_)) => {
            view.stage.pass(dice.below(20));
            view.share.work().await.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn puts_and_writes_side_by_side_survive_a_power_cut() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut stage = Stage::new(seed).with_cache(16 << 20);
        stage.bucket.versioning = dice.one_in(2);
        stage.settings.caching = if dice.one_in(4) { Caching::Off } else { Caching::On };
        let view = View::new(stage.clone()).await;
        let mut known: BTreeMap<&str, Known> = BTreeMap::new();
        // The two volumes lose power at the same time: the operation that fails first ends the
        // story.
        match dice.one_in(2) {
            true => stage.data.cut_after(dice.below(200)),
            false => stage.cache.cut_after(dice.below(150)),
        }
        for _ in 0..60 {
            if step(&view, &mut dice, &mut known).await.is_err() {
                break;
            }
        }
        drop(view);
        stage.data.power_on();
        stage.cache.power_on();
        stage.reopen().await;
        let view = View::new(stage.clone()).await;
        for settled in [false, true] {
            for (key, about) in &known {
                let Ok(inode) = view.find(key) else {
                    assert!(about.versions.is_empty(), "seed {seed}: {key} was put, and is gone");
                    continue;
                };
                let found = read(&view.share, inode).await;
                check(seed, inode.0, &found, &about.history);
                assert!(!settled || view.get(key).await.expect("its version") == found, "seed {seed}: {key}");
                let versions = about.versions.iter().filter(|_| stage.bucket.versioning);
                for (version, data) in versions {
                    let request = GetRequest {
                        bucket: NAME.into(),
                        key: key_of(inode.0),
                        version: Some(*version),
                        ..GetRequest::default()
                    };
                    let archive = stage.archive().await;
                    let mut reader =
                        archive.get(&Client::gateway("testing"), request).await.expect("an acknowledged version");
                    let mut all = Vec::new();
                    while let Some(piece) = reader.next().await {
                        all.extend_from_slice(&piece.expect("its content"));
                    }
                    assert!(all == *data, "seed {seed}: a version of {key} has other content");
                }
            }
            settle(&stage, &view.share).await;
        }
    }
}
