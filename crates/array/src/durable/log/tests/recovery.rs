//! What an opening finds of the log, mends of it, and says about it.

use super::recover::names;
use super::*;
use crate::drives::label::LOG_AT;

/// A bench whose log holds some groups, with its members and live groups.
fn filled(drives: usize, seed: u64) -> (Bench, Vec<DriveNumber>, Vec<Live>) {
    let mut bench = Bench::new(drives, MIB, seed);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let (members, _) = opened.log.members();
    let live = opened.log.state().live.iter().copied().collect();
    (bench, members, live)
}

fn damage(bench: &mut Bench, drive: DriveNumber, live: &Live) {
    bench.test_drives.damage(usize::from(drive.0), LOG_AT + live.offset + 200, 16);
}

#[test]
fn an_opening_counts_what_it_read_and_mended() {
    let (mut bench, members, live) = filled(5, 71);
    for group in &live[2..4] {
        damage(&mut bench, members[1], group);
    }
    let opened = bench.open().expect("no cut").expect("opens");
    let Recovery { groups, records, repaired, damaged } = &opened.recovery;
    assert_eq!((*groups, *repaired), (live.len() as u64, 2));
    assert_eq!(*records, bench.twin.len() as u64 - (live[0].first.0 - 1));
    assert_eq!(damaged, &[members[1]]);
    drop(opened);
    let opened = bench.open().expect("no cut").expect("opens");
    assert_eq!((opened.recovery.repaired, &opened.recovery.damaged[..]), (0, &[][..]));
}

/// What lies at the end was read ahead, in one read of each member.
#[test]
fn members_that_all_read_once_in_the_wrong_place_end_no_log() {
    for seed in 75..80 {
        let (mut bench, members, live) = filled(4, seed);
        for member in &members {
            let drive = &mut bench.test_drives.drives[usize::from(member.0)];
            (drive.misreads, drive.misreads_at) = (1, LOG_AT..LOG_AT + MIB);
        }
        let opened = bench.open().expect("no cut").expect("opens");
        assert_eq!(opened.recovery.groups, live.len() as u64, "seed {seed}");
    }
}

#[test]
fn an_opening_is_refused_where_too_few_drives_take_the_log() {
    let (mut bench, members, live) = filled(5, 72);
    // Two members lack a group and cannot take it, nor can the drive beside them.
    for member in &members[2..] {
        damage(&mut bench, *member, &live[2]);
    }
    for drive in (0..5).filter(|drive| !members[..2].contains(&DriveNumber(*drive))) {
        bench.test_drives.drives[usize::from(drive)].fails_at = LOG_AT..LOG_AT + MIB;
    }
    let refused = bench.open().expect("no cut").map(|opened| opened.log.members());
    assert!(matches!(&refused, Err(ArrayError::Degraded(text)) if text.contains("2 of the 3 drives")), "{refused:?}");
}

#[test]
fn a_member_that_is_busy_once_while_it_gets_a_group_stays_a_member() {
    for (busy, stays) in [(1, true), (2, false)] {
        let (mut bench, members, live) = filled(5, 73);
        damage(&mut bench, members[1], &live[2]);
        let drive = &mut bench.test_drives.drives[usize::from(members[1].0)];
        (drive.retries, drive.retries_at) = (busy, LOG_AT..LOG_AT + MIB);
        let opened = bench.open().expect("no cut").expect("opens");
        assert_eq!(opened.log.members().0.contains(&members[1]), stays);
    }
}

#[test]
fn an_anchor_that_names_another_record_than_the_log_is_refused() {
    let (mut bench, _, live) = filled(5, 74);
    assert_eq!(bench.anchor.lsn, live[0].first);
    bench.anchor.lsn = bench.anchor.lsn.next();
    let refused = bench.open().expect("no cut").map(|opened| opened.recovery.groups);
    assert!(matches!(&refused, Err(ArrayError::Damaged(_))), "{refused:?}");
}

#[test]
fn a_hole_behind_the_end_of_the_ring_is_refused() {
    let mut bench = Bench::new(5, MIB, 75);
    let opened = bench.open().expect("no cut").expect("opens");
    let around = |live: &VecDeque<Live>| {
        let first = live.front().map_or(0, |live| live.offset);
        live.iter().position(|live| live.offset < first).filter(|at| live.len() >= at + 4)
    };
    let (victim, member) = loop {
        bench.work(&opened, 5);
        let state = opened.log.state();
        if let Some(at) = around(&state.live) {
            break (state.live[at + 1], state.members.clone());
        }
    };
    drop(opened);
    assert!(victim.offset < bench.anchor.offset, "the log went on at the start of the ring");
    member.iter().for_each(|member| damage(&mut bench, *member, &victim));
    // As far as the comparison knows, nothing after the victim was acknowledged.
    bench.acknowledged = victim.first.0 - 1;
    let refused = bench.open().expect("no cut").map(|opened| opened.recovery.groups);
    assert!(matches!(&refused, Err(ArrayError::Damaged(text)) if text.contains("acknowledged")), "{refused:?}");
}

/// The drive cannot read so many blocks of its log from an offset on.
fn spoil(bench: &mut Bench, drive: DriveNumber, offset: u64, blocks: u64) {
    let first = (LOG_AT + offset) / BLOCK as u64;
    bench.test_drives.drives[usize::from(drive.0)].unreadable.extend(first..first + blocks);
}

fn refusal(bench: &mut Bench) -> String {
    match bench.open().expect("no cut").map(|opened| opened.recovery.groups) {
        Err(ArrayError::Damaged(text)) => text,
        other => panic!("it is not refused: {other:?}"),
    }
}

#[test]
fn a_last_group_that_no_drive_here_can_read_is_not_taken_for_one_that_was_never_acknowledged() {
    for (block, what) in [(0, "its header"), (1, "what follows its header")] {
        let (mut bench, members, live) = filled(9, 76);
        let last = *live.last().expect("a group");
        let [here, away @ ..] = &members[..] else { panic!("no members") };
        assert!(last.total > BLOCK as u64 && !away.is_empty(), "{last:?}");
        away.iter().for_each(|drive| bench.test_drives.drives[usize::from(drive.0)].gone = true);
        spoil(&mut bench, *here, last.offset + block * BLOCK as u64, 1);
        let text = refusal(&mut bench);
        let said = format!("group {} may have been acknowledged; return {}", last.sequence, names(away));
        assert!(text.contains(&said) && text.contains("cannot be read on drive"), "{what}: {text}");
        // With a drive that has it, it is there.
        bench.test_drives.drives[usize::from(away[0].0)].gone = false;
        bench.open().expect("no cut").expect("opens");
    }
}

#[test]
fn the_operator_may_accept_that_the_end_of_the_log_cannot_be_read() {
    let (mut bench, members, live) = filled(5, 77);
    let last = *live.last().expect("a group");
    members.iter().for_each(|drive| spoil(&mut bench, *drive, last.offset, 1));
    let text = refusal(&mut bench);
    assert!(text.contains("try again; as the last resort --override-quorum"), "{text}");
    bench.override_quorum = true;
    bench.acknowledged = last.first.0 - 1;
    let opened = bench.open().expect("no cut").expect("opens");
    assert_eq!(opened.recovery.groups, live.len() as u64 - 1);
}

#[test]
fn an_end_of_the_log_that_one_member_can_read_is_the_end() {
    let (mut bench, members, live) = filled(9, 78);
    let end = live.last().map_or(0, |last| last.offset + last.total);
    members[1..].iter().for_each(|drive| spoil(&mut bench, *drive, end, 1));
    let opened = bench.open().expect("no cut").expect("opens");
    assert_eq!(opened.recovery.groups, live.len() as u64);
    drop(opened);
    members.iter().for_each(|drive| spoil(&mut bench, *drive, end, 1));
    refusal(&mut bench);
    // A drive that is no member does not know.
    bench.test_drives.drives[usize::from(members[0].0)].gone = true;
    refusal(&mut bench);
}

/// A group that does not fit before the end of the ring lies at its start.
#[test]
fn the_start_of_the_ring_counts_where_the_next_group_may_lie_there() {
    for fits in [true, false] {
        let mut bench = Bench::new(5, MIB, 79);
        let opened = bench.open().expect("no cut").expect("opens");
        let members = loop {
            bench.work(&opened, 1);
            let state = opened.log.state();
            let has_left_the_start = state.live.front().is_some_and(|live| 0 < live.offset && live.offset < state.head);
            if has_left_the_start && fits == (state.head + group::total_max(MIB) <= MIB) {
                break state.members.clone();
            }
        };
        drop(opened);
        members.iter().for_each(|drive| spoil(&mut bench, *drive, 0, 1));
        match fits {
            true => drop(bench.open().expect("no cut").expect("opens")),
            false => drop(refusal(&mut bench)),
        }
    }
}

#[test]
fn a_drive_that_is_busy_once_while_the_log_is_read_has_its_groups() {
    let (mut bench, members, live) = filled(9, 80);
    let [here, away @ ..] = &members[..] else { panic!("no members") };
    away.iter().for_each(|drive| bench.test_drives.drives[usize::from(drive.0)].gone = true);
    let drive = &mut bench.test_drives.drives[usize::from(here.0)];
    (drive.read_retries, drive.read_retries_at) = (1, LOG_AT..LOG_AT + MIB);
    let opened = bench.open().expect("no cut").expect("opens");
    assert_eq!(opened.recovery.groups, live.len() as u64);
    assert_eq!(bench.test_drives.drives[usize::from(here.0)].read_retries, 0);
}
