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
    clap_mangen::generate_to(command.clone(), &pages)
        .map_err(|error| io_failure("write man pages to", &pages, &error))?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "stele", &completions).map_err(|error| {
            let name = shell.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
            io_failure(&format!("write the completions of {name} to"), &completions, &error)
        })?;
    }
    Ok(())
}
