//! Members that are lost and replaced: what is remembered of them, and what is forgotten again.

use super::*;
use stele_ground::Duration;

impl Carried {
    fn drive(&mut self, drive: DriveNumber) -> &mut crate::testing::drives::TestDrive {
        &mut self.bench.test_drives.drives[usize::from(drive.0)]
    }

    fn lose(&self, member: DriveNumber) {
        self.opened.labels.detach(member);
        self.opened.log.drive_lost(member);
    }

    fn append(&mut self) -> Lsn {
        let mut paid = self.opened.log.try_reserve(self.opened.log.cost(&Record::Seal), Purpose::Inside).expect("room");
        self.bench.twin.push(Record::Seal);
        self.opened.log.append(&Record::Seal, &mut paid)
    }

    /// Appends a record, waits until it is durable, and lets the time pass.
    fn pass(&mut self, seconds: u64) {
        let lsn = self.append();
        let (log, io) = (self.opened.log.clone(), self.opened.io.clone());
        let ended = self.bench.test_drives.finish(&self.opened.tasks, &self.opened.io, async move {
            log.durable(lsn).await?;
            io.sleep(Duration::from_secs(seconds)).await;
            Ok::<_, ArrayError>(())
        });
        assert_eq!(ended, Some(Ok(())));
    }

    fn settle(&mut self) {
        self.bench.test_drives.run(&self.opened.tasks, &self.opened.io);
    }

    fn now(&self) -> Vec<DriveNumber> {
        let (mut members, _) = self.opened.log.members();
        members.sort();
        members
    }
}

fn sorted<const N: usize>(mut drives: [DriveNumber; N]) -> [DriveNumber; N] {
    drives.sort();
    drives
}

#[test]
fn drives_that_cannot_take_the_log_are_asked_until_one_can() {
    let mut log = Carried::new(5, 61);
    let mut away = vec![log.members[1], log.beside[0]];
    for _ in 0..2 {
        // A member fails, and so does the drive that could take its place: the labels keep their
        // majority.
        away.iter().for_each(|drive| log.drive(*drive).refuses = u32::MAX);
        let changes = log.opened.log.counters().epoch_changes;
        log.append();
        log.opened.log.drive_lost(away[0]);
        // Long enough for some of the times that they are asked, in vain.
        log.bench.test_drives.cut_at = Some(log.bench.test_drives.operations + 60);
        assert_eq!(log.bench.test_drives.run(&log.opened.tasks, &log.opened.io), End::PowerCut);
        log.bench.test_drives.cut_at = None;
        let left: Vec<DriveNumber> = (0..5).map(DriveNumber).filter(|drive| !away.contains(drive)).collect();
        assert_eq!((log.now(), log.opened.log.counters().epoch_changes), (left.clone(), changes + 1));
        away.iter().for_each(|drive| log.drive(*drive).refuses = 0);
        log.settle();
        let now = log.now();
        assert_eq!((now.len(), log.opened.log.counters().epoch_changes), (4, changes + 2));
        // The same once more, with another member.
        away = vec![left[0], *away.iter().find(|drive| !now.contains(drive)).expect("one is beside")];
    }
}

#[test]
fn a_member_that_was_replaced_may_carry_the_log_again() {
    let mut log = Carried::new(5, 63);
    let ([a, b, c, d], [e]) = (log.members[..].try_into().unwrap(), log.beside[..].try_into().unwrap());
    let changes = log.opened.log.counters().epoch_changes;
    // It failed a write, and is there.
    log.opened.log.drive_lost(b);
    log.settle();
    assert_eq!(log.now(), sorted([a, c, d, e]));
    log.lose(c);
    log.settle();
    assert_eq!(log.now(), sorted([a, b, d, e]));
    // At once: the log did not go on with three members until it asked again.
    assert_eq!(log.opened.log.counters().epoch_changes, changes + 2);
}

#[test]
fn a_drive_that_could_not_take_a_slow_members_place_can_later() {
    for carries in [false, true] {
        let mut log = Carried::new(5, 64);
        let ([a, b, c, d], [e]) = (log.members[..].try_into().unwrap(), log.beside[..].try_into().unwrap());
        log.drive(e).write_protected = true;
        log.opened.log.relieve(b, &BTreeSet::from([b]));
        match carries {
            // With a group on its way, it refuses the group; without one, the flush that asks
            // whether it answers.
            true => log.pass(10),
            false => log.settle(),
        }
        assert_eq!(log.now(), sorted([a, b, c, d]));
        assert!(log.opened.log.state().unwanted.is_empty());
        log.drive(e).write_protected = false;
        log.opened.log.relieve(b, &BTreeSet::from([b]));
        log.settle();
        assert_eq!(log.now(), sorted([a, c, d, e]));
    }
}

#[test]
fn a_lost_member_goes_also_where_a_slow_one_must_stay() {
    let mut log = Carried::new(4, 65);
    let [a, b, c, d] = log.members[..].try_into().unwrap();
    log.opened.log.change().unwanted.insert(a);
    log.lose(b);
    log.settle();
    assert_eq!(log.now(), sorted([a, c, d]));
    assert_eq!(log.opened.log.stopped(), None);
}

/// A drive may be asked to leave while the change that leaves it out is being agreed on.
#[test]
fn a_wish_that_a_drive_leaves_ends_when_it_carries_nothing() {
    let mut log = Carried::new(5, 66);
    let ([a, b, c, d], [e]) = (log.members[..].try_into().unwrap(), log.beside[..].try_into().unwrap());
    log.drive(e).write_protected = true;
    log.lose(b);
    log.pass(10);
    assert_eq!(log.now(), sorted([a, c, d]));
    log.drive(e).write_protected = false;
    log.opened.log.change().unwanted.insert(e);
    let own = log.opened.log.clone();
    let replenish = async move { own.replenish().await.map(|()| own.members().0.len()) };
    let ended = log.bench.test_drives.finish(&log.opened.tasks, &log.opened.io, replenish);
    assert_eq!(ended, Some(Ok(3)), "it is not asked as long as the wish holds");
    assert_eq!(log.now(), sorted([a, c, d, e]));
}

#[test]
fn a_drive_that_is_about_to_carry_the_log_can_leave_it() {
    let mut log = Carried::new(6, 67);
    let [a, b, c, d] = log.members[..].try_into().unwrap();
    log.lose(b);
    let chosen = membership::choose(&log.opened.labels, &[a, c, d], &BTreeSet::from([b]));
    let successor = *chosen.last().expect("another drive");
    // The change has begun, and this drive is no member yet.
    assert!(!log.now().contains(&successor));
    let own = log.opened.log.clone();
    let leave = async move { own.leave(successor).await.map(|()| own.members().0.contains(&successor)) };
    let left = log.bench.test_drives.finish(&log.opened.tasks, &log.opened.io, leave);
    assert_eq!(left, Some(Ok(false)));
    log.settle();
    assert!(log.now().len() == 4 && !log.now().contains(&successor), "{:?}", log.now());
}

#[test]
fn a_member_that_is_lost_while_another_is_replaced_is_replaced_too() {
    for moment in 0..40 {
        let mut log = Carried::new(7, 68);
        let [_, b, c, _] = log.members[..].try_into().unwrap();
        log.lose(b);
        log.bench.test_drives.cut_at = Some(log.bench.test_drives.operations + moment);
        log.settle();
        log.bench.test_drives.cut_at = None;
        log.lose(c);
        log.settle();
        // Although nothing is appended: what is in the log would lie on one drive less for long.
        let now = log.now();
        assert!(now.len() == 4 && !now.contains(&b) && !now.contains(&c), "after {moment} operations: {now:?}");
    }
}

#[test]
fn a_change_of_members_asks_for_a_checkpoint() {
    let mut log = Carried::new(6, 69);
    let asked = Rc::new(Cell::new(false));
    let (own, noted) = (log.opened.log.clone(), Rc::clone(&asked));
    log.opened.tasks.spawn(async move {
        own.pressure().await;
        noted.set(true);
    });
    log.settle();
    assert!(!asked.get());
    log.lose(log.members[1]);
    log.settle();
    // What is in the log lies on three drives until it is trimmed.
    assert!(log.opened.log.is_thin() && asked.get());
}

/// A group that lands later than a change, and than the next one, would be acknowledged when
/// members hold it that no opening would ask.
#[test]
fn no_drive_takes_over_before_what_is_under_way_has_landed() {
    let mut log = Carried::new(6, 70);
    let requests = |log: &Carried| {
        let mut out = Vec::new();
        log.opened.tasks.run_ready();
        log.opened.io.drain(&mut out);
        out.into_iter()
            .map(|action| match action {
                crate::model::Action::Drive { drive, request } => (drive, request),
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    log.append();
    let mut under_way = requests(&log);
    assert_eq!(under_way.len(), 4);
    log.lose(log.members[1]);
    while let Some((drive, request)) = under_way.pop() {
        assert_eq!(requests(&log).len(), 0, "with {} writes under way", under_way.len() + 1);
        let completion = stele_media::Completion { tag: request.tag, op: request.op, result: Ok(()) };
        log.opened.io.complete(drive, completion);
    }
    let next: Vec<usize> = requests(&log).iter().map(|(drive, _)| *drive).collect();
    assert!(next.iter().all(|drive| log.beside.contains(&DriveNumber(*drive as u16))) && next.len() == 1, "{next:?}");
}

#[test]
fn members_that_take_the_log_again_have_all_that_was_under_way() {
    for refused in [2, 3] {
        let mut log = Carried::new(5, 71);
        let [a, b, _, _] = log.members[..].try_into().unwrap();
        let record = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![7; 70_000].into()] };
        let mut last = Lsn(0);
        for _ in 0..2 {
            let mut paid = log.opened.log.try_reserve(log.opened.log.cost(&record), Purpose::Host).expect("room");
            log.bench.twin.push(record.clone());
            last = log.opened.log.append(&record, &mut paid);
            log.opened.tasks.run_ready();
        }
        assert_eq!(log.opened.log.state().flights.len(), 2);
        // Two members fail, and so does the drive beside them: too few are left.
        log.drive(a).refuses = refused;
        log.drive(b).refuses = 2;
        log.drive(log.beside[0]).refuses = 1;
        let own = log.opened.log.clone();
        let durable = log.bench.test_drives.finish(&log.opened.tasks, &log.opened.io, async move {
            own.durable(last).await?;
            Ok::<_, ArrayError>(own.state().flights.len())
        });
        assert_eq!(durable, Some(Ok(0)), "{refused} requests refused");
        let before = log.now();
        // Any of the members has all of it.
        let Carried { mut bench, opened, .. } = log;
        drop(opened);
        bench.acknowledged = last.0;
        bench.test_drives.cut();
        let gone = before.iter().filter(|drive| ![a, b].contains(drive)).take(1);
        gone.for_each(|drive| bench.test_drives.drives[usize::from(drive.0)].gone = true);
        drop(bench.open().expect("no cut").expect("opens"));
    }
}
