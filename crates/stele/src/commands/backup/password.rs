//! The password of a repository: the first line of a file, or of what a command prints.
//!
//! A command of the operator may ask a person, so it has no time limit. What it prints has one of
//! length, and a signal ends the wait for it.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use stele_backup::BackupError;
use stele_server::failure::{Failure, Outcome, io_failure};

use crate::cli::backup::RepositoryArgs;

/// Bytes of the longest password.
const PASSWORD_MAX: u64 = 4096;
/// Bytes that a command prints at most, with all that follows the first line.
const OUTPUT_MAX: u64 = 1 << 20;
/// How often the command is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The password, by the command line or else by the environment, where a file comes before a
/// command.
pub(in crate::commands) fn password(place: &RepositoryArgs) -> Outcome<Vec<u8>> {
    password_until(place, &AtomicBool::new(false))
}

/// The same, and ends as stopped when the flag is set while the command runs.
pub fn password_until(place: &RepositoryArgs, stop: &AtomicBool) -> Outcome<Vec<u8>> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let (mut file, mut command) = (place.password_file.clone(), place.password_command.clone());
    if file.is_none() && command.is_none() {
        file = variable("STELE_BACKUP_PASSWORD_FILE").map(Into::into);
        command = variable("STELE_BACKUP_PASSWORD_COMMAND").and_then(|command| command.into_string().ok());
    }
    match (&file, &command) {
        (Some(file), _) => password_file(file),
        (None, Some(command)) => first_line(printed(command, stop)?),
        (None, None) => Err(Failure::usage("the repository's password is needed")
            .next("give --password-file FILE or --password-command COMMAND")),
    }
}

pub fn password_file(path: &Path) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| io_failure("read the password from", path, &error))?;
    let read = file.take(PASSWORD_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| io_failure("read the password from", path, &error))?;
    first_line(bytes)
}

fn first_line(mut bytes: Vec<u8>) -> Outcome<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    bytes.truncate(end);
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    if bytes.is_empty() || bytes.len() as u64 > PASSWORD_MAX {
        return Err(Failure::usage(format!("the password must have 1 to {PASSWORD_MAX} bytes on the first line")));
    }
    Ok(bytes)
}

/// What a command prints.
fn printed(command: &str, stop: &AtomicBool) -> Outcome<Vec<u8>> {
    let cannot = |error: std::io::Error| Failure::failed(format!("the password command cannot start: {error}"));
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let ended = child.stdout.take().map_or_else(|| Ok(Vec::new()), |output| output_of(&mut child, output, stop));
    let ended = ended.and_then(|bytes| Ok((status(&mut child, stop)?, bytes)));
    if ended.is_err() {
        // It goes with this process, and leaves no zombie.
        let _ = child.kill().and_then(|()| child.wait());
    }
    match ended? {
        (status, bytes) if status.success() => Ok(bytes),
        (status, _) => Err(failed(status, stop)),
    }
}

/// Of a command that failed. A signal that this process has heard may have ended it too.
fn failed(status: ExitStatus, stop: &AtomicBool) -> Failure {
    match check(stop) {
        Err(stopped) => stopped,
        Ok(()) => Failure::failed(format!("the password command failed: {status}")),
    }
}

/// Reads the output to its end on another thread: none hears of a signal while it reads.
fn output_of(child: &mut Child, output: ChildStdout, stop: &AtomicBool) -> Outcome<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(OUTPUT_MAX + 1).read_to_end(&mut bytes);
        let _ = sender.send(read.map(|_| bytes));
    });
    let ended = |why: &str| Failure::failed(format!("the output of the password command cannot be read: {why}"));
    loop {
        match receiver.recv_timeout(LOOK_EVERY) {
            Ok(Ok(bytes)) if bytes.len() as u64 > OUTPUT_MAX => {
                let text = format!("the password command prints more than {OUTPUT_MAX} bytes");
                return Err(Failure::usage(text).next("its first line is the password"));
            }
            Ok(read) => return read.map_err(|error| ended(&error.to_string())),
            Err(RecvTimeoutError::Disconnected) => return Err(ended("its reader ended")),
            Err(RecvTimeoutError::Timeout) => check(stop)?,
        }
        // A part of the command that goes on in the background may hold the output.
        if let Ok(Some(status)) = child.try_wait()
            && !status.success()
        {
            return Err(failed(status, stop));
        }
    }
}

fn status(child: &mut Child, stop: &AtomicBool) -> Outcome<ExitStatus> {
    loop {
        let status = child.try_wait().map_err(|error| Failure::failed(format!("the password command: {error}")))?;
        if let Some(status) = status {
            return Ok(status);
        }
        check(stop)?;
        std::thread::sleep(LOOK_EVERY);
    }
}

fn check(stop: &AtomicBool) -> Outcome<()> {
    if stop.load(Ordering::Relaxed) { Err(BackupError::Stopped.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use stele_server::failure::Kind;

    use super::*;

    #[test]
    fn a_command_prints_a_bounded_password_and_ends_with_a_signal() {
        let go = AtomicBool::new(false);
        let of = |command: &str| printed(command, &go).and_then(first_line);
        assert_eq!(of("printf 'horse\\r\\nnotes\\n'; head -c 100000 /dev/zero"), Ok(b"horse".to_vec()));
        assert_eq!(of("true").unwrap_err().kind, Kind::Usage);
        let failed = of("echo half; exit 4").unwrap_err();
        assert!(failed.kind == Kind::Failed && failed.error.contains("exit status: 4"), "{failed}");
        // Without a limit this would take all memory.
        for endless in ["cat /dev/zero", "yes; true", "cat /dev/zero | cat"] {
            let refused = of(endless).unwrap_err();
            assert!(refused.kind == Kind::Usage && refused.error.contains("more than"), "{endless}: {refused}");
        }
        let begun = Instant::now();
        let stopped = AtomicBool::new(true);
        for silent in ["sleep 100", "exec >&-; exec sleep 100"] {
            assert_eq!(printed(silent, &stopped).unwrap_err().kind, Kind::Interrupted, "{silent}");
        }
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
