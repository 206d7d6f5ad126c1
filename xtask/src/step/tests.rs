use super::*;

fn tally(text: &str, ended: Result<bool, String>) -> Outcome {
    let mut tally = Tally::default();
    text.lines().for_each(|line| tally.line(line.to_owned()));
    tally.end(ended)
}

const GOOD: &str = "     Running unittests src/lib.rs (target/a)
test one ... ok
test result: ok. 21 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.36s";

const BAD: &str = "     Running unittests src/lib.rs (target/b)
test two ... FAILED
why it failed
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.36s";

#[test]
fn results_add_up_and_only_failures_are_shown() {
    let outcome = tally(&format!("{GOOD}\n{BAD}\n{GOOD}"), Ok(false));
    assert_eq!((outcome.passed, outcome.failed), (45, 2));
    assert!(outcome.shown.iter().any(|line| line == "why it failed"));
    assert_eq!(outcome.red, ["b two"]);
    assert!(!outcome.shown.iter().any(|line| line.contains("target/a")), "{:?}", outcome.shown);
    let took = vec![(Duration::from_millis(360), "a".to_owned())];
    assert_eq!(tally(GOOD, Ok(true)), Outcome { passed: 21, took, ..Outcome::default() });
}

#[test]
fn the_longest_programs_are_named() {
    let of = |name: &str, seconds: &str| {
        format!(
            "  Running tests/{name}.rs (target/release/deps/{name}-0aff)\ntest result: ok. 1 passed; 0 failed; finished in {seconds}s\n"
        )
    };
    let outcome = tally(&[of("short", "0.50"), of("long", "71.30")].concat(), Ok(true));
    assert_eq!(outcome.longest().as_deref(), Some("seconds: long 71, short 0; all 2 71"));
    assert_eq!(Outcome::default().longest(), None);
}

#[test]
fn a_crash_without_a_result_is_a_failure() {
    let outcome = tally(&format!("{GOOD}\n     Running b\nfree(): invalid next size"), Ok(false));
    assert_eq!((outcome.passed, outcome.failed), (21, 1));
    assert_eq!(outcome.shown.last().map(String::as_str), Some("free(): invalid next size"));
    assert_eq!(tally("", Err("no cargo".into())).failed, 1);
}

#[test]
fn commands_are_judged_by_their_exit() {
    assert_eq!(command(&mut Command::new("true")), Outcome::of(true, Vec::new()));
    assert_eq!(command(Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"])).shown, ["a", "b"]);
    assert_eq!(command(&mut Command::new("/nowhere/at/all")).failed, 1);
}

#[test]
fn a_command_ends_when_its_reader_has_seen_enough() {
    let mut seen = Vec::new();
    let ended = lines_until(Command::new("sh").args(["-c", "echo a; echo b; exec sleep 600"]), |line| {
        seen.push(line);
        if seen.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((ended, seen), (Ok(false), vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn times_are_short() {
    assert_eq!(lasted(Duration::from_millis(3249)), "3.2 s");
    assert_eq!(lasted(Duration::from_secs(245)), "4 min 05 s");
}
