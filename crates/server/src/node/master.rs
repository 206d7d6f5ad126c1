//! The source of the master key: a file, the environment, or a command's output.
//!
//! Failure model: a command that hangs, or that prints without end, is killed at a bound of time or
//! of output. The start of the server fails then, and names the command's program.

use std::fs::Metadata;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use stele_archive::MasterKey;
use stele_ground::Bytes;

use crate::config::Site;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::files::{create_private, remove};
use crate::node::surroundings::{System, own_uid};

/// How long a command may take, and how often its end is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The bytes that a command may print. A key has 64 digits.
const OUTPUT_MAX: Bytes = Bytes(64 << 10);

/// Reads the key that `source` names: `file:PATH`, `env:NAME`, or `command:PROGRAM ARG ...`.
pub fn read(site: &Site, source: &str) -> Outcome<MasterKey> {
    let text = match source.split_once(':') {
        Some(("file", path)) => {
            let path = site.path(Path::new(path));
            crate::whole::read_text(&path).map_err(|error| {
                io_failure("read the master key", &path, &error).next(match error.kind() {
                    ErrorKind::NotFound => "restore the exported copy: without it nothing in this store can be read",
                    ErrorKind::InvalidData => "restore the exported copy there, or correct [archive] master_key",
                    ErrorKind::PermissionDenied => "run this as the user that the server runs as, whose file it is",
                    _ => "let [archive] master_key name the file of the key",
                })
            })?
        }
        Some(("env", name)) => std::env::var(name)
            .map_err(|_| Failure::usage(format!("the master key's environment variable {name} is not set")))?,
        Some(("command", line)) => {
            check_command(site)?;
            run(line, PATIENCE)?
        }
        _ => {
            return Err(Failure::usage(format!("[archive] master_key = \"{source}\" names no source"))
                .next("write file:PATH, env:NAME, or command:PROGRAM ARG ..."));
        }
    };
    MasterKey::parse(&text).map_err(|error| {
        Failure::new(Kind::Refused, format!("the master key from {} is unusable: {error}", redact(source)))
            .next("restore the exported copy there, or correct [archive] master_key")
    })
}

/// A command may carry a secret in its arguments, so only the name of its program is shown.
fn redact(source: &str) -> String {
    source.split_whitespace().next().unwrap_or_default().to_owned()
}

/// Refuses that root runs a command which another user may have written into the configuration.
fn check_command(site: &Site) -> Outcome<()> {
    let named = site.config_path.as_path();
    // The name may be a link. Who may write the file behind it writes the command.
    let behind = std::fs::canonicalize(named).map_err(|error| io_failure("look at", named, &error))?;
    for config in [named, &behind] {
        let folder = config.parent().filter(|folder| !folder.as_os_str().is_empty());
        for path in [config, folder.unwrap_or(Path::new("."))] {
            let about = std::fs::symlink_metadata(path).map_err(|error| io_failure("look at", path, &error))?;
            let owner = about.uid();
            if !may_run(own_uid(), owner) {
                let message = format!(
                    "[archive] master_key is a command, and {} belongs to user {owner}, who could have root start any other",
                    path.display()
                );
                return Err(Failure::new(Kind::Refused, message)
                    .next(format!("run it as that user: runuser -u '#{owner}' -- stele ...")));
            }
            if own_uid() == 0 && others_write(&about) {
                let message = format!(
                    "[archive] master_key is a command, and users other than root may write to {}, who could have root \
                     start any other",
                    path.display()
                );
                return Err(Failure::new(Kind::Refused, message)
                    .next(format!("take that right from them: chmod go-w '{}'", path.display())));
            }
        }
    }
    Ok(())
}

/// Whether others than root may write to what is root's. A link has no mode of its own; in a folder
/// such as `/tmp` each user replaces only what is his own.
fn others_write(about: &Metadata) -> bool {
    let mode = about.mode();
    let is_bound = about.is_symlink() || (about.is_dir() && mode & 0o1000 != 0);
    !is_bound && (mode & 0o002 != 0 || (mode & 0o020 != 0 && about.gid() != 0))
}

fn may_run(user: u32, owner: u32) -> bool {
    user != 0 || owner == 0
}

fn run(line: &str, patience: Duration) -> Outcome<String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or_else(|| Failure::usage("[archive] master_key names an empty command"))?;
    let failed = |what: String| {
        Failure::failed(what)
            .next("run the command of [archive] master_key by hand, as the user that the server runs as")
    };
    let broken = |error: std::io::Error| failed(format!("cannot run {program} for the master key: {error}"));
    // What the program says of its failure goes to this process's own standard error.
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(broken)?;
    match finish(&mut child, patience) {
        Ok(Ended::With(status, _)) if !status.success() => {
            Err(failed(format!("{program} ended with {status} instead of the master key")))
        }
        Ok(Ended::With(_, output)) => {
            String::from_utf8(output).map_err(|_| failed(format!("{program} printed something that is no text")))
        }
        stopped => {
            // A child that was not waited for would stay as a zombie.
            let _ = child.kill();
            let _ = std::thread::Builder::new().spawn(move || child.wait());
            Err(failed(match stopped {
                Err(error) => return Err(broken(error)),
                Ok(Ended::TooLong) => {
                    format!("{program} printed more than {OUTPUT_MAX} instead of the master key; it was killed")
                }
                Ok(_) => format!("{program} gave no master key within {} s; it was killed", patience.as_secs()),
            }))
        }
    }
}

/// How a command ended.
enum Ended {
    With(ExitStatus, Vec<u8>),
    /// It printed more than it may, or did not end in time: it still runs.
    TooLong,
    TooLate,
}

/// Waits for the output of a command and for its end.
fn finish(child: &mut Child, patience: Duration) -> std::io::Result<Ended> {
    let begun = Instant::now();
    let (sender, output) = sync_channel(1);
    let pipe = child.stdout.take();
    // It ends with the command's pipe, which a process that the command leaves behind may keep.
    std::thread::Builder::new().name("stele-master-key".into()).spawn(move || {
        let mut bytes = Vec::new();
        let read = pipe.map_or(Ok(0), |pipe| pipe.take(OUTPUT_MAX.0 + 1).read_to_end(&mut bytes));
        let _ = sender.send(read.map(|_| bytes));
    })?;
    let Ok(output) = output.recv_timeout(patience) else { return Ok(Ended::TooLate) };
    let output = output?;
    if output.len() as u64 > OUTPUT_MAX.0 {
        return Ok(Ended::TooLong);
    }
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Ended::With(status, output)),
            None if begun.elapsed() >= patience => return Ok(Ended::TooLate),
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// A key that a creation made, until the creation has ended.
pub struct NewKey(Option<PathBuf>);

/// Makes a new key if the source is a file that does not exist yet. Any other source must already
/// have one.
pub fn make(site: &Site, source: &str) -> Outcome<NewKey> {
    let Some(("file", path)) = source.split_once(':') else { return Ok(NewKey(None)) };
    let path = site.path(Path::new(path));
    if path.exists() {
        return Ok(NewKey(None));
    }
    let key = MasterKey::generate(&System::default());
    create_private(&path, format!("{}\n", key.to_text().as_str()).as_bytes())?;
    Ok(NewKey(Some(path)))
}

impl NewKey {
    /// Removes the key: nothing that was sealed under it is left. It would lie where an operator
    /// puts the key of a store that is to be opened here.
    pub fn take_back(self) {
        if let Some(Err(failure)) = self.0.map(|path| remove(&path)) {
            tracing::warn!("the key of a pool that was not made stays: {}", failure.on_one_line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_a_master_key_has_its_own_next_step() {
        let dir = std::env::temp_dir().join(format!("stele-key-file-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("folder")).unwrap();
        std::fs::write(dir.join("text"), "no key\n").unwrap();
        std::fs::write(dir.join("damaged"), b"\xff\x00").unwrap();
        let site = Site { dir: dir.clone(), config_path: dir.join("stele.toml") };
        std::fs::write(&site.config_path, "").unwrap();
        for (source, next) in [
            ("file:gone", "restore the exported copy: without it"),
            ("file:folder", "let [archive] master_key name the file"),
            ("file:text", "restore the exported copy there, or correct"),
            ("file:damaged", "restore the exported copy there, or correct"),
            ("command:false", "run the command of [archive] master_key by hand"),
            ("command:no-such-program-here", "run the command of [archive] master_key by hand"),
        ] {
            let failure = read(&site, source).err().unwrap();
            assert!(failure.next.starts_with(next), "{source}: {failure}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_command_for_the_master_key_is_bounded() {
        for (line, patience, says) in [
            // It never ends.
            ("tail -f /dev/null", Duration::from_millis(50), "tail gave no master key within 0 s"),
            ("cat /dev/zero", PATIENCE, "cat printed more than 64 KiB"),
            ("false", PATIENCE, "false ended with exit status: 1"),
        ] {
            let failure = run(line, patience).expect_err(line);
            assert!(failure.error.contains(says), "{line}: {failure}");
            assert!(failure.next.contains("[archive] master_key by hand"), "{line}: {failure}");
        }
        assert_eq!(run("echo 0123", PATIENCE), Ok("0123\n".to_owned()));
    }

    #[test]
    fn root_runs_no_command_of_another_user() {
        for (user, owner, allowed) in [(0, 0, true), (0, 990, false), (990, 990, true), (990, 0, true)] {
            assert_eq!(may_run(user, owner), allowed, "user {user}, owner {owner}");
        }
        if own_uid() != 0 {
            return;
        }
        // The file may be root's while its directory is the server's: the name leads to what its
        // user wants.
        let dir = std::env::temp_dir().join(format!("stele-master-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let config_path = dir.join("stele.toml");
        std::fs::write(&config_path, "").unwrap();
        let ran = dir.join("ran");
        let source = format!("command:touch {}", ran.display());
        let site = Site { dir: dir.clone(), config_path: config_path.clone() };
        for (path, owner) in [(&config_path, 990), (&config_path, 0), (&dir, 990)] {
            std::os::unix::fs::chown(path, Some(owner), None).unwrap();
            let failure = read(&site, &source).err().unwrap();
            assert_eq!(failure.error.contains("belongs to user 990"), owner == 990, "{}", failure.error);
            assert_eq!(std::fs::remove_file(&ran).is_ok(), owner == 0, "{}", failure.error);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn root_runs_no_command_that_another_user_may_write() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        if own_uid() != 0 {
            return;
        }
        let dir = std::env::temp_dir().join(format!("stele-master-open-{}", std::process::id()));
        let other = dir.join("other");
        std::fs::create_dir_all(&other).unwrap();
        let (file, link, foreign) = (dir.join("stele.toml"), dir.join("link.toml"), other.join("stele.toml"));
        [&file, &foreign].iter().for_each(|path| std::fs::write(path, "").unwrap());
        symlink(&foreign, &link).unwrap();
        let ran = dir.join("ran");
        let source = format!("command:touch {}", ran.display());
        let check = |config: &Path, runs: bool| {
            let site = Site { dir: dir.clone(), config_path: config.to_owned() };
            let failure = read(&site, &source).err().unwrap();
            assert_eq!(std::fs::remove_file(&ran).is_ok(), runs, "{}: {}", config.display(), failure.error);
        };
        for (path, mode, group, runs) in [
            (&file, 0o644, 0, true),
            (&file, 0o664, 0, true),
            (&file, 0o664, 990, false),
            (&file, 0o646, 0, false),
            (&dir, 0o777, 0, false),
            (&dir, 0o775, 990, false),
            (&dir, 0o1777, 0, true),
        ] {
            chown(path, None, Some(group)).unwrap();
            let before = std::fs::metadata(path).unwrap().permissions();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            check(&file, runs);
            std::fs::set_permissions(path, before).unwrap();
            chown(path, None, Some(0)).unwrap();
        }
        // The link is root's, and the file behind it, or its folder, is not.
        check(&link, true);
        for path in [&foreign, &other] {
            chown(path, Some(990), None).unwrap();
            check(&link, false);
            chown(path, Some(0), None).unwrap();
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
