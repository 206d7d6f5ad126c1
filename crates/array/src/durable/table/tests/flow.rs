//! Cache, incremental writing, space, without faults.

use super::*;

#[test]
fn pages_come_back_over_checkpoints_and_openings() {
    for seed in 0..6 {
        let mut bench = Bench::new(6, seed);
        for _ in 0..3 {
            let running = bench.open().expect("no cut").expect("opens");
            assert_eq!(bench.work(&running, 300), End::Idle);
            bench.compare(&running);
            drop(running);
            bench.test_drives.cut();
            let running = bench.open().expect("no cut").expect("opens");
            bench.compare(&running);
        }
    }
}

#[test]
fn memory_is_bounded_by_the_cache_whatever_is_stored() {
    let mut bench = Bench::new(6, 1);
    bench.spread = 600;
    let running = bench.open().expect("no cut").expect("opens");
    let limit = 2 * MIB as usize / PAGE;
    for _ in 0..6 {
        bench.work(&running, 150);
        bench.checkpoint(&running).expect("room");
        assert!(running.table.in_memory() <= limit, "{} pages in memory", running.table.in_memory());
    }
    assert!(running.table.counters().pages > 2 * limit as u64);
    assert!(running.table.counters().misses > 0);
    bench.compare(&running);
}

#[test]
fn a_checkpoint_writes_only_what_changed() {
    let mut bench = Bench::new(6, 2);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 400);
    bench.checkpoint(&running).expect("room");
    let before = running.table.counters().page_writes;
    let table = running.table.clone();
    let log = running.log.clone();
    let step = Step { id: PageId { table: 2, index: 37 }, value: 5 };
    bench.twin.push(Some(step));
    bench.test_drives.finish(&running.tasks, &running.io, async move {
        let page = table.page(step.id).await.expect("readable");
        let mut paid = log.reserve(log.cost(&record(step)), Purpose::Host).await.expect("space");
        log.append(&record(step), &mut paid);
        apply(&page, step.value);
    });
    bench.checkpoint(&running).expect("room");
    // The page, its chunk, its index page.
    assert_eq!(running.table.counters().page_writes - before, 3);
    bench.checkpoint(&running).expect("room");
    assert_eq!(running.table.counters().page_writes - before, 3, "nothing changed");
}

#[test]
fn the_cut_is_what_it_was_while_changes_go_on() {
    let mut bench = Bench::new(5, 3);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 50);
    let (log, table) = (running.log.clone(), running.table.clone());
    let id = PageId { table: 9, index: 4 };
    let result = bench.test_drives.finish(&running.tasks, &running.io, async move {
        let page = table.page(id).await?;
        page.change(|bytes| bytes[0] = 1);
        let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
        let checkpoint = table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid));
        page.change(|bytes| bytes[0] = 2);
        assert_eq!(page.read(|bytes| bytes[0]), 2, "the present is not the cut");
        checkpoint.write().await?;
        assert_eq!(table.dirty(), 1, "changed after the cut");
        Ok::<(), ArrayError>(())
    });
    result.expect("no cut").expect("written");
    bench.twin.push(None);
    drop(running);
    bench.acknowledged = bench.twin.len() as u64;
    let running = bench.open().expect("no cut").expect("opens");
    let table = running.table.clone();
    let page = bench.test_drives.finish(&running.tasks, &running.io, async move { table.page(id).await });
    assert_eq!(page.expect("no cut").expect("readable").read(|bytes| bytes[0]), 1);
    assert_eq!(running.opened.as_ref().map(|opened| opened.root.len()), Some(0));
}

#[test]
fn space_of_former_versions_and_of_forgotten_tables_is_used_again() {
    let mut bench = Bench::new(5, 4);
    let running = bench.open().expect("no cut").expect("opens");
    let mut used = Vec::new();
    for round in 0..12 {
        bench.work(&running, 200);
        if round % 3 == 2 {
            running.table.forget(1);
            bench.twin.iter_mut().filter(|step| step.is_some_and(|s| s.id.table == 1)).for_each(|step| *step = None);
        }
        bench.checkpoint(&running).expect("room");
        used.push(running.table.0.store.borrow().space.used());
    }
    let stored = running.table.counters().pages;
    let most = used.iter().copied().max().unwrap_or(0);
    assert!(most < 1_200, "{most} places are in use for {stored} pages");
    bench.compare(&running);
    drop(running);
    bench.test_drives.cut();
    let running = bench.open().expect("no cut").expect("opens");
    bench.compare(&running);
    let reopened = running.table.0.store.borrow().space.used();
    assert_eq!(Some(&reopened), used.last(), "what opening counts is what was in use");
}

#[test]
fn an_anchor_survives_its_encoding_and_every_flipped_byte_is_noticed() {
    let mut bench = Bench::new(5, 5);
    let running = bench.open().expect("no cut").expect("opens");
    bench.work(&running, 100);
    bench.checkpoint(&running).expect("room");
    let (own, pool) = (running.io.clone(), running.labels.configuration().pool);
    let read = async move { crate::durable::anchor::read(&own, 2, pool).await };
    let anchors = bench.test_drives.finish(&running.tasks, &running.io, read).expect("no cut");
    assert!(anchors.later.is_empty(), "of no later version");
    for anchor in anchors.anchors {
        let bytes = anchor.encode().expect("it fits");
        assert_eq!(crate::durable::anchor::Anchor::decode(&bytes), Some(anchor.clone()));
        let length = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        for at in (0..length).filter(|at| !(20..24).contains(at)) {
            let mut broken = bytes.to_vec();
            broken[at] ^= 0x10;
            assert_eq!(crate::durable::anchor::Anchor::decode(&broken.into()), None, "byte {at}");
        }
    }
    assert_eq!(running.table.sequence(), running.table.0.store.borrow().sequence);
}

#[test]
fn a_number_used_again_meets_nothing_of_its_former_life() {
    let mut bench = Bench::new(5, 4);
    let running = bench.open().expect("no cut").expect("opens");
    let (log, table) = (running.log.clone(), running.table.clone());
    let id = |index: u32| PageId { table: 9, index };
    let first = |page: PageRef| page.read(|bytes| bytes[0]);
    let result = bench.test_drives.finish(&running.tasks, &running.io, async move {
        for index in 0..2 {
            table.page(id(index)).await?.change(|bytes| bytes[0] = 1);
        }
        let other = table.page(PageId { table: 8, index: 0 }).await?;
        other.change(|bytes| bytes[0] = 1);
        let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
        table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid)).write().await?;
        other.change(|bytes| bytes[0] = 2);
        // While a checkpoint is under way, which may still hold what was stored.
        let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
        let checkpoint = table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid));
        table.forget(9);
        assert_eq!(table.pages(9), 0, "an empty table");
        assert_eq!(first(table.page(id(0)).await?), 0, "during a checkpoint");
        table.page(id(0)).await?.change(|bytes| bytes[0] = 7);
        checkpoint.write().await?;
        let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
        table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid)).write().await?;
        assert_eq!((first(table.page(id(0)).await?), first(table.page(id(1)).await?)), (7, 0), "afterwards");
        // While a page of it is on its way from the drives.
        table.0.cache.borrow_mut().pages.remove(&id(0));
        let (loaded, ()) = futures_util::join!(table.page(id(0)), async { table.forget(9) });
        assert_eq!(first(loaded?), 0, "while it was loaded");
        Ok::<(), ArrayError>(())
    });
    result.expect("no cut").expect("written");
}
