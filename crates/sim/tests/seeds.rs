//! Seeds of the world as tests: those that once found a defect, by name, and a first few of everybody's.

use std::sync::Mutex;

use stele_sim::run::{replay, run_many, run_pool_seed};

/// Each found something that is mended: what it was.
const REGRESSIONS: &[(u64, &str)] = &[
    (3, "a drive that left while the pool opened counted as attached: it could not come back, and no scrub ended"),
    (
        4,
        "a row's number was used again during a checkpoint, and what the former row had stored was read as the new one's: a \
         drive did not get empty",
    ),
    (10, "what was lost of a mirror stood as zeros in its other copies when its stripe went to another slot"),
    (14, "a scrub rewrote a label, but not the unreadable sectors behind it in the label's space"),
    (15, "a pool of three drives wanted three log members to write at all, and stopped at the loss of one"),
    (
        19,
        "a write larger than the limit of dirty blocks waited for room that a write-through had made without saying so",
    ),
    (27, "a log drive that failed a write while the pool opened kept it from opening"),
    (34, "a write that missed a drive was never answered once the pool could only read"),
    (
        39,
        "a drive that returned while another was called whole was called whole with it, its strips still in spare cells",
    ),
    (44, "an in-place destage gave digests to never written units beside it: reused cells then read as damaged"),
    (48, "the same, without any fault but crashes"),
    (77, "a drive that died under redo images kept the pool from opening: nobody told the labels yet"),
    (242, "stripes that could not be destaged took turns at being tried, and kept a pool from closing"),
];

fn check(seeds: &[u64]) {
    let failures = Mutex::new(Vec::new());
    let run = |index: u64| seeds.get(index as usize).map(|seed| run_pool_seed(*seed, 0, true));
    run_many(0..seeds.len() as u64, 2, run, |verdict| {
        if let Some((seed, failure)) = verdict.and_then(|verdict| Some((verdict.seed, verdict.failure?))) {
            let line = format!("seed {seed}: {failure}; repeat it with: {} --trace", replay(seed));
            failures.lock().expect("no other thread panics").push(line);
        }
    });
    let failures = failures.into_inner().expect("no other thread panics");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn what_was_mended_stays_mended() {
    let seeds: Vec<u64> = REGRESSIONS.iter().map(|(seed, _)| *seed).collect();
    check(&seeds);
}
