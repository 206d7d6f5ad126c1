use super::*;

const HOUR: u64 = 3600;
/// Monday, 5 January 2026, 00:00.
const MONDAY_2026: u64 = 1_767_571_200;

fn row(every: &str, at: &str) -> Row {
    Row {
        name: "home".to_owned(),
        every: every.to_owned(),
        at: at.to_owned(),
        late_after: Some("2h".to_owned()),
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
        let attempt = attempt.map(|(at, exit)| Attempt { slot: planned.slot(at), number: 1, ended: at, exit });
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
    check(&[seen(day(1, 3))], Some((day(2, 4), 3)), day(2, 6), State::Late, 0, 0);
    check(&[seen(day(1, 3))], None, day(3, 4), State::Missed, 1, 0);
    check(&[seen(day(1, 3))], None, day(6, 4), State::Silent, 4, 0);
    check(&[seen(day(1, 6)), seen(day(3, 3))], None, day(3, 4), State::Good, 1, 1);
    let incomplete = Seen { problems: 2, ..seen(day(1, 3)) };
    check(&[incomplete], None, day(1, 4), State::Incomplete, 0, 0);
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
    assert!(Planned::new(Row { volume: Some("vm".to_owned()), ..row("1d", "") }).is_err());
    assert!(Planned::new(Row { paths: vec!["home".into()], ..row("1d", "") }).is_err());
    let both = Row { paths: vec!["/srv/".into(), "/home".into(), "/srv/a".into()], ..row("1d", "") };
    assert_eq!(Planned::new(both).unwrap().series, [b"home".to_vec(), b"srv".to_vec()]);
}
