//! An invalid command line, reported like every other failure: kind, cause and next step, and as
//! JSON if --json was given.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use stele_ground::shown::{Shown, is_unsafe, shown};
use stele_server::failure::{Failure, Kind};
use stele_server::said::json_line;

use crate::cli::Cli;
use crate::output;

/// Prints the error or the requested help, and returns the exit code.
pub fn tell(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let shown = error.print().and_then(|()| std::io::stdout().flush());
        return shown.map_or_else(|error| untold(&output::cut_off(&error)), |()| ExitCode::SUCCESS);
    }
    let arguments: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let text = safe(error, &arguments);
    // The command line could not be parsed, so look for the word itself.
    if arguments.iter().any(|word| word == "--json") {
        println!("{}", json_line(&failure(&text)).unwrap_or_default());
    }
    // Where it cannot be written, the exit code still tells of it.
    let _ = std::io::stderr().write_all(text.as_bytes());
    ExitCode::from(Kind::Usage.exit_code())
}

/// Tells that the help could not be written. A reader that went away has seen what it wanted.
fn untold(failure: &Failure) -> ExitCode {
    if failure.kind != Kind::Unread {
        let _ = writeln!(std::io::stderr(), "stele: {failure}");
    }
    ExitCode::from(failure.kind.exit_code())
}

/// The message, safe for a terminal: the parser gets the arguments in their safe form, and quotes
/// those in the same message.
fn safe(error: &clap::Error, arguments: &[String]) -> String {
    let text = match arguments.iter().any(|word| word.contains(is_unsafe)) {
        false => error.render().to_string(),
        true => match Cli::try_parse_from(arguments.iter().map(|word| shown(word))) {
            Err(error) => error.render().to_string(),
            Ok(_) => format!("error: {}\n", error.kind()),
        },
    };
    said(&as_typed(&text, arguments))
        .split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(line) => format!("{}\n", Shown(line)),
            None => shown(line),
        })
        .collect()
}

/// What the standard library says of a value that it cannot read, and what an operator needs.
const SAID: [(&str, &str); 9] = [
    ("invalid digit found in string", "write a whole number, in digits"),
    ("cannot parse integer from empty string", "write a whole number, in digits"),
    ("number too large to fit in target type", "the number is too large"),
    ("out of range integral type conversion attempted", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "write a number such as 0.5"),
    ("cannot parse float from empty string", "write a number such as 0.5"),
    ("invalid socket address syntax", "write ADDRESS:PORT, as in 127.0.0.1:9000 or [::1]:9000"),
    ("invalid IP address syntax", "write an address, as in 127.0.0.1 or ::1"),
];

/// The parser's usage names the options that are there. One whose value comes from a variable was
/// not typed, and no line that the operator has to write needs it.
fn as_typed(text: &str, arguments: &[String]) -> String {
    const DIR: &str = " --dir <DIR>";
    if arguments.iter().any(|word| word == "--dir" || word.starts_with("--dir=")) {
        return text.to_owned();
    }
    let plain = |line: &str| match line.trim_start().starts_with("Usage: ") {
        true => line.replace(DIR, ""),
        false => line.to_owned(),
    };
    text.split_inclusive('\n').map(plain).collect()
}

fn said(text: &str) -> String {
    // Behind the colon stands the cause; the value before it is the operator's own.
    SAID.iter().fold(text.to_owned(), |text, (raw, plain)| text.replace(&format!("': {raw}"), &format!("': {plain}")))
}

/// Splits the parser's message into cause and next step: its error and its hint.
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
    fn a_value_that_cannot_be_read_is_told_in_plain_words() {
        for (line, told) in [
            ("stele up --drives x", "write a whole number, in digits"),
            ("stele up --drives 99999999999", "99999999999"),
            ("stele up --listen 9000", "write ADDRESS:PORT"),
            ("stele class activate staff --version 99999999999999999999", "the number is too large"),
            ("stele class activate staff --version two", "write a whole number, in digits"),
        ] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let seen = safe(&Cli::try_parse_from(&arguments).unwrap_err(), &arguments);
            assert!(seen.contains(told) && !seen.contains("in string") && !seen.contains("target type"), "{seen}");
        }
    }

    #[test]
    fn a_usage_names_no_option_that_a_variable_gave() {
        let text = "error: an argument is missing: --dir <DIR>\n\nUsage: stele bucket create --dir <DIR> <NAME>\n";
        let without = text.replace("create --dir <DIR>", "create");
        for (line, expected) in [
            ("stele bucket create", without.as_str()),
            ("stele bucket create --dir x", text),
            ("stele --dir=x bucket create", text),
        ] {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(as_typed(text, &arguments), expected, "{line}");
        }
    }

    #[test]
    fn an_argument_does_nothing_to_the_terminal_that_shows_it() {
        let arguments = ["stele", "x\u{1b}[2J\nerror: forged"].map(str::to_owned);
        let error = Cli::try_parse_from(&arguments).unwrap_err();
        let seen = safe(&error, &arguments);
        assert!(seen.starts_with("error: unrecognized subcommand 'x\\u{1b}[2J\\nerror: forged'\n"), "{seen}");
    }
}
