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
