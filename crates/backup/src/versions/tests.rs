use super::*;
use crate::backup::{BackupProgress, Saved, Source, run};
use crate::repository::Repository;
use crate::testing::{Temporary, options, repository};

fn filter(patterns: &[&str]) -> Filter {
    let mut filter = Filter::default();
    patterns.iter().for_each(|pattern| filter.add(pattern, false).unwrap());
    filter
}

fn class(name: &str, include: &[&str], exists: (u64, u64), deleted: (u64, u64)) -> Class {
    let kept = |(versions, days)| VersionRetention { versions: Some(versions), days: Some(days) };
    Class { name: name.to_owned(), include: filter(include), exists: kept(exists), deleted: kept(deleted) }
}

/// A repository with a snapshot a day of some files, whose days and contents the tests choose.
struct Series {
    repository: Repository,
    store: std::sync::Arc<crate::store::memory::Memory>,
    folder: Temporary,
    day: u64,
}

impl Series {
    fn new(seed: u64) -> Series {
        let (repository, store) = repository(seed);
        let folder = Temporary::new();
        Series { repository, store, folder, day: 100 }
    }

    /// Writes what is named and removes what has no content, and takes the snapshot of the day.
    fn day(&mut self, files: &[(&str, &str)]) -> SnapshotId {
        for (name, content) in files {
            match content.is_empty() {
                true => std::fs::remove_file(self.folder.join(name)).unwrap(),
                false => drop(self.folder.write(name, content)),
            }
        }
        self.take()
    }

    fn take(&mut self) -> SnapshotId {
        self.day += 1;
        self.store.set_now(self.day * DAY);
        let saved: Saved =
            run(&self.repository, Source::Files, &options(&self.folder.0), &BackupProgress::default()).unwrap();
        saved.id
    }

    fn members(&self) -> Vec<SeriesSnapshot> {
        let all = self.repository.snapshots().unwrap();
        let member = |dated: crate::repository::Dated| SeriesSnapshot {
            id: dated.id,
            stored: dated.stored,
            description: self.repository.snapshot(&dated.id).unwrap().description,
        };
        all.into_iter().map(member).collect()
    }

    fn judge(&self, policy: &VersionPolicy) -> Judgement {
        let (indexed, _) = self.repository.index(&self.repository.epoch().unwrap(), None).unwrap();
        judge(&indexed, &self.members(), policy, self.day * DAY).unwrap()
    }

    /// Removes what the policy lets go, and gives the days that are left.
    fn forget(&self, policy: &VersionPolicy) -> Vec<u64> {
        let judged = self.judge(policy);
        for member in self.members() {
            if !judged.kept.contains_key(&member.id) {
                crate::forget::remove(&self.repository, &member.id).unwrap();
            }
        }
        self.members().iter().map(|member| member.stored / DAY - 100).collect()
    }
}

#[test]
fn so_many_versions_stay_while_a_file_exists() {
    let mut series = Series::new(1);
    for day in 1..=10 {
        series.day(&[("a", &format!("version {day}"))]);
    }
    let policy = VersionPolicy::new(vec![class("all", &[], (3, 1000), (1, 1000))], 0).unwrap();
    // Versions 8, 9 and 10; each ends with the next one.
    assert_eq!(series.forget(&policy), [8, 9, 10]);
    let long = VersionPolicy::new(vec![class("all", &[], (3, 1), (1, 1000))], 0).unwrap();
    assert_eq!(series.forget(&long), [8, 9, 10], "version 8 ended a day ago");
    series.take();
    // Version 8 ended two days ago; 9 ended with the snapshot of day 10, which stays for 10 itself
    // as its only one.
    assert_eq!(series.forget(&long), [9, 10, 11]);
}

#[test]
fn a_version_expires_although_the_snapshots_behind_it_go() {
    let mut series = Series::new(2);
    series.day(&[("a", "old"), ("b", "same")]);
    series.day(&[("a", "new")]);
    let policy = VersionPolicy::new(vec![class("all", &[], (9, 5), (9, 5))], 0).unwrap();
    let mut kept = Vec::new();
    for _ in 3..=8 {
        series.take();
        kept.push(series.forget(&policy));
    }
    // Day 2 shows when the old version ended, so its end does not move.
    assert_eq!(kept, [vec![1, 2, 3], vec![1, 2, 4], vec![1, 2, 5], vec![1, 2, 6], vec![1, 2, 7], vec![8]]);
}

#[test]
fn deleted_files_have_numbers_and_days_of_their_own() {
    let mut series = Series::new(3);
    for day in 1..=4 {
        series.day(&[("a", &format!("version {day}")), ("b", "stays")]);
    }
    series.day(&[("a", "")]);
    let policy = VersionPolicy::new(vec![class("all", &[], (2, 1000), (3, 7))], 0).unwrap();
    assert_eq!(series.forget(&policy), [2, 3, 4, 5]);
    for _ in 0..6 {
        series.take();
    }
    // Day 11: version 2 ended on day 3, version 3 on day 4, version 4 on day 5.
    assert_eq!(series.forget(&policy), [3, 4, 5, 11]);
    series.take();
    series.take();
    // Nothing of `a` is left. `b` was written again on day 4, and has two versions.
    assert_eq!(series.forget(&policy), [3, 4, 13]);
}

#[test]
fn rules_bind_paths_to_classes_and_the_first_one_counts() {
    let mut series = Series::new(4);
    let root = series.folder.0.to_str().unwrap().to_owned();
    let classes = vec![
        class("records", &[&format!("{root}/records")], (1000, 1000), (1000, 1000)),
        class("all", &[], (1, 0), (0, 0)),
    ];
    let policy = VersionPolicy::new(classes, 0).unwrap();
    let path = |name: &str| format!("{}/{name}", root.trim_start_matches('/')).into_bytes();
    assert_eq!(policy.class_of(&path("records/deep/a")).unwrap().name, "records");
    assert_eq!(policy.class_of(&path("recordsx")).unwrap().name, "all");
    series.day(&[("records/a", "one"), ("b", "one")]);
    series.day(&[("b", "two")]);
    series.day(&[("records/a", "two"), ("b", "three")]);
    series.day(&[("b", "four")]);
    // Day 2 is the last one with the first version of records/a; day 3 shows its end.
    assert_eq!(series.forget(&policy), [2, 3, 4]);
    let narrow = VersionPolicy::new(vec![class("records", &["records"], (1, 0), (0, 0))], 0).unwrap();
    assert_eq!(series.forget(&narrow), [2, 3, 4], "without a class all versions of b stay");
}

#[test]
fn a_flood_of_versions_pushes_nothing_out_for_some_days() {
    let mut series = Series::new(5);
    series.day(&[("a", "good")]);
    for day in 0..20 {
        series.day(&[("a", &format!("encrypted {day}"))]);
    }
    let policy = |least| VersionPolicy::new(vec![class("all", &[], (3, 1000), (1, 1000))], least).unwrap();
    assert!(series.judge(&policy(30)).kept.len() == 21, "all ended less than 30 days ago");
    let first = series.members()[0].id;
    assert!(!series.judge(&policy(10)).kept.contains_key(&first));
}

#[test]
fn a_snapshot_with_problems_deletes_nothing() {
    let members = |problems: &[u64]| -> Vec<SeriesSnapshot> {
        let member = |(number, problems): (usize, &u64)| SeriesSnapshot {
            id: SnapshotId([number as u8; 32]),
            stored: number as u64,
            description: Description { problems: *problems, ..Description::default() },
        };
        problems.iter().enumerate().map(member).collect()
    };
    let found = |versions: &[u8]| -> BTreeMap<usize, Version> {
        let all = versions.iter().enumerate().filter(|(_, version)| **version > 0);
        all.map(|(place, version)| (place, [*version; 32])).collect()
    };
    let run = |last, end| Run { last, end };
    let check = |versions: &[u8], problems: &[u64], expected: &[Run]| {
        assert_eq!(runs(&found(versions), &members(problems)), expected, "{versions:?} {problems:?}");
    };
    check(&[1, 1, 2, 2], &[0; 4], &[run(1, Some(2)), run(3, None)]);
    check(&[1, 0, 1, 0], &[0; 4], &[run(0, Some(1)), run(2, Some(3))]);
    check(&[1, 0, 1, 0], &[0, 3, 0, 0], &[run(2, Some(3))]);
    check(&[1, 1, 0, 0], &[0, 0, 1, 1], &[run(1, None)]);
    check(&[0, 0, 1, 0], &[0, 0, 0, 1], &[run(2, None)]);
    check(&[0, 0, 0, 0], &[0; 4], &[]);
}

#[test]
fn a_policy_that_means_something_else_is_refused() {
    let good = || class("a", &["x"], (1, 1), (0, 0));
    let wrong = [
        vec![],
        vec![good(), good()],
        vec![class("", &[], (1, 1), (1, 1))],
        vec![class("a", &[], (0, 1), (1, 1))],
        vec![class("a", &[], (1, 1), (1, 1)), class("b", &["x"], (1, 1), (1, 1))],
    ];
    for classes in wrong {
        assert!(matches!(VersionPolicy::new(classes, 0), Err(BackupError::Invalid(_))));
    }
    assert!(VersionPolicy::new(vec![good(), class("b", &[], (1, 1), (1, 1))], 0).is_ok());
}
