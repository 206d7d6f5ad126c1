//! Power cuts at every operation, damage, lost members, stale laps.

use super::*;
use crate::drives::label::LOG_AT;
use crate::model::Scrubbed;
use crate::model::mutation::Mutation;
use stele_ground::Duration;

#[test]
fn power_cuts_at_every_operation_lose_nothing_acknowledged() {
    // One run tells how many operations there are; then each is the last in turn, and recovery is
    // cut too.
    for seed in [11, 12] {
        let mut cut = seed % 2;
        loop {
            let mut bench = Bench::new(5, MIB, seed);
            let start = bench.test_drives.operations;
            bench.test_drives.cut_at = Some(start + cut);
            let mut finished = false;
            if let Some(opened) = bench.open() {
                let opened = opened.expect("opens");
                finished = bench.work(&opened, 80) == End::Idle;
            }
            bench.test_drives.cut();
            for retry in 0..3 {
                bench.test_drives.cut_at =
                    (retry < 2).then(|| bench.test_drives.operations + (cut * 7 + retry * 11) % 60);
                match bench.open() {
                    Some(opened) => drop(opened.unwrap_or_else(|error| panic!("seed {seed}, cut {cut}: {error}"))),
                    None => assert!(retry < 2),
                }
                bench.test_drives.cut();
            }
            if finished {
                break;
            }
            cut += 2;
        }
        assert!(cut > 100, "the workload has {cut} operations");
    }
}

#[test]
fn many_lives_with_cuts_trims_damage_and_lost_members() {
    for seed in 0..40 {
        let mut bench = Bench::new(6, MIB, seed);
        for life in 0..5 {
            let mut spared = None;
            bench.test_drives.cut_at = Some(bench.test_drives.operations + 20 + bench.dice.below(900));
            if let Some(opened) = bench.open() {
                let opened = opened.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                if bench.dice.one_in(3) {
                    // A member goes while the log works.
                    let (members, _) = opened.log.members();
                    let victim = usize::from(members[bench.dice.below(members.len() as u64) as usize].0);
                    match bench.dice.one_in(2) {
                        true => bench.test_drives.drives[victim].gone = true,
                        false => bench.test_drives.drives[victim].write_protected = true,
                    }
                    spared = Some(victim);
                }
                bench.work(&opened, 120);
                assert_eq!(opened.log.stopped(), None, "seed {seed}, life {life}");
            }
            bench.test_drives.cut();
            // One replica is damaged while off; others hold the same.
            if spared.is_none() && bench.dice.one_in(2) {
                let victim = bench.dice.below(6) as usize;
                let at = LOG_AT + bench.dice.below(bench.ring / 4096) * 4096;
                let length = 4096 * (1 + bench.dice.below((LOG_AT + bench.ring - at) / 4096));
                bench.test_drives.damage(victim, at, length);
            }
            if let Some(victim) = spared
                && bench.dice.one_in(2)
            {
                // It returns, stale.
                bench.test_drives.drives[victim].gone = false;
                bench.test_drives.drives[victim].write_protected = false;
            }
            bench.test_drives.cut_at = None;
            drop(bench.open().expect("no cut").unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}")));
            bench.test_drives.cut();
            for drive in &mut bench.test_drives.drives {
                drive.gone = false;
                drive.write_protected = false;
            }
        }
    }
}

#[test]
fn a_hole_below_the_watermark_is_refused_naming_the_members() {
    let mut bench = Bench::new(5, MIB, 21);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let (members, _) = opened.log.members();
    let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
    drop(opened);
    let victim = live[live.len() / 2];
    for (number, member) in members.iter().enumerate() {
        let before = bench.test_drives.drives[usize::from(member.0)].clone();
        bench.test_drives.damage(usize::from(member.0), LOG_AT + victim.offset + 200, 16);
        if number + 1 < members.len() {
            drop(bench.open().expect("no cut").expect("other replicas are whole"));
            // Opening repaired it; break it again for the next round.
            bench.test_drives.drives[usize::from(member.0)] = before;
            bench.test_drives.damage(usize::from(member.0), LOG_AT + victim.offset + 200, 16);
        }
    }
    // Opening above has written new labels elsewhere; make every replica bad now.
    let mut bench = Bench::new(5, MIB, 22);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let victim = { opened.log.state().live[3] };
    drop(opened);
    for member in &members {
        bench.test_drives.damage(usize::from(member.0), LOG_AT + victim.offset + 200, 16);
    }
    match bench.open().expect("no cut") {
        Err(ArrayError::Damaged(message)) => {
            for member in &members {
                assert!(message.contains(&member.to_string()), "{message}");
            }
        }
        other => panic!("expected a refusal, not {:?}", other.map(|_| ())),
    }
}

#[test]
fn a_group_written_to_the_start_of_the_ring_by_mistake_ends_no_log() {
    // Each of the last groups in turn: on the first member it lies at the start of the ring instead
    // of in its place.
    for behind in 1..6 {
        let mut bench = Bench::new(5, MIB, 25);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 30);
        let (members, _) = opened.log.members();
        let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
        drop(opened);
        bench.test_drives.cut();
        let victim = live[live.len() - behind];
        assert_ne!(victim.offset, 0, "the group lies elsewhere");
        let member = usize::from(members[0].0);
        let bytes = bench.test_drives.peek(member, LOG_AT + victim.offset, victim.total as usize);
        bench.test_drives.poke(member, LOG_AT, &bytes);
        bench.test_drives.damage(member, LOG_AT + victim.offset, victim.total);
        let opened = bench.open().expect("no cut").expect("the other members have all of it");
        let found: Vec<u64> = opened.log.state().live.iter().map(|group| group.offset).collect();
        let placed: Vec<u64> = live.iter().map(|group| group.offset).collect();
        assert_eq!(found[..placed.len()], placed, "every group is where it was written");
    }
}

#[test]
fn a_log_wiped_on_every_member_is_refused() {
    let mut bench = Bench::new(5, MIB, 23);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    drop(opened);
    for drive in 0..5 {
        bench.test_drives.erase(drive, LOG_AT, bench.ring);
    }
    assert!(matches!(bench.open().expect("no cut"), Err(ArrayError::Damaged(_))));
}

#[test]
fn the_torn_tail_is_cut_but_not_a_sealed_one() {
    for sealed in [false, true] {
        let mut bench = Bench::new(5, MIB, 24);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 30);
        let last = *opened.log.state().live.back().expect("groups are live");
        if sealed {
            let log = opened.log.clone();
            bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.seal().await });
            bench.twin.push(Record::Seal);
            bench.acknowledged += 1;
        } else {
            // Not acknowledged, as far as the world knows.
            bench.acknowledged = last.first.0 - 1;
        }
        drop(opened);
        for drive in 0..5 {
            bench.test_drives.damage(drive, LOG_AT + last.offset + 300, 8);
        }
        let opened = bench.open().expect("no cut");
        assert_eq!(opened.is_err(), sealed);
    }
}

#[test]
fn all_members_of_the_last_epoch_away_is_not_a_short_log() {
    let mut bench = Bench::new(10, MIB, 25);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 10);
    let (members, _) = opened.log.members();
    drop(opened);
    for member in &members {
        bench.test_drives.drives[usize::from(member.0)].gone = true;
    }
    match bench.open().expect("no cut") {
        Err(ArrayError::Degraded(message)) => assert!(message.contains("carry the log"), "{message}"),
        other => panic!("expected a refusal, not {:?}", other.map(|_| ())),
    }
}

#[test]
fn a_lost_member_is_replaced_and_its_loss_asks_for_a_checkpoint() {
    let mut bench = Bench::new(6, MIB, 26);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 20);
    let (members, wanted) = opened.log.members();
    assert_eq!((members.len(), wanted), (4, 4));
    let victim = members[1];
    bench.test_drives.drives[usize::from(victim.0)].gone = true;
    let epoch = opened.labels.configuration().epoch;
    assert_eq!(bench.work(&opened, 20), End::Idle);
    let (now, _) = opened.log.members();
    assert!(now.len() == 4 && !now.contains(&victim));
    assert!(opened.labels.configuration().epoch > epoch);
    assert_eq!(opened.log.counters().epoch_changes, 1);
    // The work above trimmed on pressure, which the change raised.
    assert!(!opened.log.wants_checkpoint());
    // Two more go: a newcomer takes over once, then three are left of six, which is enough for m =
    // 2.
    for gone in [now[0], now[1]] {
        bench.test_drives.drives[usize::from(gone.0)].gone = true;
        bench.work(&opened, 10);
    }
    let stopped = opened.log.stopped();
    // Three of six voters are no majority: the log must have stopped rather than decide alone.
    assert!(matches!(stopped, Some(ArrayError::Degraded(_))), "{stopped:?}");
}

#[test]
fn a_log_that_lacks_a_member_is_refilled_when_a_drive_can_take_over() {
    let mut bench = Bench::new(6, MIB, 26);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 20);
    let (members, _) = opened.log.members();
    let others: Vec<usize> = (0..6).filter(|drive| !members.contains(&DriveNumber(*drive as u16))).collect();
    let gone = members[1];
    opened.labels.detach(gone);
    others.iter().for_each(|drive| bench.test_drives.drives[*drive].fails_at = LOG_AT..LOG_AT + MIB);
    opened.log.drive_lost(gone);
    let short = Rc::new(Cell::new(0));
    let (log, io, own) = (opened.log.clone(), opened.io.clone(), Rc::clone(&short));
    // A group is on its way, so that the others are asked to take it.
    let mut paid = log.try_reserve(log.cost(&Record::Seal), Purpose::Inside).expect("room");
    bench.twin.push(Record::Seal);
    let lsn = log.append(&Record::Seal, &mut paid);
    let ended = bench.test_drives.finish(&opened.tasks, &opened.io, async move {
        log.durable(lsn).await?;
        io.sleep(Duration::from_secs(30)).await;
        own.set(log.members().0.len());
        Ok::<_, ArrayError>(())
    });
    assert_eq!((ended, short.get()), (Some(Ok(())), 3));
    others.iter().for_each(|drive| bench.test_drives.drives[*drive].fails_at = 0..0);
    bench.test_drives.run(&opened.tasks, &opened.io);
    let (now, wanted) = opened.log.members();
    assert!(now.len() == 4 && wanted == 4 && !now.contains(&gone), "{now:?}");
}

#[test]
fn enclosures_are_spread_over() {
    let mut bench = Bench::new(10, MIB, 27);
    let opened = bench.open().expect("no cut").expect("opens");
    let (members, _) = opened.log.members();
    let enclosures: BTreeSet<u16> = members.iter().map(|member| member.0 / 2).collect();
    assert_eq!(enclosures.len(), 4);
    // Also over those of the members that stay.
    let chosen = membership::choose(&opened.labels, &[DriveNumber(1), DriveNumber(4)], &BTreeSet::new());
    assert_eq!(chosen, [1, 4, 2, 6].map(DriveNumber));
}

#[test]
fn scrub_repairs_a_damaged_replica() {
    let mut bench = Bench::new(5, MIB, 28);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let (members, _) = opened.log.members();
    let live = opened.log.state().live[2];
    bench.test_drives.damage(usize::from(members[0].0), LOG_AT + live.offset, 8192);
    for expected in [1, 0] {
        let log = opened.log.clone();
        let scrubbed = bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.scrub(|| false).await });
        let scrubbed = scrubbed.expect("no cut");
        assert_eq!((scrubbed.repaired > 0, scrubbed.trouble), (expected > 0, Vec::new()));
    }
    assert!(opened.recovery.groups > 0);
}

#[test]
fn a_passing_read_error_is_no_damage_to_the_log() {
    let mut bench = Bench::new(5, MIB, 28);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let (members, _) = opened.log.members();
    bench.test_drives.drives[usize::from(members[1].0)].refuses = 1;
    let log = opened.log.clone();
    let scrubbed = bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.scrub(|| false).await });
    assert_eq!(scrubbed, Some(Scrubbed::default()));
}

#[test]
fn the_scrub_of_the_log_goes_on_beside_what_it_cannot_put_right_and_names_the_drive() {
    let mut bench = Bench::new(5, MIB, 28);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 30);
    let (members, _) = opened.log.members();
    let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
    assert!(live.len() > 4, "{} groups", live.len());
    let damage = |bench: &mut Bench, member: DriveNumber, live: &Live| {
        bench.test_drives.damage(usize::from(member.0), LOG_AT + live.offset, 4096);
    };
    members.iter().for_each(|member| damage(&mut bench, *member, &live[1]));
    damage(&mut bench, members[0], &live[2]);
    damage(&mut bench, members[1], &live[3]);
    bench.test_drives.drives[usize::from(members[0].0)].fails_at = LOG_AT..LOG_AT + MIB;
    let log = opened.log.clone();
    let scrubbed = bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.scrub(|| false).await });
    let Scrubbed { repaired, trouble } = scrubbed.expect("no cut");
    assert_eq!((repaired, trouble.len()), (1, 2), "{trouble:?}");
    assert!(trouble[0].to_string().starts_with(&format!("group {} of the log", live[1].sequence)), "{}", trouble[0]);
    assert!(trouble[1].to_string().contains(&members[0].to_string()), "{}", trouble[1]);
}

#[test]
fn each_protection_is_needed() {
    // With a protection taken away, some seed must notice: a panic in the comparison, or a refusal.
    let noticed = |mutations: Mutations| {
        (0..60).any(|seed| {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut bench = Bench::new(5, MIB, seed);
                bench.opening = mutations;
                for _ in 0..3 {
                    bench.test_drives.cut_at = Some(bench.test_drives.operations + 40 + bench.dice.below(600));
                    if let Some(Ok(opened)) = bench.open() {
                        opened.io.set_mutations(mutations);
                        bench.work(&opened, 120);
                    }
                    bench.test_drives.cut();
                }
                bench.test_drives.cut_at = None;
                bench.open().expect("no cut").map(drop).expect("opens");
            });
            std::panic::catch_unwind(run).is_err()
        })
    };
    assert!(!noticed(Mutations::default()), "with every protection there is nothing to notice");
    assert!(noticed(Mutations::default().with(Mutation::LogFlush)), "nothing noticed");
}

#[test]
fn without_the_check_for_holes_an_acknowledged_group_would_be_lost() {
    for (mutations, refused) in [(Mutations::default(), true), (Mutations::default().with(Mutation::LogHole), false)] {
        let mut bench = Bench::new(5, MIB, 29);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 30);
        let victim = { opened.log.state().live[3] };
        drop(opened);
        for drive in 0..5 {
            bench.test_drives.damage(drive, LOG_AT + victim.offset + 200, 16);
        }
        // As far as the comparison knows, nothing after the victim was acknowledged.
        bench.acknowledged = victim.first.0 - 1;
        bench.opening = mutations;
        assert_eq!(bench.open().expect("no cut").is_err(), refused);
    }
}

#[test]
fn a_group_that_only_a_lost_member_held_was_copied_before_serving() {
    for (mutations, kept) in [(Mutations::default(), true), (Mutations::default().with(Mutation::LogReplicate), false)]
    {
        let mut bench = Bench::new(6, MIB, 30);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 20);
        let (members, _) = opened.log.members();
        let last = *opened.log.state().live.back().expect("groups are live");
        drop(opened);
        // The power went when the last group was on one member only.
        bench.acknowledged = last.first.0 - 1;
        for member in &members[1..] {
            bench.test_drives.damage(usize::from(member.0), LOG_AT + last.offset, last.total);
        }
        bench.opening = mutations;
        let opened = bench.open().expect("no cut").expect("opens");
        assert!(bench.acknowledged >= last.first.0, "it was found, and is now as good as acknowledged");
        drop(opened);
        bench.test_drives.drives[usize::from(members[0].0)].gone = true;
        let run = std::panic::AssertUnwindSafe(|| bench.open().expect("no cut").map(drop));
        assert_eq!(matches!(std::panic::catch_unwind(run), Ok(Ok(()))), kept);
    }
}

/// The tail of an abandoned branch lies right where the next group is looked for. Epoch and chain
/// each keep it out, also where the other fits by accident: two halves of a pool may have begun the
/// same epoch, and CRCs may be equal.
#[test]
fn a_group_of_an_abandoned_branch_is_never_continued() {
    type Fitting = fn(group::Header, u64, u32) -> group::Header;
    let as_it_is: Fitting = |header, _, _| header;
    let of_the_epoch: Fitting = |header, epoch, _| group::Header { epoch, ..header };
    let of_the_chain: Fitting = |header, _, previous| group::Header { previous, ..header };
    let (chain, epoch) = (Mutation::LogChain, Mutation::LogEpoch);
    let all = Mutations::default();
    for (fitting, mutations, safe) in [
        (as_it_is, all, true),
        (as_it_is, all.with(chain).with(epoch), false),
        (of_the_epoch, all, true),
        (of_the_epoch, all.with(chain), false),
        (of_the_chain, all, true),
        (of_the_chain, all.with(epoch), false),
    ] {
        let mut bench = Bench::new(5, MIB, 31);
        let opened = bench.open().expect("no cut").expect("opens");
        let (tasks, io, log) = (opened.tasks, opened.io, opened.log);
        let append = |log: &Log, byte: u8| {
            let record = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![byte; 5000].into()] };
            let mut paid = log.try_reserve(log.cost(&record), Purpose::Host).expect("free");
            let lsn = log.append(&record, &mut paid);
            (lsn, record)
        };
        // Two groups of one size; then the first of them is torn on every member, as if only the
        // second had landed.
        for byte in [1, 2] {
            let (lsn, record) = append(&log, byte);
            bench.twin.push(record);
            let own = log.clone();
            bench.test_drives.finish(&tasks, &io, async move { own.durable(lsn).await });
        }
        let live: Vec<Live> = log.state().live.iter().copied().collect();
        let [.., first, second] = live[..] else { panic!("two groups are live") };
        // The second must not have seen the first acknowledged, or its watermark would tell:
        // rewrite it so.
        for drive in 0..5 {
            let bytes = bench.test_drives.peek(drive, LOG_AT + second.offset, second.total as usize);
            let Some(header) = group::Header::decode(&bytes) else { continue };
            let older = group::Header { watermark: first.sequence - 1, ..header };
            bench.test_drives.poke(drive, LOG_AT + second.offset, &group::resealed(older, &bytes));
            bench.test_drives.damage(drive, LOG_AT + first.offset + 200, 16);
        }
        drop((tasks, io, log, opened.labels));
        bench.acknowledged = first.first.0 - 1;
        bench.opening = mutations;
        let opened = bench.open().expect("no cut").expect("the tail is cut");
        // Another first group takes its place, and power goes.
        let (lsn, record) = append(&opened.log, 3);
        bench.twin.push(record);
        let own = opened.log.clone();
        bench.test_drives.finish(&opened.tasks, &opened.io, async move { own.durable(lsn).await });
        bench.acknowledged = lsn.0;
        let (epoch, previous) = {
            let state = opened.log.state();
            (state.epoch, state.live.back().expect("the third is live").crc)
        };
        drop(opened);
        for drive in 0..5 {
            let bytes = bench.test_drives.peek(drive, LOG_AT + second.offset, second.total as usize);
            let Some(header) = group::Header::decode(&bytes) else { continue };
            bench.test_drives.poke(
                drive,
                LOG_AT + second.offset,
                &group::resealed(fitting(header, epoch, previous), &bytes),
            );
        }
        let run = std::panic::AssertUnwindSafe(|| bench.open().expect("no cut").map(drop));
        let fine = matches!(std::panic::catch_unwind(run), Ok(Ok(()))) && bench.acknowledged == lsn.0;
        assert_eq!(fine, safe);
    }
}

#[test]
fn a_hole_before_the_end_of_the_ring_is_shown_by_groups_at_its_start() {
    let mut bench = Bench::new(5, MIB, 33);
    let opened = bench.open().expect("no cut").expect("opens");
    let victim = loop {
        bench.work(&opened, 5);
        let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
        let turn = live.windows(2).position(|pair| pair[1].offset < pair[0].offset);
        if let Some(at) = turn.filter(|at| at + 4 < live.len() && *at > 0) {
            break live[at];
        }
    };
    drop(opened);
    for drive in 0..5 {
        bench.test_drives.damage(drive, LOG_AT + victim.offset, victim.total);
    }
    let opened = bench.open().expect("no cut");
    assert!(matches!(opened, Err(ArrayError::Damaged(_))), "acknowledged groups follow at the ring's start");
}

#[test]
#[should_panic(expected = "the log was opened for reading only")]
fn a_log_that_was_opened_for_reading_takes_no_records() {
    let mut bench = Bench::new(5, MIB, 34);
    let discovery = bench.discovery().expect("a pool");
    let (tasks, io) = bench.test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let own = io.clone();
    let recovered = async move { Log::recover(&own, &labels, FIRST, true, async |_, _| Ok(())).await };
    let (log, _) = bench.test_drives.finish(&tasks, &io, recovered).expect("no cut").expect("opens");
    let mut paid = log.try_reserve(log.cost(&Record::Seal), Purpose::Inside).expect("room");
    log.append(&Record::Seal, &mut paid);
}

#[test]
fn a_member_may_ask_twice_to_be_tried_again_and_not_three_times() {
    for (times, stays) in [(2, true), (3, false)] {
        let mut bench = Bench::new(6, MIB, 35);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 5);
        let member = opened.log.members().0[1];
        bench.test_drives.drives[usize::from(member.0)].retries = times;
        bench.work(&opened, 1);
        let (members, wanted) = opened.log.members();
        assert_eq!((members.contains(&member), members.len()), (stays, wanted), "{times} times");
    }
}

#[test]
fn a_drive_that_is_to_leave_carries_the_log_no_more() {
    let mut bench = Bench::new(6, MIB, 36);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 5);
    let mut leave = |drive| {
        let log = opened.log.clone();
        bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.leave(drive).await }).expect("no cut")
    };
    let (before, _) = opened.log.members();
    assert_eq!(leave(before[2]), Ok(()));
    let (members, wanted) = opened.log.members();
    assert!(!members.contains(&before[2]) && members.len() == wanted, "{members:?}");
    let epochs = opened.log.counters().epoch_changes;
    assert_eq!(leave(before[2]), Ok(()), "it carries none");
    assert_eq!((opened.log.members().0, opened.log.counters().epoch_changes), (members, epochs));
    bench.work(&opened, 5);

    // As many drives as members: no drive takes its place.
    let mut bench = Bench::new(4, MIB, 37);
    let opened = bench.open().expect("no cut").expect("opens");
    let (members, log) = (opened.log.members().0, opened.log.clone());
    let stays = members[0];
    let left = bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.leave(stays).await });
    assert!(matches!(left, Some(Err(ArrayError::Degraded(_)))), "{left:?}");
    assert_eq!(opened.log.members().0, members);
    bench.work(&opened, 5);
}

#[test]
fn a_log_that_stops_answers_everybody_who_waits() {
    let mut bench = Bench::new(4, MIB, 38);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 5);
    let log = &opened.log;
    let answers: Rc<RefCell<BTreeMap<&str, (ArrayError, Instant)>>> = Rc::default();
    let mut paid = log.try_reserve(log.cost(&Record::Seal), Purpose::Inside).expect("room");
    let held = log.try_reserve(log.free().0, Purpose::Host).expect("it is free");
    let lsn = log.append(&Record::Seal, &mut paid);
    let (own, answered) = (log.clone(), Rc::clone(&answers));
    opened.tasks.spawn(async move {
        let error = own.durable(lsn).await.expect_err("too few members");
        answered.borrow_mut().insert("a record", (error, own.0.io.now()));
    });
    let (own, answered) = (log.clone(), Rc::clone(&answers));
    opened.tasks.spawn(async move {
        let error = own.reserve(8192, Purpose::Host).await.map(drop).expect_err("no room");
        answered.borrow_mut().insert("room", (error, own.0.io.now()));
    });
    (1..4).for_each(|drive| bench.test_drives.drives[drive].gone = true);
    bench.test_drives.run(&opened.tasks, &opened.io);
    let stopped = log.stopped().expect("it has stopped");
    // All at the same moment: what waits for room would wait for minutes more.
    let at = answers.borrow().get("a record").map(|(_, at)| *at).expect("an answer");
    let expected = [("a record", (stopped.clone(), at)), ("room", (stopped, at))];
    assert_eq!(*answers.borrow(), BTreeMap::from(expected));
    drop(held);
}

#[test]
fn a_log_that_stops_says_what_the_last_drive_said() {
    let mut bench = Bench::new(4, MIB, 27);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 20);
    for drive in &mut bench.test_drives.drives {
        drive.gone = true;
    }
    bench.work(&opened, 10);
    let stopped = opened.log.stopped().expect("no drive is left").to_string();
    assert!(stopped.contains("the write that failed last, on drive"), "{stopped}");
}
