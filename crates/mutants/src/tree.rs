//! The copy of the repository that contains the mutants, and the programs built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sites::{Site, woven};

/// What the woven code asks. With STELE_MUTANTS_REACHED, a file, each site writes its number there
/// when a test first reaches it.
const MODULE: &str = "\
//! The number of the active mutant, and which sites a test reaches.

use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub fn on(number: u32) -> bool {
    static CHOSEN: OnceLock<u32> = OnceLock::new();
    let chosen = || std::env::var(\"STELE_MUTANT\").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    reached(number);
    *CHOSEN.get_or_init(chosen) == number
}

fn reached(number: u32) {
    static BOOK: OnceLock<Option<File>> = OnceLock::new();
    static SEEN: [AtomicBool; 1 << 14] = [const { AtomicBool::new(false) }; 1 << 14];
    let open = |path| File::options().append(true).create(true).open(path).expect(\"the book of reached sites\");
    let Some(mut book) = BOOK.get_or_init(|| std::env::var_os(\"STELE_MUTANTS_REACHED\").map(open)).as_ref() else {
        return;
    };
    if !SEEN[number as usize].load(Ordering::Relaxed) && !SEEN[number as usize].swap(true, Ordering::Relaxed) {
        writeln!(book, \"{number}\").expect(\"the book of reached sites\");
    }
}
";
/// Woven code has unusual parentheses and nesting.
const ALLOWED: &str = "#![allow(warnings, clippy::all)]\n";

pub struct Woven {
    pub sites: Vec<Site>,
    copy: PathBuf,
}

/// Copies the repository and weaves the mutants into the array's files. An unchanged file keeps its
/// date, so that it is not built again.
pub fn weave(root: &Path, files: &[&str]) -> Result<Woven, String> {
    let copy = root.join("target/mutants/tree");
    let (from, sources) = (root.join("crates/array/src"), copy.join("crates/array/src"));
    let mut own: Vec<PathBuf> = files.iter().map(|file| sources.join(file)).collect();
    own.extend(["lib.rs", "mutant.rs"].map(|file| sources.join(file)));
    for part in ["crates", "xtask", "FORMAT", "Cargo.toml", "Cargo.lock", ".cargo"] {
        mirror(&root.join(part), &copy.join(part), &own)?;
    }
    let mut sites: Vec<Site> = Vec::new();
    for file in files {
        let first = sites.last().map_or(1, |site| site.number + 1);
        let text = std::fs::read_to_string(from.join(file))
            .map_err(|error| format!("{file}: {error}; mend the list of files in crates/mutants/src/main.rs"))?;
        let (found, text) = woven(file, &text, first)?;
        sites.extend(found);
        renew(&sources.join(file), &text)?;
    }
    let lib = from.join("lib.rs");
    let text = std::fs::read_to_string(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    renew(&sources.join("lib.rs"), &format!("{ALLOWED}{text}\nmod mutant;\n"))?;
    renew(&sources.join("mutant.rs"), MODULE)?;
    Ok(Woven { sites, copy })
}

/// A test program and the directory in which it runs.
pub struct Program {
    pub folder: PathBuf,
    pub path: PathBuf,
}

/// Builds the test programs: the array's own tests, and those of the simulated world.
pub fn build(root: &Path, woven: &Woven) -> Result<Vec<Program>, String> {
    println!("building the tests of {} mutants, once ...", woven.sites.len());
    let suites = [
        ("crates/array", vec!["--package", "stele-array", "--lib"]),
        ("crates/sim", vec!["--package", "stele-sim", "--test", "histories", "--test", "seeds", "--test", "rebuild"]),
    ];
    let mut found = Vec::new();
    for (folder, suite) in suites {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["test", "--locked", "--release", "--no-run"]).args(suite);
        cargo.current_dir(&woven.copy).env("CARGO_TARGET_DIR", root.join("target/mutants/target"));
        let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            return Err(format!("the woven tests do not build:\n{told}"));
        }
        for line in told.lines() {
            // "  Executable unittests src/lib.rs (/path/deps/stele_array-0123456789abcdef)"
            let path = line.trim().strip_prefix("Executable ").and_then(|rest| rest.rsplit_once('('));
            let Some((_, path)) = path else { continue };
            found.push(Program { folder: woven.copy.join(folder), path: woven.copy.join(path.trim_end_matches(')')) });
        }
    }
    if found.is_empty() { Err("cargo named no test program".into()) } else { Ok(found) }
}

/// Makes `to` equal to `from`, except for the files in `own`.
fn mirror(from: &Path, to: &Path, own: &[PathBuf]) -> Result<(), String> {
    let told = |error: std::io::Error| format!("{}: {error}", from.display());
    if own.iter().any(|path| path == to) {
        return Ok(());
    }
    if !from.is_dir() {
        if std::fs::read(from).map_err(told)? != std::fs::read(to).unwrap_or_default() {
            std::fs::copy(from, to).map_err(told)?;
        }
        return Ok(());
    }
    std::fs::create_dir_all(to).map_err(told)?;
    let names = |path: &Path| -> Result<Vec<_>, String> {
        let entries = std::fs::read_dir(path).map_err(told)?;
        Ok(entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect())
    };
    let wanted = names(from)?;
    for gone in names(to)?.iter().filter(|name| !wanted.contains(name)).map(|name| to.join(name)) {
        if !own.contains(&gone) {
            let removed = if gone.is_dir() { std::fs::remove_dir_all(&gone) } else { std::fs::remove_file(&gone) };
            removed.map_err(told)?;
        }
    }
    wanted.iter().try_for_each(|name| mirror(&from.join(name), &to.join(name), own))
}

/// Writes the file if its text changed.
fn renew(path: &Path, text: &str) -> Result<(), String> {
    if std::fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
