//! Space, order, sharing and speed, without faults.

use super::*;
use crate::durable::log::group::Header;
use crate::model::{Action, Scrubbed};
use stele_ground::Duration;
use stele_media::{Completion, Op};

#[test]
fn what_was_appended_comes_back_over_many_laps() {
    for seed in 0..20 {
        let mut bench = Bench::new(6, MIB, seed);
        for _ in 0..3 {
            let opened = bench.open().expect("no cut").expect("opens");
            assert_eq!(bench.work(&opened, 300), End::Idle, "seed {seed}");
            assert_eq!(bench.acknowledged, bench.twin.len() as u64);
            assert_eq!(opened.log.reserved(), Bytes(0));
            drop(opened);
            bench.test_drives.cut();
        }
    }
}

#[test]
fn a_reservation_waits_for_space_in_turn_and_flows_back() {
    let mut bench = Bench::new(4, MIB, 1);
    let opened = bench.open().expect("no cut").expect("opens");
    let log = opened.log.clone();
    let all = log.free().0;
    let held = log.try_reserve(all, Purpose::Host).expect("it is free");
    assert!(log.try_reserve(4096, Purpose::Host).is_none());
    assert!(log.try_reserve(4096, Purpose::Inside).is_some(), "inside has an eighth of its own");
    let got = Rc::new(RefCell::new(Vec::new()));
    for (name, bytes) in [(1, 8192), (2, 4096)] {
        let (log, got) = (log.clone(), Rc::clone(&got));
        opened.tasks.spawn(async move {
            let reservation = log.reserve(bytes, Purpose::Host).await.expect("in time");
            got.borrow_mut().push((name, reservation.bytes()));
        });
    }
    opened.tasks.run_ready();
    assert!(got.borrow().is_empty());
    let mut held = held;
    let part = held.split(4096);
    drop(part);
    opened.tasks.run_ready();
    assert!(got.borrow().is_empty(), "the first in line needs more");
    held.shrink_to(0);
    opened.tasks.run_ready();
    assert_eq!(*got.borrow(), [(1, 8192), (2, 4096)]);
    drop(held);
    let log = opened.log.clone();
    let too_much = async move { log.reserve(2 * MIB, Purpose::Checkpoint).await.map(drop) };
    let refused = bench.test_drives.finish(&opened.tasks, &opened.io, too_much).expect("no cut");
    assert!(matches!(refused, Err(ArrayError::Invalid(_))));
}

#[test]
fn several_groups_fly_at_once_and_all_members_share_one_buffer() {
    let mut bench = Bench::new(6, 4 * MIB, 3);
    let opened = bench.open().expect("no cut").expect("opens");
    let (tasks, io, log) = (&opened.tasks, &opened.io, &opened.log);
    let mut out = Vec::new();
    let mut pointers: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for number in 0..8u64 {
        let record = Record::Write { volume: VolumeId(1), at: number, data: vec![vec![1; 64 << 10].into()] };
        let mut paid = log.try_reserve(log.cost(&record), Purpose::Host).expect("free");
        log.append(&record, &mut paid);
        tasks.run_ready();
        io.drain(&mut out);
    }
    for action in &out {
        let Action::Drive { request, .. } = action else { continue };
        let Op::Write { data, fua: true, .. } = &request.op else { panic!("only durable writes: {request:?}") };
        let header = Header::decode(&data[0]).expect("a group");
        pointers.entry(header.sequence).or_default().insert(data[0].as_ptr() as usize);
    }
    assert_eq!(pointers.len(), WINDOW, "so many groups are on their way");
    assert!(pointers.values().all(|places| places.len() == 1), "the members share the bytes");
    // The youngest lands on every member, and nothing is acknowledged before the oldest.
    let before = log.durable_lsn();
    let youngest = *pointers.keys().last().expect("groups are out");
    let is_youngest = |action: &Action| match action {
        Action::Drive { request, .. } => match &request.op {
            Op::Write { data, .. } => Header::decode(&data[0]).is_some_and(|header| header.sequence == youngest),
            _ => true,
        },
        _ => false,
    };
    let answer = |actions: Vec<Action>| {
        for action in actions {
            let Action::Drive { drive, request } = action else { continue };
            io.complete(drive, Completion { tag: request.tag, op: request.op, result: Ok(()) });
        }
        tasks.run_ready();
        let mut next = Vec::new();
        io.drain(&mut next);
        next
    };
    let (first, mut rest): (Vec<_>, Vec<_>) = out.into_iter().partition(is_youngest);
    rest.extend(answer(first));
    assert_eq!(log.durable_lsn(), before, "groups are acknowledged in order");
    while !rest.is_empty() {
        rest = answer(rest);
    }
    assert_eq!(log.durable_lsn(), Lsn(before.0 + 8));
}

#[test]
fn small_groups_wait_for_the_one_before_and_share_the_next() {
    let mut bench = Bench::new(4, MIB, 4);
    let opened = bench.open().expect("no cut").expect("opens");
    let (tasks, io, log) = (&opened.tasks, &opened.io, &opened.log);
    let mut out = Vec::new();
    let groups = log.counters().groups;
    for number in 0..8u64 {
        let record = Record::Write { volume: VolumeId(1), at: number, data: vec![vec![1; 4096].into()] };
        let mut paid = log.try_reserve(log.cost(&record), Purpose::Host).expect("free");
        log.append(&record, &mut paid);
        tasks.run_ready();
        io.drain(&mut out);
    }
    while !out.is_empty() {
        for action in std::mem::take(&mut out) {
            let Action::Drive { drive, request } = action else { continue };
            io.complete(drive, Completion { tag: request.tag, op: request.op, result: Ok(()) });
        }
        tasks.run_ready();
        io.drain(&mut out);
    }
    assert_eq!(log.counters().groups - groups, 2, "the first record alone, the seven behind it together");
    assert_eq!(log.durable_lsn().0 + 1, log.next_lsn().0);
}

#[test]
fn seal_publishes_the_watermark_once() {
    let mut bench = Bench::new(4, MIB, 5);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 5);
    for _ in 0..2 {
        let log = opened.log.clone();
        bench
            .test_drives
            .finish(&opened.tasks, &opened.io, async move {
                log.seal().await?;
                assert_eq!(log.durable_lsn().next(), log.next_lsn(), "a seal is durable when it is answered");
                Ok::<_, ArrayError>(())
            })
            .expect("no cut")
            .expect("sealed");
    }
    bench.twin.push(Record::Seal);
    assert_eq!(opened.log.next_lsn().0, bench.twin.len() as u64 + 1);
}

#[test]
fn bytes_of_a_record_are_the_same_after_decoding() {
    let mut bench = Bench::new(4, MIB, 6);
    for _ in 0..300 {
        let record = bench.record();
        let mut bytes = vec![0xEE; record.encoded()];
        record.encode(&mut bytes);
        let mut shared = bytes.into();
        assert_eq!(Record::decode(&mut shared), Some(record));
        assert!(shared.is_empty());
    }
}

/// Not a benchmark: a floor far below what is measured, so that a copy too many or a quadratic
/// queue is noticed.
#[test]
fn small_writes_cost_little() {
    let drives = 4;
    let mut bench = Bench::new(drives, 32 * MIB, 7);
    let opened = bench.open().expect("no cut").expect("opens");
    let (tasks, io) = (&opened.tasks, &opened.io);
    let data: stele_media::Shared = vec![7; 4096].into();
    let count = 200_000u64;
    let done = Rc::new(Cell::new(0u64));
    for _ in 0..64 {
        let (log, data, done) = (opened.log.clone(), data.clone(), Rc::clone(&done));
        tasks.spawn(async move {
            while done.get() < count {
                let record = Record::Write { volume: VolumeId(1), at: done.get() * 4096, data: vec![data.clone()] };
                let mut paid = log.reserve(log.cost(&record), Purpose::Host).await.expect("space");
                let lsn = log.append(&record, &mut paid);
                log.durable(lsn).await.expect("durable");
                done.set(done.get() + 1);
                if log.wants_checkpoint() {
                    log.trim(log.position(lsn));
                }
            }
        });
    }
    let start = std::time::Instant::now();
    let mut out = Vec::new();
    loop {
        tasks.run_ready();
        io.drain(&mut out);
        if out.is_empty() {
            break;
        }
        for action in out.drain(..) {
            let Action::Drive { drive, request } = action else { continue };
            io.complete(drive, Completion { tag: request.tag, op: request.op, result: Ok(()) });
        }
    }
    let rate = done.get() as f64 / start.elapsed().as_secs_f64();
    let groups = opened.log.counters().groups;
    println!("{rate:.0} records of 4 KiB a second, {:.1} a group, {drives} members", done.get() as f64 / groups as f64);
    assert!(rate > 30_000.0, "{rate} records a second");
}

#[test]
fn no_group_departs_into_what_is_being_washed() {
    for (before, length, waits) in [(0, 4096, true), (4096, 8192, true), (0, 8 << 10, true), (4096, 4096, false)] {
        let mut bench = Bench::new(4, MIB, 5);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 5);
        let (log, head) = (&opened.log, opened.log.state().head);
        log.change().washing = Some((head - before, head - before + length));
        let mut paid = log.try_reserve(log.cost(&Record::Seal), Purpose::Inside).expect("room");
        let lsn = log.append(&Record::Seal, &mut paid);
        bench.test_drives.run(&opened.tasks, &opened.io);
        assert_eq!(log.durable_lsn() < lsn, waits, "{before} {length}");
        log.change().washing = None;
        log.kick();
        bench.test_drives.run(&opened.tasks, &opened.io);
        assert_eq!(log.durable_lsn(), lsn);
    }
}

/// The end of a server may wait for a washing.
#[test]
fn a_washing_waits_for_one_group_of_a_scrub_and_a_scrub_ends_when_it_is_told_to() {
    let mut bench = Bench::new(4, MIB, 7);
    let opened = bench.open().expect("no cut").expect("opens");
    for _ in 0..16 {
        bench.work(&opened, 1);
    }
    let groups = opened.log.state().live.len();
    assert!(groups > 8, "{groups} groups");
    let looked = Rc::new(Cell::new(0));
    let (log, looks) = (opened.log.clone(), Rc::clone(&looked));
    opened.tasks.spawn(async move {
        let ends = || {
            looks.set(looks.get() + 1);
            false
        };
        assert_eq!(log.scrub(ends).await, Scrubbed::default());
    });
    let (log, looks) = (opened.log.clone(), Rc::clone(&looked));
    let washed = async move { log.wash(&[0, 1, 2, 3]).await.map(|_| looks.get()) };
    let washed = bench.test_drives.finish(&opened.tasks, &opened.io, washed).expect("no cut");
    assert_eq!(washed, Ok(2), "one group was looked at, and the next waits");
    assert!(looked.get() >= groups, "the scrub goes on afterwards: {} of {groups}", looked.get());
    let mut reads_until = |most: usize| {
        let (log, left, before) = (opened.log.clone(), Cell::new(most), bench.test_drives.operations);
        let ends = move || left.replace(left.get().saturating_sub(1)) == 0;
        let scrubbed = bench.test_drives.finish(&opened.tasks, &opened.io, async move { log.scrub(ends).await });
        assert_eq!(scrubbed, Some(Scrubbed::default()));
        bench.test_drives.operations - before
    };
    let (none, some, all) = (reads_until(0), reads_until(2), reads_until(usize::MAX));
    assert!(none == 0 && some > 0 && some * 3 < all, "{none}, {some} and {all} reads");
}

#[test]
fn an_epoch_in_which_no_group_is_live_is_forgotten() {
    let mut configuration = configuration(4, MIB, 2);
    let epoch = |epoch, first_group| crate::drives::label::LogEpoch { epoch, first_group, members: Vec::new() };
    configuration.log = vec![epoch(1, 1), epoch(2, 5)];
    let mut begin = |number, first_group, oldest| {
        configuration.epoch = number;
        assert_eq!(membership::begin_epoch(&mut configuration, first_group, &[DriveNumber(1)], oldest), number);
        configuration.log.iter().map(|epoch| (epoch.epoch, epoch.first_group)).collect::<Vec<_>>()
    };
    assert_eq!(begin(3, 5, 4), [(1, 1), (3, 5)], "an epoch without a group gives way");
    assert_eq!(begin(4, 9, 5), [(3, 5), (4, 9)]);
    assert_eq!(begin(5, 12, 8), [(3, 5), (4, 9), (5, 12)]);
}

#[test]
fn a_wait_for_room_goes_on_as_long_as_the_log_gets_shorter() {
    for shrinks in [true, false] {
        let mut bench = Bench::new(4, MIB, 6);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 12);
        let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
        let (log, io) = (opened.log.clone(), opened.io.clone());
        let held = log.try_reserve(log.free().0, Purpose::Host).expect("it is free");
        let needed = live[0].total + 4096;
        opened.tasks.spawn(async move {
            io.sleep(Duration::from_secs(8)).await;
            log.trim(log.position(live[usize::from(shrinks)].first));
            io.sleep(Duration::from_secs(8)).await;
            drop(held);
        });
        let log = opened.log.clone();
        let waiting = async move { log.reserve_within(needed, Purpose::Host, Duration::from_secs(10)).await.map(drop) };
        let waited = bench.test_drives.finish(&opened.tasks, &opened.io, waiting).expect("no cut");
        assert_eq!(waited.is_ok(), shrinks, "{waited:?}");
    }
}

#[test]
fn a_trim_frees_what_lies_before_its_group() {
    let mut bench = Bench::new(4, MIB, 7);
    let opened = bench.open().expect("no cut").expect("opens");
    // Until the ring begins again.
    while opened.log.state().live.iter().all(|live| live.offset > 0) || opened.log.state().live.len() < 8 {
        bench.work(&opened, 3);
    }
    let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
    let behind: Vec<u64> = live.iter().map(|live| opened.log.behind(live.first)).collect();
    let before = |at: usize| (live[at].offset + bench.ring - live[0].offset) % bench.ring;
    assert_eq!(behind, (0..live.len()).map(before).collect::<Vec<_>>());
    assert!(behind.is_sorted() && behind[0] == 0 && behind[1] > 0, "{behind:?}");
    // A record within a group frees what its group frees.
    let last = live[live.len() - 1];
    assert_eq!(opened.log.behind(Lsn(opened.log.next_lsn().0 - 1)), before(live.len() - 1), "{last:?}");
}

#[test]
fn a_wait_for_room_ends_with_the_trim_that_makes_it() {
    let mut bench = Bench::new(4, MIB, 8);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 12);
    let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
    let (log, io) = (opened.log.clone(), opened.io.clone());
    let _held = log.try_reserve(log.free().0, Purpose::Host).expect("it is free");
    opened.tasks.spawn(async move {
        io.sleep(Duration::from_secs(5)).await;
        log.trim(log.position(live[2].first));
    });
    let (log, io) = (opened.log.clone(), opened.io.clone());
    let begun = io.now();
    let waiting = async move {
        let reservation = log.reserve(4096, Purpose::Host).await;
        reservation.map(|_| io.now())
    };
    let waited = bench.test_drives.finish(&opened.tasks, &opened.io, waiting).expect("no cut").expect("room");
    let took = waited.since(begun);
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
}

/// Becomes true when the log asks for a checkpoint.
fn asked_for_a_checkpoint(opened: &Opened) -> Rc<Cell<bool>> {
    let asked = Rc::new(Cell::new(false));
    let (log, noted) = (opened.log.clone(), Rc::clone(&asked));
    opened.tasks.spawn(async move {
        log.pressure().await;
        noted.set(true);
    });
    asked
}

#[test]
fn a_log_that_is_half_full_asks_for_a_checkpoint_although_nobody_waits() {
    let mut bench = Bench::new(4, MIB, 9);
    let opened = bench.open().expect("no cut").expect("opens");
    let asked = asked_for_a_checkpoint(&opened);
    opened.tasks.run_ready();
    let log = opened.log.clone();
    let record = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![3; 16_000].into()] };
    while !log.wants_checkpoint() {
        assert!(!asked.get());
        let mut paid = log.try_reserve(log.cost(&record), Purpose::Host).expect("half of the log is free");
        let lsn = log.append(&record, &mut paid);
        let log = log.clone();
        let durable = async move { log.durable(lsn).await };
        bench.test_drives.finish(&opened.tasks, &opened.io, durable).expect("no cut").expect("durable");
    }
    opened.tasks.run_ready();
    assert!(asked.get());
}

#[test]
fn a_new_log_needs_enough_drives_that_take_it() {
    let create = |away: usize, failing: bool| {
        let mut test_drives = TestDrives::new(5, SIZE, 10);
        for drive in test_drives.drives.iter_mut().filter(|_| failing) {
            drive.fails_at = crate::drives::label::LOG_AT..SIZE.0;
        }
        let (tasks, io) = test_drives.start();
        let labels = Labels::new(&io, configuration(5, MIB, 2), (0..5).collect());
        (0..away as u16).for_each(|drive| labels.detach(DriveNumber(drive)));
        let own = io.clone();
        let created = async move { Log::create(&own, &labels).await.map(drop) };
        test_drives.finish(&tasks, &io, created).expect("no cut")
    };
    assert_eq!(create(2, false), Ok(()));
    assert!(matches!(create(3, false), Err(ArrayError::Degraded(text)) if text.contains("2 of the 3 drives")));
    // The first group is durable, or there is no log.
    assert!(matches!(create(0, true), Err(ArrayError::Degraded(_))));
}

#[test]
fn a_wait_for_room_asks_for_a_checkpoint() {
    let mut bench = Bench::new(4, MIB, 9);
    let opened = bench.open().expect("no cut").expect("opens");
    let asked = asked_for_a_checkpoint(&opened);
    let log = opened.log.clone();
    let record = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![3; 4000].into()] };
    let append = |urgency| {
        let mut paid = log.try_reserve(log.cost(&record), Purpose::Host).expect("half of the log is free");
        log.append_with(&record, &mut paid, urgency)
    };
    while log.used().0 + log.cost(&record) <= log.size().0 / 2 {
        let (own, lsn) = (log.clone(), append(FlushUrgency::Now));
        let durable = async move { own.durable(lsn).await };
        bench.test_drives.finish(&opened.tasks, &opened.io, durable).expect("no cut").expect("durable");
    }
    // Half of the log is taken with a record that departs with the next one.
    append(FlushUrgency::Whenever);
    opened.tasks.run_ready();
    assert!(log.wants_checkpoint() && !asked.get());
    let _held = log.try_reserve(log.free().0, Purpose::Host).expect("it is free");
    let own = log.clone();
    opened.tasks.spawn(async move { drop(own.reserve(4096, Purpose::Host).await) });
    opened.tasks.run_ready();
    assert!(asked.get(), "without a checkpoint it would wait until it loses patience");
}

#[test]
fn once_a_task_lost_patience_others_wait_for_a_moment_only() {
    let mut bench = Bench::new(4, MIB, 10);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 12);
    let live: Vec<Live> = opened.log.state().live.iter().copied().collect();
    let _held = opened.log.try_reserve(opened.log.free().0, Purpose::Host).expect("it is free");
    // More than a trim gives.
    let needed = live[0].total + (64 << 10);
    let mut wait = |patience: Duration| {
        let (log, io) = (opened.log.clone(), opened.io.clone());
        let waiting = async move {
            let begun = io.now();
            let waited = log.reserve_within(needed, Purpose::Host, patience).await;
            assert!(waited.is_err_and(|error| is_no_room(&error)));
            io.now().since(begun)
        };
        bench.test_drives.finish(&opened.tasks, &opened.io, waiting).expect("no cut")
    };
    // Less patience says nothing about the log.
    assert_eq!(wait(Duration::from_secs(10)), Duration::from_secs(10));
    assert_eq!(wait(PATIENCE), PATIENCE);
    assert_eq!(wait(PATIENCE), Duration::from_secs(5));
    assert_eq!(wait(Duration::from_secs(2)), Duration::from_secs(2));
    // The log moves again.
    opened.log.trim(opened.log.position(live[1].first));
    assert_eq!(wait(PATIENCE), PATIENCE);
}

#[test]
fn a_task_that_loses_patience_tells_those_who_wait_already() {
    let mut bench = Bench::new(4, MIB, 11);
    let opened = bench.open().expect("no cut").expect("opens");
    bench.work(&opened, 12);
    let _held = opened.log.try_reserve(opened.log.free().0, Purpose::Host).expect("it is free");
    let ended = Rc::new(Cell::new(None));
    let (log, io, end) = (opened.log.clone(), opened.io.clone(), Rc::clone(&ended));
    opened.tasks.spawn(async move {
        io.sleep(Duration::from_secs(60)).await;
        // The first in a line of its own.
        let waited = log.reserve_within(128 << 10, Purpose::Inside, PATIENCE).await;
        assert!(waited.is_err_and(|error| is_no_room(&error)));
        end.set(Some(io.now()));
    });
    let (log, io) = (opened.log.clone(), opened.io.clone());
    let first = async move {
        assert!(log.reserve_within(64 << 10, Purpose::Host, PATIENCE).await.is_err());
        io.now()
    };
    let first = bench.test_drives.finish(&opened.tasks, &opened.io, first).expect("no cut");
    opened.tasks.run_ready();
    assert_eq!(ended.get(), Some(first), "it does not wait for a minute more");
}
