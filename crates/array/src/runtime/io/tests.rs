use super::backlog::DESTAGES_OUT;
use super::turns::{HOSTS_OUT, HOSTS_PASS, LINGER, RUNS_OUT, TURN};
use super::*;
use stele_ground::BLOCK;

fn block(byte: u8) -> Vec<Shared> {
    vec![Buffer::copy_of(&[byte; BLOCK]).freeze()]
}

fn requests(io: &Io) -> Vec<(usize, Request)> {
    let mut actions = Vec::new();
    io.drain(&mut actions);
    let request = |action| match action {
        Action::Drive { drive, request } => (drive, request),
        other => panic!("unexpected {other:?}"),
    };
    actions.into_iter().map(request).collect()
}

fn answer(io: &Io, drive: usize, request: Request) {
    io.complete(drive, Completion { tag: request.tag, op: request.op, result: Ok(()) });
}

fn started() -> (Tasks, Io) {
    let tasks = Tasks::new();
    let io = Io::new(&tasks, Instant(0));
    io.attach();
    io.attach();
    (tasks, io)
}

#[test]
fn flushes_asked_for_meanwhile_are_one_flush() {
    let (tasks, io) = started();
    let done = Rc::new(Cell::new(0));
    let flush = || {
        let (own, done) = (io.clone(), Rc::clone(&done));
        io.spawn(async move {
            own.write(0, 0, block(1), Priority::Host).await.expect("written");
            own.flush(0).await.expect("flushed");
            done.set(done.get() + 1);
        });
    };
    (0..3).for_each(|_| flush());
    tasks.run_ready();
    for (drive, write) in requests(&io) {
        answer(&io, drive, write);
    }
    tasks.run_ready();
    let first = requests(&io);
    assert_eq!(first.len(), 1, "three flushes joined into one");
    // Writes that complete while the flush is out are not covered by it.
    (0..2).for_each(|_| flush());
    tasks.run_ready();
    for (drive, write) in requests(&io) {
        assert!(matches!(write.op, Op::Write { .. }));
        answer(&io, drive, write);
    }
    tasks.run_ready();
    assert!(requests(&io).is_empty(), "one flush is out at a time");
    first.into_iter().for_each(|(drive, flush)| answer(&io, drive, flush));
    tasks.run_ready();
    assert_eq!(done.get(), 3);
    requests(&io).into_iter().for_each(|(drive, flush)| answer(&io, drive, flush));
    tasks.run_ready();
    assert_eq!(done.get(), 5);
    // Nothing was written since: free.
    let own = io.clone();
    io.spawn(async move { own.flush(0).await.expect("nothing to do") });
    tasks.run_ready();
    assert!(requests(&io).is_empty() && tasks.is_idle());
    io.advance(Instant(1));
    assert_eq!(io.counters(0).flushes, 2);
}

#[test]
fn a_request_takes_from_the_turn_that_hands_it_out_to_the_turn_that_its_completion_comes_with() {
    let (tasks, io) = started();
    // More than go out at once: the rest goes out in the second turn, when the first ones are done.
    for at in 0..DEPTH as u64 + 2 {
        let own = io.clone();
        io.spawn(async move {
            own.read(0, at << 12, 4096, Priority::Host).await.expect("read");
        });
    }
    let (first, second) = (Duration::from_millis(3), Duration::from_millis(1));
    io.advance(Instant(1_000));
    tasks.run_ready();
    for (turn, span, count) in [(1_000 + first.0, first, DEPTH), (1_000 + first.0 + second.0, second, 2)] {
        let out = requests(&io);
        assert_eq!(out.len(), count);
        let before = io.counters(0).reads;
        out.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
        io.advance(Instant(turn));
        tasks.run_ready();
        assert_eq!(io.counters(0).reads - before, count as u64);
        if before == 0 {
            assert_eq!(io.service(0).mean, span);
        }
    }
    // Towards the second turn's span, 3 ms to 1 ms, a 32nd at a time, twice.
    let mean = first.0 - 2 * (first.0 - second.0) / 32;
    assert!(io.service(0).mean.0.abs_diff(mean) < 10_000, "{:?}", io.service(0));
}

#[test]
fn the_first_flush_of_a_drive_is_never_skipped() {
    let (tasks, io) = started();
    let own = io.clone();
    io.spawn(async move { own.flush(1).await.expect("flushed") });
    tasks.run_ready();
    assert_eq!(requests(&io).len(), 1);
}

#[test]
fn beyond_the_depth_the_urgent_go_first() {
    let (tasks, io) = started();
    for number in 0..DEPTH + 3 {
        let own = io.clone();
        let priority = if number == DEPTH + 2 { Priority::Urgent } else { Priority::Scrub };
        io.spawn(async move {
            drop(own.read(0, number as u64 * 4096, BLOCK, priority).await);
        });
    }
    tasks.run_ready();
    let out = requests(&io);
    assert_eq!(out.len(), DEPTH);
    let (drive, first) = out.into_iter().next().expect("some are out");
    answer(&io, drive, first);
    let [(_, next)] = &requests(&io)[..] else { panic!("one completion lets one request out") };
    assert_eq!(next.priority, Priority::Urgent);
}

#[test]
fn a_detached_drive_answers_gone_and_late_completions_meet_nobody() {
    let (tasks, io) = started();
    let answers = Rc::new(RefCell::new(Vec::new()));
    for number in 0..DEPTH + 1 {
        let (own, answers) = (io.clone(), Rc::clone(&answers));
        io.spawn(async move {
            let read = own.read(0, number as u64 * 4096, BLOCK, Priority::Host).await;
            answers.borrow_mut().push(read.map(drop).map_err(|error| error.fault));
        });
    }
    tasks.run_ready();
    let out = requests(&io);
    io.detach(0);
    tasks.run_ready();
    assert_eq!(*answers.borrow(), [Err(MediaFault::Gone)]);
    let late: Vec<u64> = out.iter().map(|(_, request)| request.tag).collect();
    out.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    tasks.run_ready();
    assert_eq!(answers.borrow().len(), DEPTH + 1);
    for tag in late {
        io.complete(0, Completion { tag, op: Op::Flush, result: Ok(()) });
    }
    assert!(tasks.is_idle());
}

#[test]
fn an_abandoned_operation_frees_its_place_when_it_answers() {
    let (tasks, io) = started();
    let own = io.clone();
    let mut read = Box::pin(async move { own.read(0, 0, BLOCK, Priority::Host).await });
    let waker = Waker::noop();
    assert!(read.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    let out = requests(&io);
    drop(read);
    assert_eq!(io.counters(0).out, 1);
    out.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    assert_eq!(io.counters(0).out, 0);
    drop(tasks);
}

#[test]
fn sleepers_wake_in_the_order_of_their_times() {
    let (tasks, io) = started();
    let woken = Rc::new(RefCell::new(Vec::new()));
    for at in [30, 10, 20, 10] {
        let (own, woken) = (io.clone(), Rc::clone(&woken));
        io.spawn(async move {
            own.sleep_until(Instant(at)).await;
            woken.borrow_mut().push(at);
        });
    }
    tasks.run_ready();
    assert_eq!(io.next_wake(), Some(Instant(10)));
    io.advance(Instant(25));
    tasks.run_ready();
    assert_eq!(*woken.borrow(), [10, 10, 20]);
    io.advance(Instant(30));
    tasks.run_ready();
    assert_eq!(io.next_wake(), None);
    assert!(tasks.is_idle());
}

#[test]
fn reads_of_hosts_without_end_stop_nothing_less_urgent() {
    let (tasks, io) = started();
    let hosts = |count: usize| {
        for _ in 0..count {
            let own = io.clone();
            io.spawn(async move { drop(own.read(0, 0, BLOCK, Priority::Host).await) });
        }
        tasks.run_ready();
    };
    hosts(DEPTH + 40);
    let done = Rc::new(Cell::new(0));
    for (at, priority) in [(1, Priority::Scrub), (2, Priority::Destage), (3, Priority::Rebuild)] {
        let (own, done) = (io.clone(), Rc::clone(&done));
        io.spawn(async move {
            own.read(0, at * BLOCK as u64, BLOCK, priority).await.expect("read");
            done.set(done.get() + 1);
        });
        tasks.run_ready();
    }
    let mut out = requests(&io);
    let mut answered = 0;
    while done.get() < 3 {
        let (drive, request) = out.remove(0);
        answer(&io, drive, request);
        answered += 1;
        tasks.run_ready();
        // Each host asks again at once.
        hosts(1);
        out.extend(requests(&io));
        assert!(answered <= 2 * DEPTH, "{} of 3 had their turn", done.get());
    }
    // Those of hosts go first all the same: so many were answered before the last of the three.
    assert!(answered > DEPTH + TURN as usize, "{answered}");
}

#[test]
fn what_an_acknowledgement_hangs_on_yields_to_nothing() {
    let (tasks, io) = started();
    let ask = |count: usize, priority: Priority| {
        for _ in 0..count {
            let own = io.clone();
            io.spawn(async move { drop(own.read(0, 0, BLOCK, priority).await) });
        }
        tasks.run_ready();
    };
    ask(DEPTH, Priority::Host);
    ask(1, Priority::Destage);
    ask(4 * TURN as usize, Priority::Urgent);
    let out = requests(&io);
    assert_eq!(out.len(), DEPTH);
    for (drive, request) in out.into_iter().take(4 * TURN as usize) {
        answer(&io, drive, request);
    }
    tasks.run_ready();
    let next = requests(&io);
    assert!(next.iter().all(|(_, request)| request.priority == Priority::Urgent), "{next:?}");
}

#[test]
fn long_reads_of_hosts_tell_how_fast_a_drive_is_and_runs_do_not() {
    let (tasks, io) = started();
    for (priority, told) in [(Priority::Host, 1), (Priority::Destage, 2), (Priority::Rebuild, 2), (Priority::Scrub, 2)]
    {
        let own = io.clone();
        io.spawn(async move {
            own.read(0, 0, 4 * LONG as usize, priority).await.expect("read");
        });
        tasks.run_ready();
        requests(&io).into_iter().for_each(|(drive, read)| answer(&io, drive, read));
        io.advance(io.now() + Duration::from_millis(20));
        tasks.run_ready();
        assert_eq!(io.service(0).reads, told, "{priority:?}");
    }
}

/// Asks for reads of the first drive, and answers what went out.
fn ask(tasks: &Tasks, io: &Io, count: usize, length: usize, priority: Priority) -> Vec<(usize, Request)> {
    for _ in 0..count {
        let own = io.clone();
        io.spawn(async move { drop(own.read(0, 0, length, priority).await) });
    }
    tasks.run_ready();
    requests(io)
}

const RUN: usize = 1 << 20;

#[test]
fn beside_hosts_a_drive_has_one_run_at_a_time() {
    let (tasks, io) = started();
    assert_eq!(ask(&tasks, &io, 3, RUN, Priority::Rebuild).len(), 3, "no host has asked for anything");
    io.note_host();
    assert!(ask(&tasks, &io, 3, RUN, Priority::Rebuild).is_empty());
    // What is not long, and what hosts ask for, goes past them.
    assert_eq!(ask(&tasks, &io, 1, BLOCK, Priority::Rebuild).len(), 1);
    assert_eq!(io.load(0), 7);
    let (tasks, io) = started();
    io.note_host();
    let mut run = ask(&tasks, &io, 3, RUN, Priority::Scrub);
    assert!(ask(&tasks, &io, 1, RUN, Priority::Rebuild).is_empty());
    let host = ask(&tasks, &io, 1, RUN, Priority::Host);
    assert_eq!((run.len(), host.len()), (1, 1));
    let mut order = Vec::new();
    while let Some((drive, request)) = run.pop() {
        answer(&io, drive, request);
        tasks.run_ready();
        run = requests(&io);
        assert!(run.len() <= 1, "{run:?}");
        order.extend(run.iter().map(|(_, request)| request.priority));
    }
    assert_eq!(order, [Priority::Rebuild, Priority::Scrub, Priority::Scrub], "the most urgent first");
}

#[test]
fn without_hosts_a_drive_has_few_runs_at_once() {
    let (tasks, io) = started();
    let mut out = ask(&tasks, &io, RUNS_OUT as usize + 2, RUN, Priority::Scrub);
    assert_eq!(out.len(), RUNS_OUT as usize);
    // What is not long goes past those that wait.
    assert_eq!(ask(&tasks, &io, 1, BLOCK, Priority::Scrub).len(), 1);
    for left in [1, 1, 0] {
        let (drive, request) = out.remove(0);
        answer(&io, drive, request);
        let next = requests(&io);
        assert_eq!(next.len(), left);
        out.extend(next);
    }
}

/// A log waits for what is washed of it, and a rebuild beside hosts goes on for days.
#[test]
fn runs_of_a_rebuild_without_end_stop_no_run_that_is_less_urgent() {
    let (tasks, io) = started();
    io.note_host();
    let mut run = ask(&tasks, &io, 1, RUN, Priority::Rebuild);
    assert!(ask(&tasks, &io, 1, RUN, Priority::Scrub).is_empty());
    for _ in 0..TURN {
        assert!(ask(&tasks, &io, 1, RUN, Priority::Rebuild).is_empty());
        let (drive, request) = run.pop().expect("one is out");
        answer(&io, drive, request);
        tasks.run_ready();
        run = requests(&io);
        if run[0].1.priority == Priority::Scrub {
            return;
        }
    }
    panic!("the scrub has no turn");
}

#[test]
fn a_run_waits_for_what_hosts_have_out_and_not_for_ever() {
    let (tasks, io) = started();
    io.note_host();
    let mut out = ask(&tasks, &io, HOSTS_OUT as usize + 1, BLOCK, Priority::Host);
    assert!(ask(&tasks, &io, 1, RUN, Priority::Rebuild).is_empty());
    let mut answered = 0;
    let run = loop {
        // The drive always has as much to do for hosts.
        out.extend(ask(&tasks, &io, 1, BLOCK, Priority::Host));
        let (drive, request) = out.remove(0);
        answer(&io, drive, request);
        tasks.run_ready();
        answered += 1;
        let next = requests(&io);
        if let Some((_, request)) = next.into_iter().next() {
            break request;
        }
        assert!(answered <= HOSTS_PASS, "the run has no turn");
    };
    // Those that were out already when it came count too.
    assert_eq!((run.priority, answered + HOSTS_OUT + 1), (Priority::Rebuild, HOSTS_PASS));
    // The next one has as long to wait.
    assert!(ask(&tasks, &io, 1, RUN, Priority::Rebuild).is_empty());
    answer(&io, 0, run);
    assert!(requests(&io).is_empty());
    // With less to do for hosts it goes at once.
    let (drive, request) = out.remove(0);
    answer(&io, drive, request);
    assert_eq!(requests(&io).len(), 1);
}

#[test]
fn runs_that_wait_go_once_hosts_are_idle_and_are_answered_when_the_drive_goes() {
    let (tasks, io) = started();
    io.note_host();
    let mut out = ask(&tasks, &io, 4, RUN, Priority::Rebuild);
    io.advance(Instant(LINGER.0));
    let (drive, request) = out.remove(0);
    answer(&io, drive, request);
    assert_eq!(requests(&io).len(), 3);
    let (tasks, io) = started();
    io.note_host();
    let out = ask(&tasks, &io, 4, RUN, Priority::Rebuild);
    io.detach(0);
    tasks.run_ready();
    assert_eq!((out.len(), io.load(0)), (1, 1));
    out.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    tasks.run_ready();
    assert!(tasks.is_idle());
}

/// The first drive takes so long for a command.
fn with_pace(span: Duration) -> (Tasks, Io) {
    let (tasks, io) = started();
    let write = ask(&tasks, &io, 1, BLOCK, Priority::Host);
    write.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    io.advance(io.now() + span);
    tasks.run_ready();
    (tasks, io)
}

const SLOWLY: Duration = Duration::from_millis(5);

#[test]
fn a_slow_drive_has_few_commands_of_destages_and_hosts_go_past_the_others() {
    let (tasks, io) = with_pace(Duration::from_micros(100));
    assert!(!io.are_slow());
    assert_eq!(ask(&tasks, &io, 3 * DESTAGES_OUT as usize, BLOCK, Priority::Destage).len(), 3 * DESTAGES_OUT as usize);

    let (tasks, io) = with_pace(SLOWLY);
    assert!(!io.are_slow(), "one of two is not most of them");
    io.let_go(1);
    assert!(io.are_slow());
    let mut out = ask(&tasks, &io, 3 * DESTAGES_OUT as usize, BLOCK, Priority::Destage);
    assert_eq!((out.len(), io.load(0)), (DESTAGES_OUT as usize, 3 * DESTAGES_OUT as usize));
    let hosts = ask(&tasks, &io, 2, BLOCK, Priority::Host);
    assert_eq!(hosts.len(), 2, "hosts wait for no destage");
    hosts.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    assert!(requests(&io).is_empty(), "a host's command leaves no place to a destage");
    let mut answered = 0;
    while let Some((drive, request)) = out.pop() {
        answer(&io, drive, request);
        answered += 1;
        tasks.run_ready();
        out.extend(requests(&io));
        assert!(out.len() <= DESTAGES_OUT as usize);
    }
    assert_eq!(answered, 3 * DESTAGES_OUT);
    assert!(tasks.is_idle());
}

/// While the drive's line is full of what hosts ask for, destages wait in it and before it. Those
/// that no task waits for any more leave no place taken.
#[test]
fn destages_that_were_given_up_keep_no_place_from_others() {
    let (tasks, io) = with_pace(SLOWLY);
    let mut hosts = ask(&tasks, &io, DEPTH + 4, BLOCK, Priority::Host);
    let mut given_up: Vec<_> = (0..2 * DESTAGES_OUT)
        .map(|_| {
            let own = io.clone();
            let mut read = Box::pin(async move { own.read(0, 0, BLOCK, Priority::Destage).await });
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            read
        })
        .collect();
    given_up.clear();
    hosts.extend(ask(&tasks, &io, 2 * DESTAGES_OUT as usize, BLOCK, Priority::Destage));
    let mut answered = 0;
    while !hosts.is_empty() {
        let (drive, request) = hosts.remove(0);
        answer(&io, drive, request);
        answered += 1;
        tasks.run_ready();
        hosts.extend(requests(&io));
    }
    assert_eq!((answered, io.load(0)), (DEPTH + 4 + 2 * DESTAGES_OUT as usize, 0));
    assert!(tasks.is_idle());
}

#[test]
fn destages_that_wait_for_a_slow_drive_are_answered_when_it_goes() {
    let (tasks, io) = with_pace(SLOWLY);
    let done = Rc::new(Cell::new(0));
    for _ in 0..3 * DESTAGES_OUT {
        let (own, done) = (io.clone(), Rc::clone(&done));
        io.spawn(async move {
            own.read(0, 0, BLOCK, Priority::Destage).await.expect_err("it is gone");
            done.set(done.get() + 1);
        });
    }
    tasks.run_ready();
    let out = requests(&io);
    io.let_go(0);
    tasks.run_ready();
    assert_eq!((done.get(), io.owed(0)), (3 * DESTAGES_OUT, DESTAGES_OUT as usize));
    out.into_iter().for_each(|(drive, request)| answer(&io, drive, request));
    io.take_back(0);
    assert_eq!(ask(&tasks, &io, 2 * DESTAGES_OUT as usize, BLOCK, Priority::Destage).len(), DESTAGES_OUT as usize);
}
