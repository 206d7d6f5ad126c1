use super::crowding::Survey;
use super::*;
use crate::drives::label::{DriveEntry, DriveState};
use crate::formats::codec::{Reader, Writer};
use crate::formats::tables::ROW_ENTRY;
use crate::model::DigestUnit;
use crate::model::place::SlotId;
use crate::space::Space;
use stele_ground::{Bytes, DriveId, KIB, MIB, PoolId};

/// Drives of so many units of 1 MiB, two to an enclosure.
fn configuration(drives: usize, units: u64, spare_drives: u32) -> Configuration {
    let drive = |at: usize| DriveEntry {
        identity: DriveId([at as u8; 16]),
        enclosure: at as u32 / 2,
        size: Bytes((12 + units) * MIB + 128 * KIB),
        leaving: false,
        state: DriveState::Active,
        joined: 1,
    };
    Configuration {
        pool: PoolId([1; 16]),
        name: "layout".to_owned(),
        created: 0,
        features: Default::default(),
        epoch: 1,
        seed: 42,
        unit_size: Bytes(MIB),
        log_size: Bytes(8 * MIB),
        spare_drives,
        tolerates: 2,
        drives: (0..drives).map(drive).collect(),
        log: Vec::new(),
        protected: false,
        clean: false,
        growing: false,
        settled: 0,
        overrides: Vec::new(),
        shard: Default::default(),
        loss_accepted: false,
        rolling_back: None,
    }
}

fn class(code: &str) -> RowClass {
    RowClass::data(code.parse().expect("a code"), Bytes(64 * KIB), DigestUnit::Block)
}

fn fill(layout: &mut Layout, class: RowClass) -> usize {
    let mut rows = 0;
    while let Some(row) = layout.choose_row(class, &|_| true) {
        assert!(layout.within_enclosure_rule(&row), "{row:?}");
        layout.insert_row(row);
        rows += 1;
    }
    rows
}

/// The worst read load of any other drive, over the mean, when a drive is lost; the worst over all
/// drives.
fn rebuild_spread(layout: &Layout) -> f64 {
    let count = layout.drives.len();
    let spread = |lost: usize| {
        let loads: Vec<u32> =
            (0..count).filter(|other| *other != lost).map(|other| layout.together(lost, other)).collect();
        let mean = f64::from(loads.iter().sum::<u32>()) / loads.len() as f64;
        f64::from(loads.into_iter().max().unwrap_or(0)) / mean
    };
    (0..count).map(spread).fold(0.0, f64::max)
}

#[test]
fn rebuild_load_is_even_for_every_number_of_drives() {
    for (drives, code) in [
        (12, "8+2"),
        (13, "8+2"),
        (16, "8+2"),
        (20, "8+2"),
        (24, "8+2"),
        (36, "8+2"),
        (58, "8+2"),
        (60, "8+2"),
        (84, "8+2"),
        (120, "8+2"),
        (180, "8+2"),
        (24, "mirror-3"),
        (60, "4+2"),
    ] {
        // A third of what a drive would have by default is enough for the mean to be told from the
        // dice.
        let mut layout = Layout::new(&configuration(drives, if drives > 60 { 1300 } else { 2600 }, 2));
        let rows = fill(&mut layout, class(code));
        let spread = rebuild_spread(&layout);
        println!("{drives} drives, {code}: {rows} rows, worst rebuild load {spread:.3} of the mean");
        assert!(spread <= 1.15, "{drives} drives, {code}: {spread}");
    }
}

#[test]
fn rows_are_begun_early_only_where_room_is_plenty() {
    for (units, plenty) in [(20, true), (17, false)] {
        // Two spare drives of twenty leave nine tenths of the units.
        let layout = Layout::new(&configuration(20, units, 2));
        assert_eq!(layout.has_plenty(class("8+2"), 2), plenty, "{units} units");
    }
}

#[test]
fn every_drive_carries_parity_about_equally() {
    let mut layout = Layout::new(&configuration(14, 1000, 2));
    fill(&mut layout, class("8+2"));
    let mut parity = [0usize; 14];
    let mut all = [0usize; 14];
    for row in layout.rows() {
        for (at, member) in row.members.iter().enumerate() {
            let drive = usize::from(member.cell.drive.0);
            all[drive] += 1;
            parity[drive] += usize::from(at >= 8);
        }
    }
    for drive in 0..14 {
        let share = parity[drive] as f64 / all[drive] as f64;
        assert!((share - 0.2).abs() < 0.01, "drive {drive}: {share}");
    }
}

#[test]
fn ordinary_rows_leave_the_reserve_and_it_holds_the_lost_drives() {
    for (drives, spare, code) in [(12, 2, "8+2"), (24, 2, "8+2"), (24, 4, "4+2"), (8, 2, "mirror-2"), (30, 2, "16+3")] {
        let mut layout = Layout::new(&configuration(drives, 200, spare));
        let promised = layout.slots_left(class(code)) / 16;
        let rows = fill(&mut layout, class(code)) as u64;
        assert!(rows <= promised && rows * 100 >= promised * 97, "{code}: {rows} of {promised}");
        for drive in 0..drives {
            let units = layout.units(DriveNumber(drive as u16));
            assert!(units.used + units.reserved <= units.total);
        }
        // As many drives as are spare go at once, an enclosure after the other.
        let lost: Vec<DriveNumber> = (0..spare as u16).map(DriveNumber).collect();
        let alive = |drive: DriveNumber| !lost.contains(&drive);
        let mut unplaced = 0;
        for drive in &lost {
            for id in layout.rows_on(*drive) {
                let row = layout.row(id).expect("listed").clone();
                let member = row.members.iter().position(|member| member.cell.drive == *drive).expect("on it");
                match layout.choose_spare(id, member, &alive) {
                    Some(cell) => {
                        assert!(!row.uses(cell.drive), "a spare on a drive of the row");
                        layout.set_replacement(id, member, Some(cell));
                    }
                    None => unplaced += 1,
                }
            }
        }
        // 8+2 on 12 drives has no distinct drive left after a loss of two for no row at all: two
        // are free of each.
        assert_eq!(unplaced, 0, "{drives} drives, {code}");
        layout.check();
        for drive in &lost {
            for id in layout.rows_on(*drive) {
                let row = layout.row(id).expect("listed").clone();
                for (at, member) in row.members.iter().enumerate() {
                    if let Some(cell) = member.replacement {
                        layout.change_member(id, at, cell);
                    }
                }
            }
            assert_eq!(layout.units(*drive).used, 0);
        }
        layout.check();
    }
}

#[test]
fn a_spare_keeps_the_enclosure_rule_where_it_can() {
    let mut layout = Layout::new(&configuration(24, 60, 2));
    fill(&mut layout, class("8+2"));
    let ids: Vec<RowId> = layout.rows().map(|row| row.id).collect();
    let mut kept = 0;
    for id in &ids {
        let lost = layout.row(*id).expect("listed").members[3].cell.drive;
        if let Some(cell) = layout.choose_spare(*id, 3, &|drive| drive != lost) {
            layout.set_replacement(*id, 3, Some(cell));
            kept += usize::from(layout.within_enclosure_rule(layout.row(*id).expect("listed")));
            layout.set_replacement(*id, 3, None);
        }
    }
    assert_eq!(kept, ids.len());
}

#[test]
fn the_enclosure_rule_bends_only_where_it_must_and_says_so() {
    // Three shelves of eight: 8+2 cannot have at most two strips on each.
    let mut shelves = configuration(24, 60, 2);
    shelves.drives.iter_mut().enumerate().for_each(|(at, drive)| drive.enclosure = at as u32 / 8);
    let layout = Layout::new(&shelves);
    let row = layout.choose_row(class("8+2"), &|_| true).expect("there is room");
    let mut crowd = [0; 3];
    row.members.iter().for_each(|member| crowd[usize::from(member.cell.drive.0) / 8] += 1);
    crowd.sort_unstable();
    assert!(crowd.iter().all(|members| *members <= 4), "{crowd:?}");
    let judged = layout.judge(class("8+2").code).expect("it fits");
    assert!(judged[0].contains("enclosure"), "{judged:?}");
    let tight = Layout::new(&configuration(10, 60, 1));
    assert!(tight.judge(class("8+2").code).expect("it fits")[0].contains("rebuild onto"));
    assert!(Layout::new(&configuration(9, 60, 1)).judge(class("8+2").code).is_err());
    assert_eq!(Layout::new(&configuration(12, 60, 2)).judge(class("8+2").code), Ok(Vec::new()));
}

#[test]
fn choosing_changes_nothing_and_repeats() {
    let mut one = Layout::new(&configuration(20, 100, 2));
    let mut other = Layout::new(&configuration(20, 100, 2));
    for _ in 0..300 {
        let row = one.choose_row(class("8+2"), &|_| true);
        assert_eq!(row, one.choose_row(class("8+2"), &|_| true));
        assert_eq!(row, other.choose_row(class("8+2"), &|_| true));
        let Some(row) = row else { break };
        one.insert_row(row.clone());
        one.insert_row(row.clone());
        other.insert_row(row);
    }
    one.check();
}

#[test]
fn random_changes_agree_with_the_recount() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let mut layout = Layout::new(&configuration(14, 40, 2));
        let classes = [class("8+2"), class("mirror-3"), class("4+1")];
        for _ in 0..400 {
            let ids: Vec<RowId> = layout.rows().map(|row| row.id).collect();
            let id = dice.pick(&ids).copied();
            match (dice.below(5), id) {
                (0, Some(id)) => layout.remove_row(id),
                (1, Some(id)) => {
                    let member = dice.below(layout.row(id).expect("listed").members.len() as u64) as usize;
                    let cell = layout.choose_spare(id, member, &|_| true);
                    layout.set_replacement(id, member, cell);
                }
                (2, Some(id)) => {
                    let row = layout.row(id).expect("listed").clone();
                    if let Some(at) = row.members.iter().position(|member| member.replacement.is_some()) {
                        let cell = row.members[at].replacement.expect("just found");
                        layout.change_member(id, at, cell);
                    }
                }
                _ => {
                    let class = classes[dice.below(3) as usize];
                    if let Some(row) = layout.choose_row(class, &|_| true) {
                        layout.insert_row(row);
                    }
                }
            }
        }
        layout.check();
    }
}

#[test]
#[should_panic(expected = "has an owner")]
fn a_cell_is_never_given_twice() {
    let mut layout = Layout::new(&configuration(12, 40, 2));
    let row = layout.choose_row(class("8+2"), &|_| true).expect("room");
    layout.insert_row(row.clone());
    layout.insert_row(Row { id: RowId(9), ..row });
}

#[test]
fn drives_of_unlike_size_fill_alike() {
    let mut mixed = configuration(16, 400, 2);
    for drive in &mut mixed.drives[..4] {
        drive.size = Bytes(drive.size.0 + 400 * MIB);
    }
    let mut layout = Layout::new(&mixed);
    let rows = fill(&mut layout, class("4+2")) as u64;
    let free: u64 = (0..16).map(|at| layout.units(DriveNumber(at))).map(|u| u64::from(u.total - u.reserved)).sum();
    assert!(rows * 6 * 100 >= free * 97, "{rows} rows use {} of {free} units", rows * 6);
    layout.check();
}

#[test]
fn a_row_survives_its_encoding() {
    let mut layout = Layout::new(&configuration(24, 40, 2));
    for code in ["8+2", "mirror-2", "16+3", "2+1"] {
        let row = layout.choose_row(class(code), &|_| true).expect("room");
        layout.insert_row(row.clone());
        let cell = layout.choose_spare(row.id, 1, &|_| true);
        layout.set_replacement(row.id, 1, cell);
        let row = layout.row(row.id).expect("inserted").clone();
        let mut bytes = vec![0; ROW_ENTRY];
        assert!(row.encoded() <= ROW_ENTRY - 8);
        row.encode(&mut Writer::new(&mut bytes));
        assert_eq!(Row::decode(&mut Reader::new(bytes.into())), Some(row));
    }
}

#[test]
fn the_survey_follows_each_change_of_the_layout() {
    let shared = SharedLayout::new(Layout::new(&configuration(12, 40, 2)));
    let row = shared.read().choose_row(class("8+2"), &|_| true).expect("room");
    shared.write().insert_row(row.clone());
    assert_eq!(shared.survey(), shared.read().survey());
    assert_eq!(shared.survey().replaced, 0);
    let spare = shared.read().choose_spare(row.id, 0, &|_| true).expect("room");
    shared.write().set_replacement(row.id, 0, Some(spare));
    assert_eq!(shared.survey().replaced, 1);
    // All in one enclosure: the row breaks the rule.
    let mut moved = configuration(12, 40, 2);
    moved.drives.iter_mut().for_each(|drive| drive.enclosure = 0);
    shared.write().configure(&moved);
    assert_eq!(shared.read().crowding(&shared.survey(), &|_| true).exposed, [row.id]);
    shared.write().remove_row(row.id);
    assert_eq!(shared.survey(), Survey::default());
}

#[test]
fn the_search_in_a_row_begins_behind_what_is_used() {
    let shared = SharedLayout::new(Layout::new(&configuration(12, 40, 2)));
    let mut space = Space::new(shared.clone());
    for used in [11, 0] {
        let row = shared.read().choose_row(class("8+2"), &|_| true).expect("room");
        shared.write().insert_row(row.clone());
        space.add_row(&row, used);
    }
    let slots = shared.read().slots_per_row(class("8+2"));
    let first = space.next_row(class("8+2"), 1).expect("a row with room");
    assert_eq!(first.1, 11);
    assert_eq!(space.stripes().collect::<Vec<_>>(), [(class("8+2"), 11)]);
    // Each slot that is mapped or freed is counted once, and its row is to be saved.
    assert_eq!(space.changed().len(), 2);
    space.saved(first.0);
    for index in 11..slots {
        space.count(SlotId { row: first.0, index }, true);
    }
    assert_eq!(space.changed().len(), 2);
    assert_eq!(space.stripes().map(|(_, stripes)| stripes).sum::<u64>(), u64::from(slots));
    space.count(SlotId { row: first.0, index: 0 }, false);
    space.remove_row(first.0);
    assert_eq!(space.stripes().map(|(_, stripes)| stripes).sum::<u64>(), 0);
    assert!(!space.changed().contains(&first.0));
}

#[test]
fn a_drive_is_not_emptied_onto_slots_that_are_promised() {
    let mut before = configuration(5, 20, 1);
    before.drives.iter_mut().enumerate().for_each(|(at, drive)| drive.enclosure = at as u32);
    let shared = SharedLayout::new(Layout::new(&before));
    let mut space = Space::new(shared.clone());
    let class = class("2+1");
    fill(&mut shared.write(), class);
    let rows: Vec<Row> = shared.read().rows().cloned().collect();
    rows.iter().for_each(|row| space.add_row(row, 0));
    let mut after = before;
    after.drives[0].leaving = true;
    let can_empty = |space: &Space| {
        let leaves = |row: &Row| row.uses(DriveNumber(0));
        shared.read().can_empty(&after, &[DriveNumber(0)], &|class| space.absorbed(class, &leaves)).is_ok()
    };
    assert!(can_empty(&space), "nothing lies in the rows");
    // Half of the slots fit on four drives, beside the spare space; all of them do not.
    let all = space.free(class);
    space.promise(class, all / 2);
    assert!(can_empty(&space));
    space.promise(class, all - all / 2);
    assert!(!can_empty(&space));
    space.release(class, all);
    assert!(can_empty(&space));
}

#[test]
fn a_strip_that_leaves_its_drive_takes_nothing_of_the_reserve() {
    let mut layout = Layout::new(&configuration(8, 40, 2));
    let class = class("4+2");
    let first = layout.choose_row(class, &|_| true).expect("room");
    layout.insert_row(first.clone());
    let (here, there) = (first.members[0].cell.drive, layout.choose_home(first.id, 0, &|_| true).expect("room").drive);
    assert!(!first.uses(there) && here != there);
    assert_eq!(layout.choose_home(first.id, 0, &|drive| first.uses(drive)), None, "on drives of the row");
    fill(&mut layout, class);
    let full =
        |drive: DriveNumber| layout.units(drive).total - layout.units(drive).used <= layout.units(drive).reserved;
    assert!(layout.choose_spare(first.id, 0, &full).is_some_and(|cell| full(cell.drive)), "a lost one does");
    assert_eq!(layout.choose_home(first.id, 0, &full), None);
}
