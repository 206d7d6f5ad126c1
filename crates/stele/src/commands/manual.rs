//! `stele manual`: man pages and completions, from the definitions of the command line parser.

use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use stele_server::failure::{Outcome, io_failure};

use crate::cli::Cli;

pub fn write(into: &Path) -> Outcome<()> {
    let (pages, completions) = (into.join("man"), into.join("completions"));
    for folder in [&pages, &completions] {
        std::fs::create_dir_all(folder).map_err(|error| io_failure("make", folder, &error))?;
    }
    let mut command = Cli::command();
    let mut built = command.clone().disable_help_subcommand(true);
    built.build();
    write_pages(&built, &pages).map_err(|error| io_failure("write man pages to", &pages, &error))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "stele", &completions).map_err(|error| {
            let name = shell.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            io_failure(&format!("write the completions of {name} to"), &completions, &error)
        })?;
    }
    Ok(())
}

/// Writes the page of a command, and those of the commands below it.
fn write_pages(command: &clap::Command, into: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, into)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    std::fs::write(into.join(page.get_filename()), with_whole_lines(&String::from_utf8_lossy(&text)))
}

/// Keeps indented lines as they are: examples and tables. Otherwise troff fills and hyphenates
/// them, and a command that was copied from the page would be another one.
fn with_whole_lines(page: &str) -> String {
    let (mut text, mut kept) = (String::with_capacity(page.len()), false);
    for line in page.lines() {
        let keep = line.starts_with(' ');
        match (kept, keep) {
            (false, true) => text.push_str(".nf\n"),
            (true, false) => text.push_str(".fi\n"),
            _ => {}
        }
        kept = keep;
        text.push_str(line);
        text.push('\n');
    }
    if kept {
        text.push_str(".fi\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_man_pages_are_neither_filled_nor_hyphenated() {
        for (page, expected) in [
            (
                ".SH EXTRA\nExamples:\n  one\n  two\n\nProse\nmore\n",
                ".SH EXTRA\nExamples:\n.nf\n  one\n  two\n.fi\n\nProse\nmore\n",
            ),
            ("Example:\n  one\n.SH VERSION\nv1\n", "Example:\n.nf\n  one\n.fi\n.SH VERSION\nv1\n"),
            ("Example:\n  one", "Example:\n.nf\n  one\n.fi\n"),
            ("Prose\n", "Prose\n"),
        ] {
            assert_eq!(with_whole_lines(page), expected);
        }
    }
}
