//! `stele top`: load of hosts, state of drives, background work and alarms, once a second.
//!
//! On a terminal it uses the alternate screen. It leaves that screen however the command ends:
//! Ctrl-C, a signal, an error or a panic.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use stele_ground::{Bytes, Shown};
use stele_server::api::pool::{ProgressView, StandingView, StatusView};
use stele_server::api::top::{FrontendCounts, Sample, SampleView};
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::failure::Outcome;

use crate::commands::{print_json, until_told};
use crate::output::{Align, BOLD, GREEN, RED, Table, YELLOW, bar, paint, span};

const EVERY: Duration = Duration::from_secs(1);

/// One sample, with rates since the previous one.
#[derive(Serialize)]
struct View<'a> {
    state: &'a str,
    raw_bytes: u64,
    used_bytes: u64,
    frontends: Vec<Frontend>,
    drives: Vec<Drive<'a>>,
    work: Vec<Work>,
    standing: Vec<Wrong<'a>>,
}

#[derive(Serialize)]
struct Frontend {
    name: String,
    connections: u64,
    under_way: u64,
    requests_per_second: u64,
    bytes_per_second_read: u64,
    bytes_per_second_written: u64,
    /// Mean time of a request; null if there was none, or if it is not counted.
    mean_microseconds: Option<u64>,
    /// Failed requests of the open connections since the start.
    failed: u64,
}

#[derive(Serialize)]
struct Drive<'a> {
    drive: Option<u32>,
    path: &'a str,
    health: &'a str,
    /// Errors of reads, writes and digests.
    errors: u64,
    /// Null for files.
    busy_percent: Option<u64>,
    bytes_per_second_read: Option<u64>,
    bytes_per_second_written: Option<u64>,
}

#[derive(Serialize)]
struct Work {
    work: &'static str,
    done_bytes: u64,
    total_bytes: u64,
    seconds_left: Option<u64>,
}

#[derive(Serialize)]
struct Wrong<'a> {
    kind: &'a str,
    subject: &'a str,
    message: &'a str,
}

/// The terminal's alternate screen, without a cursor.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        print!("\u{1b}[?1049h\u{1b}[?25l");
        Screen
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut out = std::io::stdout();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = out.flush();
    }
}

pub async fn run(site: &Site, json: bool, once: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let shown = show(&connection, json, once).await;
    connection.leave().await?;
    shown
}

async fn show(connection: &Connection, json: bool, once: bool) -> Outcome<()> {
    let screen = (!json && !once && std::io::stdout().is_terminal()).then(Screen::enter);
    until_told(samples(connection, json, once, screen.is_some())).await
}

async fn samples(connection: &Connection, json: bool, once: bool, clears: bool) -> Outcome<()> {
    let mut before: SampleView = connection.call(Sample {}).await?;
    let mut asked = Instant::now();
    loop {
        tokio::time::sleep(EVERY).await;
        let now = connection.call(Sample {}).await?;
        let view = view(&before, &now, asked.elapsed());
        asked = Instant::now();
        if json {
            print_json(&view)?;
        } else {
            let clear = if clears { "\u{1b}[H\u{1b}[2J" } else { "" };
            print!("{clear}{}", render(&view, &now.status.name));
            crate::output::flush()?;
        }
        if once {
            return Ok(());
        }
        before = now;
    }
}

/// The rate a second between two counts.
fn rate(before: u64, now: u64, took: Duration) -> u64 {
    let took = (took.as_micros() as u64).max(1);
    (u128::from(now.saturating_sub(before)) * 1_000_000 / u128::from(took)) as u64
}

fn view<'a>(before: &SampleView, now: &'a SampleView, took: Duration) -> View<'a> {
    let frontends = now.frontends.iter().map(|now| {
        let none = FrontendCounts::default();
        let before = before.frontends.iter().find(|other| other.name == now.name).unwrap_or(&none);
        let requests = now.requests.saturating_sub(before.requests);
        let spent = now.took_us.zip(before.took_us).map(|(now, before)| now.saturating_sub(before));
        Frontend {
            name: now.name.clone(),
            connections: now.connections,
            under_way: now.under_way,
            requests_per_second: rate(before.requests, now.requests, took),
            bytes_per_second_read: rate(before.read, now.read, took),
            bytes_per_second_written: rate(before.written, now.written, took),
            mean_microseconds: spent.filter(|_| requests > 0).map(|spent| spent / requests.max(1)),
            failed: now.failed,
        }
    });
    let drives = now.status.drives.iter().map(|drive| {
        let at = |sample: &SampleView| sample.disks.iter().find(|disk| disk.drive == drive.drive).cloned();
        let load = at(before).zip(at(now)).filter(|_| drive.is_member());
        let rate_of = |of: fn(&stele_server::api::top::DiskCounts) -> u64| {
            load.as_ref().map(|(before, now)| rate(of(before), of(now), took))
        };
        Drive {
            drive: drive.is_member().then_some(drive.drive),
            path: &drive.path,
            health: &drive.health,
            errors: drive.read_errors + drive.write_errors + drive.digest_errors,
            busy_percent: rate_of(|disk| disk.busy_ms).map(|busy| (busy / 10).min(100)),
            bytes_per_second_read: rate_of(|disk| disk.read),
            bytes_per_second_written: rate_of(|disk| disk.written),
        }
    });
    let StatusView { rebuild, copy_back, moving, scrub, standing, .. } = &now.status;
    let work = [("rebuild", rebuild), ("copying", copy_back), ("moving", moving), ("scrub", scrub)];
    let one = |(work, progress): (&'static str, &Option<ProgressView>)| {
        let progress = progress.as_ref()?;
        let (done, total) = (progress.done, progress.total);
        Some(Work { work, done_bytes: done, total_bytes: total, seconds_left: progress.seconds_left })
    };
    let wrong = |alarm: &'a StandingView| Wrong { kind: &alarm.kind, subject: &alarm.subject, message: &alarm.message };
    View {
        state: &now.status.state,
        raw_bytes: now.status.raw,
        used_bytes: now.status.used,
        frontends: frontends.collect(),
        drives: drives.collect(),
        work: work.into_iter().filter_map(one).collect(),
        standing: standing.iter().map(wrong).collect(),
    }
}

fn render(view: &View<'_>, name: &str) -> String {
    let state = paint(view.state, if view.state == "ok" { GREEN } else { YELLOW });
    let (used, raw) = (Bytes(view.used_bytes), Bytes(view.raw_bytes));
    let mut text = format!("{} {name}  {state}  {used} of {raw} taken\n\n", paint("Pool", BOLD), name = Shown(name));
    let mut table = Table::new(&[
        ("frontend", Align::Left),
        ("clients", Align::Right),
        ("under way", Align::Right),
        ("req/s", Align::Right),
        ("read/s", Align::Right),
        ("written/s", Align::Right),
        ("mean", Align::Right),
        ("failed", Align::Right),
    ]);
    for frontend in &view.frontends {
        table.row(vec![
            frontend.name.clone(),
            frontend.connections.to_string(),
            frontend.under_way.to_string(),
            frontend.requests_per_second.to_string(),
            Bytes(frontend.bytes_per_second_read).to_string(),
            Bytes(frontend.bytes_per_second_written).to_string(),
            frontend
                .mean_microseconds
                .map_or("-".to_owned(), |mean| format!("{}.{} ms", mean / 1000, mean % 1000 / 100)),
            frontend.failed.to_string(),
        ]);
    }
    text.push_str(&table.render());
    text.push('\n');
    let mut table = Table::new(&[
        ("drive", Align::Right),
        ("health", Align::Left),
        ("busy", Align::Right),
        ("read/s", Align::Right),
        ("written/s", Align::Right),
        ("errors", Align::Right),
        ("path", Align::Left),
    ]);
    let told = |number: Option<u64>| number.map_or("-".to_owned(), |number| Bytes(number).to_string());
    for drive in &view.drives {
        table.row(vec![
            drive.drive.map_or("-".to_owned(), |number| number.to_string()),
            paint(drive.health, if drive.health == "healthy" { GREEN } else { RED }),
            drive.busy_percent.map_or("-".to_owned(), |busy| format!("{busy} %")),
            told(drive.bytes_per_second_read),
            told(drive.bytes_per_second_written),
            drive.errors.to_string(),
            Shown(drive.path).to_string(),
        ]);
    }
    text.push_str(&table.render());
    for work in &view.work {
        let left = work.seconds_left.map(|left| format!(", {} left", span(left))).unwrap_or_default();
        let (done, total) = (Bytes(work.done_bytes), Bytes(work.total_bytes));
        text.push_str(&format!(
            "\n{:<8} {} {done} of {total}{left}",
            work.work,
            bar(work.done_bytes, work.total_bytes)
        ));
    }
    if !view.work.is_empty() {
        text.push('\n');
    }
    for wrong in &view.standing {
        text.push_str(&format!("\n{}  {}", paint(wrong.kind, RED), Shown(wrong.message)));
    }
    if !view.standing.is_empty() {
        text.push('\n');
    }
    text
}
