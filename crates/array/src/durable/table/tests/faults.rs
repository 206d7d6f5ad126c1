//! Power cuts at every operation, damage, lost drives.

use super::*;
use crate::drives::label::{ANCHOR_AT, LOG_AT};

/// Where the allocation units begin in these tests: after 4 MiB and a log of 2 MiB.
pub(super) const UNITS_AT: u64 = LOG_AT + 2 * MIB;

#[test]
fn power_cuts_at_every_operation_open_to_what_was_acknowledged() {
    let mut cut = 0;
    loop {
        let mut bench = Bench::new(5, 31);
        bench.spread = 12;
        bench.test_drives.cut_at = Some(bench.test_drives.operations + cut);
        let mut finished = false;
        if let Some(running) = bench.open() {
            let running = running.expect("opens");
            finished = bench.work(&running, 110) == End::Idle;
        }
        bench.test_drives.cut();
        // The opening is cut as well, then it may finish.
        bench.test_drives.cut_at = Some(bench.test_drives.operations + cut % 97);
        drop(bench.open().map(|running| running.expect("opens")));
        bench.test_drives.cut();
        bench.test_drives.cut_at = None;
        let running = bench.open().expect("no cut").unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        bench.compare(&running);
        if finished {
            break;
        }
        cut += 3;
    }
    assert!(cut > 200, "the workload has {cut} operations");
}

#[test]
fn many_lives_with_cuts_damage_and_lost_drives() {
    for seed in 0..20 {
        let mut bench = Bench::new(6, seed);
        bench.spread = 60;
        for life in 0..4 {
            bench.test_drives.cut_at = Some(bench.test_drives.operations + 100 + bench.dice.below(2_500));
            if let Some(running) = bench.open() {
                let running = running.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                let victim = bench.dice.below(6) as usize;
                let lost = bench.dice.one_in(3);
                if lost {
                    bench.test_drives.drives[victim].gone = true;
                }
                bench.work(&running, 150);
                bench.test_drives.drives[victim].gone = false;
            }
            bench.test_drives.cut();
            let victim = bench.dice.below(6) as usize;
            if bench.dice.one_in(2) {
                // One drive's pages and anchors are damaged here and there.
                for _ in 0..20 {
                    let at = UNITS_AT + bench.dice.below(20 * MIB / 4096) * 4096;
                    bench.test_drives.damage(victim, at, 4096);
                }
                bench.test_drives.damage(victim, ANCHOR_AT + bench.dice.below(2) * MIB, 4096);
            }
            bench.test_drives.cut_at = None;
            let running = bench.open().expect("no cut");
            let running = running.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
            bench.compare(&running);
            drop(running);
            bench.test_drives.cut();
        }
    }
}

#[test]
fn a_page_damaged_on_all_but_one_drive_is_read_and_repaired() {
    let mut bench = Bench::new(6, 41);
    bench.spread = 40;
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 200);
    bench.checkpoint(&running).expect("room");
    drop(running);
    bench.test_drives.cut();
    for drive in 0..5 {
        bench.test_drives.damage(drive, UNITS_AT, 20 * MIB);
    }
    // Rows lie on four of six drives, so those without the last drive are lost.
    match bench.open().expect("no cut") {
        Err(ArrayError::Damaged(_)) => {}
        Err(other) => panic!("expected damage, not {other}"),
        Ok(running) => bench.compare(&running),
    }
    let mut bench = Bench::new(6, 42);
    bench.spread = 40;
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 200);
    bench.checkpoint(&running).expect("room");
    drop(running);
    bench.test_drives.cut();
    for drive in 0..3 {
        bench.test_drives.damage(drive, UNITS_AT, 20 * MIB);
    }
    let running = bench.open().expect("no cut").expect("a replica of four is left");
    bench.compare(&running);
    let table = running.table.clone();
    let scrub = async move { table.scrub(&mut |_, _| true).await };
    bench.test_drives.finish(&running.tasks, &running.io, scrub).expect("no cut").expect("scrubbed");
    let table = running.table.clone();
    let again = async move { table.scrub(&mut |_, _| true).await };
    assert_eq!(bench.test_drives.finish(&running.tasks, &running.io, again).expect("no cut"), Ok(0));
    assert!(running.table.counters().repaired > 0);
    drop(running);
    // Now the other three may go.
    for drive in 3..6 {
        bench.test_drives.damage(drive, UNITS_AT, 20 * MIB);
    }
    let running = bench.open().expect("no cut").expect("they were repaired");
    bench.compare(&running);
    assert!(running.recovery.groups > 0);
}

#[test]
fn a_scrub_reads_pages_that_lie_together_at_once() {
    let mut bench = Bench::new(6, 42);
    bench.spread = 400;
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 2_000);
    bench.checkpoint(&running).expect("room");
    let scrub = |bench: &mut Bench| {
        let (table, before) = (running.table.clone(), bench.test_drives.operations);
        let scrub = async move {
            let mut pages = 0;
            let scrubbed = table
                .scrub(&mut |_, total| {
                    pages = total;
                    true
                })
                .await;
            (pages, scrubbed)
        };
        let (pages, scrubbed) = bench.test_drives.finish(&running.tasks, &running.io, scrub).expect("no cut");
        (pages, scrubbed, bench.test_drives.operations - before)
    };
    let (pages, scrubbed, reads) = scrub(&mut bench);
    assert!(pages > 100 && reads > 0 && reads < pages, "{reads} reads of four replicas of {pages} pages");
    assert_eq!(scrubbed, Ok(0));
    // One drive is damaged in part: those of its pages are repaired, and only they.
    bench.test_drives.damage(0, UNITS_AT, MIB);
    let (_, scrubbed, _) = scrub(&mut bench);
    assert!(scrubbed.as_ref().is_ok_and(|repaired| (1..pages).contains(repaired)), "{scrubbed:?}");
    let (_, scrubbed, again) = scrub(&mut bench);
    assert_eq!((scrubbed, again), (Ok(0), reads));
}

#[test]
fn a_replica_that_could_not_be_repaired_is_told() {
    let mut bench = Bench::new(6, 42);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 200);
    bench.checkpoint(&running).expect("room");
    drop(running);
    bench.test_drives.damage(0, UNITS_AT, 20 * MIB);
    let running = bench.open().expect("no cut").expect("opens");
    let scrub = |bench: &mut Bench| {
        let table = running.table.clone();
        let scrub = async move { table.scrub(&mut |_, _| true).await };
        bench.test_drives.finish(&running.tasks, &running.io, scrub).expect("no cut")
    };
    bench.test_drives.drives[0].write_protected = true;
    let told = scrub(&mut bench);
    assert!(matches!(&told, Err(ArrayError::Degraded(why)) if why.contains("could not be written again")), "{told:?}");
    bench.test_drives.drives[0].write_protected = false;
    assert!(scrub(&mut bench).is_ok_and(|repaired| repaired > 0));
    assert_eq!(scrub(&mut bench), Ok(0));
}

#[test]
fn a_lost_drive_is_evacuated_and_its_cells_come_free_with_the_anchor() {
    let mut bench = Bench::new(7, 43);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 300);
    bench.checkpoint(&running).expect("room");
    let victim = {
        let layout = running.layout.read();
        let row = layout.rows().next().expect("the table has rows").clone();
        row.members[0].cell.drive
    };
    bench.test_drives.drives[usize::from(victim.0)].gone = true;
    running.labels.detach(victim);
    running.log.drive_lost(victim);
    let table = running.table.clone();
    let moved = bench.test_drives.finish(&running.tasks, &running.io, async move { table.evacuate(victim).await });
    assert!(moved.expect("no cut").expect("there is room") > 0);
    assert!(running.table.wants_checkpoint());
    assert!(running.layout.read().units(victim).used > 0, "the former anchor still names its cells");
    bench.checkpoint(&running).expect("room");
    assert_eq!(running.layout.read().units(victim).used, 0);
    bench.compare(&running);
    drop(running);
    // Two more may now be damaged.
    bench.test_drives.cut();
    let others: Vec<usize> = (0..7).filter(|drive| *drive != usize::from(victim.0)).collect();
    for drive in &others[..3] {
        bench.test_drives.damage(*drive, UNITS_AT, 20 * MIB);
    }
    let running = bench.open().expect("no cut").expect("opens");
    bench.compare(&running);
    assert!(running.layout.read().rows().all(|row| !row.uses(DriveNumber(victim.0))));
}

#[test]
fn no_whole_anchor_is_refused() {
    let mut bench = Bench::new(5, 44);
    for drive in 0..5 {
        bench.test_drives.damage(drive, ANCHOR_AT, 4096);
        bench.test_drives.damage(drive, ANCHOR_AT + MIB, 4096);
    }
    assert!(matches!(bench.open().expect("no cut"), Err(ArrayError::Damaged(_))));
}

#[test]
fn a_failed_checkpoint_changes_nothing() {
    let mut bench = Bench::new(6, 45);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 150);
    bench.checkpoint(&running).expect("room");
    let sequence = running.table.sequence();
    bench.work(&running, 10);
    // Four of six drives take no writes: neither log nor pages can go on.
    for drive in 0..4 {
        bench.test_drives.drives[drive].write_protected = true;
    }
    assert!(bench.checkpoint(&running).is_err());
    assert!(running.table.dirty() > 0 && !running.table.checkpointing());
    assert!(running.table.sequence() == sequence || running.table.sequence() == sequence + 2);
    drop(running);
    bench.test_drives.cut();
    bench.test_drives.drives.iter_mut().for_each(|drive| drive.write_protected = false);
    bench.twin.pop();
    let running = bench.open().expect("no cut").expect("opens");
    bench.compare(&running);
}

#[test]
fn each_protection_is_needed() {
    let protections = [Mutation::PageReuse, Mutation::PageDigest, Mutation::AnchorOrder, Mutation::CutCopy];
    for mutation in protections {
        let noticed = (0..240).any(|seed| {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut bench = Bench::new(5, seed);
                bench.spread = 6;
                for _ in 0..3 {
                    bench.test_drives.cut_at = Some(bench.test_drives.operations + 150 + bench.dice.below(750));
                    if let Some(Ok(running)) = bench.open() {
                        running.io.set_mutations(Mutations::default().with(mutation));
                        bench.work(&running, 150);
                    }
                    bench.test_drives.cut();
                    if mutation == Mutation::PageDigest {
                        bench.test_drives.damage(seed as usize % 5, UNITS_AT, 8 * MIB);
                    }
                }
                bench.test_drives.cut_at = None;
                let running = bench.open().expect("no cut").expect("opens");
                if mutation == Mutation::PageDigest {
                    running.io.set_mutations(Mutations::default().with(mutation));
                }
                bench.compare(&running);
            });
            std::panic::catch_unwind(run).is_err()
        });
        assert!(noticed, "{mutation:?} was taken away and nothing noticed");
    }
}

#[test]
fn an_anchor_waits_for_its_pages_and_its_own_flush() {
    // The windows are small: one page, one checkpoint, a cut at each operation or right after the
    // last.
    let noticed = |mutations: Mutations, seeds: u64| {
        (0..seeds).any(|seed| {
            let run = std::panic::AssertUnwindSafe(|| {
                let mut bench = Bench::new(5, seed);
                bench.spread = 1;
                let running = bench.open().expect("no cut").expect("opens");
                bench.work(&running, 4);
                running.io.set_mutations(mutations);
                bench.test_drives.cut_at = Some(bench.test_drives.operations + 6 + seed % 20);
                let (log, table) = (running.log.clone(), running.table.clone());
                bench.twin.push(None);
                let stored = bench.test_drives.finish(&running.tasks, &running.io, async move {
                    let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await.expect("space");
                    let checkpoint = table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid));
                    let sequence = checkpoint.sequence();
                    checkpoint.write().await.map(|()| sequence)
                });
                if let Some(Ok(sequence)) = stored {
                    bench.stored.set(sequence);
                }
                drop(running);
                bench.test_drives.cut();
                let running = bench.open().expect("no cut").expect("opens");
                bench.compare(&running);
            });
            std::panic::catch_unwind(run).is_err()
        })
    };
    assert!(!noticed(Mutations::default(), 60), "with every protection there is nothing to notice");
    for mutation in [Mutation::PageFlush, Mutation::AnchorFlush] {
        assert!(noticed(Mutations::default().with(mutation), 600), "{mutation:?} was taken away and nothing noticed");
    }
}
