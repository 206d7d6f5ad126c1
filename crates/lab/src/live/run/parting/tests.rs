use std::sync::mpsc;

use super::*;

const PATIENCE: Duration = Duration(300_000_000);

fn waited(spans: &[u64]) -> Histogram {
    let mut waited = Histogram::default();
    spans.iter().for_each(|span| waited.record(Duration(*span)));
    waited
}

fn left(worker: u32, spans: &[u64]) -> Report {
    Report::Left(Left { worker, under_way: spans.len() as u32, waited: waited(spans) })
}

/// A thread that ends only when it is told to.
fn stuck() -> (JoinHandle<()>, mpsc::Sender<()>) {
    let (sender, told) = mpsc::channel::<()>();
    (std::thread::spawn(move || told.recv().unwrap_or_default()), sender)
}

#[test]
fn what_is_never_answered_fails_the_target_and_is_counted() {
    let (sender, reports) = mpsc::channel();
    let (thread, release) = stuck();
    sender.send(left(0, &[5, 7])).unwrap();
    sender.send(left(1, &[900])).unwrap();
    sender.send(Report::Settled { worker: 0, under_way: 1 }).unwrap();
    sender.send(Report::Settled { worker: 1, under_way: 0 }).unwrap();
    let begun = WallInstant::now();
    let parted = part(&reports, vec![thread], PATIENCE, &AtomicBool::new(false), false, &mut |_| ());
    assert!(begun.elapsed().as_nanos() >= u128::from(PATIENCE.0));
    let why = parted.failed.unwrap();
    assert!(why.starts_with("an access was never answered") && why.contains("300.0 ms"), "{why}");
    assert!(parted.left_behind);
    assert_eq!((parted.unanswered.count(), parted.unanswered.longest()), (3, Duration(900)));
    drop(release);
}

#[test]
fn as_long_as_answers_come_a_target_is_waited_for() {
    let (sender, reports) = mpsc::channel();
    let work = move || {
        sender.send(left(0, &[1; 8])).unwrap();
        for under_way in (0..8).rev() {
            std::thread::park_timeout(WallDuration::from_nanos(PATIENCE.0 / 4));
            sender.send(Report::Settled { worker: 0, under_way }).unwrap();
        }
        sender.send(Report::Ended(Ok(()))).unwrap();
    };
    let begun = WallInstant::now();
    let thread = std::thread::spawn(work);
    let mut told: Vec<Draining> = Vec::new();
    let parted = part(&reports, vec![thread], PATIENCE, &AtomicBool::new(false), false, &mut |now| told.push(now));
    assert_eq!((parted.failed, parted.left_behind), (None, false));
    assert!(!told.is_empty() && told[0].waited.0 >= TELL.as_nanos() as u64, "{told:?}");
    assert!(told.iter().all(|now| now.under_way < 8) && told.is_sorted_by_key(|now| now.waited), "{told:?}");
    assert!(begun.elapsed().as_nanos() > u128::from(PATIENCE.0), "twice the patience, and each answer within it");
}

#[test]
fn who_ends_a_run_does_not_wait_for_what_is_under_way() {
    for (end, given_up) in [(true, false), (false, true)] {
        let (sender, reports) = mpsc::channel();
        let (thread, release) = stuck();
        sender.send(left(0, &[5])).unwrap();
        let patience = Duration::from_secs(1000);
        let parted = part(&reports, vec![thread], patience, &AtomicBool::new(end), given_up, &mut |_| ());
        assert_eq!((parted.failed, parted.left_behind), (None, true));
        drop((release, sender));
    }
}
