//! A member that slows the log down makes way for another drive, where there is one.

use super::*;

/// Nothing of the log is on its way to another drive.
fn is_left_alone(log: &Log) -> bool {
    let state = log.state();
    !state.changing && state.unwanted.is_empty()
}

#[test]
fn a_slow_member_makes_way_for_the_drive_that_is_left() {
    let Carried { mut bench, opened, members, beside } = Carried::new(5, 51);
    assert_eq!((members.len(), beside.len()), (4, 1));
    opened.log.relieve(members[1], &BTreeSet::from([members[1]]));
    bench.test_drives.run(&opened.tasks, &opened.io);
    let (now, _) = opened.log.members();
    let expected: Vec<DriveNumber> = [members[0], members[2], members[3], beside[0]].into();
    assert_eq!(now, expected);
    assert!(is_left_alone(&opened.log) && opened.log.stopped().is_none());
    // It carries on, and later openings find everything.
    bench.work(&opened, 20);
    bench.test_drives.cut();
    drop(bench.open().expect("no cut").expect("opens"));
}

#[test]
fn a_drive_that_does_not_carry_the_log_is_nothing_to_relieve() {
    let Carried { opened, beside, .. } = Carried::new(6, 52);
    opened.log.relieve(beside[0], &BTreeSet::new());
    assert!(is_left_alone(&opened.log));
}

#[test]
fn a_slow_member_stays_where_no_other_drive_is_left() {
    // Whether or not the caller says that the slow one itself is to be avoided.
    for avoid in [true, false] {
        let Carried { opened, members, .. } = Carried::new(4, 53);
        let avoid = members.iter().copied().filter(|_| avoid).take(1).collect();
        opened.log.relieve(members[0], &avoid);
        assert!(is_left_alone(&opened.log));
    }
    // The only drive beside the members is one to be avoided.
    let Carried { opened, members, beside, .. } = Carried::new(5, 54);
    opened.log.relieve(members[0], &BTreeSet::from([beside[0]]));
    assert!(is_left_alone(&opened.log));
}

#[test]
fn a_slow_member_does_not_make_way_for_a_drive_with_an_old_label() {
    let Carried { mut bench, opened, members, beside } = Carried::new(5, 55);
    let spare = usize::from(beside[0].0);
    bench.test_drives.drives[spare].write_protected = true;
    let labels = opened.labels.clone();
    let commit = async move { labels.commit(|_| ()).await };
    bench.test_drives.finish(&opened.tasks, &opened.io, commit).expect("no cut").expect("a majority takes it");
    bench.test_drives.drives[spare].write_protected = false;
    assert!(opened.labels.usable().contains(&beside[0]) && !opened.labels.is_up_to_date(beside[0]));
    opened.log.relieve(members[0], &BTreeSet::new());
    assert!(is_left_alone(&opened.log));
}

#[test]
fn while_a_member_is_being_replaced_none_makes_way() {
    let Carried { mut bench, opened, members, .. } = Carried::new(7, 56);
    opened.log.relieve(members[0], &BTreeSet::new());
    opened.log.relieve(members[1], &BTreeSet::new());
    assert_eq!(opened.log.state().unwanted, BTreeSet::from([members[0]]));
    bench.test_drives.run(&opened.tasks, &opened.io);
    let (now, _) = opened.log.members();
    assert!(!now.contains(&members[0]) && now.contains(&members[1]), "{now:?}");
}

#[test]
fn an_opening_reads_little_of_a_member_that_made_way() {
    // Its older groups fill more than one window of a reader.
    let Carried { mut bench, opened, members, .. } = Carried::with_ring(5, 8 * MIB, 57);
    bench.work(&opened, 250);
    opened.log.relieve(members[1], &BTreeSet::from([members[1]]));
    bench.test_drives.run(&opened.tasks, &opened.io);
    // From here on it lacks every group, and the labels still name it as a member of older ones.
    let start = opened.log.state().head;
    for _ in 0..40 {
        bench.work(&opened, 1);
    }
    let end = opened.log.state().head;
    assert!(start > ring::CHUNK && end > start && end + group::total_max(bench.ring) <= bench.ring);
    bench.test_drives.cut();
    let opened = bench.open().expect("no cut").expect("opens");
    let found = &opened.recovery;
    assert!(found.groups > 30 && found.damaged.is_empty(), "{found:?}");
    let read = opened.io.counters(usize::from(members[1].0)).read_bytes;
    assert!(read <= 3 * bench.ring, "{read} bytes of a ring of {} were read", bench.ring);
}
