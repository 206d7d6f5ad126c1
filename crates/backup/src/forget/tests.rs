use super::*;

const HOUR: u64 = 3600;
/// Thursday, 1 January 2026, 00:00.
const START: u64 = 1_767_225_600;

fn candidate(number: u64, stored: u64) -> Candidate {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&number.to_be_bytes());
    Candidate {
        id: SnapshotId(id),
        stored,
        finished: 0,
        series: ("host".to_owned(), vec![b"srv".to_vec()]),
        tags: Vec::new(),
    }
}

/// Hours since the start of the snapshots that are kept, of one every six hours for 100 days.
fn kept(policy: &Policy) -> Vec<u64> {
    let all = (0..400).map(|number| candidate(number, START + number * 6 * HOUR)).collect();
    let judged = judge(all, policy).unwrap();
    judged.into_iter().filter(|is| !is.kept_by.is_empty()).map(|is| (is.candidate.stored - START) / HOUR).collect()
}

#[test]
fn rules_keep_the_latest_of_each_period() {
    let policy = Policy::default;
    let last = 399 * 6;
    assert_eq!(kept(&Policy { last: 3, ..policy() }), [last, last - 6, last - 12]);
    assert_eq!(kept(&Policy { daily: 3, ..policy() }), [last, last - 24, last - 48]);
    // The hundredth day is Friday, 10 April: Sundays end at 18:00 of 5 April and of 29 March.
    assert_eq!(kept(&Policy { weekly: 3, ..policy() }), [last, 94 * 24 + 18, 87 * 24 + 18]);
    assert_eq!(kept(&Policy { monthly: 3, ..policy() }), [last, 89 * 24 + 18, 58 * 24 + 18]);
    assert_eq!(kept(&Policy { yearly: 3, ..policy() }), [last]);
    assert_eq!(kept(&Policy { within_seconds: 12 * HOUR, ..policy() }), [last, last - 6, last - 12]);
    assert_eq!(kept(&Policy { last: 1, daily: 2, ..policy() }), [last, last - 24]);
}

#[test]
fn an_empty_policy_is_refused() {
    assert!(judge(vec![candidate(1, START)], &Policy::default()).is_err());
}

#[test]
fn series_and_tags_count_alone() {
    let mut all: Vec<Candidate> = (0..4).map(|number| candidate(number, START + number)).collect();
    all[0].series.0 = "other".to_owned();
    all[1].tags = vec!["keep".to_owned()];
    let policy = Policy { last: 1, tags: vec!["keep".to_owned()], ..Policy::default() };
    let judged = judge(all, &policy).unwrap();
    let kept: Vec<(u64, &str)> = judged
        .iter()
        .filter(|is| !is.kept_by.is_empty())
        .map(|is| (is.candidate.stored - START, &*is.kept_by[0]))
        .collect();
    assert_eq!(kept, [(3, "last"), (1, "tag"), (0, "last")]);
}

#[test]
fn snapshots_of_a_thousand_times_in_a_day_do_not_push_out_older_days() {
    let mut all: Vec<Candidate> = (0..10).map(|day| candidate(day, START + day * 24 * HOUR)).collect();
    all.extend((0..1000).map(|number| candidate(100 + number, START + 10 * 24 * HOUR + number)));
    let judged = judge(all, &Policy { daily: 11, ..Policy::default() }).unwrap();
    assert_eq!(judged.iter().filter(|is| !is.kept_by.is_empty()).count(), 11);
}

#[test]
fn of_one_second_the_last_to_end_is_the_latest() {
    let check = |stored: [u64; 2], finished: [u64; 2], expected: usize| {
        // The name must not decide: both orders of names have the same outcome.
        for names in [[1, 2], [2, 1]] {
            let made = |at: usize| Candidate { finished: finished[at], ..candidate(names[at], START + stored[at]) };
            let judged = judge(vec![made(0), made(1)], &Policy { last: 1, ..Policy::default() }).unwrap();
            let kept: Vec<&Candidate> =
                judged.iter().filter(|is| !is.kept_by.is_empty()).map(|is| &is.candidate).collect();
            assert_eq!(kept, [&made(expected)], "{stored:?} {finished:?}");
        }
    };
    check([0, 0], [5, 6], 1);
    check([0, 0], [6, 5], 0);
    // The store's clock counts first: an agent with a wrong clock pushes out nothing.
    check([0, 1], [u64::MAX, 0], 1);
}

#[test]
fn a_damaged_snapshot_is_removed_by_name_and_prune_goes_on() {
    use crate::store::{Folder, Name, Store};
    let (repository, store) = crate::testing::repository(1);
    let folder = crate::testing::Temporary::new();
    folder.write("file", b"content");
    let saved = crate::testing::save(&repository, &folder.0).unwrap();
    let name = Name::of(Folder::Snapshots, &saved.id.0);
    assert!(store.damage(&name, |bytes| bytes[40] ^= 1));
    let Err(BackupError::Damaged(text)) = crate::prune::run(&repository, false) else { panic!("prune went on") };
    assert!(text.contains(&format!("stele backup forget {}", saved.id)), "{text}");
    let dated = repository.snapshots().unwrap();
    let judged = named(&dated, &[saved.id], |_| None).unwrap();
    assert_eq!((judged.len(), judged[0].candidate.id), (1, saved.id));
    assert_eq!(judged[0].kept_by, Vec::<&str>::new());
    // One that is gone is an error, and no other snapshot goes with it.
    let unknown = SnapshotId([9; 32]);
    assert!(matches!(named(&dated, &[saved.id, unknown], |_| None), Err(BackupError::Missing(_))));
    assert!(store.get(&name, 1 << 20).is_ok());
    remove(&repository, &saved.id).unwrap();
    assert!(matches!(remove(&repository, &saved.id), Err(BackupError::Missing(_))));
    crate::prune::run(&repository, false).unwrap();
}
