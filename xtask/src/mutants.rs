//! `./x mutants`: the mutation gate. The array has a switch for each protection that keeps records:
//! a flush, a digest check, a fence, a generation check, a redo image. The gate switches each off
//! in turn. It then runs the array's own tests, the crashes of short workloads and the seeds of the
//! simulated world. At least one of them must fail.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::cargo;
use crate::step::{lasted, lines_of, lines_until};

/// The array's own tests, and those of its time in the simulated world; each with its crate's
/// directory.
const SUITES: [(&str, &[&str]); 2] = [
    ("crates/array", &["--package", "stele-array", "--lib"]),
    ("crates/sim", &["--package", "stele-sim", "--test", "hospital", "--test", "rebuild", "--test", "histories"]),
];
const SWITCHES: &str = "crates/array/src/model/mutation.rs";
/// Number of seeds tried until one fails.
const SEEDS: &str = "200";
/// Seconds after which a detector without a verdict counts as failed.
const PATIENCE: &str = "900";
const TABLE: &str = "docs/mutants.md";
const HEAD: &str = "\
# Protections taken away

The array has a switch for each protection that keeps records. `./x mutants` switches them off one
after another, runs three detectors each time, and writes this table. At least one detector must
fail. A detector without a verdict after 900 seconds counts as failed.

- **tests**: how many of the array's own tests, and of its tests in the simulated world, failed
- **crashes**: whether crashes of short workloads failed, up to the first failure
- **seeds**: whether seeds of the simulated world failed, up to the first failure of 200

\"-\" means that the detector noticed nothing, or was not run: with `--first`, `./x mutants` skips the
remaining detectors once one has noticed. The tests in the simulated world are then skipped too when
a test of the array has failed, and each program ends at its first failed test.

| taken away | tests | crashes | seeds | first noticed by |
| --- | ---: | --- | --- | --- |
";
/// A row of a protection whose loss no detector noticed.
const UNNOTICED: &str = "nothing: a hole in the suite";
const CRASHES: [&str; 5] = ["--enumerate", "--outcomes", "8", "--stride", "3"];

/// The detectors that noticed a missing protection.
#[derive(Default)]
struct Caught {
    tests: Vec<String>,
    crash: Option<String>,
    seed: Option<String>,
}

/// `first`: for each protection, stop at the first detector that notices.
pub fn run(root: &Path, chosen: &[String], first: bool) -> ExitCode {
    let known = match names(root) {
        Ok(known) => known,
        Err(reason) => return refuse(&reason),
    };
    if let Some(unknown) = chosen.iter().find(|name| !known.contains(name)) {
        return refuse(&format!("there is no protection '{unknown}'; known: {}", known.join(", ")));
    }
    let begun = Instant::now();
    println!("building, and looking on with every protection in place ...");
    let detectors = match Detectors::build(root) {
        Ok(detectors) => detectors,
        Err(reason) => return refuse(&reason),
    };
    match detectors.hunt(None, false) {
        Ok(caught) if caught.is_nothing() => {}
        Ok(caught) => return refuse(&format!("already red, so nothing can be learnt: {}", caught.told())),
        Err(reason) => return refuse(&reason),
    }
    let mutants: Vec<&String> = known.iter().filter(|name| chosen.is_empty() || chosen.contains(name)).collect();
    let mut survivors = Vec::new();
    let mut rows = Rows::new();
    println!("{:<14} {:>6}  {:<8} {:<8}  first noticed by", "taken away", "tests", "crashes", "seeds");
    for name in &mutants {
        match detectors.hunt(Some(name), first) {
            Ok(caught) => {
                let word = |found: bool| if found { "red" } else { "-" };
                let (crash, seed) = (word(caught.crash.is_some()), word(caught.seed.is_some()));
                println!("{name:<14} {:>6}  {crash:<8} {seed:<8}  {}", caught.tests.len(), caught.told());
                let row = format!("| {name} | {} | {crash} | {seed} | {} |", caught.tests.len(), caught.told());
                rows.insert((*name).clone(), row);
                if caught.is_nothing() {
                    survivors.push(name.as_str());
                }
            }
            Err(reason) => return refuse(&reason),
        }
    }
    let sum = format!("{} of {} noticed", mutants.len() - survivors.len(), mutants.len());
    println!("{sum}, in {}", lasted(begun.elapsed()));
    if !survivors.is_empty() {
        println!("survived: {}", survivors.join(", "));
    }
    let path = root.join(TABLE);
    let former = std::fs::read_to_string(&path).unwrap_or_default();
    if let Err(error) = std::fs::write(&path, table(&known, rows_of(&former), rows)) {
        return refuse(&format!("{}: {error}", path.display()));
    }
    println!("the table is in {TABLE}");
    ExitCode::from(u8::from(!survivors.is_empty()))
}

/// The rows of the table, each by the protection that it names.
type Rows = BTreeMap<String, String>;

/// The rows that an earlier run wrote.
fn rows_of(table: &str) -> Rows {
    let rows = table.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("| ")?.split_once(" | ")?;
        Some((name.to_owned(), line.to_owned()))
    });
    rows.collect()
}

/// The table with the rows of this run, and the former rows of other protections.
fn table(known: &[String], former: Rows, new: Rows) -> String {
    let rows: Rows = former.into_iter().chain(new).collect();
    let (run, left): (Vec<&String>, Vec<&String>) = known.iter().partition(|name| rows.contains_key(*name));
    let rows: Vec<&String> = run.iter().filter_map(|name| rows.get(*name)).collect();
    let noticed = rows.iter().filter(|row| !row.contains(UNNOTICED)).count();
    let mut text = rows.iter().fold(String::from(HEAD), |text, row| text + row + "\n");
    text += &format!("\n{noticed} of {} noticed.\n", rows.len());
    if !left.is_empty() {
        let left: Vec<&str> = left.iter().map(|name| name.as_str()).collect();
        text += &format!("Not run: {}.\n", left.join(", "));
    }
    text
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("x: {reason}");
    ExitCode::from(2)
}

/// The variants of the enumeration, from its source: this program depends on nothing that it tests.
fn names(root: &Path) -> Result<Vec<String>, String> {
    let path = root.join(SWITCHES);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let variants = text.split_once("pub enum Mutation {").and_then(|(_, rest)| rest.split_once("\n}"));
    let Some((variants, _)) = variants else { return Err(format!("{}: no protections found", path.display())) };
    let lines = variants.lines().map(str::trim).filter(|line| !line.starts_with("///"));
    Ok(lines.filter_map(|line| line.strip_suffix(',')).map(str::to_owned).collect())
}

/// The detectors, built once, so that later edits do not affect them.
struct Detectors {
    /// Each with its working directory.
    tests: Vec<(PathBuf, PathBuf)>,
    world: PathBuf,
}

impl Detectors {
    fn build(root: &Path) -> Result<Detectors, String> {
        let place = root.join("target/mutants");
        std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let mut build = cargo();
        build.args(["build", "--quiet", "--locked", "--release", "--package", "stele-sim"]);
        if !lines_of(&mut build, |line| println!("{line}"))? {
            return Err("the world does not build".to_owned());
        }
        let world = copied(&root.join("target/release/stele-sim"), &place)?;
        let mut tests = Vec::new();
        for (folder, suite) in SUITES {
            let mut build = cargo();
            build.args(["test", "--locked", "--release", "--no-run"]).args(suite);
            let mut last = String::new();
            let built = lines_of(&mut build, |line| {
                // " Executable unittests src/lib.rs
                // (target/release/deps/stele_array-0123456789abcdef)"
                let path = line.trim().strip_prefix("Executable ").and_then(|rest| rest.rsplit_once('('));
                tests.extend(path.map(|(_, path)| (root.join(folder), root.join(path.trim_end_matches(')')))));
                last = line;
            })?;
            if !built {
                return Err(format!("the tests in {folder} do not build: {last}"));
            }
        }
        for (_, program) in &mut tests {
            *program = copied(program, &place)?;
        }
        Ok(Detectors { tests, world })
    }

    fn hunt(&self, name: Option<&str>, first: bool) -> Result<Caught, String> {
        let mut caught = Caught::default();
        for (folder, program) in &self.tests {
            if first && !caught.is_nothing() {
                break;
            }
            let mut tests = patient(program);
            tests.current_dir(folder).arg("--format=pretty");
            if let Some(name) = name {
                tests.env("STELE_WITHOUT", name);
            }
            let (before, mut last) = (caught.tests.len(), String::new());
            let ended = lines_until(&mut tests, |line| {
                if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                    caught.tests.push(test.to_owned());
                }
                last = line;
                if first && !caught.is_nothing() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if !ended && caught.tests.len() == before {
                caught.tests.push(format!("no verdict: {last}"));
            }
        }
        if !first || caught.is_nothing() {
            caught.crash = self.red(&CRASHES, name)?;
        }
        if !first || caught.is_nothing() {
            caught.seed = self.red(&["--seeds", SEEDS], name)?;
        }
        Ok(caught)
    }

    /// The first line in which the simulated world reports a failure.
    fn red(&self, arguments: &[&str], name: Option<&str>) -> Result<Option<String>, String> {
        let mut world = patient(&self.world);
        world.args(arguments);
        if let Some(name) = name {
            world.args(["--without", name]);
        }
        let (mut first, mut last) = (None, String::new());
        let ended = lines_of(&mut world, |line| {
            if first.is_none() && line.contains("FAILED") {
                first = Some(line.clone());
            }
            last = line;
        })?;
        Ok((!ended).then(|| first.unwrap_or_else(|| format!("no verdict: {last}"))))
    }
}

/// A program that is killed when it hangs, as some do without a protection.
fn patient(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", PATIENCE]).arg(program);
    command
}

fn copied(from: &Path, place: &Path) -> Result<PathBuf, String> {
    let to = place.join(from.file_name().unwrap_or_default());
    std::fs::copy(from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(to)
}

impl Caught {
    fn is_nothing(&self) -> bool {
        self.tests.is_empty() && self.crash.is_none() && self.seed.is_none()
    }

    fn told(&self) -> String {
        let first = self.tests.first().or(self.crash.as_ref()).or(self.seed.as_ref());
        first.map_or(UNNOTICED.to_owned(), |line| line.chars().take(110).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_some_protections_keeps_the_rows_of_the_others() {
        let known = ["LogFlush", "LogOrder", "LogHole"].map(str::to_owned);
        let row = |name: &str, rest: &str| (name.to_owned(), format!("| {name} | {rest} |"));
        let first =
            table(&known, Rows::new(), Rows::from([row("LogHole", UNNOTICED), row("LogFlush", "2 | - | - | a")]));
        assert!(first.ends_with("1 of 2 noticed.\nNot run: LogOrder.\n"), "{first}");
        let gone = row("Gone", "1 | - | - | b");
        let former = rows_of(&first).into_iter().chain([gone]).collect();
        let next =
            table(&known, former, Rows::from([row("LogHole", "7 | - | - | c"), row("LogOrder", "1 | - | - | d")]));
        let listed: Vec<&str> = next.lines().filter(|line| line.starts_with("| Log")).collect();
        assert_eq!(
            listed,
            ["| LogFlush | 2 | - | - | a |", "| LogOrder | 1 | - | - | d |", "| LogHole | 7 | - | - | c |"]
        );
        assert!(next.ends_with("3 of 3 noticed.\n"), "{next}");
    }
}
