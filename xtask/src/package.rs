//! `./x package`: a Debian package and a tarball of `stele`, under `target/package`. Both hold the
//! same files.
//!
//! The same commit and compiler give the same bytes: files are in order, and have the date of the
//! commit. `./x package --check` installs, starts, upgrades and removes the package as well; see
//! `check`.

mod archive;
mod check;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use archive::{Entry, ar, tarball};

use crate::cargo;
use crate::step::{self, Outcome};

/// Where the machine's programs are.
const PROGRAMS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
/// Files of `contrib/` for the users of a server, and programs that need no server.
const SHARED: [&str; 8] = [
    "prometheus/stele.yml",
    "grafana/stele.json",
    "verify-proof.py",
    "read-backup.py",
    "read-pool.py",
    "read_pool_archive.py",
    "read_pool_array.py",
    "read_pool_volumes.py",
];

/// Folders of documents. An operator reads them without the repository, from OPERATIONS.md on.
const DOCUMENTS: [&str; 6] = ["", "SEMANTICS", "FORMAT", "docs", "docs/decisions", "docs/runbooks"];

type Done<T> = Result<T, String>;

/// The built package.
pub struct Built {
    pub deb: PathBuf,
    pub tarball: PathBuf,
    pub version: String,
    pub commit: String,
}

/// Makes the package, of a program built now or of the one that is `built`.
pub fn run(root: &Path, checked: bool, built: bool, clean: bool) -> ExitCode {
    let made = if built { make(root, "not a package") } else { build(root) };
    let done = made.and_then(|built| {
        println!("{}\n{}", built.deb.display(), built.tarball.display());
        if checked { check::run(root, &built, clean) } else { Ok(()) }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("x: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The check as a step of the tests. It takes root and programs of a Debian machine; without them
/// it is left out, except where CI is set: there it fails.
pub fn step(root: &Path) -> Outcome {
    let lacks = |program: &&str| !PROGRAMS.iter().any(|folder| Path::new(folder).join(program).exists());
    let mut lacking: Vec<&str> =
        ["curl", "dpkg", "runuser", "setpriv", "strip", "unshare"].into_iter().filter(lacks).collect();
    if !output(Command::new("id").arg("-u")).is_ok_and(|user| user == "0") {
        lacking.push("root");
    }
    if !lacking.is_empty() {
        let line = format!("the check of the package is left out, since this machine lacks: {}", lacking.join(", "));
        let demanded = std::env::var_os("CI").is_some();
        return Outcome { failed: u64::from(demanded), shown: vec![line], ..Outcome::default() };
    }
    match std::env::current_exe() {
        Ok(own) => step::command(Command::new(own).current_dir(root).args(["package", "--check", "--built"])),
        Err(error) => Outcome::of(false, vec![format!("cannot tell what this program is: {error}")]),
    }
}

/// The second half of the check, which `check::run` starts within namespaces of its own.
pub fn run_inside(root: &Path, deb: &Path, newer: &Path, base: &Path) -> ExitCode {
    match check::inside(root, deb, newer, base) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("x: the package is not good: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Done<Built> {
    let commit = commit(root)?;
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "stele"]).env("STELE_COMMIT", &commit);
    run_to_end(&mut build)?;
    make(root, &commit)
}

/// Makes the package of the program that was built, which must say `commit` of itself.
fn make(root: &Path, commit: &str) -> Done<Built> {
    let folder = root.join("target/package");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let binary = folder.join("stele");
    let built = root.join("target/release/stele");
    fs::copy(&built, &binary).map_err(|error| format!("cannot copy {}: {error}", built.display()))?;
    // Keep the names of functions, so that the places of a panic are readable.
    run_to_end(Command::new("strip").arg("--strip-debug").arg(&binary))?;
    let said = output(Command::new(&binary).arg("--version"))?;
    if !said.contains(commit) {
        return Err(format!("the binary calls itself '{said}' and not by its commit {commit}"));
    }
    run_to_end(Command::new(&binary).arg("manual").arg("--into").arg(&folder))?;
    let version = version(root)?;
    let date: u64 = output(Command::new("git").args(["log", "-1", "--format=%ct"]))?.parse().unwrap_or(0);
    let entries = entries(root, &folder)?;
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let name = format!("stele_{version}_{architecture}");
    let (deb, whole) = (folder.join(format!("{name}.deb")), folder.join(format!("{name}.tar.gz")));
    write(&deb, &debian(root, &entries, &version, architecture, date)?)?;
    let prefix = format!("stele-{version}/");
    let under = entries.iter().map(|entry| Entry { path: format!("{prefix}{}", entry.path), ..entry.clone() });
    write(&whole, &tarball(&under.collect::<Vec<_>>(), date)?)?;
    Ok(Built { deb, tarball: whole, version, commit: commit.to_owned() })
}

/// The short commit, with a mark if the tree has uncommitted changes.
fn commit(root: &Path) -> Done<String> {
    let short = output(Command::new("git").current_dir(root).args(["rev-parse", "--short=12", "HEAD"]))?;
    let changed = output(Command::new("git").current_dir(root).args(["status", "--porcelain"]))?;
    Ok(if changed.is_empty() { short } else { format!("{short}-changed") })
}

/// The version of the workspace.
fn version(root: &Path) -> Done<String> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    line.and_then(|rest| rest.split('"').next()).map(str::to_owned).ok_or("Cargo.toml has no version".to_owned())
}

/// Every file of the package.
fn entries(root: &Path, folder: &Path) -> Done<Vec<Entry>> {
    let ours = root.join("contrib/package");
    let file = |from: PathBuf, path: &str, mode: u32| -> Done<Entry> {
        let bytes = fs::read(&from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
        Ok(Entry { path: path.to_owned(), mode, bytes })
    };
    let mut all = vec![
        file(folder.join("stele"), "usr/bin/stele", 0o755)?,
        file(ours.join("stele.toml"), "etc/stele/stele.toml", 0o644)?,
        file(ours.join("stele.service"), "usr/lib/systemd/system/stele.service", 0o644)?,
        file(ours.join("sysusers.conf"), "usr/lib/sysusers.d/stele.conf", 0o644)?,
        file(ours.join("tmpfiles.conf"), "usr/lib/tmpfiles.d/stele.conf", 0o644)?,
        file(folder.join("completions/stele.bash"), "usr/share/bash-completion/completions/stele", 0o644)?,
        file(folder.join("completions/_stele"), "usr/share/zsh/vendor-completions/_stele", 0o644)?,
        file(folder.join("completions/stele.fish"), "usr/share/fish/vendor_completions.d/stele.fish", 0o644)?,
    ];
    for path in SHARED {
        all.push(file(root.join("contrib").join(path), &format!("usr/share/stele/{path}"), 0o644)?);
    }
    for name in documents(root)? {
        all.push(file(root.join(&name), &format!("usr/share/doc/stele/{name}"), 0o644)?);
    }
    for entry in fs::read_dir(folder.join("man")).map_err(|error| format!("no man pages were made: {error}"))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let page = file(path, &format!("usr/share/man/man1/{name}.gz"), 0o644)?;
        all.push(Entry { bytes: archive::gzip(&page.bytes)?, ..page });
    }
    all.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(all)
}

/// Every document, and the licences, by their paths in the repository.
fn documents(root: &Path) -> Done<Vec<String>> {
    let mut all: Vec<String> = ["LICENSE-APACHE", "LICENSE-MIT", "docs/stack.svg"].map(str::to_owned).into();
    for folder in DOCUMENTS {
        let place = root.join(folder);
        let entries = fs::read_dir(&place).map_err(|error| format!("cannot read {}: {error}", place.display()))?;
        for entry in entries {
            let name = entry.map_err(|error| error.to_string())?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                all.push(Path::new(folder).join(name).display().to_string());
            }
        }
    }
    Ok(all)
}

/// The package: its description, its scripts, and its files.
fn debian(root: &Path, entries: &[Entry], version: &str, architecture: &str, date: u64) -> Done<Vec<u8>> {
    let ours = root.join("contrib/package");
    let size = entries.iter().map(|entry| entry.bytes.len().div_ceil(1024)).sum::<usize>();
    let program = entries.iter().find(|entry| entry.path == "usr/bin/stele").ok_or("the package has no program")?;
    let (major, minor) = libc_of(&program.bytes).ok_or("the program does not say which libc it needs")?;
    let control = format!(
        "Package: stele\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Stele <stele@localhost>\n\
         Installed-Size: {size}\nDepends: libc6 (>= {major}.{minor}), libgcc-s1, passwd\n\
         Recommends: smartmontools\nSection: admin\nPriority: optional\n\
         Description: storage server for records that must survive\n \
         Volumes and S3 objects on a self-healing array of ordinary drives, under\n \
         retention that no interface can shorten.\n"
    );
    let mut parts = vec![Entry { path: "control".into(), mode: 0o644, bytes: control.into_bytes() }];
    for (name, mode) in [("conffiles", 0o644), ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)] {
        parts.push(Entry { path: name.into(), mode, bytes: read(&ours.join(name))?.into_bytes() });
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", tarball(&parts, date)?),
        ("data.tar.gz", tarball(entries, date)?),
    ];
    Ok(ar(&members, date))
}

/// The newest version of the C library whose functions a program names.
fn libc_of(program: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let versions =
        program.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK).filter_map(|(at, _)| {
            let name = program[at + MARK.len()..].split(|byte| !byte.is_ascii_digit() && *byte != b'.').next()?;
            let mut numbers = std::str::from_utf8(name).ok()?.split('.').map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        });
    versions.max()
}

fn read(path: &Path) -> Done<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Done<()> {
    fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn run_to_end(command: &mut Command) -> Done<()> {
    let status =
        command.status().map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", command.get_program().display())) }
}

/// The output of a command, without the last line break.
fn output(command: &mut Command) -> Done<String> {
    let output =
        command.output().map_err(|error| format!("cannot start {}: {error}", command.get_program().display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{} ended with {}: {said}", command.get_program().display(), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests;
