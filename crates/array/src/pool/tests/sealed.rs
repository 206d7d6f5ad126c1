//! An acknowledged group of the log that no replica has any more is never cut off in silence.

use stele_ground::VolumeId;

use crate::drives::label::LOG_AT;
use crate::durable::log::group::Header;
use crate::model::ArrayError;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

/// The headers in a drive's ring, with their places.
pub fn groups(fixture: &Fixture, drive: usize) -> Vec<(u64, Header)> {
    let ring = fixture.test_drives.peek(drive, LOG_AT, 8 << 20);
    let blocks = ring.chunks(4096).enumerate();
    blocks.filter_map(|(at, block)| Some((at as u64 * 4096, Header::decode(block)?))).collect()
}

fn written() -> (Fixture, VolumeId) {
    let mut fixture = Fixture::new(8, 8, 60);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    for number in 0..20u64 {
        fixture.write(volume, number * 8192, &pattern(number, 4096)).expect("written");
    }
    (fixture, volume)
}

fn refused_naming(fixture: &mut Fixture, members: &[usize]) {
    match fixture.crash() {
        Err(NoAnswer::Array(ArrayError::Damaged(message))) => {
            assert!(message.contains("was acknowledged"), "{message}");
            for member in members {
                assert!(message.contains(&format!("drive {member}")), "{message} does not name drive {member}");
            }
        }
        other => panic!("expected a refusal, not {other:?}"),
    }
}

#[test]
fn the_last_acknowledged_group_damaged_on_every_member_is_refused_once_the_pool_was_idle() {
    let (mut fixture, _) = written();
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("open").engine);
    let newest = engine.log.next_lsn().0 - 1;
    let members: Vec<usize> = engine.log.members().0.iter().map(|member| usize::from(member.0)).collect();
    drop(engine);
    // Idle for a moment only: no destage has begun.
    fixture.pass(stele_ground::Duration::from_millis(400));
    let holds = |header: &Header| (header.first.0..header.first.0 + u64::from(header.count)).contains(&newest);
    for drive in 0..8 {
        for (at, header) in groups(&fixture, drive).into_iter().filter(|(_, header)| holds(header)) {
            fixture.test_drives.damage(drive, LOG_AT + at + 100, 8.min(header.total()));
        }
    }
    refused_naming(&mut fixture, &members);
}

#[test]
fn a_wiped_log_is_refused_naming_its_drives() {
    let (mut fixture, _) = written();
    let members = fixture.pool.serving().expect("open").engine.log.members().0;
    let members: Vec<usize> = members.iter().map(|member| usize::from(member.0)).collect();
    for drive in 0..8 {
        fixture.test_drives.erase(drive, LOG_AT, 8 << 20);
    }
    refused_naming(&mut fixture, &members);
}

#[test]
fn a_busy_log_is_not_sealed_and_an_idle_one_once_for_what_came() {
    let (mut fixture, volume) = written();
    let count = |fixture: &Fixture| fixture.pool.serving().expect("open").engine.log.counters().records;
    let before = count(&fixture);
    for number in 0..50u64 {
        fixture.write(volume, number * 8192, &pattern(number, 4096)).expect("written");
    }
    assert_eq!(count(&fixture), before + 50, "nothing but the writes");
    fixture.pass(stele_ground::Duration::from_millis(400));
    assert_eq!(count(&fixture), before + 51, "sealed");
    fixture.pass(stele_ground::Duration::from_millis(800));
    assert_eq!(count(&fixture), before + 51, "once");
    fixture.write(volume, 0, &pattern(50, 4096)).expect("written");
    fixture.pass(stele_ground::Duration::from_millis(400));
    assert_eq!(count(&fixture), before + 53, "sealed again behind what came since");
}
