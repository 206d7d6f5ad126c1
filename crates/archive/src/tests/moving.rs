//! Writers whose bucket changes, or is moved by reclamation, while they work.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::*;
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::space::walk::Walk;
use crate::testing::{Gate, MIB};

const ALL: usize = 1_000_000;

fn with_bucket(seed: u64, bucket: &str) -> (World, Gate, Archive) {
    let (world, gate) = World::gated(seed, 32 * MIB, 256 << 10);
    gate.close();
    let archive = gate.drive(world.create(), ALL).unwrap();
    gate.drive(archive.create_bucket(&admin(), bucket, NewBucket::default()), ALL).unwrap().unwrap();
    (world, gate, archive)
}

/// A store in which the segment with the bucket's note holds hardly anything else that is needed.
fn scene() -> (World, Gate, Archive) {
    let (world, gate, archive) = with_bucket(3, "busy");
    for n in 0..12 {
        gate.drive(put(&archive, "busy", "filler", &content(n, 60_000)), ALL).unwrap().unwrap();
    }
    (world, gate, archive)
}

async fn writer(archive: &Archive, data: &[u8]) -> Result<ObjectWriter> {
    let request = PutRequest { bucket: "busy".into(), key: "new".into(), ..PutRequest::default() };
    let mut writer = archive.put(&admin(), request).await?;
    writer.write(Bytes::copy_from_slice(data)).await?;
    Ok(writer)
}

/// Whether a put came to its end within so many polls, before the note was moved.
fn moved_after(polls: usize, data: &[u8]) -> bool {
    let (_world, gate, archive) = scene();
    let note = || archive.store().buckets().by_name("busy").unwrap().row.note;
    let writer = gate.drive(writer(&archive, data), ALL).unwrap().unwrap();
    let mut finish = pin!(writer.finish(Expected::default()));
    if gate.drive(finish.as_mut(), polls).is_some() {
        return true;
    }
    let before = note();
    while gate.drive(archive.step(), ALL).unwrap().unwrap().more {}
    assert_ne!(note(), before, "reclamation moves the bucket's note");
    let answer = gate.drive(finish, ALL).unwrap();
    assert!(answer.is_ok(), "moved after {polls} polls: {answer:?}");
    assert!(gate.drive(get(&archive, "busy", "new"), ALL).unwrap().unwrap() == data);
    false
}

#[test]
fn a_put_goes_on_wherever_it_is_when_its_buckets_note_is_moved() {
    for data in [content(1, 1000), content(2, 300_000)] {
        let mut polls = 0;
        while !moved_after(polls, &data) {
            polls += 1;
        }
        assert!(polls > 3, "a put waits more often than that");
    }
}

#[test]
fn a_put_goes_by_what_its_bucket_says_when_the_body_is_there() {
    let (_world, gate, archive) = scene();
    let writer = gate.drive(writer(&archive, b"body"), ALL).unwrap().unwrap();
    let change = BucketChange::Versioning(Versioning::Enabled);
    gate.drive(archive.change_bucket(&admin(), "busy", change), ALL).unwrap().unwrap();
    let info = gate.drive(writer.finish(Expected::default()), ALL).unwrap().unwrap();
    assert_ne!(info.version, VersionId::Null, "it is a version beside others");
}

#[test]
fn a_put_into_a_bucket_deleted_and_created_again_is_refused() {
    let (_world, gate, archive) = scene();
    let writer = gate.drive(writer(&archive, b"body"), ALL).unwrap().unwrap();
    let request = DeleteRequest { bucket: "busy".into(), key: "filler".into(), ..DeleteRequest::default() };
    gate.drive(archive.delete(&admin(), request), ALL).unwrap().unwrap();
    gate.drive(archive.delete_bucket(&admin(), "busy"), ALL).unwrap().unwrap();
    gate.drive(archive.create_bucket(&admin(), "busy", NewBucket::default()), ALL).unwrap().unwrap();
    let answer = gate.drive(writer.finish(Expected::default()), ALL).unwrap();
    assert!(matches!(answer, Err(ArchiveError::NoSuchBucket(_))), "{answer:?}");
}

/// On real drives several groups are under way at once, and each takes whole blocks. A segment that
/// holds little for that reason alone would be reclaimed again and again.
#[test]
fn short_records_are_moved_many_to_a_block() {
    let (_world, gate, archive) = with_bucket(4, "notes");
    let store = archive.store();
    let (appender, segments) = (store.appender(), store.segments());
    let (first, _) = appender.tail().unwrap();
    let mut number = 0;
    while appender.tail().is_none_or(|(segment, _)| segment == first) {
        gate.drive(put(&archive, "notes", &format!("note {number}"), b"a few words"), ALL).unwrap().unwrap();
        number += 1;
    }
    let needed = segments.row(first).unwrap().live as u64;
    let (open, before) = appender.tail().unwrap();
    let reclaimed = gate.drive(store.reclaim(first), ALL).unwrap().unwrap();
    assert!(reclaimed.retired && reclaimed.kept > 400, "{reclaimed:?}");
    let (last, after) = appender.tail().unwrap();
    let full = segments.rows().keys().filter(|segment| (open..last).contains(segment)).count() as u64;
    let taken = full * u64::from(segments.size) + u64::from(after) - u64::from(before);
    assert!(taken * 8 <= needed * 10, "{needed} bytes of {} records took {taken}", reclaimed.kept);
}

/// A walk that meets doubtful bytes has the whole catalog looked through. The padding behind a
/// group is none, however short.
#[test]
fn groups_beside_one_another_leave_no_doubtful_bytes() {
    let (_world, gate, archive) = with_bucket(6, "notes");
    for round in 0..150 {
        let together = 12 + round % 15;
        let keys: Vec<String> = (0..together).map(|n| format!("{round}-{n}-{}", "k".repeat(round))).collect();
        let puts = keys.iter().map(|key| put(&archive, "notes", key, b"a few words"));
        for stored in gate.drive(futures_util::future::join_all(puts), ALL).unwrap() {
            stored.unwrap();
        }
    }
    let store = archive.store();
    let sealed = store.segments().rows().into_iter().filter(|(_, row)| row.usage == SegmentUse::Sealed);
    let mut padded = 0;
    for (number, row) in sealed {
        let segments = store.segments();
        let mut walk = Walk::new(store.volume().clone(), segments.start(number), segments.size, row.incarnation);
        let mut end = 0;
        while let Some((at, header)) = gate.drive(walk.next(), ALL).unwrap().unwrap() {
            padded += u32::from(at > end);
            end = at + header.length();
        }
        assert!(!walk.doubtful, "segment {number}");
    }
    assert!(padded > 150, "{padded} groups begin behind padding");
}

/// A pool that is full has room for nothing that would have to move.
#[tokio::test]
async fn a_segment_without_needed_records_is_freed_though_others_cannot_be_emptied() {
    let world = World::sized(1, 16 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    for n in 0..60 {
        put(&archive, "plain", &format!("{n:02}"), &content(n, 20_000)).await.unwrap();
    }
    let store = archive.store();
    let segments = store.segments();
    let sealed = |number: &u32| segments.row(*number).is_some_and(|row| row.usage == SegmentUse::Sealed);
    let before: Vec<u32> = segments.rows().into_keys().filter(sealed).collect();
    assert!(before.len() >= 4, "{before:?}");
    // Of every segment but one, some records stay.
    for n in (0..60).filter(|n| (20..40).contains(n) || n % 6 != 0) {
        let request = DeleteRequest { bucket: "plain".into(), key: format!("{n:02}"), ..DeleteRequest::default() };
        archive.delete(&admin(), request).await.unwrap();
    }
    world.bench.set_no_new(true);
    // A crash left all counts as they were before the deletions.
    for number in &before {
        segments.change(*number, |row| row.live = segments.size.into());
    }
    segments.change(before[0], |row| row.live = 0);
    let (mut freed, mut alarms) = (0, 0);
    for _ in 0..2 * before.len() {
        let step = archive.step().await.unwrap();
        freed += step.freed;
        alarms += step.alarms.len();
    }
    assert!(freed >= 1, "{before:?}");
    assert!(alarms >= 1, "what is full is said");
    for n in (0..60).filter(|n| !((20..40).contains(n) || n % 6 != 0)) {
        assert!(get(&archive, "plain", &format!("{n:02}")).await.unwrap() == content(n, 20_000));
    }
}

/// Polls until nothing is left to do on the volume. None: it waits for the catalog.
fn go_on<T>(gate: &Gate, mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut context) {
            return Some(answer);
        }
        if !gate.step() {
            return None;
        }
    }
}

/// The volume runs full after so many polls of a step, whose records go to two segments. From then
/// on the catalog answers late: while the next step looks for a segment to empty. Returns whether
/// the step had come to its end before, and how many commits were under way.
fn full_while_moving(polls: usize) -> (bool, usize) {
    let (world, gate, commits) = World::gated_apart(5, 2 * MIB, 256 << 10);
    let archive = gate.drive(world.create(), ALL).unwrap();
    gate.drive(archive.create_bucket(&admin(), "plain", NewBucket::default()), ALL).unwrap().unwrap();
    // A segment, and half of the next one.
    for n in 0..17 {
        gate.drive(put(&archive, "plain", &format!("{n:02}"), &content(n, 20_000)), ALL).unwrap().unwrap();
    }
    for n in 8..17 {
        let request = DeleteRequest { bucket: "plain".into(), key: format!("{n:02}"), ..DeleteRequest::default() };
        gate.drive(archive.delete(&admin(), request), ALL).unwrap().unwrap();
    }
    gate.close();
    let mut step = pin!(archive.step());
    let ended = gate.drive(step.as_mut(), polls);
    commits.close();
    world.bench.set_full(true);
    let is_over = ended.is_some();
    let answer = ended.or_else(|| go_on(&gate, step.as_mut()));
    world.bench.set_full(false);
    let mut next = pin!(archive.step());
    let is_next = answer.is_some() && go_on(&gate, next.as_mut()).is_none();
    let mut under_way = 0;
    while commits.step() {
        under_way += 1;
    }
    commits.open();
    // A step may fail for want of room.
    drop(answer.unwrap_or_else(|| gate.drive(step, ALL).unwrap()));
    if is_next {
        gate.drive(next, ALL).unwrap().unwrap();
    }
    while gate.drive(archive.step(), ALL).unwrap().unwrap().more {}
    for n in 0..8 {
        let stored = gate.drive(get(&archive, "plain", &format!("{n:02}")), ALL).unwrap();
        assert!(stored.unwrap() == content(n, 20_000), "object {n} after {polls} polls");
    }
    (is_over, under_way)
}

#[test]
fn no_segment_is_freed_while_a_copy_in_it_is_committed() {
    let (mut polls, mut most) = (0, 0);
    loop {
        let (is_over, under_way) = full_while_moving(polls);
        most = most.max(under_way);
        if is_over {
            break;
        }
        polls += 1;
    }
    assert!(polls > 3, "a step waits more often than that");
    assert!(most > 1, "{most} commits were under way");
}

/// Whether a scrub came to its end within so many polls, before an emptied segment was freed.
fn scrubbed_while_freeing(polls: usize) -> bool {
    let (_world, gate, archive) = scene();
    let store = archive.store();
    let sealed = |(_, row): &(u32, SegmentRow)| row.usage == SegmentUse::Sealed;
    let full: Vec<u32> = store.segments().rows().into_iter().filter(sealed).map(|(number, _)| number).collect();
    let (_stays, emptied) = full.split_last().unwrap();
    assert!(!emptied.is_empty());
    for segment in emptied.iter().copied() {
        assert!(gate.drive(store.reclaim(segment), ALL).unwrap().unwrap().retired);
    }
    let mut scrubbing = pin!(scrub(&archive));
    if gate.drive(scrubbing.as_mut(), polls).is_some() {
        return true;
    }
    gate.drive(store.free_retired(), ALL).unwrap().unwrap();
    let report = gate.drive(scrubbing, ALL).unwrap();
    assert_eq!(report.findings, Vec::<String>::new(), "freed after {polls} polls");
    false
}

#[test]
fn a_segment_that_is_freed_meanwhile_is_no_finding_of_a_scrub() {
    let mut polls = 0;
    while !scrubbed_while_freeing(polls) {
        polls += 1;
    }
    assert!(polls > 3, "a scrub waits more often than that");
}
