//! `./x mutants`: the mutation gate. The array has a switch for each protection that keeps records: a flush, a digest
//! check, a fence, a generation check, a redo image. Each is switched off in turn; the array's own tests, the crashes of
//! short workloads and the seeds of the simulated world are run; and at least one of them must go red.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::cargo;
use crate::step::{lasted, lines_of};

/// The array's own tests, and those of its time in the simulated world.
const SUITES: [&[&str]; 2] =
    [&["--package", "stele-array", "--lib"], &["--package", "stele-sim", "--test", "hospital", "--test", "rebuild"]];
const SWITCHES: &str = "crates/array/src/mutation.rs";
/// Seeds tried until one fails.
const SEEDS: &str = "200";
const CRASHES: [&str; 5] = ["--enumerate", "--outcomes", "8", "--stride", "3"];

/// What noticed that a protection is gone.
#[derive(Default)]
struct Caught {
    tests: Vec<String>,
    crash: Option<String>,
    seed: Option<String>,
}

pub fn run(root: &Path, chosen: &[String]) -> ExitCode {
    let known = match names(root) {
        Ok(known) => known,
        Err(reason) => return refuse(&reason),
    };
    if let Some(unknown) = chosen.iter().find(|name| !known.contains(name)) {
        return refuse(&format!("there is no protection '{unknown}'; known: {}", known.join(", ")));
    }
    let begun = Instant::now();
    println!("with every protection in place ...");
    match hunt(None) {
        Ok(caught) if caught.is_nothing() => {}
        Ok(caught) => return refuse(&format!("already red, so nothing can be learnt: {}", caught.told())),
        Err(reason) => return refuse(&reason),
    }
    let mutants: Vec<&String> = known.iter().filter(|name| chosen.is_empty() || chosen.contains(name)).collect();
    let mut survivors = Vec::new();
    println!("{:<14} {:>6}  {:<8} {:<8}  first noticed by", "taken away", "tests", "crashes", "seeds");
    for name in &mutants {
        match hunt(Some(name)) {
            Ok(caught) => {
                let word = |found: bool| if found { "red" } else { "-" };
                let (crash, seed) = (word(caught.crash.is_some()), word(caught.seed.is_some()));
                println!("{name:<14} {:>6}  {crash:<8} {seed:<8}  {}", caught.tests.len(), caught.told());
                if caught.is_nothing() {
                    survivors.push(name.as_str());
                }
            }
            Err(reason) => return refuse(&reason),
        }
    }
    println!("{} of {} noticed, in {}", mutants.len() - survivors.len(), mutants.len(), lasted(begun.elapsed()));
    if !survivors.is_empty() {
        println!("survived: {}", survivors.join(", "));
    }
    ExitCode::from(u8::from(!survivors.is_empty()))
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

fn hunt(name: Option<&str>) -> Result<Caught, String> {
    let mut caught = Caught::default();
    for suite in SUITES {
        let mut tests = cargo();
        tests.args(["test", "--quiet", "--locked", "--release"]).args(suite).args(["--", "--format=pretty"]);
        if let Some(name) = name {
            tests.env("STELE_WITHOUT", name);
        }
        let (before, mut last) = (caught.tests.len(), String::new());
        let ended = lines_of(&mut tests, |line| {
            if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
                caught.tests.push(test.to_owned());
            }
            last = line;
        })?;
        if !ended && caught.tests.len() == before {
            // It did not build, or it died as a whole.
            return Err(format!("the tests of {} ended without a verdict: {last}", suite.join(" ")));
        }
    }
    caught.crash = red(&CRASHES, name)?;
    caught.seed = red(&["--seeds", SEEDS], name)?;
    Ok(caught)
}

/// The first line in which the world says that something failed.
fn red(arguments: &[&str], name: Option<&str>) -> Result<Option<String>, String> {
    let mut world: Command = cargo();
    world.args(["run", "--quiet", "--locked", "--release", "--package", "stele-sim", "--"]).args(arguments);
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
    match (ended, first) {
        (true, _) => Ok(None),
        (false, Some(line)) => Ok(Some(line)),
        (false, None) => Err(format!("the world ended without a verdict: {last}")),
    }
}

impl Caught {
    fn is_nothing(&self) -> bool {
        self.tests.is_empty() && self.crash.is_none() && self.seed.is_none()
    }

    fn told(&self) -> String {
        let first = self.tests.first().or(self.crash.as_ref()).or(self.seed.as_ref());
        first.map_or("nothing: a hole in the suite".to_owned(), |line| line.chars().take(110).collect())
    }
}
