//! The `stele` command: configuration, wiring, serving sockets.

mod api;
mod cli;
mod commands;
mod config;
mod drives;
mod exports;
mod failure;
mod files;
mod named;
mod node;
mod output;
mod reservations;
mod seat;
mod server;

use std::process::ExitCode;

use clap::Parser;

/// With the system's allocator a small write takes half as much processor time again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The longest line of the log, in bytes: what a library says of a request may quote the request.
const LINE_MAX: usize = 8 << 10;

/// Writes no more than the beginning of a long line. Each event is one call.
struct Bounded<W>(W);

impl<W: std::io::Write> std::io::Write for Bounded<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        match line.get(..LINE_MAX).filter(|start| start.len() < line.len()) {
            Some(start) => {
                self.0.write_all(start)?;
                self.0.write_all(format!("... ({} bytes)\n", line.len()).as_bytes())?;
            }
            None => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// What a shell says of a program that SIGPIPE ended.
const BROKEN_PIPE: i32 = 141;

/// What is logged: as STELE_LOG says, and where it says nothing more than enough. A modelled array's own notices are nobody's.
fn spoken(cli: &cli::Cli) -> tracing_subscriber::EnvFilter {
    let usual = match cli.command {
        cli::Command::Lab(_) => "error",
        _ => "info",
    };
    // The S3 protocol's crate calls every refusal an error, and quotes what the client sent; our own face says what matters.
    let quiet = |level: &str| if level.contains("s3s") { level.to_owned() } else { format!("{level},s3s=off") };
    let asked = std::env::var("STELE_LOG").ok().filter(|level| !level.trim().is_empty());
    let asked = asked.and_then(|level| tracing_subscriber::EnvFilter::try_new(quiet(&level)).ok());
    asked.unwrap_or_else(|| quiet(usual).into())
}

fn main() -> ExitCode {
    end_quietly_when_nobody_reads();
    let cli = cli::Cli::parse();
    let json = cli.place.json;
    tracing_subscriber::fmt()
        .with_env_filter(spoken(&cli))
        .with_writer(|| Bounded(std::io::stderr()))
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
            if failure.kind == failure::Kind::Stuck {
                // The runtime would wait for what waits for the drives.
                std::process::exit(failure.kind.exit_code().into());
            }
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// `stele pool status | head -1` closes our output before we are done: no fault, and no report.
fn end_quietly_when_nobody_reads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or_default();
        if text.starts_with("failed printing to") && text.contains("Broken pipe") {
            std::process::exit(BROKEN_PIPE);
        }
        report(panic);
    }));
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_line_of_the_log_is_cut() {
        for (length, written) in [(0, 0), (LINE_MAX, LINE_MAX), (LINE_MAX + 1, LINE_MAX + 17), (8 << 20, LINE_MAX + 20)]
        {
            let mut log = Bounded(Vec::new());
            log.write_all(&vec![b'x'; length]).unwrap();
            assert_eq!(log.0.len(), written, "{length}");
        }
    }
}
