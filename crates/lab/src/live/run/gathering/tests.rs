use super::*;

const ROUND: Duration = Duration(1_000_000_000);

/// A round of a worker that awaits an answer, and so many answers in it.
fn part(worker: u32, round: u64, answers: u64) -> WorkerRound {
    let mut part = WorkerRound { worker, round, awaits: true, ..WorkerRound::default() };
    (0..answers).for_each(|_| part.read.record(Duration(1)));
    part
}

#[test]
fn rounds_that_are_read_late_are_no_silence_of_the_target() {
    let mut heard = Heard::of(3, Duration(3 * ROUND.0));
    // Read hours later: what counts is when the rounds ended.
    for round in 0..20 {
        for worker in [1, 0, 2] {
            heard.part(&part(worker, round, 5), ROUND);
            assert!(!heard.is_silent(), "worker {worker}, round {round}");
        }
    }
    // A worker that is three rounds behind the others in what was read is not silent yet.
    (20..23).for_each(|round| heard.part(&part(0, round, 5), ROUND));
    assert!(!heard.is_silent());
    heard.part(&part(0, 23, 5), ROUND);
    assert!(heard.is_silent());
}

#[test]
fn a_worker_without_an_answer_is_found_while_others_are_answered() {
    let mut heard = Heard::of(2, Duration(3 * ROUND.0));
    for round in 0..3 {
        heard.part(&part(0, round, 5), ROUND);
        heard.part(&part(1, round, 0), ROUND);
        assert!(!heard.is_silent(), "round {round}");
    }
    heard.part(&part(0, 3, 5), ROUND);
    assert!(heard.is_silent());
    // Nothing was under way: it waited for nothing.
    let idle = WorkerRound { awaits: false, ..part(1, 3, 0) };
    heard.part(&idle, ROUND);
    assert!(!heard.is_silent());
}

#[test]
fn the_clock_counts_where_nothing_is_left_to_read() {
    let mut heard = Heard::of(1, Duration(3 * ROUND.0));
    heard.part(&part(0, 0, 5), ROUND);
    heard.until(Instant(4 * ROUND.0));
    assert!(!heard.is_silent());
    heard.until(Instant(4 * ROUND.0 + 1));
    assert!(heard.is_silent());
}
