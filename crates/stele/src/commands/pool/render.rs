//! The text of `stele pool status`: 80 columns wide, however long the names of drives are.

use stele_ground::calendar::moment;
use stele_ground::{Bytes, counted};
use stele_server::api::pool::{CodeView, DriveView, SpaceView, StandingView, StatusView};

use super::describe;
use crate::output::{Align, BOLD, GREEN, RED, Table, YELLOW, paint};

/// The name of a line that is coloured.
const WARNING: &str = "warning";

fn health(drive: &DriveView) -> String {
    let colour = match drive.health.as_str() {
        "healthy" => GREEN,
        "failed" | "missing" | "rejected" => RED,
        _ => YELLOW,
    };
    paint(&drive.health, colour)
}

/// The whole status for people.
pub fn render(status: &StatusView) -> String {
    let state = match status.state.as_str() {
        "ok" => paint("ok", GREEN),
        "damaged" => paint("damaged: something is lost; `stele affected` names it", RED),
        "unreadable" => paint("unreadable: drives are away; `stele affected` names it", RED),
        other => paint(other, YELLOW),
    };
    let mut text = format!("{} {}  {state}\n", paint("Pool", BOLD), status.name);
    text.push_str(&aligned(&head(status)));
    text.push('\n');
    let mut drives: Vec<&DriveView> = status.drives.iter().collect();
    drives.sort_by_key(|drive| (drive.enclosure, drive.drive));
    let mut table = Table::new(&[
        ("encl", Align::Left),
        ("drive", Align::Right),
        ("health", Align::Left),
        ("size", Align::Right),
        ("used", Align::Right),
        ("r/w/digest", Align::Right),
        ("fixed", Align::Right),
        ("path", Align::Left),
    ]);
    let mut last = None;
    for drive in drives {
        let enclosure = if last == Some(drive.enclosure) { String::new() } else { drive.enclosure.to_string() };
        last = Some(drive.enclosure);
        table.row(vec![
            enclosure,
            number(drive),
            health(drive),
            Bytes(drive.size).to_string(),
            Bytes(drive.used).to_string(),
            format!("{}/{}/{}", drive.read_errors, drive.write_errors, drive.digest_errors),
            drive.repaired.to_string(),
            drive.path.clone(),
        ]);
    }
    text.push_str(&table.render());
    text.push_str(&identities(status));
    text.push_str(&smart(status));
    for drive in status.drives.iter().filter(|drive| drive.health == "healthy" && !drive.note.is_empty()) {
        let name = if drive.is_member() { format!("drive {}", drive.drive) } else { drive.path.clone() };
        text.push_str(&format!("\n{name}: {}\n", drive.note));
    }
    if !status.standing.is_empty() {
        text.push_str(&format!("\n{}\n", paint("What is wrong now:", YELLOW)));
        for StandingView { kind, since, message, done, next, .. } in &status.standing {
            text.push_str(&format!(
                "  {kind}: {message}\n    since  {}\n    done   {done}\n    next   {next}\n",
                moment(*since)
            ));
        }
    }
    if !status.alarms.is_empty() {
        text.push_str("\nLast alarms:\n");
        for alarm in status.alarms.iter().rev().take(5).rev() {
            text.push_str(&format!("  {}  {:<8}  {}\n", moment(alarm.at), alarm.severity, alarm.message));
        }
    }
    text
}

/// A line below the name of the pool: of what, and what.
type Line = (String, String);

fn line(name: &str, text: String) -> Line {
    (name.to_owned(), text)
}

/// The lines, with their texts below each other.
fn aligned(lines: &[Line]) -> String {
    let wide = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let shown = |(name, text): &Line| {
        let gap = " ".repeat(wide.saturating_sub(name.chars().count()));
        let name = if name == WARNING { paint(name, YELLOW) } else { name.clone() };
        format!("  {name}{gap} {text}\n")
    };
    lines.iter().map(shown).collect()
}

/// The pool as a whole.
fn head(status: &StatusView) -> Vec<Line> {
    let mut lines = space(status);
    if status.shards > 1 {
        lines.push(line("shards", format!("{}, each with a part of every drive and a thread", status.shards)));
    }
    let (used, size, dirty) = (Bytes(status.log_used), Bytes(status.log_size), Bytes(status.dirty));
    lines.push(line("log", format!("{used} of {size}, {dirty} dirty")));
    for (name, work) in [
        ("rebuild", &status.rebuild),
        ("copying", &status.copy_back),
        ("moving", &status.moving),
        ("scrub", &status.scrub),
    ] {
        lines.extend(work.as_ref().map(|work| line(name, describe(work))));
    }
    if status.scrubs_finished > 0 {
        let ended = status.last_scrub.map(|at| format!(", {},", moment(at))).unwrap_or_default();
        let found = counted(status.scrub_damage_found, "damaged place");
        lines.push(line(
            "scrubs",
            format!(
                "{} finished; the last{ended} found {found} and repaired {}",
                status.scrubs_finished, status.scrub_damage_repaired
            ),
        ));
    }
    if status.rebuilt + status.repaired > 0 {
        lines.push(line(
            "healing",
            format!("{} rebuilt, {} repaired", counted(status.rebuilt, "strip"), status.repaired),
        ));
    }
    if status.unreadable_stripes > 0 {
        lines.push(line("reading", super::unreadable(status)));
    }
    if status.exposed_stripes > 0 {
        let (stripes, moving) = (counted(status.exposed_stripes, "stripe"), status.crowded_stripes);
        let (do_not, move_now) =
            (if status.exposed_stripes == 1 { "does" } else { "do" }, if moving == 1 { "moves" } else { "move" });
        let text = format!("{stripes} {do_not} not survive the loss of an enclosure; {moving} {move_now}");
        lines.push(line("spread", text));
    }
    lines
}

/// The lines on space.
fn space(status: &StatusView) -> Vec<Line> {
    let SpaceView { codes, overpromised_raw, promised_raw, objects } = &status.space;
    let mut lines = vec![line(
        "drives",
        format!(
            "{} in all, {} taken, {} of {} of spare space in use",
            Bytes(status.raw),
            Bytes(status.used),
            Bytes(status.spare_used),
            Bytes(status.spare),
        ),
    )];
    lines.extend(codes.iter().map(|code| line(&code.code, stored(code))));
    if let Some(objects) = objects {
        let text = format!(
            "{} of {} free, {} % full; {} needed",
            Bytes(objects.free),
            Bytes(objects.size),
            objects.full_percent,
            Bytes(objects.live),
        );
        lines.push(line("objects", text));
    }
    if *overpromised_raw > 0 {
        let (promised, lacking) = (Bytes(*promised_raw), Bytes(*overpromised_raw));
        lines.push(line(WARNING, format!("volumes promise {promised}, {lacking} more than fits beside spare space")));
    }
    lines
}

/// What volumes of a code hold. Their snapshots hold a part of it.
fn stored(code: &CodeView) -> String {
    let volumes = format!("{} of {}", counted(code.volumes.into(), "volume"), Bytes(code.promised));
    let (allocated, free) = (Bytes(code.allocated), Bytes(code.free));
    match code.snapshots {
        0 => format!("{allocated} stored in {volumes}; room for {free} more"),
        snapshots => format!("{allocated} in {volumes}, {}; {free} more fit", counted(snapshots.into(), "snapshot")),
    }
}

/// A drive that is not the pool's, or that its first shard does not have, has no number.
fn number(drive: &DriveView) -> String {
    if drive.is_member() { drive.drive.to_string() } else { "-".to_owned() }
}

/// Serial numbers and stable names of the drives that have any.
fn identities(status: &StatusView) -> String {
    let mut table = Table::new(&[("drive", Align::Right), ("serial", Align::Left), ("by id", Align::Left)]);
    let known = |drive: &&DriveView| drive.serial.is_some() || drive.by_id.is_some();
    let mut any = false;
    for drive in status.drives.iter().filter(known) {
        any = true;
        table.row(vec![
            number(drive),
            drive.serial.clone().unwrap_or_default(),
            drive.by_id.clone().unwrap_or_default(),
        ]);
    }
    if any { format!("\n{}", table.render()) } else { String::new() }
}

/// SMART reports of the drives that give one.
fn smart(status: &StatusView) -> String {
    let mut table = Table::new(&[
        ("drive", Align::Right),
        ("smart", Align::Left),
        ("\u{b0}C", Align::Right),
        ("hours", Align::Right),
        ("reallocated", Align::Right),
        ("pending", Align::Right),
        ("worn", Align::Right),
    ]);
    let told = |number: Option<u64>, unit: &str| number.map_or("-".to_owned(), |number| format!("{number}{unit}"));
    let mut any = false;
    for (drive, smart) in status.drives.iter().filter_map(|drive| Some((drive, drive.smart.as_ref()?))) {
        any = true;
        let word = match smart.passed {
            Some(true) => paint("good", GREEN),
            Some(false) => paint("will fail", RED),
            None => "-".to_owned(),
        };
        table.row(vec![
            number(drive),
            word,
            told(smart.celsius, ""),
            told(smart.hours, ""),
            told(smart.reallocated, ""),
            told(smart.pending, ""),
            told(smart.worn, " %"),
        ]);
    }
    if any { format!("\n{}", table.render()) } else { String::new() }
}

#[cfg(test)]
pub(super) mod tests;
