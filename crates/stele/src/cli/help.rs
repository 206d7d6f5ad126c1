//! Help that fits the terminal: where the text behind the options is broken because its line in the
//! source is full, the paragraph flows.

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::Cli;

/// A shorter line was broken on purpose.
const FULL: usize = 90;

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
        all.push_str(line);
        last = line;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_lines_flow_and_short_ones_and_examples_stay() {
        let full = "word ".repeat(20);
        let text = format!("Examples:\n  stele {full}\n  stele two\n\n{full}\nrest\nshort\nlines");
        assert_eq!(flowed(&text), format!("Examples:\n  stele {full}\n  stele two\n\n{full} rest\nshort\nlines"));
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
