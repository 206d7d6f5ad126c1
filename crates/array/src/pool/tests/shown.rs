//! What a read has shown is not taken back by a power cut.

use stele_media::{Buffer, Op, Priority, Request};

use crate::model::{Command, Event};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

#[test]
fn what_a_read_shows_of_a_stripe_under_way_outlives_a_power_cut() {
    const STRIPE: usize = 64 << 10;
    let mut shown = 0;
    for moment in 0..200 {
        let mut fixture = Fixture::new(6, 6, moment);
        let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
        let (old, new) = (pattern(1, STRIPE), pattern(2, STRIPE));
        fixture.write(volume, 0, &old).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened, with nothing cached");
        // A whole stripe goes to a new slot; its tag is that of an operation which was answered
        // long ago.
        let op = Op::Write { at: 0, data: vec![Buffer::copy_of(&new).freeze()], fua: false };
        let request = Request { tag: 0, op, priority: Priority::Host, deadline: None };
        fixture.pool.event(Event::Submit { volume, request });
        fixture.run_operations(moment % 40);
        let first = match fixture.read(volume, 0, 4096) {
            Ok(first) => first,
            // The write was answered first.
            Err(NoAnswer::Silence) => continue,
            Err(other) => panic!("moment {moment}: {other:?}"),
        };
        fixture.test_drives.cut_bare();
        fixture.open().expect("opened");
        let again = fixture.read(volume, 0, 4096).expect("read");
        if first == new[..4096] {
            shown += 1;
            assert!(again == first, "moment {moment}: what was read is gone");
        } else {
            assert!(first == old[..4096], "moment {moment}");
            assert!(again == first || again == new[..4096], "moment {moment}");
        }
    }
    assert!(shown > 0, "no read came after the mapping and before the answer");
}

#[test]
fn a_part_of_a_stripe_that_is_being_zeroed_is_zero_after_a_power_cut_once_that_is_answered() {
    const STRIPE: usize = 64 << 10;
    let mut early = 0;
    for moment in 0..200 {
        let mut fixture = Fixture::new(6, 6, moment);
        let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
        fixture.write(volume, 0, &pattern(1, STRIPE)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        let zero = |length| Op::Zero { at: 0, length };
        let request = Request { tag: 0, op: zero(STRIPE as u64), priority: Priority::Host, deadline: None };
        fixture.pool.event(Event::Submit { volume, request });
        fixture.run_operations(moment % 40);
        let (_, answers) = fixture.submit_all(volume, vec![zero(4096)]);
        let Some(Some((_, Ok(())))) = answers.into_iter().next() else { continue };
        early += 1;
        fixture.test_drives.cut_bare();
        fixture.open().expect("opened");
        assert!(
            fixture.read(volume, 0, 4096).expect("read") == [0; 4096],
            "moment {moment}: what was answered is gone"
        );
    }
    assert!(early > 0, "none was answered");
}
