use stele_ground::Instant;

use super::*;

const START: u64 = 1_800_000_000_000;
const HOUR: u64 = 3_600_000;

fn at(elapsed: u64, wall: u64) -> Reading {
    Reading { monotonic: Instant(elapsed * MILLISECOND), wall: Timestamp(wall) }
}

#[test]
fn it_follows_real_time_and_freezes_on_jumps() {
    // (what happened, readings, what it shows above START, frozen)
    type Case = (&'static str, Vec<Reading>, u64, bool);
    let year = 365 * 24 * HOUR;
    let cases: Vec<Case> = vec![
        ("an hour passes", vec![at(HOUR, START + HOUR)], HOUR, false),
        ("the clock is set a year ahead", vec![at(1000, START + year)], 1000 + 1000 * 7 / 365, true),
        ("the clock is set back an hour", vec![at(1000, START - HOUR)], 0, true),
        ("back, and an hour later it is where it was", vec![at(1000, START - HOUR), at(HOUR, START)], 0, true),
        ("it drifts by a minute", vec![at(HOUR, START + HOUR - 60_000)], HOUR - 60_000, false),
        ("small steps ahead add up", (1..=10).map(|n| at(n * 1000, START + n * 61_000)).collect(), 10_191, true),
    ];
    for (what, readings, shows, frozen) in cases {
        let mut clock = ComplianceClock::start(at(0, START));
        readings.into_iter().for_each(|reading| clock.advance(reading));
        assert_eq!(clock.shown().0 - START, shows, "{what}");
        assert_eq!(clock.frozen().is_some(), frozen, "{what}");
        assert_eq!(clock.alarm().is_some(), frozen, "{what}");
    }
}

#[test]
fn time_spent_closed_is_made_up_slowly_or_by_agreement() {
    let row = ClockRow {
        shown: Timestamp(START),
        wall: Timestamp(START),
        frozen: None,
        seen: None,
        closed: None,
        more: None,
        open: None,
    };
    let mut clock = ComplianceClock::resume(&row, at(0, START + HOUR));
    assert_eq!((clock.shown().0, clock.frozen()), (START, None));
    clock.advance(at(52 * HOUR, START + 53 * HOUR));
    assert!(clock.shown().0 < START + 53 * HOUR, "a week a year is an hour in 52");
    clock.advance(at(54 * HOUR, START + 55 * HOUR));
    assert_eq!(clock.shown().0, START + 55 * HOUR);

    let mut clock = ComplianceClock::resume(&row, at(0, START + 400 * 24 * HOUR));
    assert!(clock.frozen().is_some() && clock.alarm().is_some());
    let reason = clock.frozen().unwrap();
    clock.accept("another alarm");
    assert!(clock.frozen().is_some());
    clock.credit(clock.creditable());
    assert!(clock.frozen().is_some());
    clock.accept(&reason);
    assert_eq!(clock.frozen(), None);
    assert_eq!(clock.shown().0, START + 400 * 24 * HOUR);

    let clock = ComplianceClock::resume(&row, at(0, START - HOUR));
    assert!(clock.frozen().is_some(), "set back while closed");
    assert_eq!(clock.shown().0, START, "never back");
}

#[test]
fn it_counts_the_time_open_whatever_the_system_clock_shows() {
    let mut clock = ComplianceClock::start(at(0, START));
    for (elapsed, wall) in [(HOUR, START + HOUR), (2 * HOUR, START + 9000 * HOUR), (3 * HOUR, START - 9000 * HOUR)] {
        clock.advance(at(elapsed, wall));
        assert_eq!(clock.open(), elapsed, "{wall}");
    }
    // Time spent closed does not count, and credits do not.
    let mut clock = ComplianceClock::resume(&clock.row(), at(0, START + 9000 * HOUR));
    clock.credit(clock.creditable());
    assert_eq!(clock.open(), 3 * HOUR);
    clock.advance(at(HOUR, START));
    assert_eq!(clock.open(), 4 * HOUR);
}

#[test]
fn it_never_goes_back_and_never_outruns_the_slew() {
    let mut dice = stele_ground::Dice::new(7);
    for _ in 0..200 {
        let mut clock = ComplianceClock::start(at(0, START));
        let (mut elapsed, mut wall) = (0, START);
        for _ in 0..100 {
            let step = dice.below(10 * HOUR);
            elapsed += step;
            wall = if dice.one_in(5) { START - HOUR + dice.below(9000 * HOUR) } else { wall + step };
            let before = clock.shown();
            clock.advance(at(elapsed, wall));
            assert!(clock.shown() >= before);
            assert!(clock.shown().0 - START <= elapsed + elapsed * 7 / 365 + 1);
        }
    }
}

const DAYS: u64 = 24 * HOUR;

/// What a credit would add to a clock, in milliseconds.
fn creditable(clock: &ComplianceClock) -> u64 {
    clock.creditable().to.0 - clock.creditable().from.0
}

#[test]
fn a_credit_is_never_more_than_the_time_spent_closed() {
    // (what happens between an opening at START and a credit, what the credit may add)
    type History = fn(ComplianceClock) -> ComplianceClock;
    let histories: [(&str, History, u64); 8] = [
        (
            "the system clock is set ahead by eight years while it is open",
            |mut clock| {
                clock.advance(at(HOUR, START + 8 * 365 * DAYS));
                clock
            },
            0,
        ),
        (
            "set ahead while it is open, and opened again with that",
            |mut clock| {
                clock.advance(at(HOUR, START + 8 * 365 * DAYS));
                ComplianceClock::resume(&clock.row(), at(0, START + 8 * 365 * DAYS))
            },
            0,
        ),
        ("closed for sixty days", |clock| ComplianceClock::resume(&clock.row(), at(0, START + 60 * DAYS)), 60 * DAYS),
        (
            "closed for sixty days, then set ahead",
            |clock| {
                let mut clock = ComplianceClock::resume(&clock.row(), at(0, START + 60 * DAYS));
                clock.advance(at(0, START + 900 * DAYS));
                clock
            },
            60 * DAYS,
        ),
        (
            "closed twice",
            |clock| {
                let clock = ComplianceClock::resume(&clock.row(), at(0, START + 10 * DAYS));
                ComplianceClock::resume(&clock.row(), at(0, START + 30 * DAYS))
            },
            30 * DAYS,
        ),
        (
            "set back while open, and right again at the next opening",
            |mut clock| {
                clock.advance(at(HOUR, START - 900 * DAYS));
                ComplianceClock::resume(&clock.row(), at(0, START + HOUR))
            },
            0,
        ),
        (
            "opened with a clock set back, and right again at the next opening",
            |clock| {
                let clock = ComplianceClock::resume(&clock.row(), at(0, START - 900 * DAYS));
                ComplianceClock::resume(&clock.row(), at(0, START + DAYS))
            },
            DAYS,
        ),
        (
            "credited once",
            |clock| {
                let mut clock = ComplianceClock::resume(&clock.row(), at(0, START + 60 * DAYS));
                clock.credit(clock.creditable());
                clock.advance(at(0, START + 900 * DAYS));
                clock
            },
            0,
        ),
    ];
    for (what, history, expected) in histories {
        assert_eq!(creditable(&history(ComplianceClock::start(at(0, START)))), expected, "{what}");
    }
}

#[test]
fn what_the_slew_has_made_up_is_not_credited_again() {
    let row = ComplianceClock::start(at(0, START)).row();
    let mut clock = ComplianceClock::resume(&row, at(0, START + HOUR));
    for hour in 1..=53 {
        clock.advance(at(hour * HOUR, START + (hour + 1) * HOUR));
    }
    assert_eq!(clock.shown().0, START + 54 * HOUR, "made up");
    clock.advance(at(53 * HOUR, START + 900 * DAYS));
    assert_eq!(creditable(&clock), 0);
}

/// Also far behind the reasons that are kept, an alarm changes what an officer accepts.
#[test]
fn every_alarm_changes_what_is_accepted() {
    let mut clock = ComplianceClock::start(at(0, START));
    let mut seen = Vec::new();
    for n in 1..=60 {
        clock.advance(at(n * 1000, START + n * DAYS));
        let reason = clock.frozen().unwrap();
        assert!(!seen.contains(&reason), "alarm {n}: {reason}");
        assert!(reason.len() < 2 * REASONS_MAX, "alarm {n}: {} bytes", reason.len());
        // Also over an opening.
        let row = clock.row();
        clock = ComplianceClock::resume(&row, at(n * 1000, START + n * DAYS));
        assert_eq!(clock.frozen().as_ref(), Some(&reason), "alarm {n}");
        seen.push(reason);
    }
    assert!(seen.last().unwrap().ends_with(" more, in the audit log"), "{:?}", seen.last());
    clock.accept(&seen[58]);
    assert!(clock.frozen().is_some());
    clock.accept(&seen[59]);
    assert_eq!(clock.frozen(), None);
    clock.advance(at(61_000, START + 90 * DAYS));
    assert!(!clock.frozen().unwrap().contains("more"));
}

/// Requests on several threads read the clocks, and one that read them first may come second.
#[test]
fn a_reading_that_comes_late_counts_no_time_twice() {
    let row = ClockRow {
        shown: Timestamp(START),
        wall: Timestamp(START),
        frozen: None,
        seen: None,
        closed: None,
        more: None,
        open: None,
    };
    // It is an hour behind, so that nothing but the slew bounds it.
    let mut clock = ComplianceClock::resume(&row, at(0, START + HOUR));
    for n in (10..=10_000).step_by(10) {
        clock.advance(at(n, START + HOUR + n));
        clock.advance(at(n - 9, START + HOUR + n - 9));
    }
    assert_eq!(clock.open(), 10_000);
    assert_eq!(clock.seen(), Timestamp(START + HOUR + 10_000));
    let shown = clock.shown().0 - START;
    assert!((10_190..=10_000 + 10_000 * 7 / 365 + 1).contains(&shown), "{shown}");
    assert_eq!((clock.frozen(), clock.alarm()), (None, None));
}

#[test]
fn an_alarm_waits_until_it_is_reported() {
    let mut clock = ComplianceClock::start(at(0, START));
    clock.advance(at(1000, START + DAYS));
    let first = clock.alarm().unwrap();
    assert_eq!(clock.alarm(), Some(first.clone()), "a look takes nothing");
    clock.advance(at(2000, START + 3 * DAYS));
    clock.reported(&first);
    let second = clock.alarm().expect("another one came since");
    assert_ne!(second, first);
    clock.reported(&second);
    assert_eq!(clock.alarm(), None);
    assert!(clock.frozen().is_some(), "a reported freeze lasts");
}

/// Several jumps come before background work records one.
#[test]
fn no_alarm_takes_the_place_of_one_that_is_not_reported() {
    let mut clock = ComplianceClock::start(at(0, START));
    let (ahead, back) = (Timestamp(START + DAYS), Timestamp(START + 200));
    clock.advance(at(100, ahead.0));
    clock.advance(at(200, back.0));
    let alarm = clock.alarm().unwrap();
    assert!(alarm.contains(&format!("to {ahead}")) && alarm.contains(&format!("to {back}")), "{alarm}");
    clock.advance(at(300, START + 2 * DAYS));
    clock.reported(&alarm);
    let since = clock.alarm().unwrap();
    assert_eq!(since.matches("jumped").count(), 1, "{since}");
    clock.reported(&since);
    assert_eq!(clock.alarm(), None);
    // A bounded record takes them.
    for turn in 2..1000 {
        clock.advance(at(turn * 1000, START + turn % 2 * DAYS));
    }
    assert!(clock.alarm().unwrap().len() < 4000);
    assert!(clock.frozen().unwrap().contains("more, in the audit log"));
}
