use stele_lab::workload::Alignment;

use super::profile::{Machine, profile};
use super::*;
use crate::published::{self, Printed};
use crate::recipe::ds4500::{RESPONSE, array_of, goal, spec_of};
use stele_lab::modelled::{Answer, Effort, Maker, Query, ask};

fn cell(table: &str, drives: u64, cached: bool, workload: &str, size: u64) -> Printed {
    let all = published::rated();
    let found = all.into_iter().find(|cell| {
        (cell.table.as_str(), cell.drives, cell.cached, cell.workload.as_str(), cell.size)
            == (table, drives, cached, workload, Some(size))
    });
    found.expect("the cell is published")
}

fn asked(cell: &Printed) -> Answer {
    let (array, effort) = (array_of(cell, Maker::Ds4500), Effort::SMALL);
    let mut running = profile(&array, Machine::PUBLISHED, &spec_of(cell).unwrap(), Alignment::Request);
    let start = (cell.rate.unwrap() * RESPONSE.as_secs_f64()) as u64;
    ask(running.as_mut(), &Query::Highest { goal: goal(start, effort), curve: false }, effort, &|| true).unwrap()
}

fn rate(cell: &Printed) -> f64 {
    asked(cell).highest.unwrap().rate
}

#[test]
fn twenty_drives_read_at_random_as_was_published() {
    let cell = cell("Table 4", 20, false, "random_read", 8192);
    assert!((rate(&cell) / cell.rate.unwrap() - 1.0).abs() < 0.06, "{}", rate(&cell));
    let busy = asked(&cell).nearest().unwrap().rounds[0].busy;
    assert!(busy.controllers.unwrap() < 0.5 && busy.drives > 0.9, "{busy:?}");
}

#[test]
fn the_same_cell_gives_the_same_digits_twice() {
    let cell = cell("Table 1", 20, true, "oltp", 4096);
    assert_eq!(rate(&cell).to_bits(), rate(&cell).to_bits());
}

#[test]
fn a_small_raid_5_write_is_four_commands_to_the_drives_and_a_mirrored_one_is_two() {
    for (level, commands) in [(Level::Raid5, 4.0), (Level::Raid10, 2.0)] {
        let charge = Charge { command_nanos: 1_000_000.0, kib_nanos: 0.0 };
        let profile = Profile {
            level,
            drives: 10,
            cached: false,
            stroke: 0.08,
            drive: HardDriveSpec::published_15k(),
            charge,
            cache: 0,
            seed: 1,
        };
        let mut machine = Ds4500::new(profile);
        let mut finished = Vec::new();
        machine.submit(Instant(0), 9, Access { target: 0, at: 8192, length: 4096, write: true }).unwrap();
        while let Some(at) = machine.next_event() {
            machine.advance(at, &mut finished).unwrap();
        }
        assert_eq!(finished, [9]);
        assert!(
            (machine.controllers_worked().unwrap() * 1000.0 - commands).abs() < 1e-9,
            "{}",
            machine.controllers_worked().unwrap()
        );
    }
}

#[test]
fn a_full_write_cache_makes_writes_wait_for_the_drives() {
    let profile = Profile {
        level: Level::Raid10,
        drives: 10,
        cached: true,
        stroke: 0.08,
        drive: HardDriveSpec::published_15k(),
        charge: Charge::NONE,
        cache: 8 * 4096,
        seed: 1,
    };
    let mut machine = Ds4500::new(profile);
    for tag in 0..9 {
        let access = Access { target: 0, at: tag * (1 << 20), length: 4096, write: true };
        machine.submit(Instant(0), tag, access).unwrap();
    }
    let mut finished = Vec::new();
    machine.advance(Instant(MEMORY.0), &mut finished).unwrap();
    assert_eq!(finished.len(), 8, "the cache takes eight, the ninth waits");
    while let Some(at) = machine.next_event() {
        machine.advance(at, &mut finished).unwrap();
    }
    assert_eq!(finished.len(), 9);
    assert_eq!((machine.dirty_bytes, machine.held.len()), (0, 0));
}
