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
        finished: stored * NANOS,
        series: ("host".to_owned(), vec![b"srv".to_vec()]),
        tags: Vec::new(),
        has_gaps: false,
        is_misdated: false,
    }
}

#[test]
fn snapshots_with_gaps_push_no_complete_one_out() {
    let kept = |gaps: &[u64], policy: &ForgetPolicy| {
        let mut all: Vec<Candidate> = (0..6).map(|number| candidate(number, START + number)).collect();
        all.iter_mut().for_each(|is| is.has_gaps = gaps.contains(&(is.stored - START)));
        let judged = judge(all, policy).unwrap();
        let kept = judged.into_iter().filter(|is| !is.kept_by.is_empty());
        kept.map(|is| (is.candidate.stored - START, is.kept_by.join(" "))).collect::<Vec<_>>()
    };
    let named = |kept: &[(u64, &str)]| kept.iter().map(|(at, by)| (*at, (*by).to_owned())).collect::<Vec<_>>();
    let one = ForgetPolicy { last: 1, ..ForgetPolicy::default() };
    assert_eq!(kept(&[3, 4, 5], &one), named(&[(5, "last"), (2, "complete")]));
    // A later complete one takes its place.
    assert_eq!(kept(&[3, 4], &one), named(&[(5, "last")]));
    assert_eq!(kept(&[0, 1, 2, 3, 4, 5], &one), named(&[(5, "last")]));
    let three = ForgetPolicy { last: 3, ..ForgetPolicy::default() };
    assert_eq!(kept(&[5], &three), named(&[(5, "last"), (4, "last complete"), (3, "last")]));
    // By the ends of the backups too, whatever the store's dates are.
    let mut all: Vec<Candidate> = (0..3).map(|number| candidate(number, START + number)).collect();
    all[0].finished = (START + 9) * NANOS;
    all[2].has_gaps = true;
    let judged = judge(all, &ForgetPolicy { tags: vec!["none".to_owned()], ..ForgetPolicy::default() }).unwrap();
    let kept: Vec<u64> =
        judged.iter().filter(|is| !is.kept_by.is_empty()).map(|is| is.candidate.stored - START).collect();
    assert_eq!(kept, [1]);
}

/// Hours since the start of the snapshots that are kept, of one every six hours for 100 days.
fn kept(policy: &ForgetPolicy) -> Vec<u64> {
    let all = (0..400).map(|number| candidate(number, START + number * 6 * HOUR)).collect();
    let judged = judge(all, policy).unwrap();
    judged.into_iter().filter(|is| !is.kept_by.is_empty()).map(|is| (is.candidate.stored - START) / HOUR).collect()
}

#[test]
fn rules_keep_the_latest_of_each_period() {
    let policy = ForgetPolicy::default;
    let last = 399 * 6;
    assert_eq!(kept(&ForgetPolicy { last: 3, ..policy() }), [last, last - 6, last - 12]);
    assert_eq!(kept(&ForgetPolicy { daily: 3, ..policy() }), [last, last - 24, last - 48]);
    // The hundredth day is Friday, 10 April: Sundays end at 18:00 of 5 April and of 29 March.
    assert_eq!(kept(&ForgetPolicy { weekly: 3, ..policy() }), [last, 94 * 24 + 18, 87 * 24 + 18]);
    assert_eq!(kept(&ForgetPolicy { monthly: 3, ..policy() }), [last, 89 * 24 + 18, 58 * 24 + 18]);
    assert_eq!(kept(&ForgetPolicy { yearly: 3, ..policy() }), [last]);
    assert_eq!(kept(&ForgetPolicy { within_seconds: 12 * HOUR, ..policy() }), [last, last - 6, last - 12]);
    assert_eq!(kept(&ForgetPolicy { last: 1, daily: 2, ..policy() }), [last, last - 24]);
}

#[test]
fn an_empty_policy_is_refused() {
    assert!(judge(vec![candidate(1, START)], &ForgetPolicy::default()).is_err());
}

#[test]
fn series_and_tags_count_alone() {
    let mut all: Vec<Candidate> = (0..4).map(|number| candidate(number, START + number)).collect();
    all[0].series.0 = "other".to_owned();
    all[1].tags = vec!["keep".to_owned()];
    let policy = ForgetPolicy { last: 1, tags: vec!["keep".to_owned()], ..ForgetPolicy::default() };
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
    let judged = judge(all, &ForgetPolicy { daily: 11, ..ForgetPolicy::default() }).unwrap();
    assert_eq!(judged.iter().filter(|is| !is.kept_by.is_empty()).count(), 11);
}

#[test]
fn of_one_second_the_last_to_end_is_the_latest() {
    let check = |stored: [u64; 2], finished: [u64; 2], expected: &[usize]| {
        // The name must not decide: both orders of names have the same outcome.
        for names in [[1, 2], [2, 1]] {
            let made = |at: usize| Candidate { finished: finished[at], ..candidate(names[at], START + stored[at]) };
            let judged = judge(vec![made(0), made(1)], &ForgetPolicy { last: 1, ..ForgetPolicy::default() }).unwrap();
            let kept: Vec<&Candidate> =
                judged.iter().filter(|is| !is.kept_by.is_empty()).map(|is| &is.candidate).collect();
            let expected: Vec<Candidate> = expected.iter().map(|at| made(*at)).collect();
            assert_eq!(kept, expected.iter().collect::<Vec<_>>(), "{stored:?} {finished:?}");
        }
    };
    check([0, 0], [5, 6], &[1]);
    check([0, 0], [6, 5], &[0]);
    // An agent with a wrong clock pushes out nothing: the latest one of either clock stays.
    check([0, 1], [u64::MAX, 0], &[1, 0]);
}

/// Ten snapshots at these intervals, and what the rules keep of them when all were stored again at
/// `moved`.
fn stored_again(every: u64, moved: u64, policy: &ForgetPolicy) -> Vec<Vec<String>> {
    use crate::store::{Folder, Name, Store};
    use crate::testing::{PASSWORD, SMALL, Temporary, save, stage};
    let (store, stage) = (std::sync::Arc::new(crate::store::memory::Memory::default()), stage(1));
    let repository = Repository::make(store.clone(), stage.clone(), PASSWORD, "first", SMALL).unwrap();
    let folder = Temporary::new();
    folder.write("file", b"content");
    for number in 0..10 {
        store.set_now(START + number * every);
        stage.instant.store((START + number * every) * NANOS, std::sync::atomic::Ordering::Relaxed);
        save(&repository, &folder.0).unwrap();
    }
    store.set_now(START + moved);
    for dated in repository.snapshots().unwrap() {
        let name = Name::of(Folder::Snapshots, &dated.id.0);
        store.replace(&name, &store.get(&name, 1 << 20).unwrap()).unwrap();
    }
    let candidates = repository
        .snapshots()
        .unwrap()
        .iter()
        .map(|dated| Candidate::read(&repository, dated, START + moved))
        .collect();
    let judged = judge(Result::<Vec<Candidate>>::unwrap(candidates), policy).unwrap();
    judged.into_iter().map(|is| is.kept_by).collect()
}

#[test]
fn snapshots_that_were_stored_again_stay() {
    let day = 24 * HOUR;
    let daily = ForgetPolicy { daily: 14, ..ForgetPolicy::default() };
    // Long after: no rule may judge them, and they fill the place of none.
    assert_eq!(stored_again(day, 100 * day, &daily), vec![vec![MISDATED.to_owned()]; 10]);
    // In the same hour: the ends of the backups keep what the dates of the store let go.
    let hourly = ForgetPolicy { hourly: 24, ..ForgetPolicy::default() };
    assert_eq!(stored_again(HOUR, 9 * HOUR + 60, &hourly), vec![vec!["hourly".to_owned()]; 10]);
    // The same of days: the last two are misdated by less than two days, and the others by more.
    let kept = stored_again(day, 9 * day + 60, &daily);
    assert!(kept.iter().all(|by| !by.is_empty()), "{kept:?}");
}

#[test]
fn a_clock_that_jumps_ahead_makes_nothing_old() {
    let years = 10 * 365 * 24 * HOUR;
    let within = ForgetPolicy { within_seconds: 30 * 24 * HOUR, ..ForgetPolicy::default() };
    let kept = |candidates: &[Candidate], gap_max: u64| {
        let judged = judge_with(candidates.to_vec(), &within, gap_max).unwrap();
        judged.iter().filter(|is| !is.kept_by.is_empty()).count()
    };
    let mut all: Vec<Candidate> = (0..20).map(|day| candidate(day, START + day * 24 * HOUR)).collect();
    assert_eq!(kept(&all, GAP_SECONDS_MAX), 20);
    // The agent and its directory show 2036.
    all.push(candidate(20, START + years));
    assert_eq!(kept(&all, GAP_SECONDS_MAX), 21);
    assert_eq!(kept(&all, u64::MAX), 1);
    // Ages go on from there, day by day.
    all.extend((1..10).map(|day| candidate(20 + day, START + years + day * 24 * HOUR)));
    assert_eq!(kept(&all, GAP_SECONDS_MAX), 30 - 5);
}

#[test]
fn a_line_shortens_gaps_and_keeps_the_rest() {
    let line = Timeline::new([100, 103, 500], 10);
    let at: Vec<u64> = [0, 100, 102, 103, 113, 499, 500, 505, 9000].into_iter().map(|date| line.at(date)).collect();
    assert_eq!(at, [0, 0, 2, 3, 13, 13, 13, 18, 23]);
    assert_eq!((line.left_out(), Timeline::new([], 10).left_out()), (400 - 13, 0));
}

#[test]
fn snapshots_of_the_future_fill_no_place() {
    let (repository, store) = crate::testing::repository(1);
    let folder = crate::testing::Temporary::new();
    folder.write("file", b"content");
    crate::testing::save(&repository, &folder.0).unwrap();
    let dated = repository.snapshots().unwrap()[0];
    let is_misdated = |now: u64| Candidate::read(&repository, &dated, now).unwrap().is_misdated;
    let now = crate::store::Store::now(&*store).unwrap();
    assert!(!is_misdated(now) && !is_misdated(now - AHEAD_SECONDS_MAX));
    assert!(is_misdated(now - AHEAD_SECONDS_MAX - 1), "the store's clock went back");
}

#[test]
fn a_wrong_date_fills_no_place_of_others() {
    let mut all: Vec<Candidate> = (0..10).map(|number| candidate(number, START + number)).collect();
    // An intruder with the key dates them into the future of the others.
    all.extend((0..10).map(|number| Candidate { is_misdated: true, ..candidate(100 + number, START + 100) }));
    let judged = judge(all, &ForgetPolicy { last: 10, ..ForgetPolicy::default() }).unwrap();
    let reasons: BTreeSet<&str> = judged.iter().flat_map(|is| &is.kept_by).map(String::as_str).collect();
    assert_eq!((judged.iter().filter(|is| is.kept_by == ["last"]).count(), reasons.len()), (10, 2));
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
    let judged = named(&repository, &dated, &[saved.id], |_| Ok(None)).unwrap();
    assert_eq!((judged.len(), judged[0].candidate.id), (1, saved.id));
    assert_eq!(judged[0].kept_by, Vec::<&str>::new());
    // One that is gone is an error, and no other snapshot goes with it.
    let unknown = SnapshotId([9; 32]);
    assert!(matches!(named(&repository, &dated, &[saved.id, unknown], |_| Ok(None)), Err(BackupError::Missing(_))));
    assert!(store.get(&name, 1 << 20).is_ok());
    remove(&repository, &saved.id).unwrap();
    assert_eq!(remove(&repository, &saved.id), Ok(false), "it is gone");
    crate::prune::run(&repository, false).unwrap();
}

#[test]
fn a_snapshot_that_another_command_removed_is_gone() {
    let (repository, store) = crate::testing::repository(1);
    let folder = crate::testing::Temporary::new();
    folder.write("file", b"content");
    let saved = crate::testing::save(&repository, &folder.0).unwrap();
    assert_eq!(remove(&repository, &saved.id), Ok(true));
    assert_eq!(remove(&repository, &saved.id), Ok(false));
    // A refusal is still one.
    let other = crate::testing::save(&repository, &folder.0).unwrap();
    store.set_append_only(true);
    assert!(matches!(remove(&repository, &other.id), Err(BackupError::Refused(_))));
}
