//! A command line that cannot be understood, told like every other failure: kind, cause and next step, as JSON where that
//! was asked for.

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use stele_ground::shown::{Shown, is_unsafe, shown};

use crate::cli::Cli;
use crate::failure::{Failure, Kind};
use crate::output::json_line;

/// Prints the error, or the help that was asked for, and answers the exit code.
pub fn tell(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = safe(error, &arguments);
    // What could not be understood is not asked what it means.
    if arguments.iter().any(|word| word == "--json") {
        println!("{}", json_line(&failure(&text)).unwrap_or_default());
    }
    eprint!("{text}");
    ExitCode::from(Kind::Usage.exit_code())
}

/// The message, without what the arguments that it quotes would do to a terminal: the parser is given them as they may be
/// shown, and says the same of those.
fn safe(error: &clap::Error, arguments: &[String]) -> String {
    let text = match arguments.iter().any(|word| word.contains(is_unsafe)) {
        false => error.render().to_string(),
        true => match Cli::try_parse_from(arguments.iter().map(|word| shown(word))) {
            Err(error) => error.render().to_string(),
            Ok(_) => format!("error: {}\n", error.kind()),
        },
    };
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => format!("{}\n", Shown(line)),
            None => shown(line),
        })
        .collect()
}

/// The parser's message as cause and next step: what it calls an error, and what it hints at.
fn failure(text: &str) -> Failure {
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .collect();
    let mut parts = paragraphs.iter();
    let error =
        parts.next().map_or("the command line cannot be understood", |first| first.trim_start_matches("error: "));
    let tips: Vec<&str> = parts.map(|part| part.trim_start_matches("tip: ")).collect();
    let next = if tips.is_empty() { "see --help".to_owned() } else { tips.join("; ") };
    Failure::usage(error).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parsers_message_has_cause_and_next_step() {
        let text = "error: unrecognized subcommand 'x'\n\n  tip: a similar one exists\n\nUsage: stele\n\nFor more, try '--help'.\n";
        let told = failure(text);
        assert_eq!(told.error, "unrecognized subcommand 'x'");
        assert_eq!(told.next, "a similar one exists; Usage: stele; For more, try '--help'.");
        assert_eq!(told.kind, Kind::Usage);
        assert!(!failure("").error.is_empty() && !failure("").next.is_empty());
    }

    #[test]
    fn an_argument_does_nothing_to_the_terminal_that_shows_it() {
        let arguments = ["stele", "x\u{1b}[2J\nerror: forged"].map(str::to_owned);
        let error = Cli::try_parse_from(&arguments).unwrap_err();
        let seen = safe(&error, &arguments);
        assert!(seen.starts_with("error: unrecognized subcommand 'x\\u{1b}[2J\\nerror: forged'\n"), "{seen}");
    }
}
