//! Help that fits the terminal: where the text behind the options is broken because its line in the
//! source is full, the paragraph flows.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, CommandFactory, FromArgMatches};

use super::backup::BackupRun;
use super::{Cli, GlobalArgs};

/// A shorter line was broken on purpose.
const FULL: usize = 90;
/// Columns of an example: a line that the terminal breaks cannot be pasted.
const EXAMPLE: usize = 78;

impl Cli {
    /// Reads the arguments of this process.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
        let mut command = without_empty_variables(flowing(Cli::command()));
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        let is_dir_given = is_given(&matches, "dir");
        let mut cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
        // A file that is named here and now counts more than a variable that was set some time.
        if cli.place.config.is_some() && !is_dir_given {
            cli.place.dir = None;
        }
        Ok(cli)
    }
}

impl BackupRun {
    /// Reads what stands behind `stele backup run`.
    pub fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<BackupRun, clap::Error> {
        let command = Command::new("stele backup run").no_binary_name(true);
        let mut command = without_empty_variables(GlobalArgs::augment_args(BackupRun::augment_args(command)));
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        BackupRun::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// Whether an option stands on the command line, at any level.
fn is_given(matches: &ArgMatches, name: &str) -> bool {
    let here = matches.try_contains_id(name).is_ok() && matches.value_source(name) == Some(ValueSource::CommandLine);
    here || matches.subcommand().is_some_and(|(_, below)| is_given(below, name))
}

/// A variable without a value is none, as with other programs.
fn without_empty_variables(command: Command) -> Command {
    let is_empty = |arg: &Arg| arg.get_env().and_then(std::env::var_os).is_some_and(|value| value.is_empty());
    let command = command.mut_args(|arg| if is_empty(&arg) { arg.env(Resettable::Reset) } else { arg });
    command.mut_subcommands(without_empty_variables)
}

/// The command, and all below it, with text that flows.
pub fn flowing(command: Command) -> Command {
    let command = match command.get_after_help().map(|text| flowed(&text.to_string())) {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(flowing)
}

fn flowed(text: &str) -> String {
    let (mut all, mut last) = (String::with_capacity(text.len()), "");
    let is_plain = |line: &str| !line.is_empty() && !line.starts_with(' ');
    for line in text.lines() {
        if !all.is_empty() {
            all.push(if last.len() > FULL && is_plain(last) && is_plain(line) { ' ' } else { '\n' });
        }
        all.push_str(&pasteable(line));
        last = line;
    }
    all
}

/// A long command of an example goes on in the next line, as a shell takes it. Its comment comes
/// before it.
fn pasteable(line: &str) -> String {
    if !line.starts_with("  stele ") || line.len() <= EXAMPLE {
        return line.to_owned();
    }
    let (command, comment) = line.split_once(" # ").map_or((line, None), |(command, comment)| (command, Some(comment)));
    let mut lines = comment.map_or_else(Vec::new, |comment| broken(comment.split(' '), "  # ", "  # ", ""));
    let (mut quoted, mut words) = (false, vec![String::new()]);
    for letter in command.trim().chars() {
        quoted ^= letter == '\'' || letter == '"';
        match (letter, words.last_mut()) {
            (' ', _) if !quoted => words.push(String::new()),
            (letter, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    lines.extend(broken(words.iter().map(String::as_str), "  ", "      ", " \\"));
    lines.join("\n")
}

/// Words in lines that begin so, each but the last with this end.
fn broken<'a>(words: impl Iterator<Item = &'a str>, first: &str, rest: &str, end: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = first.to_owned();
    for word in words {
        let is_begun = line.len() > first.len().max(rest.len());
        if is_begun && line.len() + 1 + word.len() + end.len() > EXAMPLE {
            lines.push(std::mem::replace(&mut line, rest.to_owned()) + end);
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_lines_flow_and_short_ones_and_examples_stay() {
        let full = "word ".repeat(20);
        let text = format!("Examples:\n  stele two\n\n{full}\nrest\nshort\nlines");
        assert_eq!(flowed(&text), format!("Examples:\n  stele two\n\n{full} rest\nshort\nlines"));
    }

    #[test]
    fn examples_fit_a_terminal_and_can_be_pasted() {
        let text = format!("  stele run {}--end 'a quoted word' # {}", "--word ".repeat(12), "why ".repeat(25).trim());
        let lines: Vec<String> = pasteable(&text).lines().map(str::to_owned).collect();
        assert!(lines.iter().all(|line| line.len() <= EXAMPLE), "{lines:#?}");
        let (comments, commands): (Vec<&String>, Vec<&String>) =
            lines.iter().partition(|line| line.starts_with("  # "));
        assert_eq!((comments.len(), commands.len()), (2, 2), "{lines:#?}");
        assert!(commands[0].ends_with(" \\") && commands[1].ends_with(" --end 'a quoted word'"), "{lines:#?}");
        fn examine(command: &Command) {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = text.lines().find(|line| line.starts_with("  stele ") && line.len() > EXAMPLE);
            assert_eq!(long, None, "{}", command.get_name());
            command.get_subcommands().for_each(examine);
        }
        examine(&flowing(Cli::command()));
    }

    /// The commands of `stele` in a text, in words as a shell takes them: up to a comment, another
    /// program or a file.
    fn examples(text: &str) -> Vec<Vec<String>> {
        let text = text.replace(" \\\n", " ");
        let commands = text.lines().filter_map(|line| line.strip_prefix("  ")).filter_map(|line| {
            let line = line.split_once("$ ").map_or(line, |(_, command)| command);
            let line = line.split_once("# ").filter(|(user, _)| *user == "root").map_or(line, |(_, command)| command);
            let line = line.split_once(" | ").map_or(line, |(_, command)| command);
            line.trim_start().starts_with("stele ").then(|| line.trim_start().to_owned())
        });
        let in_words = |line: String| {
            let (mut words, mut quote) = (vec![String::new()], None);
            for letter in line.chars() {
                match (letter, quote, words.last_mut()) {
                    ('\'' | '"', None, _) => quote = Some(letter),
                    (_, Some(end), _) if letter == end => quote = None,
                    (' ', None, _) => words.push(String::new()),
                    (_, _, Some(word)) => word.push(letter),
                    (_, _, None) => {}
                }
            }
            let ends = |word: &String| word.starts_with('#') || word.starts_with('>') || word.starts_with("2>");
            words.into_iter().take_while(|word| !ends(word)).filter(|word| !word.is_empty()).collect()
        };
        commands.map(in_words).collect()
    }

    #[test]
    fn every_example_of_the_help_can_be_given() {
        fn collect(command: &Command, found: &mut Vec<Vec<String>>) {
            found.extend(examples(&command.get_after_help().map(ToString::to_string).unwrap_or_default()));
            command.get_subcommands().for_each(|below| collect(below, found));
        }
        let mut found = Vec::new();
        collect(&flowing(Cli::command()), &mut found);
        assert!(found.len() > 200, "{}", found.len());
        let read = |words: &[String], more: &[&str]| {
            Cli::read(words.iter().map(OsString::from).chain(more.iter().map(OsString::from)))
        };
        for words in found {
            // Examples of backups leave out what a variable names.
            let wrong = read(&words, &[]).err().and_then(|_| read(&words, &["--repository", "/mnt/backup"]).err());
            assert!(
                wrong.is_none(),
                "{}: {}",
                words.join(" "),
                wrong.map(|error| error.to_string()).unwrap_or_default()
            );
        }
    }

    #[test]
    fn help_fills_a_wide_terminal() {
        let mut command = flowing(Cli::command()).term_width(300);
        command.build();
        let create = command.find_subcommand_mut("key").and_then(|key| key.find_subcommand_mut("create")).unwrap();
        let help = create.render_long_help().to_string();
        assert!(help.contains("is required. `stele key narrow` takes rights"), "{help}");
    }
}
