//! Pages that a checkpoint leaves out.

use super::*;
use crate::model::mutation::Mutation;

const STORED: PageId = PageId { table: 2, index: 37 };

/// A page stored by a checkpoint, then changed, then left out of another one; then the power goes.
/// Answers how many pages the second checkpoint stored, with chunks and index pages, and left out,
/// and what the page says afterwards.
fn leave_out(change: fn(&PageRef), mutations: Mutations, room: u64) -> (u64, u64, u32) {
    let mut bench = Bench::new(6, 2);
    let running = bench.open().expect("no cut").expect("opens");
    running.io.set_mutations(mutations);
    let (log, table) = (running.log.clone(), running.table.clone());
    let counted = bench.test_drives.finish(&running.tasks, &running.io, async move {
        let page = table.page(STORED).await?;
        page.change(|bytes| bytes.fill(1));
        let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
        table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid)).write().await?;
        let before = table.counters();
        change(&page);
        let mut paid = log.reserve(checkpoint_cost(&log) + room, Purpose::Checkpoint).await?;
        table.begin_checkpoint(&log, log.next_lsn(), Vec::new(), Some(&mut paid)).write().await?;
        let after = table.counters();
        Ok::<_, ArrayError>((after.page_writes - before.page_writes, after.left_out - before.left_out, log.next_lsn()))
    });
    let (stored, left_out, next) = counted.expect("no cut").expect("written");
    bench.twin.resize(next.0 as usize - 1, None);
    bench.acknowledged = next.0 - 1;
    drop(running);
    bench.test_drives.cut();
    let running = bench.open().expect("no cut").expect("opens");
    let table = running.table.clone();
    let read = async move { table.page(STORED).await.map(|page| page.read(|bytes| bytes[400..404].to_vec())) };
    let found = bench.test_drives.finish(&running.tasks, &running.io, read).expect("no cut").expect("readable");
    (stored, left_out, u32::from_le_bytes(found.try_into().expect("four bytes")))
}

const WORD: u32 = 77;
const ROOM: u64 = 64 << 10;

#[test]
fn a_page_left_out_of_a_checkpoint_comes_back_with_the_words_that_changed() {
    let words = |page: &PageRef| page.patch([(400, 5), (800, 6), (400, WORD)]);
    let none = Mutations::default();
    assert_eq!(leave_out(words, none, ROOM), (0, 1, WORD));
    // The page, its chunk, its index page.
    assert_eq!(leave_out(words, none, 0), (3, 0, WORD), "no log to spare");
    let both = |page: &PageRef| {
        page.patch([(800, 6)]);
        page.change(|bytes| bytes[400..404].copy_from_slice(&WORD.to_le_bytes()));
    };
    assert_eq!(leave_out(both, none, ROOM), (3, 0, WORD), "changed otherwise than by words");
    let many = |page: &PageRef| page.patch((0..1000).map(|word| (word * 4, WORD)));
    assert_eq!(leave_out(many, none, ROOM), (3, 0, WORD), "more words than a checkpoint logs of a page");
    let nothing = |page: &PageRef| page.patch([]);
    assert_eq!(leave_out(nothing, none, ROOM), (0, 0, u32::from_le_bytes([1; 4])), "nothing changed");
}

#[test]
fn without_its_words_in_the_log_a_page_left_out_comes_back_as_it_was() {
    let words = |page: &PageRef| page.patch([(400, WORD)]);
    let (.., found) = leave_out(words, Mutations::default().with(Mutation::PageWords), ROOM);
    assert_ne!(found, WORD, "the protection is not what keeps the word");
}

#[test]
fn power_cuts_anywhere_lose_nothing_of_pages_left_out() {
    let mut left_out = 0;
    for seed in 0..60 {
        let mut bench = Bench::new(6, seed);
        (bench.spread, bench.late) = (20, true);
        for life in 0..4 {
            bench.test_drives.cut_at = Some(bench.test_drives.operations + 150 + bench.dice.below(900));
            if let Some(opened) = bench.open() {
                let running = opened.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                bench.work(&running, 200);
                left_out += running.table.counters().left_out;
            }
            bench.test_drives.cut();
            bench.test_drives.cut_at = None;
            let running = bench.open().expect("no cut").expect("opens");
            bench.compare(&running);
            drop(running);
            bench.test_drives.cut();
        }
    }
    assert!(left_out > 1000, "{left_out} pages were left out");
}
