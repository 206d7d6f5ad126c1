//! House rules that neither the compiler nor clippy knows. They cover the places of `unsafe`, the
//! imports between crates and between folders, the length of files, forbidden words and names, and
//! forbidden actions of tests. Documents must name only existing things, and keep the rules of
//! prose.
//!
//! A fault is one line: the place, the problem, and the next step.

mod documents;
mod floors;
mod folders;
mod names;
mod prose;
mod source;

use std::path::{Path, PathBuf};
use std::process::Command;

pub use documents::commands;

/// Endings of files that `patch` and `git apply` leave behind.
const LEFTOVERS: [&str; 2] = ["orig", "rej"];

/// Files whose length documents state, and the lines that each may have.
const SHORT: &[(&str, usize)] = &[("contrib/verify-proof.py", 299)];

/// Every fault that is visible without a build.
pub fn check(root: &Path) -> Vec<String> {
    let files = tracked(root);
    if files.is_empty() {
        return vec![format!("{}: git lists no files here; run from a clone", root.display())];
    }
    let (mut faults, mut types) = (Vec::new(), names::PublicTypes::default());
    for path in &files {
        if path.extension().is_some_and(|end| LEFTOVERS.iter().any(|leftover| end == *leftover)) {
            faults.push(format!("{}: a patch left this file behind; delete it", path.display()));
        }
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        let name = path.to_string_lossy();
        // The rules themselves contain the words that they forbid.
        if name.ends_with(".rs") && !name.starts_with("xtask/src/tidy") {
            source::check(&name, &text, &mut faults);
            folders::check(&name, &text, &mut faults);
            types.check(&name, &text, &mut faults);
            prose::check_comments(&name, &text, &mut faults);
        } else if name.starts_with("crates/") && name.ends_with("/Cargo.toml") {
            floors::check(&name, &text, &mut faults);
        } else if documents::is_one(&name) {
            documents::check(root, &name, &text, &files, &mut faults);
        }
        check_length(&name, &text, &mut faults);
        if prose::is_kept(&name) {
            prose::check(&name, &text, &mut faults);
        }
    }
    faults
}

fn check_length(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    for (_, max) in SHORT.iter().filter(|(short, max)| *short == name && lines > *max) {
        faults.push(format!("{name}:{lines}: {lines} lines; OPERATIONS.md promises at most {max}; shorten it"));
    }
}

/// The files that git tracks, or would track after `git add`.
fn tracked(root: &Path) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let names = listed.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned())).collect()
}

#[cfg(test)]
mod tests;
