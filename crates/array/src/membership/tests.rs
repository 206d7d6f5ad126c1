//! Drives that come and go at awkward moments.

use crate::testing::{Bed, pattern, spec};
use crate::{DriveHealth, State};

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
