//! Seeds of the world as tests: those that once found a defect, by name, and the first few of every
//! campaign.

use std::sync::Mutex;

use stele_sim::run::{replay, run_many, run_pool_seed};
use stele_sim::setup::{Campaign, SLOW_FROM, Setup};

/// Each found a defect that is fixed; the text names it.
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
    (
        100_842,
        "a drive that left the pool did not take the table without it: one more drive that failed its label left the pool \
         read-only",
    ),
    (100_961, "drives whose addition was cut off joined at the next opening, and nothing moved onto them"),
    (
        100_991,
        "rows without a spare cell kept every drive that was filled from counting again, and the lost one from being replaced",
    ),
    (101_101, "a drive was called whole while the labels were still told that it is back: nobody filled it any more"),
    (101_260, "a drive left while it was called whole, and its strips were in spare cells already"),
    (
        148,
        "a checkpoint between the two halves of a replacement put pages on the old and the new drive: neither could leave then",
    ),
    (30_278, "a pool that shrank to as many drives as it has spare ones took nothing new: all of them was reserved"),
    (400_198, "a drive that is slow was read while the labels were held: the next configuration could not be written"),
    (
        400_706,
        "zeroing a stripe that another zeroed meanwhile was answered although the pool had just become unable to keep either",
    ),
    (
        401_306,
        "a killed process left a label in the drive's cache, the next one wrote the other pair: a power cut tore all four copies",
    ),
    (112_388, "a drive became a member of the log while it was to leave the log: the pool looked at it for ever"),
    (
        1_051_866,
        "a stripe over a damaged one was destaged for ever, and nothing else was done, after the pool had become read-only",
    ),
    (
        1_050_842,
        "the oracle forgot a snapshot whose command was answered with an error that leaves open whether it was taken",
    ),
    (
        2_001_929,
        "zeros over part of a stripe were answered and never stored, where a deleted snapshot handed the stripe over between \
         two looks at its layers",
    ),
    (2_001_311, "a drive that was pulled took the log in place of a slow one, and the pool only read from then on"),
    (
        130_020_340,
        "a drive answered again, and took no label before the next look: a scrub called the label damaged for good",
    ),
    (
        130_022_773,
        "one bad place without content, between two blocks with content, was read again and again, and its drive given up",
    ),
    (3_100_313, "the world took an enclosure away that had half of the drives, since others had been removed"),
    (
        161_056_806,
        "a rebuild held a stripe while it waited for room in the log, and a destage that kept the log waited for the stripe",
    ),
    (
        161_068_682,
        "the destage that kept a full log waited for room for its mapping, and writes failed after two minutes",
    ),
    (163_016_186, "the world forgot an addition that was cut off when the pool then opened for reading only"),
    (163_020_058, "a rebuild looked for a member in the narrower row that had the number of its former row"),
    (163_043_010, "the world forgot a replacement that was cut off when the pool then opened for reading only"),
    (
        164_057_834,
        "the only drive here that had the last group of the log could not read it, and the pool opened without it: an older \
         value was read",
    ),
    (
        164_059_445,
        "what a rebuild left of a row that was gone held up the drive of the row that has its number now: another drive \
         could not be replaced",
    ),
    (163_058_618, "with a log that stays full, writes that wait for one another failed one after the other"),
    (
        166_053_194,
        "the world allowed an opening 300 seconds, however many drives stopped answering in it one after the other",
    ),
    (
        166_091_938,
        "beyond tolerance the world let a drive lie about the newest group of the log, and took the other one away",
    ),
    (
        380_013_714,
        "both members of the log read it once in the wrong place at the end of what was read: acknowledged groups were cut off",
    ),
    (
        500_047_207,
        "the world never answered a request that was handed out as its drive left: what waited for it, here a copy-back, hung",
    ),
    (
        9_000_087,
        "a flush failed and took what others had left in the cache: they counted it as written after the next flush",
    ),
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

/// Many destages wait for a drive that takes milliseconds for a command.
#[test]
fn drives_may_be_slow() {
    let seeds: Vec<u64> =
        (SLOW_FROM..).filter(|seed| Setup::drawn(*seed, Campaign::of(*seed)).slow_drives).take(24).collect();
    check(&seeds);
}
