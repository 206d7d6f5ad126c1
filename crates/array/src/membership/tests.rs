//! Drives that come and go at awkward moments.

use stele_media::{Buffer, Op};

use crate::testing::{Bed, pattern, spec};
use crate::{Command, DriveHealth, Event, State};

#[test]
fn a_drive_that_leaves_while_the_pool_opens_is_missed_and_may_come_back() {
    let mut left_while_opening = 0;
    for moment in 1..40 {
        let mut bed = Bed::new(6, 6, moment);
        let volume = bed.create_volume(spec("a", "2+1", 4 << 20)).id;
        let data = pattern(3, 1 << 20);
        bed.write(volume, 0, &data).expect("written");
        bed.yard.cut();
        bed.begin_to_open();
        bed.run_operations(moment * 2);
        if *bed.pool.state() != State::Starting {
            break;
        }
        left_while_opening += 1;
        bed.pull(&[5]);
        bed.settle().expect("opened without the drive");
        assert_eq!(bed.status().drives[5].health, DriveHealth::Missing, "moment {moment}");
        bed.give_back(5);
        bed.idle();
        assert_eq!(bed.status().drives[5].health, DriveHealth::Healthy, "moment {moment}: {:?}", bed.alarms);
        bed.scrub();
        assert!(bed.read(volume, 0, 1 << 20).expect("read") == data, "moment {moment}");
    }
    assert!(left_while_opening > 5, "{left_while_opening}");
}

#[test]
fn a_write_that_lost_its_drives_is_answered_when_the_pool_becomes_read_only() {
    let mut bed = Bed::new(4, 4, 2);
    let volume = bed.create_volume(spec("a", "2+1", 4 << 20)).id;
    bed.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    // Half of the drives go while a whole stripe is on its way: no majority can agree on their loss.
    let write = |at: u64| Op::Write { at, data: vec![Buffer::copy_of(&pattern(at, 32 << 10)).freeze()], fua: false };
    let (_, answers) = bed.submit_all_and(volume, (0..8).map(|at| write(at * (32 << 10))).collect(), |yard, pool| {
        for drive in [2, 3] {
            yard.drives[drive].gone = true;
            pool.event(Event::Detach { drive });
        }
    });
    assert!(answers.iter().all(Option::is_some), "{answers:?}");
    bed.idle();
    assert!(bed.status().read_only);
}

#[test]
fn a_drive_that_dies_under_the_redo_images_does_not_keep_the_pool_from_opening() {
    for moment in 1..200 {
        let mut bed = Bed::new(6, 6, 3);
        let volume = bed.create_volume(spec("a", "2+1", 4 << 20)).id;
        bed.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
        bed.command(Command::Checkpoint).expect("a checkpoint");
        // In-place destages under way when the power goes.
        for at in 0..16 {
            bed.write(volume, at << 15, &pattern(at, 8 << 10)).expect("written");
        }
        bed.yard.cut_at = Some(bed.yard.operations + 60 + moment % 20);
        let _ = bed.command(Command::Checkpoint);
        bed.yard.cut();
        bed.begin_to_open();
        bed.run_operations(moment);
        if *bed.pool.state() != State::Starting {
            break;
        }
        bed.pull(&[moment as usize % 6]);
        assert_eq!(bed.settle(), Ok(()), "moment {moment}");
    }
}
