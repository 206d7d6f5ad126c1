//! What a rebuild says of itself, what it puts off, and what overtakes it.

use stele_ground::VolumeId;

use super::super::breadth::Breadth;
use super::*;
use crate::model::mutation::{Mutation, Mutations};

#[test]
fn a_rebuild_tells_how_many_bytes_it_moved() {
    let mut fixture = Fixture::new(8, 8, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 5 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let [drive, _] = two_of_a_row(&fixture);
    let strips: u64 = {
        let layout = engine.layout.read();
        let rows = layout.rows().filter(|row| row.members.iter().any(|m| usize::from(m.cell.drive.0) == drive));
        rows.map(|row| u64::from(engine.look(|core| core.space.used(row.id)))).sum()
    };
    fixture.pull(&[drive]);
    fixture.idle();
    let expected = format!("rebuild into spare space finished: {}", Bytes(strips * (16 << 10)));
    assert_eq!(fixture.told(AlarmKind::RebuildFinished), [expected]);
}

#[test]
fn a_rebuild_that_cannot_read_the_tables_is_tried_again_later() {
    let options = OpenOptions { table_cache: Bytes(2 * PAGE as u64), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(8, 8, 3, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+2", 24 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    let [drive, _] = two_of_a_row(&fixture);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    fixture.pull(&[drive]);
    let tables: Vec<(usize, std::ops::Range<u64>)> = {
        let engine = engine(&fixture);
        let (layout, configuration) = (engine.layout.read(), engine.drives.labels.configuration());
        let rows = layout.rows().filter(|row| row.class.kind == RowKind::Table);
        let cells = rows.flat_map(|row| &row.members).map(|member| member.cell);
        let blocks = |at: u64| at / 4096..(at + configuration.unit_size.0) / 4096;
        cells.map(|cell| (usize::from(cell.drive.0), blocks(configuration.cell_at(cell)))).collect()
    };
    tables.iter().for_each(|(at, blocks)| fixture.test_drives.drives[*at].unreadable.extend(blocks.clone()));
    let before = fixture.test_drives.operations;
    fixture.pass(Duration::from_millis(100));
    let asked = fixture.test_drives.operations - before;
    assert!(asked < 1000, "the drives are asked {asked} times in a tenth of a second");
    assert_eq!(fixture.told(AlarmKind::RebuildFinished).len(), 0);
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.unreadable.clear());
    fixture.pass(Duration::from_secs(10));
    assert_eq!(fixture.told(AlarmKind::RebuildFinished).len(), 1);
    assert_eq!(engine(&fixture).exposure().1, 0);
}

#[test]
fn strips_of_a_drive_given_up_overtake_those_that_return_home() {
    let options = OpenOptions {
        rebuild_after: Duration::from_secs(60),
        background_rate: Some(Bytes(128 << 10)),
        ..OpenOptions::default()
    };
    let mut fixture = Fixture::begin_on(TestDrives::new(12, Bytes(128 << 20), 1), 12, 1, options, |_| ());
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "mirror-3", 90 << 20)).id;
    for at in 0..90 {
        fixture.write(volume, at << 20, &pattern(at, 1 << 20)).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let [returns, away] = two_of_a_row(&fixture);
    fixture.pull(&[away, returns]);
    fixture.pass(Duration::from_secs(50));
    assert!(engine.admission.begin(), "hosts leave little of the drives");
    // Drive `returns` is filled for minutes, and within them the other one is given up.
    fixture.begin_to_give_back(returns);
    fixture.pass(Duration::from_secs(5));
    let spares = || {
        let layout = engine.layout.read();
        let members = layout.rows().flat_map(|row| row.members.clone());
        members.filter(|m| usize::from(m.cell.drive.0) == away && m.replacement.is_some()).count()
    };
    assert_eq!(spares(), 0, "it may come back still");
    let mut waited = 0;
    while spares() == 0 {
        fixture.pass(Duration::from_secs(1));
        waited += 1;
        assert!(waited < 1000);
    }
    let left = engine.rebuilding.copy_back.progress(engine.io.now());
    // The rows that were under way go on to their end, and no other begins.
    assert!(left.is_some_and(|left| left.done.0 * 2 < left.total.0), "the returned drive was filled first: {left:?}");
}

/// Where hosts read a stripe that has to be reconstructed, how many strips move before that.
pub(super) fn overtaken(fixture: &mut Fixture, engine: &Rc<Engine>, volume: VolumeId, stripes: u64) -> usize {
    // Which strip of a stripe was lost, whether it has moved, and whether the row has its spare
    // cell.
    let lost = |stripe: u64| {
        let (page, at) = Engine::map_page_id(volume, stripe);
        let map::Home::Slot(slot) = engine.table.cached(page)?.read(|bytes| map::get(bytes, at)) else { return None };
        let (page, at) = Engine::slot_page_id(&engine.row_shape(slot)?, slot);
        let head = engine.table.cached(page)?.read(|bytes| entry::head(bytes, at));
        let row = engine.layout.read().row(slot.row)?.clone();
        let lost = row.members.iter().position(|member| member.cell.drive.0 == 4)?;
        Some((lost, head.exceptions >> lost & 1 == 1, row.members[lost].replacement.is_some()))
    };
    let moved = || (0..stripes).filter(|stripe| lost(*stripe).is_some_and(|(_, moved, _)| moved)).count();
    for _ in 0..20_000 {
        fixture.run_operations(1);
        // A stripe whose row has its spare cell already, and whose turn is not soon. Reads pass
        // parity by.
        let is_next = |stripe: &u64| matches!(lost(*stripe), Some((0 | 1, false, true)));
        let Some(stripe) = (0..stripes).rev().find(is_next) else { continue };
        let before = moved();
        fixture.read(volume, stripe * (32 << 10), 32 << 10).expect("read");
        for _ in 0..100_000 {
            if matches!(lost(stripe), Some((_, true, _))) {
                return moved() - before;
            }
            fixture.run_operations(1);
        }
        panic!("it never moved");
    }
    panic!("no stripe waited for its turn");
}

#[test]
fn what_hosts_read_is_rebuilt_before_its_turn_also_within_a_run() {
    let mut fixture = Fixture::new(8, 8, 5);
    // Stripes whose digests do not tell versions: each strip is moved under the lock of its stripe.
    fixture.mutations = Mutations::default().with(Mutation::StrongDigest);
    fixture.crash().expect("opened");
    let volume = fixture.create_volume(spec("a", "2+1", 24 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.mutations = Mutations::default();
    fixture.open().expect("opened, with nothing cached");
    fixture.pull(&[4]);
    let engine = engine(&fixture);
    let row = engine.layout.read().rows().find(|row| row.class.kind == RowKind::Data).map(|row| row.id);
    let Breadth { rows, run, .. } = engine.breadth(row.expect("a row of data"));
    let overtook = overtaken(&mut fixture, &engine, volume, (24 << 20) / (32 << 10));
    assert!(run > 64 && overtook <= rows * RUNS_OF_ROW, "{overtook} strips were moved before the one a host wanted");
}
