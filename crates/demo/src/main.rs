//! `./x demo`: the main job of Stele on real files, shown step by step.
//!
//! It starts the `stele` command as a user would, uses it through the AWS SDK over HTTP, and
//! damages the files that are its drives. If a step fails, it ends with the reason and exit code 1.

mod archive;
mod damage;
mod server;
mod steps;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Archive a tree under retention, damage the drives, lose an enclosure, and read everything back.
#[derive(Parser, Debug)]
#[command(
    name = "./x demo",
    after_help = "Relative paths count from the repository. The last line is 'demo: ok' with counts if every step \
                  held; otherwise the exit code is 1, and the data directory stays.\n\n\
                  Examples:\n  ./x demo\n  ./x demo --from /usr/share/doc --dir /srv/demo --keep"
)]
pub struct Arguments {
    /// Files to archive [default: this repository and cargo's downloads]
    #[arg(long, value_name = "DIR")]
    from: Vec<PathBuf>,
    /// Data directory, which must be empty or not there: it is removed at the end [default: a new
    /// one under the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the data directory and the server's log
    #[arg(long)]
    keep: bool,
}

/// The reason why the demonstration stopped.
pub type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(steps::run(arguments)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            println!("demo: FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}
