use super::scheduler::{Looks, read_again};
use super::*;
use crate::cli::backup::{RepositoryArgs, Schedule};

const HOUR: u64 = 3600;
/// Monday, 5 January 2026, 00:00.
const MONDAY_2026: u64 = 1_767_571_200;

fn row(every: &str, at: &str) -> Row {
    Row {
        name: "home".to_owned(),
        every: every.to_owned(),
        at: at.to_owned(),
        late_after: Some("2h".to_owned()),
        longest: None,
        silent_days: Some(4),
        host: None,
        paths: vec!["/home".into()],
        volume: None,
        options: Vec::new(),
    }
}

fn seen(begun: u64) -> Seen {
    Seen { begun, stored: begun + 600, problems: 0 }
}

#[test]
fn slots_begin_at_their_time_and_weeks_on_monday() {
    let slot = |every: &str, at: &str, hours: u64| {
        let slot = Planned::new(row(every, at)).unwrap().slot(MONDAY_2026 + hours * HOUR);
        slot as i64 - MONDAY_2026 as i64
    };
    let hours = |hours: i64| hours * HOUR as i64;
    assert_eq!(slot("1d", "", 30), hours(24));
    assert_eq!(slot("1d", "03:00", 30), hours(27));
    assert_eq!(slot("1d", "03:00", 26), hours(3));
    assert_eq!(slot("1w", "03:00", 2), hours(3 - 7 * 24));
    assert_eq!(slot("1w", "03:00", 100), hours(3));
    assert_eq!(slot("6h", "", 23), hours(18));
}

#[test]
fn a_schedule_stands_by_what_the_repository_has() {
    let planned = Planned::new(row("1d", "03:00")).unwrap();
    let day = |day: u64, hour: u64| MONDAY_2026 + day * DAY + hour * HOUR;
    let check = |seen: &[Seen], attempt: Option<(u64, i32)>, now: u64, expected: State, missed: u64, late: u64| {
        let attempt =
            attempt.map(|(at, exit)| Attempt { slot: planned.slot(at), number: 1, ended: at, exit: Some(exit) });
        let is = stand(&planned, seen, attempt.as_ref(), now);
        assert_eq!((is.state, is.missed, is.late), (expected, missed, late));
    };
    check(&[], None, day(1, 4), State::Never, 0, 0);
    check(&[], Some((day(1, 4), 1)), day(1, 4), State::Failed, 0, 0);
    check(&[seen(day(1, 3))], None, day(1, 4), State::Good, 0, 0);
    check(&[seen(day(1, 6))], None, day(1, 7), State::Late, 0, 0);
    check(&[seen(day(1, 3))], None, day(2, 4), State::Waiting, 0, 0);
    check(&[seen(day(1, 3))], None, day(2, 6), State::Late, 0, 0);
    check(&[seen(day(1, 3))], Some((day(2, 4), 6)), day(2, 6), State::Failed, 0, 0);
    // Whatever the exit code says: the slot has no snapshot.
    check(&[seen(day(1, 3))], Some((day(2, 4), 3)), day(2, 4), State::Failed, 0, 0);
    check(&[seen(day(1, 3)), seen(day(2, 4))], Some((day(2, 4), 3)), day(2, 6), State::Good, 0, 0);
    check(&[seen(day(1, 3))], None, day(3, 4), State::Missed, 1, 0);
    check(&[seen(day(1, 3))], None, day(6, 4), State::Silent, 4, 0);
    check(&[seen(day(1, 6)), seen(day(3, 3))], None, day(3, 4), State::Good, 1, 1);
    let incomplete = Seen { problems: 2, ..seen(day(1, 3)) };
    check(&[incomplete], None, day(1, 4), State::Incomplete, 0, 0);
}

#[test]
fn files_that_the_last_snapshot_lacks_are_told_until_the_next_one() {
    let planned = Planned::new(row("1d", "03:00")).unwrap();
    let state = |now: u64| {
        let incomplete = Seen { problems: 2, ..seen(MONDAY_2026 + 3 * HOUR) };
        stand(&planned, &[incomplete], None, MONDAY_2026 + now * HOUR).state
    };
    // Before the slot's backup has ended, and when it should have.
    assert_eq!((state(24 + 2), state(24 + 4), state(24 + 6)), (State::Incomplete, State::Incomplete, State::Late));
}

#[test]
fn attempts_lie_apart_and_end_at_three() {
    let planned = Planned::new(row("1d", "03:00")).unwrap();
    let over = |number: u32, seconds: u64| {
        let before = Attempt { slot: MONDAY_2026, number, ended: MONDAY_2026, exit: Some(7) };
        before.is_over(&planned, MONDAY_2026 + seconds)
    };
    assert!(Attempt::default().is_over(&planned, 5), "the first one waits for nothing");
    assert_eq!((over(1, 0), over(1, 3 * HOUR - 1), over(1, 3 * HOUR)), (false, false, true));
    assert_eq!((over(2, 3 * HOUR), over(3, 23 * HOUR)), (true, false));
}

#[test]
fn one_scheduler_runs_a_file_and_notes_what_it_begins() {
    let folder = std::env::temp_dir().join(format!("stele-schedule-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("schedules.toml");
    let first = alone(&file).unwrap();
    assert_eq!(alone(&file).unwrap_err().kind, Kind::Busy);
    drop(first);
    alone(&file).unwrap();
    let begun = Attempt { slot: 1, number: 2, ended: 3, exit: None };
    note(&file, "home", begun).unwrap();
    assert_eq!(attempts(&file), Attempts::from([("home".to_owned(), begun)]));
    // What earlier versions noted.
    std::fs::write(attempts_path(&file), br#"{"home":{"slot":1,"number":2,"ended":3,"exit":7}}"#).unwrap();
    assert_eq!(attempts(&file), Attempts::from([("home".to_owned(), Attempt { exit: Some(7), ..begun })]));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn links_above_a_path_are_resolved_as_in_its_snapshots() {
    let folder = std::env::temp_dir().join(format!("stele-schedule-links-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("usr/home/anna")).unwrap();
    let folder = folder.canonicalize().unwrap();
    std::os::unix::fs::symlink("usr/home", folder.join("home")).unwrap();
    let series = |host: Option<&str>| {
        let linked = Row { paths: vec![folder.join("home/anna")], host: host.map(str::to_owned), ..row("1d", "") };
        Planned::new(linked).unwrap().series
    };
    let expected = |path: &str| vec![folder.join(path).to_str().unwrap().as_bytes()[1..].to_vec()];
    assert_eq!(series(None), expected("usr/home/anna"));
    // Those of other machines are named as they are there.
    assert_eq!(series(Some("another machine")), expected("home/anna"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_backup_may_take_a_slot_and_at_least_two_days() {
    let longest = |every: &str, longest: Option<&str>| {
        let row = Row { longest: longest.map(str::to_owned), ..row(every, "") };
        Planned::new(row).unwrap().longest.as_secs()
    };
    assert_eq!((longest("6h", None), longest("1d", None), longest("1w", None)), (2 * DAY, 2 * DAY, 7 * DAY));
    assert_eq!((longest("1w", Some("6h")), longest("6h", Some("30m"))), (6 * HOUR, 1800));
}

#[test]
fn a_schedule_that_means_nothing_is_refused() {
    assert!(Planned::new(row("1d", "03:00")).is_ok());
    for (every, at) in [("", ""), ("5", ""), ("30m", ""), ("2x", ""), ("1d", "3:00"), ("1d", "24:00"), ("1d", "03:60")]
    {
        assert!(Planned::new(row(every, at)).is_err(), "{every} {at}");
    }
    assert!(Planned::new(Row { late_after: Some("1d".to_owned()), ..row("1d", "") }).is_err());
    assert!(Planned::new(Row { paths: Vec::new(), ..row("1d", "") }).is_err());
    assert!(Planned::new(Row { longest: Some("long".to_owned()), ..row("1d", "") }).is_err());
    assert!(Planned::new(Row { volume: Some("vm".to_owned()), ..row("1d", "") }).is_err());
    assert!(Planned::new(Row { paths: vec!["home".into()], ..row("1d", "") }).is_err());
    let both = Row { paths: vec!["/srv/".into(), "/home".into(), "/srv/a".into()], ..row("1d", "") };
    assert_eq!(Planned::new(both).unwrap().series, [b"home".to_vec(), b"srv".to_vec()]);
}

#[test]
fn options_that_no_backup_takes_are_refused_with_the_schedule() {
    let planned = |options: &[&str], host: Option<&str>| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Planned::new(Row { options, host: host.map(str::to_owned), ..row("1d", "") })
    };
    let good = ["--exclude", "*.o", "--exclude-caches", "-x", "--tag", "a", "--before", "x -y", "--json"];
    assert!(planned(&good, None).is_ok());
    let wrong: [(&[&str], &str); 8] = [
        (&["--nonsense"], "'--nonsense'"),
        (&["--sessions", "99"], "no number from 1 to 16"),
        (&["--exclude", "a[b"], "a '[' has no ']'"),
        (&["--exclude-if-present", "a/b"], "must be the name of a file"),
        // What the schedule says itself.
        (&["--host", "other"], "'--host <HOST>' cannot be used multiple times"),
        (&["--repository", "/mnt"], "cannot be used multiple times"),
        (&["--volume", "vm"], "cannot be used with"),
        (&["/etc"], "a further path"),
    ];
    for (options, told) in wrong {
        let Err(failure) = planned(options, None) else { panic!("{options:?} is taken") };
        assert!(failure.error.starts_with("schedule 'home': `options`: "), "{}", failure.error);
        assert!(failure.error.contains(told), "{}", failure.error);
    }
    // Another machine may have a later version.
    assert!(planned(&["--nonsense"], Some("another machine")).is_ok());
    let Ok(of_volume) = Planned::new(Row { paths: Vec::new(), volume: Some("vm1".to_owned()), ..row("1d", "") }) else {
        panic!("a volume needs no paths");
    };
    assert_eq!(of_volume.arguments()[2..], ["--volume", "vm1"]);
}

#[test]
fn a_mistake_in_the_file_leaves_the_schedules_of_before() {
    let file = std::env::temp_dir().join(format!("stele-schedules-{}.toml", std::process::id()));
    let write = |text: &str| std::fs::write(&file, format!("[[schedule]]\n{text}\n")).unwrap();
    let names = |planned: &[Planned]| planned.iter().map(|is| is.row.name.clone()).collect::<Vec<String>>();
    let mut planned = Vec::new();
    for (text, told, name) in [
        ("name = 'home'\nevery = '1d'\npaths = ['/home']", None, "home"),
        ("name = 'home'\nevery = '1", Some(".toml: line"), "home"),
        ("name = 'home'\nevery = '1d'\npaths = ['/home']\noptions = ['--of']", Some("'--of'"), "home"),
        ("name = 'etc'\nevery = '1d'\npaths = ['/etc']", None, "etc"),
    ] {
        write(text);
        let wrong = read_again(&file, &mut planned);
        assert_eq!(wrong.is_some(), told.is_some(), "{wrong:?}");
        assert!(wrong.is_none_or(|wrong| wrong.contains(told.unwrap_or_default())), "{text}");
        assert_eq!(names(&planned), [name]);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn each_look_of_a_scheduler_opens_its_place_anew() {
    let folder = std::env::temp_dir().join(format!("stele-looks-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("password"), "correct horse\n").unwrap();
    let command = |place: &str| Schedule {
        place: RepositoryArgs {
            repository: folder.join(place),
            password_file: Some(folder.join("password")),
            password_command: None,
        },
        file: folder.join("schedules.toml"),
        at_once: 4,
        once: false,
    };
    let making = stele_backup::repository::Making { cost: stele_backup::keyring::Cost::LEAST, ..Default::default() };
    let place = command("first").place;
    Repository::make(super::super::store(&place).unwrap(), super::super::machine(), b"correct horse", "", making)
        .unwrap();
    std::os::unix::fs::symlink(folder.join("first"), folder.join("second")).unwrap();
    // The same repository with another store, as with other credentials. The password is not needed
    // again.
    let mut looks = Looks::default();
    assert!(looks.open(&command("first")).unwrap().store.place().ends_with("first"));
    std::fs::remove_file(folder.join("password")).unwrap();
    assert!(looks.open(&command("second")).unwrap().store.place().ends_with("second"));
    std::fs::remove_dir_all(&folder).unwrap();
}
