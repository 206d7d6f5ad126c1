use std::collections::BTreeSet;

use super::*;
use crate::fio::jobs;

/// Places in blocks of 4 KiB, of a file of 16 that begins at the second.
fn drawn(text: &str, write: bool) -> Vec<u64> {
    let options = jobs(&format!("[a]\nsize=64k\n{text}\n")).unwrap().remove(0);
    let region = Region { offset: 8192, length: 65536, file: 73728 };
    let mut places = Places::new(&options, &[region], Dice::new(3));
    std::iter::from_fn(|| places.next(write)).take(40).map(|access| (access.at - 8192) / 4096).collect()
}

#[test]
fn a_pass_in_order_visits_all_and_ends() {
    assert_eq!(drawn("rw=read", false), (0..16).collect::<Vec<_>>());
    assert_eq!(drawn("rw=write\nbs=12k", true), [0, 3, 6, 9, 12], "what does not fit is left out");
    assert_eq!(drawn("rw=read:12k", false), [0, 4, 8, 12], "gaps lead beyond the part that is used");
    assert_eq!(drawn("rw=read\ntime_based\nruntime=1", false)[14..18], [14, 15, 0, 1]);
}

#[test]
fn a_random_pass_visits_each_block_once() {
    let all = drawn("rw=randwrite", true);
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (16, 16));
    let by_chance = drawn("rw=randread\nnorandommap", false);
    assert!(by_chance.len() == 40 && by_chance.iter().collect::<BTreeSet<_>>().len() <= 16);
}

#[test]
fn a_run_follows_its_first_access_or_repeats_it() {
    let runs = drawn("rw=randread:4\nnorandommap", false);
    let follow = |pair: &[u64]| pair[1] == pair[0] + 1 || pair[0] == 15;
    assert!(runs.chunks(4).all(|run| run.windows(2).all(follow)), "{runs:?}");
    let same = drawn("rw=randread:4\nrw_sequencer=identical\nnorandommap", false);
    assert!(same.chunks(4).all(|run| run.windows(2).all(|pair| pair[0] == pair[1])), "{same:?}");
}

#[test]
fn lengths_of_a_mapped_file_do_not_overlap() {
    let options = jobs("[a]\nsize=64k\nrw=randrw\nbsrange=4k-16k\n").unwrap().remove(0);
    let region = Region { offset: 0, length: 65536, file: 65536 };
    let mut places = Places::new(&options, &[region], Dice::new(5));
    let mut touched = BTreeSet::new();
    let mut write = false;
    while let Some(access) = places.next(write) {
        for block in access.at / 4096..(access.at + access.length) / 4096 {
            assert!(touched.insert(block), "{access:?}");
        }
        write = !write;
    }
    assert_eq!(touched.len(), 16);
}

#[test]
fn a_file_that_begins_again_in_a_run_by_time_is_told() {
    for pattern in ["read", "randread"] {
        let text = format!("[a]\nsize=64k\nrw={pattern}\ntime_based\nruntime=1\n");
        let options = jobs(&text).unwrap().remove(0);
        let region = Region { offset: 0, length: 65536, file: 65536 };
        let mut places = Places::new(&options, &[region], Dice::new(3));
        let told: Vec<bool> = (0..40)
            .map(|_| {
                places.next(false).unwrap();
                places.begun_again() == Some(0)
            })
            .collect();
        let wanted: Vec<bool> = (0..40).map(|number| number == 16 || number == 32).collect();
        assert_eq!(told, wanted, "{pattern}");
    }
}
