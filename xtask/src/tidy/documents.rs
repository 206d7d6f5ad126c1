//! Documents name only files and commands that exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::CommandFactory;

/// Whether it is a document at the top, or one about formats and promises, or below `docs/`.
pub fn is_one(name: &str) -> bool {
    let folders = ["FORMAT/", "SEMANTICS/", "docs/"];
    let listed = !name.contains('/') || folders.iter().any(|folder| name.starts_with(folder));
    listed && name.ends_with(".md")
}

/// Checks paths, links, and `./x` commands.
pub fn check(root: &Path, name: &str, text: &str, files: &[PathBuf], faults: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for path in paths(line) {
            if !exists(root, name, path, files) {
                faults.push(format!("{name}:{}: there is no {path}", number + 1));
            }
        }
        for words in commands_named(line, "./x") {
            if let Some(task) = words.first().filter(|task| !is_task(task)) {
                faults.push(format!("{name}:{}: ./x has no command '{task}'", number + 1));
            }
        }
    }
}

/// Checks every `stele` command in the documents against the binary itself: each must have help,
/// and the help must list each flag.
pub fn commands(root: &Path) -> Vec<String> {
    let binary = root.join("target/release/stele");
    if !binary.exists() {
        return vec![format!("{} is not built: cargo build --release --package stele", binary.display())];
    }
    let mut helps: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
    let mut faults = Vec::new();
    for path in super::tracked(root).iter().filter(|path| is_one(&path.to_string_lossy())) {
        let text = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        for (number, line) in text.lines().enumerate() {
            for words in commands_named(line, "stele") {
                let place = format!("{}:{}", path.display(), number + 1);
                check_command(&binary, &words, &place, &mut helps, &mut faults);
            }
        }
    }
    faults
}

fn check_command(
    binary: &Path,
    words: &[String],
    place: &str,
    helps: &mut BTreeMap<Vec<String>, Option<String>>,
    faults: &mut Vec<String>,
) {
    let verbs: Vec<String> = words.iter().take_while(|word| is_verb(word)).cloned().collect();
    let help = helps.entry(verbs.clone()).or_insert_with(|| {
        let output = Command::new(binary).args(&verbs).arg("--help").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    let Some(help) = help else {
        faults.push(format!("{place}: there is no command 'stele {}'", verbs.join(" ")));
        return;
    };
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let flag = flag.split('=').next().unwrap_or(flag);
        if !help.contains(flag) {
            faults.push(format!("{place}: 'stele {}' has no {flag}", verbs.join(" ")));
        }
    }
}

/// A word that can name a subcommand, not a value, a file or a flag.
fn is_verb(word: &str) -> bool {
    !word.starts_with('-') && !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

fn is_task(name: &str) -> bool {
    crate::Arguments::command().get_subcommands().any(|task| task.get_name() == name)
}

/// The paths in a line: in backquotes or as a link, beginning with a directory of ours or ending in
/// `.md`.
fn paths(line: &str) -> Vec<&str> {
    let quoted = line.split('`').skip(1).step_by(2);
    let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://") && !link.starts_with('#'));
    let plain =
        line.split([' ', ',', ';', '(', ')', '`']).filter(|word| word.ends_with(".md") || word.ends_with(".md."));
    let ours = ["crates/", "xtask/", "FORMAT/", "SEMANTICS/", "docs/", "fuzz/", ".ci/"];
    let quoted = quoted.filter(|text| !text.contains(' ') && ours.iter().any(|directory| text.starts_with(directory)));
    quoted
        .chain(links)
        .chain(plain.map(|word| word.trim_end_matches('.')))
        .filter(|path| !path.contains("://"))
        .collect()
}

/// Whether the path exists relative to the repository or the document, has the test behind `::` if
/// it names one, or, with `*`, matches any file.
fn exists(root: &Path, document: &str, path: &str, files: &[PathBuf]) -> bool {
    let path = path.split('#').next().unwrap_or(path).trim_end_matches('/');
    if let Some((file, test)) = path.split_once("::") {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        return text.contains(&format!("fn {test}("));
    }
    if let Some((before, after)) = path.split_once('*') {
        return files.iter().map(|file| file.to_string_lossy()).any(|f| f.starts_with(before) && f.ends_with(after));
    }
    let beside = Path::new(document).parent().unwrap_or(Path::new(""));
    root.join(path).exists() || root.join(beside).join(path).exists()
}

/// The words after each mention of a program as a command: at the start of an indented line, of a
/// line after `$ ` in a fence, or of a quoted span. Alternatives (`create|list`) give one command
/// each.
fn commands_named(line: &str, program: &str) -> Vec<Vec<String>> {
    let spans = line.split('`').skip(1).step_by(2);
    let block = line.starts_with("    ").then(|| line.trim_start()).or_else(|| line.strip_prefix("$ "));
    let mut commands = Vec::new();
    for text in spans.chain(block) {
        let text = text.trim_start_matches("$ ").trim_start_matches("target/release/").trim_start_matches("sudo ");
        let mut words = text.split_whitespace();
        if words.next() != Some(program) {
            continue;
        }
        // Two spaces set a remark apart from the command; '#' does too.
        let command = text.split("  ").next().unwrap_or(text).split(" #").next().unwrap_or(text);
        let words = command
            .split_whitespace()
            .skip(1)
            .map(|word| word.trim_start_matches('[').trim_end_matches([']', ',', '.']).to_owned());
        commands.extend(alternatives(&words.collect::<Vec<String>>()));
    }
    commands
}

fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let Some(at) = words.iter().position(|word| word.contains('|') && is_verb(&word.replace('|', ""))) else {
        return vec![words.to_vec()];
    };
    let each = words[at].split('|').map(|choice| {
        let mut words = words.to_vec();
        words[at] = choice.to_owned();
        words
    });
    each.flat_map(|words| alternatives(&words)).collect()
}

#[cfg(test)]
mod tests;
