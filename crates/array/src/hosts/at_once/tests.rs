//! Which writes get no task, and how they are answered.

use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::{Buffer, Op, Priority, Request};

use crate::model::{Command, Event, VolumeSpec, WriteMode};
use crate::testing::{Fixture, pattern, spec};

const STRIPE: u64 = 256 << 10;
const BYTES: u64 = BLOCK as u64;

fn write(at: u64, length: u64, seed: u64) -> Op {
    Op::Write { at, data: vec![Buffer::copy_of(&pattern(seed, length as usize)).freeze()], fua: false }
}

/// A volume of 4+2 with four mapped stripes, and others.
fn begin(mode: WriteMode) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::new(8, 8, 9);
    let volume = fixture
        .create_volume(VolumeSpec { mode, block: Bytes(512), strip: Bytes(STRIPE / 4), ..spec("a", "4+2", 4 << 20) })
        .id;
    fixture.write(volume, 0, &pattern(1, 4 * STRIPE as usize)).expect("written");
    fixture.idle();
    (fixture, volume)
}

#[test]
fn a_write_that_waits_for_nothing_gets_no_task() {
    let cases = [
        ("a block", WriteMode::WriteBack, 5 * BYTES, BYTES, true),
        ("blocks up to the end of the stripe", WriteMode::WriteBack, STRIPE - 3 * BYTES, 3 * BYTES, true),
        ("the first blocks of a stripe, of which the others may follow", WriteMode::WriteBack, 0, 4 * BYTES, false),
        ("the first block, which is too short for that", WriteMode::WriteBack, 0, BYTES, true),
        ("blocks of two stripes", WriteMode::WriteBack, STRIPE - BYTES, 2 * BYTES, false),
        ("a whole stripe", WriteMode::WriteBack, STRIPE, STRIPE, false),
        ("half a stripe", WriteMode::WriteBack, STRIPE, STRIPE / 2, false),
        ("part of a block", WriteMode::WriteBack, 5 * BYTES + 512, 512, false),
        ("a stripe without a slot", WriteMode::WriteBack, 6 * STRIPE + BYTES, BYTES, false),
        ("a volume that writes through", WriteMode::WriteThrough, 5 * BYTES, BYTES, false),
    ];
    for (name, mode, at, length, expected) in cases {
        let (mut fixture, volume) = begin(mode);
        let op = write(at, length, 2);
        let request = Request { tag: 1 << 40, op, priority: Priority::Host, deadline: None };
        fixture.pool.event(Event::Submit { volume, request });
        assert_eq!(fixture.engine().unanswered.first().is_some(), expected, "{name}");
        fixture.idle();
        assert!(fixture.engine().unanswered.first().is_none(), "{name}: it was answered");
        let read = fixture.read(volume, at, length as usize).expect("read");
        assert!(read == pattern(2, length as usize), "{name}");
    }
}

#[test]
fn writes_without_a_task_are_refused_when_the_log_stops() {
    let (mut fixture, volume) = begin(WriteMode::WriteBack);
    let ops = (0..6).map(|number| write((1 + 3 * number) * BYTES, BYTES, number)).collect();
    let (_, answers) = fixture.submit_all_and(volume, ops, |drives, _| {
        drives.drives.iter_mut().for_each(|drive| drive.gone = true);
    });
    assert_eq!(answers.len(), 6);
    for answer in answers {
        let (_, result) = answer.expect("every write is answered");
        assert!(result.is_err(), "{result:?}");
    }
    let engine = fixture.engine();
    assert!(engine.unanswered.first().is_none() && engine.log.stopped().is_some());
}

#[test]
fn a_write_waits_while_the_volume_is_stopped_for_a_snapshot() {
    let (mut fixture, volume) = begin(WriteMode::WriteBack);
    let engine = fixture.engine();
    let handle =
        engine.look(|core| core.volumes.by_handle(volume)).and_then(|layer| layer.handle()).expect("it is there");
    let stopped = futures_util::FutureExt::now_or_never(handle.stop_writes()).expect("no write is under way");
    let request = Request { tag: 1 << 40, op: write(BYTES, BYTES, 3), priority: Priority::Host, deadline: None };
    fixture.pool.event(Event::Submit { volume, request });
    assert!(engine.unanswered.first().is_none(), "it waits for the permit");
    drop(stopped);
    drop((engine, handle));
    fixture.idle();
    assert!(fixture.read(volume, BYTES, BLOCK).expect("read") == pattern(3, BLOCK));
    fixture.command(Command::Close).expect("closed");
}
