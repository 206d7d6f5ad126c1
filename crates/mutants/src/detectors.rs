//! The tests that may notice a mutant: how long each takes alone, and which sites it reaches.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use crate::abreast;
use crate::tree::Program;

/// No test without a mutant takes as long.
const LONGEST: Duration = Duration::from_secs(600);
/// The address space of a test process, in KiB: a mutant may allocate for ever.
const SPACE: &str = "25165824";

/// One test, as it is without a mutant.
pub struct Test {
    /// The place of its program among all.
    pub program: usize,
    pub name: String,
    pub took: Duration,
    /// The sites it reaches, by number.
    pub reached: HashSet<u32>,
    /// How many mutants it has noticed.
    pub noticed: AtomicUsize,
}

/// How a run of tests ended.
pub enum Ended {
    Green,
    /// With the test that failed first, or the one in which the process ended or was stopped.
    Red(String),
}

/// Runs every test alone, or reads what an earlier run of the same programs found.
pub fn find(programs: &[Program], fingerprint: &str, jobs: usize, folder: &Path) -> Result<Vec<Test>, String> {
    let kept = folder.join(format!("reached-{fingerprint}.tsv"));
    if let Ok(text) = std::fs::read_to_string(&kept) {
        return text
            .lines()
            .map(|line| parse(line).ok_or(format!("{}: not understood: {line}", kept.display())))
            .collect();
    }
    let mut named = Vec::new();
    for (place, program) in programs.iter().enumerate() {
        named.extend(names(program)?.into_iter().map(|name| (place, name)));
    }
    println!("running each of {} tests alone, to learn which mutants it reaches ...", named.len());
    let found = abreast(jobs, &named, |_, (place, name)| {
        let book = folder.join(format!("book-{}-{}", std::process::id(), name.replace("::", "-")));
        let begun = Instant::now();
        let ended = run(&programs[*place], &[name], LONGEST, &[("STELE_MUTANTS_REACHED", book.display().to_string())])?;
        if let Ended::Red(test) = ended {
            return Err(format!("already red without any mutant, so nothing can be learnt: {test}"));
        }
        let took = begun.elapsed();
        let told = std::fs::read_to_string(&book).unwrap_or_default();
        let _ = std::fs::remove_file(&book);
        let reached = told.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Test { program: *place, name: name.clone(), took, reached, noticed: AtomicUsize::new(0) })
    });
    let found: Vec<Test> = found.into_iter().collect::<Result<_, String>>()?;
    let text: String = found.iter().map(|test| told(test) + "\n").collect();
    std::fs::write(&kept, text).map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(found)
}

fn told(test: &Test) -> String {
    let reached: Vec<String> = test.reached.iter().map(u32::to_string).collect();
    format!("{}\t{}\t{}\t{}", test.program, test.name, test.took.as_millis(), reached.join(" "))
}

fn parse(line: &str) -> Option<Test> {
    let mut fields = line.split('\t');
    Some(Test {
        program: fields.next()?.parse().ok()?,
        name: fields.next()?.into(),
        took: Duration::from_millis(fields.next()?.parse().ok()?),
        reached: fields.next()?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?,
        noticed: AtomicUsize::new(0),
    })
}

/// Tells programs from others.
pub fn fingerprint(programs: &[Program]) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    for program in programs {
        let bytes = std::fs::read(&program.path).map_err(|error| format!("{}: {error}", program.path.display()))?;
        hasher.write(&bytes);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn names(program: &Program) -> Result<Vec<String>, String> {
    let output = Command::new(&program.path).args(["--list", "--format=terse"]).output();
    let output = output.map_err(|error| format!("{}: {error}", program.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Runs tests one after the other in one process, until one fails.
pub fn run(
    program: &Program,
    tests: &[&String],
    patience: Duration,
    environment: &[(&str, String)],
) -> Result<Ended, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", program.path.display());
    let limits = format!("ulimit -v {SPACE}; exec timeout --kill-after=5 {} \"$0\" \"$@\"", patience.as_secs().max(1));
    let mut command = Command::new("sh");
    command
        .args(["-c", &limits])
        .arg(&program.path)
        .args(["--exact", "--test-threads=1", "--format=pretty"])
        .args(tests);
    command.envs(environment.iter().map(|(name, value)| (name, value))).env("RUST_BACKTRACE", "0");
    command.current_dir(&program.folder).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let mut running = command.spawn().map_err(failed)?;
    let output = running.stdout.take().ok_or("a program without output")?;
    let verdict = watch(&mut running, output).map_err(failed)?;
    let status = running.wait().map_err(failed)?;
    Ok(match verdict {
        Watched::Failed(test) => Ended::Red(test),
        Watched::Ended(_) if status.success() => Ended::Green,
        Watched::Ended(last) => Ended::Red(format!("{last} (it hangs, or the process ends)")),
    })
}

enum Watched {
    Failed(String),
    /// With the test begun last.
    Ended(String),
}

/// Reads "test NAME ... " when a test begins, and "ok" or "FAILED" when it ends.
fn watch(running: &mut Child, output: ChildStdout) -> std::io::Result<Watched> {
    let mut output = BufReader::new(output);
    let mut last = String::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if output.by_ref().read_until(b'\n', &mut line)? == 0 {
            return Ok(Watched::Ended(last));
        }
        let text = String::from_utf8_lossy(&line);
        let Some((test, verdict)) = text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) else {
            continue;
        };
        test.clone_into(&mut last);
        if verdict.trim() == "FAILED" {
            // `timeout` hands the signal on.
            Command::new("kill").arg(running.id().to_string()).status()?;
            return Ok(Watched::Failed(last));
        }
    }
}

/// The file that keeps what earlier hunts found out.
pub fn folder(root: &Path) -> Result<PathBuf, String> {
    let folder = root.join("target/mutants");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}
