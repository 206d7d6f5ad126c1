//! The text of `stele pool status`: 80 columns wide, however long the names of drives are.

use stele_ground::calendar::moment;
use stele_ground::{Bytes, are, counted};
use stele_server::api::pool::{DriveView, SpaceView, StandingView, StatusView};

use super::describe;
use crate::output::{Align, BOLD, GREEN, RED, Table, YELLOW, paint};

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
    text.push_str(&space(status));
    if status.shards > 1 {
        text.push_str(&format!("  shards  {}, each with a part of every drive and a thread\n", status.shards));
    }
    text.push_str(&format!(
        "  log     {} of {}, {} dirty\n",
        Bytes(status.log_used),
        Bytes(status.log_size),
        Bytes(status.dirty)
    ));
    for (name, work) in [
        ("rebuild", &status.rebuild),
        ("copying", &status.copy_back),
        ("moving", &status.moving),
        ("scrub", &status.scrub),
    ] {
        if let Some(work) = work {
            text.push_str(&format!("  {name:<7} {}\n", describe(work)));
        }
    }
    if status.scrubs_finished > 0 {
        let ended = status.last_scrub.map(|at| format!(", {},", moment(at))).unwrap_or_default();
        text.push_str(&format!(
            "  scrubs  {} finished; the last{ended} found {} damaged places and repaired {}\n",
            status.scrubs_finished, status.scrub_damage_found, status.scrub_damage_repaired
        ));
    }
    if status.rebuilt + status.repaired > 0 {
        text.push_str(&format!(
            "  healing {} rebuilt, {} repaired\n",
            counted(status.rebuilt, "strip"),
            status.repaired
        ));
    }
    if status.unreadable_stripes > 0 {
        text.push_str(&format!(
            "  reading {} cannot be read, {} of them {} lost\n",
            counted(status.unreadable_stripes, "stripe"),
            status.lost_stripes,
            are(status.lost_stripes)
        ));
    }
    if status.exposed_stripes > 0 {
        text.push_str(&format!(
            "  spread  {} stripes do not survive the loss of an enclosure; {} of them move\n",
            status.exposed_stripes, status.crowded_stripes
        ));
    }
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

/// The line on space.
fn space(status: &StatusView) -> String {
    let SpaceView { codes, overpromised_raw, promised_raw, objects } = &status.space;
    let mut text = format!(
        "  drives  {} in all, {} taken, {} of {} of spare space in use\n",
        Bytes(status.raw),
        Bytes(status.used),
        Bytes(status.spare_used),
        Bytes(status.spare),
    );
    for code in codes {
        text.push_str(&format!(
            "  {:<7} {} stored in {} of {}; room for {} more\n",
            code.code,
            Bytes(code.allocated),
            counted(code.volumes as u64, "volume"),
            Bytes(code.promised),
            Bytes(code.free),
        ));
    }
    if let Some(objects) = objects {
        text.push_str(&format!(
            "  objects {} of {} free, {} % full; {} needed\n",
            Bytes(objects.free),
            Bytes(objects.size),
            objects.full_percent,
            Bytes(objects.live),
        ));
    }
    if *overpromised_raw > 0 {
        let warning = format!(
            "volumes promise {} of drives, {} more than there are",
            Bytes(*promised_raw),
            Bytes(*overpromised_raw)
        );
        text.push_str(&format!("  {} {warning}\n", paint("warning", YELLOW)));
    }
    text
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
