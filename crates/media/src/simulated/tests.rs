use stele_ground::{BLOCK, Duration, MIB};

use super::*;
use crate::conformance::{self, Subject};
use crate::{Buffer, Op, Shared};

struct Under {
    drive: SimulatedDrive,
    dice: Dice,
}

impl Subject for Under {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.drive
    }
    fn cut_power(&mut self) -> bool {
        self.drive.power_cut(&mut self.dice);
        true
    }
}

fn drive(block: u64, tear: u64, seed: u64) -> SimulatedDrive {
    let geometry = Geometry { size: Bytes(5 * MIB), block: Bytes(block) };
    SimulatedDrive::new(geometry, Bytes(tear), Box::new(Plain::flash(Dice::new(seed))))
}

#[test]
fn conforms() {
    for seed in 0..6 {
        for (block, tear) in [(512, 512), (4096, 512), (4096, 4096)] {
            conformance::check(&format!("simulated {block}/{tear}"), seed, &mut |seed| {
                Box::new(Under { drive: drive(block, tear, seed), dice: Dice::new(seed) })
            });
        }
    }
}

fn page(byte: u8) -> Vec<Shared> {
    vec![Shared::from(vec![byte; BLOCK])]
}

fn run(drive: &mut SimulatedDrive, op: Op) -> Op {
    submit(drive, op);
    settle(drive).pop().expect("it was submitted").op
}

fn submit(drive: &mut SimulatedDrive, op: Op) {
    drive.submit(Request { tag: 1, op, priority: crate::Priority::Host, deadline: None });
}

fn settle(drive: &mut SimulatedDrive) -> Vec<Completion> {
    let mut finished = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.reap(at, &mut finished);
    }
    finished
}

fn first_byte(drive: &SimulatedDrive, page: u64) -> u8 {
    drive.platter().page(page).map_or(0, |content| content[0])
}

#[test]
fn a_cut_can_leave_any_version_since_the_flush_and_nothing_older() {
    let mut seen = [false; 5];
    for seed in 0..200 {
        let mut drive = drive(4096, 4096, seed);
        let write = |byte| Op::Write { at: 0, data: page(byte), fua: false };
        run(&mut drive, write(1));
        run(&mut drive, write(2));
        run(&mut drive, Op::Flush);
        run(&mut drive, write(3));
        submit(&mut drive, write(4));
        drive.power_cut(&mut Dice::new(seed));
        seen[first_byte(&drive, 0) as usize] = true;
    }
    assert_eq!(seen, [false, false, true, true, true]);
}

#[test]
fn a_flush_does_not_cover_what_completed_after_it_was_submitted() {
    let mut drive = drive(4096, 4096, 1);
    run(&mut drive, Op::Write { at: 0, data: page(1), fua: false });
    submit(&mut drive, Op::Write { at: 4096, data: page(2), fua: false });
    submit(&mut drive, Op::Flush);
    settle(&mut drive);
    let places = drive.prepare_power_cut();
    assert_eq!(places, [Unsettled { page: 1, sector: 0, choices: 2 }]);
}

#[test]
fn a_fua_write_is_not_undone_by_an_older_write_that_becomes_durable_later() {
    let mut drive = drive(512, 512, 1);
    let sector = |byte| vec![Shared::from(vec![byte; 512])];
    run(&mut drive, Op::Write { at: 0, data: page(1), fua: false });
    run(&mut drive, Op::Write { at: 0, data: sector(2), fua: true });
    assert_eq!(first_byte(&drive, 0), 2);
    run(&mut drive, Op::Flush);
    let content = drive.platter().page(0).expect("written");
    assert_eq!([content[0], content[511], content[512], content[4095]], [2, 2, 1, 1]);
}

#[test]
fn tears_at_its_unit_and_nowhere_else() {
    for (tear, torn_expected) in [(512, true), (4096, false)] {
        let mut torn = false;
        for seed in 0..64 {
            let mut drive = drive(4096, tear, seed);
            run(&mut drive, Op::Write { at: 0, data: page(7), fua: false });
            drive.power_cut(&mut Dice::new(seed));
            let content = platter::bytes_of(drive.platter().page(0).as_ref());
            for sector in content.chunks(SECTOR) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            }
            torn |= content.iter().any(|byte| *byte != content[0]);
        }
        assert_eq!(torn, torn_expected, "tear {tear}");
    }
}

#[test]
fn an_unplugged_drive_answers_everything_with_gone_and_keeps_its_content() {
    let mut drive = drive(4096, 4096, 1);
    run(&mut drive, Op::Write { at: 0, data: page(1), fua: true });
    submit(&mut drive, Op::Write { at: 0, data: page(2), fua: false });
    drive.unplug();
    submit(&mut drive, Op::Flush);
    let finished = settle(&mut drive);
    assert_eq!(finished.len(), 2);
    for completion in finished {
        assert_eq!(completion.result.map_err(|error| error.fault), Err(MediaFault::Gone));
    }
    drive.plug();
    let Op::Read { buffer, .. } = run(&mut drive, Op::Read { at: 0, buffer: Buffer::zeroed(BLOCK) }) else { panic!() };
    assert_eq!(buffer[0], 1);
}

#[test]
fn an_image_brings_the_drive_back_to_what_it_was() {
    let mut drive = drive(4096, 4096, 1);
    run(&mut drive, Op::Write { at: 0, data: page(1), fua: false });
    let image = drive.image();
    assert_eq!(drive.platter().hash(), 0, "nothing is durable yet");
    run(&mut drive, Op::Write { at: 0, data: page(2), fua: true });
    assert_ne!(drive.platter().hash(), image.hash());
    drive.restore(image.clone());
    assert_eq!(drive.platter().hash(), image.hash());
    drive.flip(9, 0x10);
    assert_eq!(drive.platter().page(0).expect("written")[8..11], [1, 0x11, 1]);
}

#[test]
fn one_seed_is_one_run() {
    let run_once = || {
        let mut drive = drive(512, 512, 5);
        let mut dice = Dice::new(6);
        for round in 0..400u64 {
            submit(&mut drive, Op::Write { at: dice.below(64) * 4096, data: page(round as u8), fua: dice.one_in(9) });
            if dice.one_in(20) {
                submit(&mut drive, Op::Flush);
            }
            drive.advance(Instant(round * 30_000));
        }
        drive.power_cut(&mut dice);
        drive.platter().hash()
    };
    assert_eq!(run_once(), run_once());
}

#[test]
fn commands_overlap_up_to_the_channels_and_take_what_the_model_says() {
    let mut model = Plain::flash(Dice::new(1));
    (model.channels, model.jitter) = (2, Duration(0));
    let mut drive =
        SimulatedDrive::new(Geometry { size: Bytes(MIB), block: Bytes(4096) }, Bytes(4096), Box::new(model));
    for n in 0..4 {
        submit(&mut drive, Op::Read { at: n * 4096, buffer: Buffer::zeroed(4096) });
    }
    let mut times = Vec::new();
    let mut finished = Vec::new();
    while let Some(at) = drive.next_event() {
        drive.reap(at, &mut finished);
        times.push((at.0, finished.len()));
    }
    let each = 60_000 + 4096 * 1_000_000_000 / 400_000_000;
    let expected: Vec<(u64, usize)> = vec![(each, 2), (2 * each, 4)];
    assert_eq!(times, expected);
}
