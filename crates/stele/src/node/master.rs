//! The source of the master key: a file, the environment, or a command's output.

use std::path::Path;
use std::process::{Command, Stdio};

use stele_archive::MasterKey;

use crate::config::Site;
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::files::create_private;
use crate::node::surroundings::System;

/// Reads the key that `source` names: `file:PATH`, `env:NAME`, or `command:PROGRAM ARG ...`.
pub fn read(site: &Site, source: &str) -> Outcome<MasterKey> {
    let text = match source.split_once(':') {
        Some(("file", path)) => {
            let path = site.path(Path::new(path));
            std::fs::read_to_string(&path).map_err(|error| {
                io_failure("read the master key", &path, &error)
                    .next("restore it from escrow: without it nothing in this store can be read")
            })?
        }
        Some(("env", name)) => std::env::var(name)
            .map_err(|_| Failure::usage(format!("the master key's environment variable {name} is not set")))?,
        Some(("command", line)) => run(line)?,
        _ => {
            return Err(Failure::usage(format!("[archive] master_key = \"{source}\" names no source"))
                .next("write file:PATH, env:NAME, or command:PROGRAM ARG ..."));
        }
    };
    MasterKey::parse(&text).map_err(|error| {
        Failure::new(Kind::Refused, format!("the master key from {} is unusable: {error}", redact(source)))
    })
}

/// A command may carry a secret in its arguments, so only the name of its program is shown.
fn redact(source: &str) -> String {
    source.split_whitespace().next().unwrap_or_default().to_owned()
}

fn run(line: &str) -> Outcome<String> {
    let mut words = line.split_whitespace();
    let program = words.next().ok_or_else(|| Failure::usage("[archive] master_key names an empty command"))?;
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::failed(format!("cannot run {program} for the master key: {error}")))?;
    if !output.status.success() {
        return Err(Failure::failed(format!("{program} ended with {} instead of the master key", output.status)));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::failed(format!("{program} printed something that is no text")))
}

/// Makes a new key if the source is a file that does not exist yet. Any other source must already have one.
pub fn make(site: &Site, source: &str) -> Outcome<()> {
    if let Some(("file", path)) = source.split_once(':') {
        let path = site.path(Path::new(path));
        if !path.exists() {
            let key = MasterKey::generate(&System::default());
            create_private(&path, format!("{}\n", key.to_text().as_str()).as_bytes())?;
        }
    }
    Ok(())
}
