//! Rows of the table that move to other drives while pages are read and stored.

use super::faults::UNITS_AT;
use super::*;
use crate::durable::table::replica::REPAIRS;
use crate::space::layout::Row;

/// A table of some hundred pages, and a drive that has many of them.
fn stored(seed: u64) -> (Bench, Running, DriveNumber) {
    let mut bench = Bench::new(7, seed);
    bench.spread = 400;
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 2_000);
    bench.checkpoint(&running).expect("room");
    let victim = running.layout.read().rows().next().expect("the table has rows").members[0].cell.drive;
    (bench, running, victim)
}

/// Pages that have a replica on the drive.
fn pages_on(running: &Running, drive: DriveNumber) -> Vec<PageId> {
    let (layout, store) = (running.layout.read(), running.table.0.store.borrow());
    let uses = |place: PagePlace| layout.row(place.row).is_some_and(|row| row.uses(drive));
    let pages = store.directory.all().filter(|(_, entry)| entry.place().is_some_and(uses));
    pages.map(|(id, _)| id).collect()
}

fn lose(bench: &mut Bench, running: &Running, drive: DriveNumber) {
    bench.test_drives.drives[usize::from(drive.0)].gone = true;
    running.labels.detach(drive);
    running.log.drive_lost(drive);
    bench.test_drives.run(&running.tasks, &running.io);
}

fn scrub(bench: &mut Bench, running: &Running) -> Result<u64, ArrayError> {
    let table = running.table.clone();
    let scrub = async move { table.scrub(&mut |_, _| true).await };
    bench.test_drives.finish(&running.tasks, &running.io, scrub).expect("no cut")
}

/// Reads pages of the engine, all from the drives.
async fn read_all(table: &Table, pages: &[PageId]) {
    for id in pages.iter().filter(|id| id.table < directory::CHUNK_TABLE) {
        table.0.cache.borrow_mut().pages.remove(id);
        table.page(*id).await.expect("readable");
    }
}

/// Which pages a checkpoint finds changed.
#[derive(Clone, Copy)]
struct Changing {
    pages: u32,
    out_of: u32,
}

/// The same pages each time.
const SAME: Changing = Changing { pages: 40, out_of: 40 };
/// Others each time: those that a checkpoint stores stay where it put them.
const OTHERS: Changing = Changing { pages: 20, out_of: 400 };

/// Moves rows off a drive. Whenever one begins to move, a checkpoint stores so many pages, in turn
/// out of so many. Answers the rows that moved, and the checkpoints that ended before their row had
/// moved; none where the power went first.
fn move_off(bench: &mut Bench, running: &Running, drive: DriveNumber, changes: Changing) -> Option<(u64, u64)> {
    let (table, log, io) = (running.table.clone(), running.log.clone(), running.io.clone());
    let stored = Rc::clone(&bench.stored);
    let moved = async move {
        let done = Cell::new(false);
        let evacuation = async {
            let moved = table.evacuate(drive).await.expect("there is room");
            done.set(true);
            moved
        };
        let checkpoints = async {
            let (mut meanwhile, mut changed) = (0, 0);
            while !done.get() {
                let Some(cell) = table.0.filling.get() else {
                    io.sleep(stele_ground::Duration(1_000)).await;
                    continue;
                };
                for _ in 0..changes.pages {
                    changed = (changed + 1) % changes.out_of;
                    let page = table.page(PageId { table: 9, index: changed }).await.expect("readable");
                    page.change(|bytes| bytes[0] = bytes[0].wrapping_add(1));
                }
                let checkpoint = table.begin_checkpoint(&log, log.next_lsn(), b"meanwhile".to_vec(), None);
                let sequence = checkpoint.sequence();
                checkpoint.write().await.expect("room");
                stored.set(sequence);
                meanwhile += u64::from(table.0.filling.get() == Some(cell));
            }
            meanwhile
        };
        futures_util::join!(evacuation, checkpoints)
    };
    bench.test_drives.finish(&running.tasks, &running.io, moved)
}

#[test]
fn pages_that_lie_together_move_at_once() {
    let (mut bench, running, victim) = stored(61);
    let pages = pages_on(&running, victim).len() as u64;
    lose(&mut bench, &running, victim);
    let (table, before) = (running.table.clone(), bench.test_drives.operations);
    let moved = bench.test_drives.finish(&running.tasks, &running.io, async move { table.evacuate(victim).await });
    assert!(moved.expect("no cut").expect("there is room") > 0);
    let operations = bench.test_drives.operations - before;
    assert!(pages > 200 && operations < pages / 2, "{operations} reads and writes of {pages} pages");
    bench.checkpoint(&running).expect("room");
    assert_eq!(scrub(&mut bench, &running), Ok(0));
    bench.compare(&running);
}

#[test]
fn no_page_is_read_where_a_row_has_yet_to_arrive() {
    let (mut bench, running, victim) = stored(62);
    let pages = pages_on(&running, victim);
    lose(&mut bench, &running, victim);
    let (table, misses) = (running.table.clone(), running.table.counters().misses);
    let both = async move { futures_util::join!(table.evacuate(victim), read_all(&table, &pages)) };
    let (moved, ()) = bench.test_drives.finish(&running.tasks, &running.io, both).expect("no cut");
    assert!(moved.expect("there is room") > 0);
    let counters = running.table.counters();
    assert!(counters.misses > misses + 200 && counters.repaired == 0, "{counters:?}");
}

/// The copies of a lost drive are fewer than they should be. They do not wait until all rows of a
/// drive that leaves have moved.
#[test]
fn rows_of_a_lost_drive_move_between_those_of_one_that_leaves() {
    let (mut bench, running, leaving) = stored(67);
    let lost = running.layout.read().rows().next().expect("the table has rows").members[1].cell.drive;
    lose(&mut bench, &running, lost);
    let (table, layout, io) = (running.table.clone(), running.layout.clone(), running.io.clone());
    let both = async move {
        let rows_on = |drive: DriveNumber| {
            let layout = layout.read();
            let on = |row: &&Row| table.cells_of(row).iter().any(|cell| cell.drive == drive);
            layout.rows().filter(on).count()
        };
        let (before, has_left) = ((rows_on(leaving), rows_on(lost)), Cell::new(false));
        let leave = async {
            let moved = table.evacuate(leaving).await.expect("there is room");
            has_left.set(true);
            moved
        };
        let watch = async {
            let mut took_turns = false;
            while !has_left.get() {
                took_turns |= rows_on(lost) < before.1;
                io.sleep(stele_ground::Duration(1_000)).await;
            }
            took_turns
        };
        let (moved, rescued, took_turns) = futures_util::join!(leave, table.evacuate(lost), watch);
        (before, (moved, rescued.expect("there is room")), took_turns)
    };
    let (before, moved, took_turns) = bench.test_drives.finish(&running.tasks, &running.io, both).expect("no cut");
    assert!(before.0 > 1 && before.1 > 0 && moved.0 >= before.0 as u64, "{before:?} rows, {moved:?} moved");
    assert!(took_turns, "all {} rows of the leaving drive moved first", before.0);
    bench.checkpoint(&running).expect("room");
    assert_eq!(scrub(&mut bench, &running), Ok(0));
    bench.compare(&running);
}

#[test]
fn a_damaged_page_moves_from_another_drive() {
    let (mut bench, running, victim) = stored(66);
    bench.test_drives.damage(usize::from(victim.0), UNITS_AT, 4 * MIB);
    let table = running.table.clone();
    let moved = bench.test_drives.finish(&running.tasks, &running.io, async move { table.evacuate(victim).await });
    assert!(moved.expect("no cut").expect("there is room") > 0);
    bench.checkpoint(&running).expect("room");
    assert_eq!(scrub(&mut bench, &running), Ok(0));
    bench.compare(&running);
}

#[test]
fn checkpoints_go_on_while_rows_move() {
    let (mut bench, running, victim) = stored(63);
    let (moved, meanwhile) = move_off(&mut bench, &running, victim, OTHERS).expect("no cut");
    assert!(moved > 1 && meanwhile > 1, "{moved} rows moved, {meanwhile} checkpoints ended meanwhile");
    bench.checkpoint(&running).expect("room");
    // What they stored is where the rows are now.
    assert_eq!(scrub(&mut bench, &running), Ok(0));
    bench.compare(&running);
}

#[test]
fn power_cuts_while_rows_move_leave_every_replica_whole() {
    for changes in [SAME, OTHERS] {
        let (mut bench, mut running, _) = stored(64);
        let mut cuts = 0;
        for life in 0..20 {
            let victim = DriveNumber(life / 3 % 7);
            bench.test_drives.cut_at = Some(bench.test_drives.operations + bench.dice.below(400));
            cuts += u64::from(move_off(&mut bench, &running, victim, changes).is_none());
            drop(running);
            bench.test_drives.cut();
            running = bench.open().expect("no cut").unwrap_or_else(|error| panic!("life {life}: {error}"));
            assert_eq!(scrub(&mut bench, &running), Ok(0), "life {life}");
            bench.compare(&running);
        }
        assert!(cuts > 10, "the power went {cuts} times");
    }
}

#[test]
fn repairs_that_wait_are_few() {
    let (mut bench, running, victim) = stored(65);
    let pages = pages_on(&running, victim);
    let read_while_none_writes = |bench: &mut Bench| {
        let (table, pages) = (running.table.clone(), pages.clone());
        let read = async move {
            let _turn = table.0.writing.lock().await;
            read_all(&table, &pages).await;
            table.0.repairs.get()
        };
        bench.test_drives.finish(&running.tasks, &running.io, read).expect("no cut")
    };
    bench.test_drives.damage(usize::from(victim.0), UNITS_AT, 20 * MIB);
    assert_eq!(read_while_none_writes(&mut bench), REPAIRS);
    assert_eq!((running.table.counters().repaired, running.table.0.repairs.get()), (REPAIRS as u64, 0));
    // None is planned for a drive that is away.
    lose(&mut bench, &running, victim);
    assert_eq!(read_while_none_writes(&mut bench), 0);
}
