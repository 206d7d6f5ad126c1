//! Every command that a message, a help text or a document names can be given.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use super::Cli;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "target" | "tests" | ".git") {
            files(&path, ending, found);
        } else if name.ends_with(ending) && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The spans in backticks that begin with `stele `.
fn named(text: &str) -> Vec<String> {
    let pieces = text.split('`').skip(1).step_by(2);
    // A Rust string continues after a line that ends in a backslash, and a comment after its
    // marker.
    let joined = |piece: &str| {
        let lines = piece.split('\n').map(|line| line.trim().trim_start_matches("///").trim_start_matches("//!"));
        lines.map(|line| line.trim_start_matches("//").trim_end_matches('\\').trim()).collect::<Vec<_>>().join(" ")
    };
    pieces.filter(|piece| piece.starts_with("stele ") && piece.len() < 200).map(joined).collect()
}

/// Why the parser would refuse this command.
fn wrong(cli: &Command, line: &str) -> Option<String> {
    // A bar begins another program's command. Dots stand for omitted words.
    let words = line.split('|').next().unwrap_or_default().split_whitespace();
    let mut words = words.filter(|word| *word != "...").skip(1).peekable();
    let (mut command, mut path) = (cli, vec!["stele".to_owned()]);
    let mut options: Vec<String> =
        cli.get_arguments().filter_map(|option| option.get_long().map(str::to_owned)).collect();
    let mut positionals = 0;
    options.extend(["help".to_owned(), "version".to_owned()]);
    while let Some(word) = words.next() {
        if let Some(option) = word.strip_prefix("--") {
            let name = option.split('=').next().unwrap_or_default();
            let known = command.get_arguments().any(|known| known.get_long() == Some(name));
            if !known && !options.iter().any(|known| known == name) {
                return Some(format!("{} has no --{name}", path.join(" ")));
            }
            let takes = command.get_arguments().find(|known| known.get_long() == Some(name)).is_some_and(|known| {
                known.get_num_args().unwrap_or_default().takes_values() && known.get_action().takes_values()
            });
            if takes && !option.contains('=') && words.peek().is_some_and(|next| !next.starts_with("--")) {
                words.next();
            }
        } else if let Some(next) = command.find_subcommand(word) {
            path.push(word.to_owned());
            command = next;
        } else if command.has_subcommands()
            && !word.starts_with(|c: char| c.is_ascii_uppercase() || c == '.' || c == '|')
        {
            return Some(format!("{} has no command {word}", path.join(" ")));
        } else {
            positionals += 1;
        }
    }
    let most =
        command.get_positionals().map(|known| known.get_num_args().unwrap_or_default().max_values()).sum::<usize>();
    let taken = command.get_positionals().count() > 0 || command.has_subcommands();
    (positionals > most && !taken).then(|| format!("{} takes no arguments", path.join(" ")))
}

#[test]
fn every_command_that_is_named_exists() {
    let mut cli = Cli::command();
    cli.build();
    let mut sources = Vec::new();
    files(&root().join("crates"), ".rs", &mut sources);
    for dir in ["", "SEMANTICS", "FORMAT", "docs"] {
        let entries = std::fs::read_dir(root().join(dir)).unwrap().flatten().map(|entry| entry.path());
        sources.extend(entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    let (mut seen, mut mistakes) = (0, Vec::new());
    for path in sources.iter().filter(|path| !path.ends_with("CHANGELOG.md")) {
        let text = std::fs::read_to_string(path).unwrap();
        // Fenced blocks have no backticks of their own.
        let text = text.replace("```", "");
        for line in text.split("\n\n").flat_map(named) {
            seen += 1;
            let what = wrong(&cli, &line).map(|what| format!("{}: `{line}`: {what}", path.display()));
            mistakes.extend(what);
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(seen > 100, "only {seen} commands were found");
}

/// A message that asks the reader to run a command puts the command in backticks.
#[test]
fn nothing_is_to_be_run_that_is_no_command() {
    let mut sources = Vec::new();
    for part in ["archive", "array", "block", "catalog", "media", "object", "server", "stele"] {
        files(&root().join("crates").join(part).join("src"), ".rs", &mut sources);
    }
    let mut mistakes = Vec::new();
    for path in &sources {
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let literals = line.split('"').skip(1).step_by(2);
            let told = literals.flat_map(|literal| literal.split(" run ").skip(1));
            let words = told.filter_map(|rest| rest.split_whitespace().next());
            // These are no commands: "a run of ..." speaks of runs, and "run {program}" of a
            // program.
            let told_of = ["it", "the", "an", "as", "of", "on", "did", "panicked"];
            let named = |word: &&str| word.starts_with(['`', '{']) || told_of.contains(word);
            mistakes.extend(words.filter(|word| !named(word)).map(|word| format!("{}: run {word}", path.display())));
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_noticed() {
    let mut cli = Cli::command();
    cli.build();
    for line in ["stele reclaim", "stele volume grow data", "stele pool status --often", "stele pool frobnicate"] {
        assert!(wrong(&cli, line).is_some(), "{line}");
    }
    for line in
        ["stele pool status --watch", "stele volume resize vm1 40GiB", "stele pool", "stele master-key verify FILE"]
    {
        assert_eq!(wrong(&cli, line), None, "{line}");
    }
}

/// The parser checks itself only in builds with assertions, and its tests run without them.
#[test]
fn no_command_defines_an_option_twice() {
    fn look(command: &Command, mistakes: &mut Vec<String>) {
        let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
        for option in command.get_arguments() {
            let long = option.get_long();
            if !ids.insert(option.get_id().as_str()) || long.is_some_and(|long| !names.insert(long)) {
                mistakes.push(format!("{}: {}", command.get_display_name().unwrap_or_default(), option.get_id()));
            }
        }
        command.get_subcommands().for_each(|below| look(below, mistakes));
    }
    let mut cli = Cli::command();
    cli.build();
    let mut mistakes = Vec::new();
    look(&cli, &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes:?}");
    let line = "stele class activate staff --version 2";
    let read = Cli::read(line.split(' ').map(Into::into)).unwrap();
    assert!(format!("{read:?}").contains("version: Some(2)"), "{read:?}");
}

/// Options that are not allowed, or not without another one.
#[test]
fn options_that_would_do_nothing_are_refused() {
    for line in [
        "stele share set records",
        "stele share set records --yes",
        "stele share create records --cache 1GiB --owner 4294967295:0",
        "stele volume export vm1 --nbd --removable",
        "stele volume export vm1 --nbd --native-blocks",
        "stele volume export vm1 --nbd --chap-user a --chap-secret b",
        "stele volume export vm1 --nbd --chap-secret b",
        "stele export set vm1 --no-chap --chap-secret b",
        "stele lab history results --cell a --title b",
        "stele lab paper a.lab --quick",
        "stele lab paper a.lab --on null",
        "stele lab search --on null --rate 100 --response 20ms",
        "stele event records/a --at 2026-11-30 --dry-run",
        "stele event records/a --at 2026-11-30 --prefix hr/",
        "stele event records/a --at 2026-11-30 --tag kind=book",
        "stele event --prefix hr/ --revoke --officer anna.json",
        "stele event --bucket records --revoke --officer anna.json",
        "stele event records/a --revoke",
        "stele event records/a --revoke --officer anna.json --dry-run",
        "stele disposal pause --reason=",
        "stele disposal delete a/b@c --officer anna.json --reason=\t",
        "stele matter open smith --reason=",
    ] {
        let refused = Cli::read(line.split(' ').map(Into::into)).err();
        assert_eq!(refused.map(|error| error.exit_code()), Some(2), "{line}");
    }
    for line in [
        "stele share set records --read-write",
        "stele share set records --caching off",
        "stele volume export vm1 --iscsi --removable --chap-user a --chap-secret b",
        "stele event records/a --at 2026-11-30",
        "stele disposal pause",
        "stele disposal pause --reason audit",
        "stele event records/a --revoke --officer anna.json",
        "stele event --bucket records --prefix hr/ --tag kind=book --at 2026-11-30 --dry-run",
    ] {
        assert!(Cli::read(line.split(' ').map(Into::into)).is_ok(), "{line}");
    }
}

/// Renamed commands and options; the next release takes only the new names.
#[test]
fn former_spellings_are_accepted_for_one_release() {
    for line in [
        "stele pool open --read-only",
        "stele pool create --drive a --size 1GiB --written",
        "stele up --written",
        "stele key escrow --to a.key",
        "stele key request-escrow --officer anna.json",
        "stele key check a.key",
        "stele backup key escrow --repository r --to a.key",
        "stele backup key check --repository r a.key",
        "stele lab published",
    ] {
        assert!(Cli::read(line.split(" ").map(Into::into)).is_ok(), "{line}");
    }
}

/// The commands that carry something out, as `pool status`; hidden ones are for packages alone.
fn leaves(command: &Command, path: &[&str], found: &mut BTreeSet<String>) {
    let below = command.get_subcommands().filter(|next| next.get_name() != "help" && !next.is_hide_set());
    let mut any = false;
    for next in below {
        any = true;
        leaves(next, &[path, &[next.get_name()]].concat(), found);
    }
    if !any {
        found.insert(path.join(" "));
    }
}

/// A section of SEMANTICS/json.md: its heading, the commands that its heading or its line
/// `Printed by` names, and whether it says anything.
fn sections(cli: &Command, text: &str) -> Vec<(String, Vec<String>, bool)> {
    let command = |span: &str| {
        let (mut command, mut path) = (cli, Vec::new());
        for word in span.split_whitespace().skip(1) {
            let Some(next) = command.find_subcommand(word) else { break };
            path.push(word.to_owned());
            command = next;
        }
        path.join(" ")
    };
    let described = text.split("\n## ").skip(1).map(|section| {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        let printed = body.split("\n\n").find(|paragraph| paragraph.trim_start().starts_with("Printed by:"));
        let commands = [heading, printed.unwrap_or_default()].into_iter().flat_map(named).map(|span| command(&span));
        (heading.to_owned(), commands.collect(), !body.trim().is_empty())
    });
    described.collect()
}

#[test]
fn every_command_has_a_section_on_its_json_and_no_section_none() {
    let mut cli = Cli::command();
    cli.build();
    let text = std::fs::read_to_string(root().join("SEMANTICS/json.md")).unwrap();
    let mut commands = BTreeSet::new();
    leaves(&cli, &[], &mut commands);
    assert!(commands.len() > 100 && commands.contains("pool status"), "{commands:?}");
    let sections = sections(&cli, &text);
    let mut mistakes = Vec::new();
    for (heading, named, says) in &sections {
        // Any command may fail.
        if named.is_empty() && heading != "Failures" {
            mistakes.push(format!("the section '{heading}' names no command"));
        }
        if !says {
            mistakes.push(format!("the section '{heading}' is empty"));
        }
        let unknown = named.iter().filter(|name| !commands.contains(*name));
        mistakes
            .extend(unknown.map(|name| format!("the section '{heading}' names 'stele {name}', which is no command")));
    }
    let described: BTreeSet<&String> = sections.iter().flat_map(|(_, named, _)| named).collect();
    let missing = commands.iter().filter(|name| !described.contains(name));
    mistakes.extend(missing.map(|name| format!("SEMANTICS/json.md has no section on 'stele {name}'")));
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn a_date_before_1970_is_told_as_one() {
    let said = |options: &[&str]| {
        let words = [&["stele", "backup"][..], options, &["--repository", "/mnt/backup"]].concat();
        Cli::try_parse_from(words).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (text, what) in [
        ("1969-12-31", "lies before 1970"),
        ("1960-01-01T00:00:00Z", "lies before 1970"),
        ("2026-13-01", "is neither a date"),
    ] {
        let until = said(&["run", "/srv", "--keep-until", text]);
        assert!(until.contains(what), "{until}");
    }
    assert_eq!(said(&["run", "/srv", "--keep-until", "1970-01-01"]), "");
    assert!(said(&["restore", "latest", "--to", "x", "--at", "1969-12-31"]).contains("lies before 1970"));
}

/// A script whose variable is empty names no request. A list would look like an approval.
#[test]
fn an_approval_takes_the_name_of_a_request() {
    for option in ["--yes", "--refuse"] {
        assert!(Cli::try_parse_from(["stele", "approve", option]).is_err(), "{option}");
        assert!(Cli::try_parse_from(["stele", "approve", "7k2m9xqa", option]).is_ok(), "{option}");
    }
    assert!(Cli::try_parse_from(["stele", "approve"]).is_ok());
}

#[test]
fn every_argument_is_explained() {
    fn look(command: &Command, path: &str, missing: &mut Vec<String>) {
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if argument.get_help().is_none() && argument.get_long_help().is_none() {
                missing.push(format!("{path}: {}", argument.get_id()));
            }
        }
        command.get_subcommands().for_each(|below| look(below, &format!("{path} {}", below.get_name()), missing));
    }
    let mut missing = Vec::new();
    look(&Cli::command(), "stele", &mut missing);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
