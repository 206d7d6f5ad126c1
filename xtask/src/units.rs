//! The unit tests: every test program of the workspace, three at a time. Many of them wait for
//! clients, drives and clocks, and leave a processor idle that the others use. A program of
//! tests of the product counts as one for each of its modules: linked once, run side by side.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use self::scratch::Scratch;
use crate::step::{self, Outcome};

mod scratch;

/// The programs of the unit tests. Examples are left out, since clippy checks them and each would
/// rebuild the archive. The demonstration is left out too: it has one test, and it alone needs the
/// largest library.
pub const KINDS: [&str; 3] = ["--lib", "--bins", "--tests"];

/// Number of programs that run at once.
const LANES: usize = 3;

/// Seconds after which a program that still runs has failed.
const PATIENCE: &str = "1200";

/// The programs that take longest begin first, so that none of them runs alone at the end.
const FIRST: [&str; 6] = ["rest", "stele_array", "iscsi", "stele_server", "lab_virtual", "backup_volume"];

/// What runs when all others have ended: the documents are performed two at a time by one module,
/// and their commands have the patience of a reader.
const ALONE: [&str; 1] = ["documents"];

/// Programs whose files stay on a disk, since accesses to drives are what they test.
const ON_DISK: [&str; 3] = ["stele_media", "days", "pool"];

/// Programs of which each module runs in a process of its own.
const SPLIT: [&str; 1] = ["program"];

/// A test program, or a module of one, and the folder of its crate, where it runs.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Program {
    name: String,
    path: PathBuf,
    folder: PathBuf,
    /// The tests of a module. None: all tests of the program.
    tests: Option<Vec<String>>,
}

/// Runs every test program, and the examples in the documentation.
pub fn run() -> Outcome {
    let mut build = crate::tests();
    build.args(KINDS).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let (mut programs, mut said) = (Vec::new(), Vec::new());
    match step::lines_of(&mut build, |line| match program(&line) {
        Some(program) => programs.push(program),
        None if line.starts_with('{') => {}
        None => said.push(line),
    }) {
        Ok(true) => {}
        Ok(false) => return Outcome::of(false, said),
        Err(reason) => return Outcome::of(false, vec![reason]),
    }
    let programs = match programs.into_iter().map(modules).collect::<Result<Vec<_>, String>>() {
        Ok(programs) => programs.concat(),
        Err(reason) => return Outcome::of(false, vec![reason]),
    };
    let examples = step::tests(crate::tests().args(["--no-fail-fast", "--doc"]));
    let (alone, others) = programs.into_iter().partition(|program: &Program| ALONE.contains(&&*program.name));
    let scratch = Scratch::new();
    side_by_side(others, LANES, scratch.as_ref()).and(side_by_side(alone, 1, scratch.as_ref())).and(examples)
}

/// The modules of a program that is split; of others, the program.
fn modules(program: Program) -> Result<Vec<Program>, String> {
    if !SPLIT.contains(&&*program.name) {
        return Ok(vec![program]);
    }
    let mut lines = Vec::new();
    let listed = step::lines_of(command(&program).args(["--list", "--format", "terse"]), |line| lines.push(line))?;
    let modules = by_module(&lines);
    if !listed || modules.is_empty() {
        return Err(format!("{} does not list its tests: {}", program.path.display(), lines.join("; ")));
    }
    Ok(modules.into_iter().map(|(name, tests)| Program { name, tests: Some(tests), ..program.clone() }).collect())
}

/// The tests in a list such as `rights::officers_act_together: test`, by their outermost module.
fn by_module(lines: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut modules = BTreeMap::<String, Vec<String>>::new();
    for test in lines.iter().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.split_once("::").map_or(test, |(module, _)| module);
        modules.entry(module.to_owned()).or_default().push(test.to_owned());
    }
    modules
}

/// Runs the programs, so many at once.
fn side_by_side(mut programs: Vec<Program>, lanes: usize, scratch: Option<&Scratch>) -> Outcome {
    let place = |program: &Program| FIRST.iter().position(|first| *first == program.name).unwrap_or(FIRST.len());
    programs.sort_by_key(place);
    let waiting = Mutex::new(VecDeque::from(programs));
    let next = || waiting.lock().ok().and_then(|mut waiting| waiting.pop_front());
    let lane = || {
        let mut sum = Outcome::default();
        while let Some(program) = next() {
            let mut command = command(&program);
            if let Some(place) = temporary(&program, scratch) {
                command.env("TMPDIR", place);
            }
            sum = sum.and(step::test_program(&program.name, &mut command));
        }
        sum
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().fold(Outcome::default(), |sum, lane| match lane.join() {
            Ok(outcome) => sum.and(outcome),
            Err(_) => sum.and(Outcome::of(false, vec!["a lane of test programs died".to_owned()])),
        })
    })
}

/// Where the program makes its files. None: the usual place.
fn temporary<'a>(program: &Program, scratch: Option<&'a Scratch>) -> Option<&'a Path> {
    scratch.filter(|_| !ON_DISK.contains(&&*program.name)).map(Scratch::path)
}

/// The program as cargo starts it, and killed when it hangs.
fn command(program: &Program) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", PATIENCE]).arg(&program.path);
    if let Some(tests) = &program.tests {
        command.arg("--exact").args(tests);
    }
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    if runs_the_array(program) {
        // A test needs the memory that the one before it released.
        command.env("MIMALLOC_PURGE_DELAY", "-1");
    }
    command
}

/// Whether its tests run the array in their own process: those of libraries, and the modules of the
/// laboratory. The others start the product, which they are to find as it is delivered.
fn runs_the_array(program: &Program) -> bool {
    program.tests.is_none() || program.name.starts_with("lab_")
}

/// The test program that a line of cargo's messages announces.
fn program(line: &str) -> Option<Program> {
    if !line.starts_with(r#"{"reason":"compiler-artifact""#) || !line.contains(r#""test":true},"features""#) {
        return None;
    }
    let path = PathBuf::from(field(line, "executable")?);
    let folder = Path::new(field(line, "manifest_path")?).parent()?.to_owned();
    let name = step::name_of(path.file_name()?.to_str()?).to_owned();
    Some(Program { name, path, folder, tests: None })
}

/// The text of a field. Paths with quotes or backslashes are not understood.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(r#""{name}":""#))?;
    rest.split_once('"').map(|(text, _)| text)
}

#[cfg(test)]
mod tests;
