//! Runs one step of a suite: its output, the numbers of passed and failed tests, its duration.

use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

/// The result of a step.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub passed: u64,
    pub failed: u64,
    /// The output that a person needs to see after a failure.
    pub shown: Vec<String>,
    /// The failed tests, each behind its program.
    pub red: Vec<String>,
    /// How long each test program ran.
    pub took: Vec<(Duration, String)>,
}

impl Outcome {
    /// The result of a step that is one test.
    pub fn of(passed: bool, shown: Vec<String>) -> Outcome {
        Outcome { passed: u64::from(passed), failed: u64::from(!passed), shown, ..Outcome::default() }
    }

    /// Adds the result of another part of the same step.
    pub fn and(mut self, other: Outcome) -> Outcome {
        self.shown.extend(other.shown);
        self.red.extend(other.red);
        self.took.extend(other.took);
        Outcome { passed: self.passed + other.passed, failed: self.failed + other.failed, ..self }
    }

    /// The programs that took the most time, and what all took. None: there were none.
    fn longest(&self) -> Option<String> {
        let mut took = self.took.clone();
        took.sort_by(|one, other| other.cmp(one));
        let all: Duration = took.iter().map(|(time, _)| *time).sum();
        let longest: Vec<String> =
            took.iter().take(LONGEST).map(|(time, name)| format!("{name} {}", time.as_secs())).collect();
        (!took.is_empty()).then(|| format!("seconds: {}; all {} {}", longest.join(", "), took.len(), all.as_secs()))
    }
}

/// Largest number of lines shown of a failed step.
const SHOWN_MAX: usize = 300;

/// Test programs that are named for the time they took.
const LONGEST: usize = 10;

/// Runs a step and prints one line about it, after the failures.
pub fn take(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    let start = Instant::now();
    print!("{name:<10} ");
    // The unfinished line shows the step in progress.
    std::io::stdout().flush().ok();
    let outcome = work();
    let verdict = if outcome.failed == 0 { "ok" } else { "FAILED" };
    println!("{verdict:<7} {:>8}  {} passed, {} failed", lasted(start.elapsed()), outcome.passed, outcome.failed);
    if let Some(longest) = outcome.longest() {
        println!("    {longest}");
    }
    outcome.red.iter().for_each(|red| println!("    red: {red}"));
    // The end names the failures, and the beginning their start.
    let left_out = outcome.shown.len().saturating_sub(SHOWN_MAX);
    let first = if left_out > 0 { SHOWN_MAX / 3 } else { outcome.shown.len() };
    let (head, tail) = outcome.shown.split_at(first);
    head.iter().for_each(|line| println!("    {line}"));
    if left_out > 0 {
        println!("    ... {left_out} lines left out ...");
    }
    tail.iter().skip(left_out).for_each(|line| println!("    {line}"));
    outcome
}

/// A step that is a single command.
pub fn command(command: &mut Command) -> Outcome {
    let mut lines = Vec::new();
    match lines_of(command, |line| lines.push(line)) {
        Ok(true) => Outcome::of(true, Vec::new()),
        Ok(false) => Outcome::of(false, lines),
        Err(reason) => Outcome::of(false, vec![reason]),
    }
}

/// A test program: counts its tests, and shows only the failures.
pub fn test_program(name: &str, command: &mut Command) -> Outcome {
    let mut tally = Tally { program: name.to_owned(), lines: vec![format!("Running {name}")], ..Tally::default() };
    let ended = lines_of(command, |line| tally.line(line));
    // A program that ends by itself in the middle of a test may say that all is well.
    let ended = ended.map(|is_well| is_well && !tally.outcome.took.is_empty());
    tally.end(ended)
}

/// `cargo test`: counts the tests, and shows only the failures.
pub fn tests(command: &mut Command) -> Outcome {
    let mut tally = Tally::default();
    let ended = lines_of(command, |line| tally.line(line));
    tally.end(ended)
}

/// Calls `each` with every line of both outputs in the order of writing. Returns whether the
/// command succeeded.
pub fn lines_of(command: &mut Command, mut each: impl FnMut(String)) -> Result<bool, String> {
    lines_until(command, |line| {
        each(line);
        ControlFlow::Continue(())
    })
}

/// As `lines_of`, until `each` has seen enough. The command then gets the signal to end.
pub fn lines_until(command: &mut Command, mut each: impl FnMut(String) -> ControlFlow<()>) -> Result<bool, String> {
    let program = command.get_program().display().to_string();
    let cannot = |reason: std::io::Error| format!("cannot run {program}: {reason}");
    let (reader, writer) = std::io::pipe().map_err(cannot)?;
    let mut child = command.stdout(writer.try_clone().map_err(cannot)?).stderr(writer).spawn().map_err(cannot)?;
    // The command holds the writing ends; the pipe ends only when they are dropped.
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        if each(String::from_utf8_lossy(&line.map_err(cannot)?).into_owned()).is_break() {
            Command::new("kill").arg(child.id().to_string()).status().map_err(cannot)?;
            break;
        }
    }
    Ok(child.wait().map_err(cannot)?.success())
}

/// Reads the output of cargo test.
#[derive(Default)]
struct Tally {
    outcome: Outcome,
    /// Lines since the last test program began.
    lines: Vec<String>,
    program: String,
}

impl Tally {
    fn line(&mut self, line: String) {
        let count = |word: &str| -> Option<u64> {
            let (before, _) = line.split_once(&format!(" {word}"))?;
            before.rsplit([' ', ';']).next()?.parse().ok()
        };
        if line.trim_start().starts_with("Running ") || line.trim_start().starts_with("Doc-tests ") {
            self.lines.clear();
            self.program = program(&line);
        }
        if let Some(red) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.outcome.red.push(format!("{} {red}", self.program));
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.outcome.passed += count("passed").unwrap_or(0);
            self.outcome.failed += count("failed").unwrap_or(0);
            let seconds = line.rsplit_once("finished in ").and_then(|(_, time)| time.strip_suffix('s')?.parse().ok());
            let took = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            self.outcome.took.extend(took.map(|took| (took, self.program.clone())));
            if !result.starts_with("ok") {
                self.outcome.shown.append(&mut self.lines);
                self.outcome.shown.push(line);
            }
            self.lines.clear();
        } else if !line.ends_with("... ok") {
            self.lines.push(line);
        }
    }

    fn end(mut self, ended: Result<bool, String>) -> Outcome {
        match ended {
            Ok(true) => {}
            // A crashed test program or a failed build has no result line.
            Ok(false) if self.outcome.failed == 0 => {
                self.outcome.failed = 1;
                self.outcome.red.push(format!("{} ended without a result", self.program));
                self.outcome.shown.append(&mut self.lines);
            }
            Ok(false) => {}
            Err(reason) => {
                self.outcome.failed += 1;
                self.outcome.shown.push(reason);
            }
        }
        self.outcome
    }
}

/// The name in a line such as
/// `Running tests/clients.rs (target/release/deps/clients-a1c6397641f85875)`.
fn program(line: &str) -> String {
    name_of(line.trim_end_matches(')').rsplit(['/', ' ']).next().unwrap_or_default()).to_owned()
}

/// The name of a test program in that of its file: `clients` in `clients-a1c6397641f85875`.
pub fn name_of(file: &str) -> &str {
    file.rsplit_once('-').map_or(file, |(name, _)| name)
}

/// `3.2 s` or `4 min 05 s`.
pub fn lasted(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests;
