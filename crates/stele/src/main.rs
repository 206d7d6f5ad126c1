//! The `stele` command: configuration, wiring, serving sockets.

mod api;
mod cli;
mod commands;
mod config;
mod drives;
mod failure;
mod files;
mod node;
mod output;
mod seat;
mod server;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let json = cli.place.json;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_env("STELE_LOG").unwrap_or_else(|_| "info".into()))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("stele: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json {
                println!("{}", serde_json::to_string(&failure).unwrap_or_default());
            }
            eprintln!("stele: {failure}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}
