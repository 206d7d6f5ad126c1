//! The command line of Stele: its arguments, the commands, and their output for people and
//! machines.

mod cli;
mod commands;
mod output;
mod usage;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use stele_ground::Shown;
use stele_server::{failure, log};
use tracing_subscriber::filter::LevelFilter;

/// The longest line of the log, in bytes: a library's message may quote the request.
const LINE_MAX: usize = 8 << 10;
/// What begins the next step of a failure, on a line of its own where it is shown to people.
const NEXT: &str = "\n  next: ";

/// How long a process waits at its end for threads that it no longer needs: they may look up names
/// on a network that is away, or wait for a program that asks drives.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// Writes each event as one line. It cuts long events, and removes all characters that would begin
/// another line or control the terminal, whatever names and errors the event quotes.
struct OneLine<W>(W);

impl<W: std::io::Write> std::io::Write for OneLine<W> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let start = line.get(..LINE_MAX).unwrap_or(line);
        let text = String::from_utf8_lossy(start.strip_suffix(b"\n").unwrap_or(start));
        let cut = match line.len() > LINE_MAX {
            true => format!("... ({} bytes)", line.len()),
            false => String::new(),
        };
        let text = text.replace(NEXT, "; ");
        self.0.write_all(format!("{}{cut}\n", Shown(&text)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Whether each part of STELE_LOG names a level, as `info` or `stele_array=debug`. A word that is
/// no level would name a part of the program, and everything else would be silent.
fn names_levels(asked: &str) -> bool {
    let mut parts = asked.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.all(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        !level.is_empty() && level.parse::<LevelFilter>().is_ok()
    })
}

/// The filter of the log: STELE_LOG, or a default that is more than enough, and what to say if
/// STELE_LOG is not understood. Notices of a modelled array are left out.
fn spoken(cli: &cli::Cli) -> (tracing_subscriber::EnvFilter, Option<String>) {
    let usual = match cli.command {
        cli::Command::Lab(_) => "error",
        _ => "info",
    };
    // The S3 protocol's crate logs every refusal as an error, and quotes the client. Our own
    // frontend logs the relevant events.
    let quiet = |level: &str| if level.contains("s3s") { level.to_owned() } else { format!("{level},s3s=off") };
    let Some(asked) = std::env::var("STELE_LOG").ok().filter(|level| !level.trim().is_empty()) else {
        return (quiet(usual).into(), None);
    };
    let known = names_levels(&asked).then(|| tracing_subscriber::EnvFilter::try_new(quiet(&asked)).ok()).flatten();
    let wrong = known.is_none().then(|| {
        let what = format!("STELE_LOG is '{}', which names no level; the log has the level {usual}", Shown(&asked));
        format!("stele: {what}\n  next: write error, warn, info or debug, or by part, as info,stele_array=debug\n")
    });
    (known.unwrap_or_else(|| quiet(usual).into()), wrong)
}

/// Carries out the command line of this process.
pub fn main() -> ExitCode {
    end_if_it_cannot_go_on();
    let cli = match cli::Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage::tell(&error),
    };
    let json = cli.place.json;
    stele_server::said::for_machines(json);
    // Only the owner may write to files of this process, whatever the umask of its parent.
    stele_media::system::withhold_writing();
    if matches!(cli.command, cli::Command::Up(_) | cli::Command::Serve(_) | cli::Command::Witness(_)) {
        log::serve();
    }
    let (filter, wrong) = spoken(&cli);
    if let Some(wrong) = wrong {
        log::write(wrong.into_bytes());
    }
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| OneLine(log::Log))
        // It would tell of a log that cannot be written where it cannot be written, and panic
        // there.
        .log_internal_errors(false)
        // All escapes in a line come from quoted text.
        .with_ansi(false)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log::write(format!("stele: cannot start threads: {error}\n").into_bytes());
            log::settle();
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(commands::run(cli)).and_then(|()| output::flush());
    log::settle();
    let status = ended(done, json);
    // Everything that counts has ended. Dropping the runtime would wait for its threads without
    // end.
    runtime.shutdown_timeout(LEFT_BEHIND);
    status
}

/// Tells a failure. Returns the exit code.
fn ended(done: failure::Outcome<()>, json: bool) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.kind == failure::Kind::Unread {
                return ExitCode::from(failure.kind.exit_code());
            }
            if json {
                println!("{}", stele_server::said::json_line(&failure).unwrap_or_default());
            }
            log::write(format!("stele: {failure}\n").into_bytes());
            log::settle();
            if failure.kind == failure::Kind::Stuck {
                // The runtime would wait for threads that wait for the drives.
                std::process::exit(failure.kind.exit_code().into());
            }
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// Whether a panic in this source file tells that memory could not be had. The standard library
/// ends the process then. This library panics instead, which would end one thread of a server.
fn asks_for_memory(file: &str) -> bool {
    file.contains("/bytemuck-") && file.ends_with("/allocation.rs")
}

/// Writes a fixed text, since no memory is left for another one.
fn end_without_memory() -> ! {
    let told = b"stele: memory could not be had\n  next: raise `ulimit -v`, or LimitAS of the service, or make the \
                 sizes under [memory] smaller; everything that was acknowledged is durable\n";
    let _ = std::io::stderr().write_all(told);
    std::process::exit(failure::Kind::Failed.exit_code().into());
}

/// Ends the process after two kinds of panics: it gets no memory, or its output takes nothing.
///
/// `stele pool status | head -1` closes our output before we finish: that is no fault and gives no
/// report. Output that cannot be written for another reason, such as a full disk, is a failure like
/// any other. A server goes on: no client waits for its log.
fn end_if_it_cannot_go_on() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.location().is_some_and(|at| asks_for_memory(at.file())) {
            end_without_memory();
        }
        let text = panic.payload_as_str().unwrap_or_default();
        let Some(cause) = text.strip_prefix("failed printing to") else { return report(panic) };
        if log::is_served() && cause.starts_with(" stderr") {
            return;
        }
        let (broken, kind) = (cause.contains("Broken pipe"), failure::Kind::Failed);
        if !broken {
            // The same wording as in places that have the error itself.
            let cause = cause.split_once(": ").map_or(cause, |(_, cause)| cause);
            let _ = writeln!(std::io::stderr(), "stele: {}", output::unwritten(cause));
        }
        std::process::exit(if broken { failure::Kind::Unread } else { kind }.exit_code().into());
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_of_the_log_is_cut() {
        for (length, written) in
            [(1, 2), (LINE_MAX, LINE_MAX + 1), (LINE_MAX + 1, LINE_MAX + 17), (8 << 20, LINE_MAX + 20)]
        {
            let mut log = OneLine(Vec::new());
            log.write_all(&vec![b'x'; length]).unwrap();
            assert_eq!(log.0.len(), written, "{length}");
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_not_taken_for_one() {
        for level in ["error", "WARN", "info", "debug", "off", "info,stele_array=debug", "info, s3s=error", "info,"] {
            assert!(names_levels(level), "{level}");
        }
        for level in ["warning", "verbose", "info,stele_array", "stele_array=", "stele_array=debgu", "a=b=c"] {
            assert!(!names_levels(level), "{level}");
        }
    }

    /// The pool's thread ended of it, and the server stayed.
    #[test]
    fn memory_that_cannot_be_had_is_told_from_other_panics() {
        for (file, is_memory) in [
            ("/home/builder/sources/bytemuck-1.25.2/src/allocation.rs", true),
            ("/home/builder/sources/bytemuck-1.25.2/src/lib.rs", false),
            ("crates/array/src/stripe/allocation.rs", false),
            (file!(), false),
        ] {
            assert_eq!(asks_for_memory(file), is_memory, "{file}");
        }
    }

    #[test]
    fn a_failure_has_its_next_step_on_the_line_of_its_event() {
        let failure = failure::Failure::failed("the shares could not be opened: a").next("return drives");
        let mut log = OneLine(Vec::new());
        log.write_all(format!("WARN {failure}\n").as_bytes()).unwrap();
        assert_eq!(String::from_utf8(log.0).unwrap(), "WARN the shares could not be opened: a; return drives\n");
    }

    #[test]
    fn an_event_is_one_line_of_the_log_whatever_it_quotes() {
        let mut log = OneLine(Vec::new());
        log.write_all(b"refused key 'a\n2026-11-21 ERROR forged\x1b[2J\xff'\n").unwrap();
        assert_eq!(String::from_utf8(log.0).unwrap(), "refused key 'a\\n2026-11-21 ERROR forged\\u{1b}[2J\u{fffd}'\n");
    }
}
