//! Runs `stele pool`, and shows its results.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use stele_archive::{ScrubCursor, ScrubReport};
use stele_ground::calendar::moment;
use stele_ground::{Bytes, are, counted};
use stele_server::api::archive::Verify;
use stele_server::api::pool::{
    DriveView, ForgetDrives, ProgressView, ReplaceDrive, ScrubPool, SetDrive, ShowPool, StatusView, Wash,
};
use stele_server::config::{Config, Site};
use stele_server::connection::{Connection, alone};
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Kind, Outcome};
use stele_server::named;
use stele_server::node::create::PoolWanted;
use stele_server::node::{Node, Opening};
use stele_server::said::answered;

use crate::cli::pool::{self as arguments, PoolCommand};
use crate::commands::{confirm, print_json, until_told};
use crate::output::{bar, span};

mod drives;
mod render;
pub(super) mod spare;

use drives::Removal;
use render::render;

/// Number of scrub findings shown without `--json`.
const FINDINGS_SHOWN: usize = 10;

pub async fn run(site: &Site, json: bool, command: PoolCommand) -> Outcome<()> {
    match command {
        PoolCommand::Create(create) => self::create(site, json, create).await,
        PoolCommand::Recover(asked) => recover(site, json, asked).await,
        PoolCommand::Status(status) => self::status(site, json, status.watch).await,
        PoolCommand::Scrub(scrub) => self::scrub(site, json, scrub.wait).await,
        PoolCommand::Wash => wash(site, json).await,
        PoolCommand::Replace(replace) => self::replace(site, json, replace).await,
        PoolCommand::Add(add) => drives::add(site, json, add).await,
        PoolCommand::Remove(remove) => drives::remove(site, json, remove).await,
    }
}

async fn create(site: &Site, json: bool, create: arguments::PoolCreate) -> Outcome<()> {
    create.drives.iter().try_for_each(DriveArgument::check_enclosure)?;
    spare::check(create.spare, create.drives.len())?;
    let cut = match create.spare {
        Some(_) => None,
        None => spare::cut(&create.drives),
    };
    let now = stele_server::node::wall_clock();
    if !create.confirm_time {
        confirm(
            &format!("Retention will count from this machine's clock. Is {} (UTC) right?", moment(now)),
            "--confirm-time",
        )?;
    }
    let arguments::PoolCreate { drives, name, size, preallocate, log, spare, shards, data, destroy, confirm_time: _ } =
        create;
    let wanted = PoolWanted { drives, name, size, preallocate, log, spare, shards, data, destroy };
    let status = answered(stele_server::node::create::pool(site, wanted).await?)?;
    if json {
        return print_json(&status);
    }
    println!("Pool {} made; configuration in {}.\n", status.name, site.config_path.display());
    print!("{}", render(&status));
    if let Some(cut) = cut {
        println!("\n{cut}.");
    }
    println!("\nServe it: stele serve --config {}", site.config_path.display());
    Ok(())
}

async fn recover(site: &Site, json: bool, asked: arguments::PoolRecover) -> Outcome<()> {
    alone(site).await?;
    let config = Config::read(&site.config_path)?;
    let opening = Opening {
        override_quorum: asked.override_quorum,
        read_only: asked.read_only,
        compares: !asked.read_only,
        ..Opening::for_command()
    };
    // Opening the catalog writes. A pool that may not be written is opened without it.
    let opened = if asked.read_only {
        Node::open_pool(site, config, opening).await
    } else {
        Node::open(site, config, opening).await
    };
    let node = opened?;
    let status = answered(stele_server::api::pool::status(&node).await?)?;
    node.close().await?;
    if json {
        return print_json(&status);
    }
    print!("{}", render(&status));
    Ok(())
}

async fn status(site: &Site, json: bool, watch: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let shown = match watch {
        true => until_told(statuses(&connection, json, true)).await,
        false => statuses(&connection, json, false).await,
    };
    connection.leave().await?;
    shown
}

async fn statuses(connection: &Connection, json: bool, watch: bool) -> Outcome<()> {
    loop {
        let status = connection.call(ShowPool {}).await?;
        if json {
            print_json(&status)?;
        } else {
            if watch && std::io::stdout().is_terminal() {
                print!("\u{1b}[H\u{1b}[2J");
            }
            print!("{}", render(&status));
            if !connection.is_server() {
                println!("\nNo server holds these drives; read from them directly.");
            }
        }
        if !watch {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The output of `pool scrub --wait --json`, printed once.
#[derive(Serialize)]
struct ScrubView<'a> {
    #[serde(flatten)]
    status: &'a StatusView,
    verified_versions: u64,
    verified_bytes: u64,
    /// Places that do not verify.
    findings: &'a [String],
}

async fn wash(site: &Site, json: bool) -> Outcome<()> {
    let done = crate::commands::archive::ask(site, Wash {}).await?;
    if json {
        return print_json(&done);
    }
    println!("The log holds nothing of the past any more, on the drives that are here.");
    Ok(())
}

async fn scrub(site: &Site, json: bool, wait: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let scrubbed = scrub_at(&connection, json, wait).await;
    connection.leave().await?;
    scrubbed
}

async fn scrub_at(connection: &Connection, json: bool, wait: bool) -> Outcome<()> {
    let before = connection.call(ShowPool {}).await?;
    connection.call(ScrubPool {}).await?;
    if !wait && connection.is_server() {
        if json {
            return print_json(&serde_json::json!({ "scrub": "begun" }));
        }
        println!("Scrub begun; `stele pool status` shows how far it is.");
        return Ok(());
    }
    let stopped = |status: &StatusView| status.scrubs_stopped > before.scrubs_stopped;
    let status = follow(connection, json, |status| {
        (status.scrubs_finished > before.scrubs_finished || stopped(status), status.scrub)
    })
    .await?;
    if status.scrubs_finished == before.scrubs_finished {
        return Err(Failure::new(Kind::Damaged, format!("the scrub stopped early: {}", status.scrub_trouble))
            .next("`stele pool status`; return missing drives. It is tried again within an hour by itself"));
    }
    let archive = verify(connection).await?;
    let has_archive = archive.is_some();
    let ScrubReport { versions, bytes, findings, .. } = &archive.unwrap_or_default();
    if json {
        print_json(&ScrubView { status: &status, verified_versions: *versions, verified_bytes: *bytes, findings })?;
    } else {
        println!(
            "Scrub finished: {} found, {} repaired.",
            counted(status.scrub_damage_found, "damaged place"),
            status.scrub_damage_repaired
        );
        let (versions, found) = (counted(*versions, "version"), counted(findings.len() as u64, "finding"));
        if has_archive {
            println!("Archive verified: {versions}, {}, {found}.", Bytes(*bytes));
        }
    }
    let lost = status.scrub_damage_found.saturating_sub(status.scrub_damage_repaired);
    if lost > 0 || status.unreadable_stripes > 0 || !findings.is_empty() {
        let mut what = vec![format!("{} not repaired", counted(lost, "damaged place")), unreadable(&status)];
        what.extend(findings.iter().take(FINDINGS_SHOWN).cloned());
        if let Some(more) = findings.len().checked_sub(FINDINGS_SHOWN).filter(|more| *more > 0) {
            what.push(format!("and {more} more findings, which --json lists"));
        }
        return Err(Failure::new(Kind::Damaged, what.join("; "))
            .next("`stele affected` names the unreadable data; return missing drives if there are any"));
    }
    Ok(())
}

/// Verifies every stored version against its checksums. `None`: there is no archive.
async fn verify(connection: &Connection) -> Outcome<Option<ScrubReport>> {
    let mut call = Verify { cursor: ScrubCursor::default(), budget: 64 << 20 };
    let mut whole = ScrubReport::default();
    loop {
        let step = match connection.call(call.clone()).await {
            Err(failure) if failure.kind == Kind::Missing => return Ok(None),
            other => other?,
        };
        whole.versions += step.report.versions;
        whole.bytes += step.report.bytes;
        whole.findings.extend(step.report.findings);
        if step.report.finished {
            return Ok(Some(whole));
        }
        call.cursor = step.cursor;
    }
}

async fn replace(site: &Site, json: bool, replace: arguments::PoolReplace) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let replaced = replace_at(&connection, site, json, replace).await;
    connection.leave().await?;
    replaced
}

async fn replace_at(connection: &Connection, site: &Site, json: bool, replace: arguments::PoolReplace) -> Outcome<()> {
    let mut new = replace.new.clone();
    new.0.path = std::path::absolute(&new.0.path)
        .map_err(|error| stele_server::failure::io_failure("find", &new.0.path, &error))?;
    named::refuse_other_kind(&new.0.path)?;
    let before = connection.call(ShowPool {}).await?;
    named::refuse_other_member(&new.0.path, replace.old, &before)?;
    if replace.give_up && !replace.yes {
        confirm(&plan(&before, replace.old), "--yes")?;
    }
    connection.call(ForgetDrives {}).await?;
    let config = Config::read(&site.config_path)?;
    let old = named::entry_of(site, &config, &before, replace.old).cloned();
    let named = name_drive(site, &config, &before, replace.old, &new)?;
    let call = ReplaceDrive {
        old: replace.old,
        new: new.clone(),
        size: replace.size.map(|size| size.0),
        give_up: replace.give_up,
        destroy: replace.destroy,
    };
    if let Err(failure) = connection.call(call).await {
        return Err(drives::withdraw(connection, site, named.as_slice(), failure).await);
    }
    let after = connection.call(ShowPool {}).await?;
    // A drive that answers is emptied first.
    let removal = Removal::of(&before, replace.old);
    let leaves = is_leaving(&after, &removal, &new);
    if !leaves {
        forget_old(site, &after, replace.old, old.as_ref(), &new)?;
    }
    if !replace.wait && connection.is_server() {
        if json {
            return print_json(&serde_json::json!({ "replacing": replace.old, "copies_first": leaves }));
        }
        match leaves {
            true => println!(
                "Drive {} is copied and then leaves the pool; `stele pool status --watch` shows how far it is.",
                replace.old
            ),
            false => println!("Copying back onto the new drive; `stele pool status --watch` shows how far it is."),
        }
        return Ok(());
    }
    let mut standstill = Standstill::default();
    let status = follow(connection, json, |status| {
        let settled = is_settled(status, &removal, &new);
        let lost = status_of(status, &new).is_some_and(is_lost);
        let stays = leaves && removal.is_taken_back(status);
        let over = settled || lost || stays || standstill.is_seen(status, Instant::now());
        (over, status.moving.or(status.copy_back))
    })
    .await?;
    if leaves && removal.is_taken_back(&status) {
        return removal.check_done(&status);
    }
    if !is_settled(&status, &removal, &new) && !status_of(&status, &new).is_some_and(is_lost) {
        return Err(unfilled(&status, replace.old));
    }
    if let Some(drive) = status_of(&status, &new).filter(|drive| is_lost(drive)) {
        let message = format!("the new drive {} is {}: {}", drive.drive, drive.health, drive.note);
        return Err(Failure::new(Kind::Damaged, message).next("`stele pool status`; replace it by another"));
    }
    if leaves {
        // The server may have removed the entry already.
        forget_old(site, &status, replace.old, old.as_ref(), &new)?;
    }
    let done = no_more_lost(&before, &status, replace.old);
    match (json, &done, leaves) {
        (true, ..) => print_json(&status)?,
        (_, Err(_), _) => {}
        (_, _, true) => println!("Drive {} is replaced and has left the pool; it can be taken out.", replace.old),
        (_, _, false) => println!("Drive {} replaced; everything is copied back.", replace.old),
    }
    done
}

/// The consequences of giving up a drive.
fn plan(status: &StatusView, number: u32) -> String {
    let held = status.drives.iter().find(|drive| drive.drive == number).map_or(0, |drive| drive.used);
    let weak = status.drives.iter().filter(|drive| drive.drive != number && drive.is_member());
    let weak = weak.filter(|drive| !matches!(drive.health.as_str(), "healthy" | "suspect" | "leaving")).count();
    format!(
        "Give drive {number} up at once? It holds {} of strips, and their stripes have one strip less until all of it is rebuilt. \
         Other drives that are missing, failed or not up to date: {weak}.",
        Bytes(held)
    )
}

/// The old drive is still here on some shard, beside the new one.
fn is_leaving(status: &StatusView, removal: &Removal, new: &DriveArgument) -> bool {
    removal.in_pool(status).is_some_and(|drive| !named::is_same(Path::new(&drive.path), &new.0.path))
}

/// The old drive has left, and the new one has all its strips.
fn is_settled(status: &StatusView, removal: &Removal, new: &DriveArgument) -> bool {
    !is_leaving(status, removal, new)
        && status_of(status, new).is_some_and(|drive| drive.health != "stale" && drive.health != "leaving")
}

/// Time after which work that does not go on, because drives are away or there is no room, is not
/// waited for. The pool tries again every five seconds.
const STANDSTILL: Duration = Duration::from_secs(15);

/// Since when no byte was moved.
#[derive(Default)]
struct Standstill(Option<(Instant, [u64; 3])>);

impl Standstill {
    /// Whether the work of the pool has stood still for [`STANDSTILL`] while drives are away,
    /// stripes unreadable or moves put off.
    fn is_seen(&mut self, status: &StatusView, now: Instant) -> bool {
        let done = [status.moving, status.copy_back, status.rebuild].map(|work| work.map_or(0, |work| work.done));
        let is_hindered =
            status.unreadable_stripes > 0 || put_off(status).is_some() || status.drives.iter().any(is_lost);
        // A try that fails begins at nothing and ends there.
        let moves = |before: &[u64; 3]| done.iter().zip(before).any(|(done, before)| done > before);
        if !is_hindered || self.0.as_ref().is_none_or(|(_, before)| moves(before)) {
            self.0 = Some((now, done));
        }
        self.0.as_ref().is_some_and(|(since, _)| now.duration_since(*since) >= STANDSTILL)
    }
}

/// The failure of a replacement that other drives keep from its end.
fn unfilled(status: &StatusView, old: u32) -> Failure {
    let message = format!("drive {old} is not replaced completely: {}", hindrance(status, Some(old)));
    Failure::new(Kind::Damaged, message)
        .next("return missing drives (`stele drive online N`), or make room; the pool then goes on by itself")
}

/// What keeps work from its end; `replaced` is a drive that does not count.
fn hindrance(status: &StatusView, replaced: Option<u32>) -> String {
    let counts = |drive: &&DriveView| drive.is_member() && Some(drive.drive) != replaced && is_lost(drive);
    let away = status.drives.iter().filter(counts);
    let away: Vec<String> = away.map(|drive| format!("drive {} is {}", drive.drive, drive.health)).collect();
    match put_off(status) {
        _ if !away.is_empty() => format!("drives are away: {}", away.join(", ")),
        Some(why) if status.unreadable_stripes == 0 => why.to_owned(),
        _ => format!("{} cannot be read", counted(status.unreadable_stripes, "stripe")),
    }
}

/// Why stripes that should move cannot, as the standing alarm says.
fn put_off(status: &StatusView) -> Option<&str> {
    status.standing.iter().find(|standing| standing.kind == "moving-put-off").map(|standing| &*standing.message)
}

/// The stripes that cannot be read, in words.
fn unreadable(status: &StatusView) -> String {
    let (away, lost) = (counted(status.unreadable_stripes, "stripe"), status.lost_stripes);
    format!("{away} cannot be read, {lost} of them {} lost", are(lost))
}

/// Refuses to call a replacement good during which stripes were lost.
fn no_more_lost(before: &StatusView, status: &StatusView, old: u32) -> Outcome<()> {
    if status.unreadable_stripes <= before.unreadable_stripes {
        return Ok(());
    }
    let message = format!("drive {old} is replaced, and {}: another drive failed meanwhile", unreadable(status));
    Err(Failure::new(Kind::Damaged, message)
        .next("`stele affected` names what is concerned; return missing drives, or restore it from elsewhere"))
}

fn status_of<'a>(status: &'a StatusView, new: &DriveArgument) -> Option<&'a DriveView> {
    let mut drives = status.drives.iter().filter(|drive| drive.is_member() && !drive.path.is_empty());
    drives.find(|drive| named::is_same(Path::new(&drive.path), &new.0.path))
}

fn is_lost(drive: &DriveView) -> bool {
    matches!(drive.health.as_str(), "failed" | "missing")
}

/// Removes the entry of the replaced drive from the configuration. If several drives were away, its
/// entry is known only when other entries name every drive of the pool.
fn forget_old(
    site: &Site,
    status: &StatusView,
    number: u32,
    old: Option<&DriveArgument>,
    new: &DriveArgument,
) -> Outcome<()> {
    let file = site.config_path.display();
    let config = Config::read(&site.config_path)?;
    let spare = named::spare_entries(site, &config, status);
    let named = config.pool.drives;
    let unwritten = |entry: &DriveArgument, why: &str| {
        Failure::failed(format!("drive {number} is replaced, and {file} names {entry} still{why}"))
            .next(format!("take \"{entry}\" out of [pool] drives by hand"))
    };
    match old {
        Some(old) if named::is_same(&old.placed(site).path, &new.0.path) || !named.contains(old) => Ok(()),
        // The server removes it too, and may have done so just now.
        Some(old) => match stele_server::config::is_without(&site.config_path, old) {
            Ok(true) => Ok(()),
            Ok(false) => Err(unwritten(old, "")),
            Err(failure) => Err(unwritten(old, &format!(": {}", failure.error))),
        },
        None if !spare.is_empty() => {
            for entry in &spare {
                stele_server::config::remove_drive(&site.config_path, entry)
                    .map_err(|failure| unwritten(entry, &format!(": {}", failure.error)))?;
            }
            Ok(())
        }
        None => {
            eprintln!(
                "Which entry of [pool] drives in {file} was drive {number} cannot be told; take it out by hand. It does no \
                 harm."
            );
            Ok(())
        }
    }
}

/// Enters the new drive into the configuration before the pool takes it, so that every start finds
/// it. Returns the added entry; `None` if the drive is already named.
fn name_drive(
    site: &Site,
    config: &Config,
    status: &StatusView,
    old: u32,
    new: &DriveArgument,
) -> Outcome<Option<DriveArgument>> {
    let drives = &config.pool.drives;
    if drives.iter().any(|drive| named::is_same(&drive.placed(site).path, &new.0.path)) {
        return Ok(None);
    }
    let own = status.drives.iter().find(|drive| drive.drive == old).map(|drive| drive.enclosure);
    let with_enclosures = drives.first().is_some_and(|drive| drive.0.enclosure.is_some());
    let mut entry = new.clone();
    entry.0.enclosure = new.0.enclosure.or(own).filter(|_| with_enclosures);
    let next = format!("add \"{entry}\" to [pool] drives there, and repeat the command");
    match stele_server::config::add_drives(&site.config_path, std::slice::from_ref(&entry)) {
        Ok(true) => Ok(Some(entry)),
        Ok(false) => {
            let file = site.config_path.display();
            Err(Failure::failed(format!("{file} cannot be changed to name {entry}, and nothing was done")).next(next))
        }
        Err(failure) => Err(undone(failure, &next)),
    }
}

/// The configuration could not be written. What keeps the command from writing it mostly keeps an
/// editor too, as a full disk does: only a failure without a next step of its own gets this one.
fn undone(failure: Failure, by_hand: &str) -> Failure {
    let error = format!("{}, and nothing was done", failure.error);
    let next = match failure.next.is_empty() {
        true => by_hand.to_owned(),
        false => format!("{}; then repeat the command", failure.next),
    };
    Failure { error, next, ..failure }
}

/// Changes the enclosure of a drive in the pool's labels, which decide, and in the configuration.
pub async fn set_drive(site: &Site, json: bool, drive: u32, enclosure: u32) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let set = async {
        connection.call(SetDrive { drive, enclosure }).await?;
        connection.call(ShowPool {}).await
    };
    let status = set.await;
    connection.leave().await?;
    let status = status?;
    let config = Config::read(&site.config_path)?;
    if let Some(old) = named::entry_of(site, &config, &status, drive).filter(|old| old.0.enclosure.is_some()) {
        let mut new = old.clone();
        new.0.enclosure = Some(enclosure);
        let replaced = || stele_server::config::replace_drive(&site.config_path, old, &new);
        // The labels have it already, and they decide.
        let half = |failure: Failure| Failure {
            error: format!("the pool has drive {drive} in enclosure {enclosure} now, and {}", failure.error),
            next: match failure.next.is_empty() {
                true => format!("write \"{new}\" there by hand"),
                false => format!("{}; then repeat the command", failure.next),
            },
            ..failure
        };
        if *old != new && !replaced().map_err(half)? {
            let message = format!("the pool knows it, and {} says {old} still", site.config_path.display());
            return Err(Failure::failed(message).next(format!("write \"{new}\" there by hand")));
        }
    }
    if json {
        return print_json(&status);
    }
    println!("Drive {drive} is in enclosure {enclosure}.");
    if status.crowded_stripes > 0 {
        let (stripes, one) = (counted(status.crowded_stripes, "stripe"), status.crowded_stripes == 1);
        let (move_now, they_are) = if one { ("moves", "it is") } else { ("move", "they are") };
        println!("{stripes} {move_now} now; `stele pool status --watch` shows how far {they_are}.");
    }
    Ok(())
}

/// Shows progress until the work ends.
async fn follow(
    connection: &Connection,
    json: bool,
    mut look: impl FnMut(&StatusView) -> (bool, Option<ProgressView>),
) -> Outcome<StatusView> {
    let shown = !json && std::io::stderr().is_terminal();
    loop {
        let status = connection.call(ShowPool {}).await?;
        let (over, progress) = look(&status);
        if let (true, Some(progress)) = (shown, progress) {
            eprint!("\r\u{1b}[K{}", describe(&progress));
            let _ = std::io::stderr().flush();
        }
        if over {
            if shown {
                eprint!("\r\u{1b}[K");
            }
            return Ok(status);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn describe(progress: &ProgressView) -> String {
    let left = progress
        .seconds_left
        .map_or_else(|| "time left unknown".to_owned(), |seconds| format!("{} left", span(seconds)));
    let percent = u128::from(progress.done) * 100 / u128::from(progress.total.max(1));
    format!(
        "{} {percent} %, {} of {}, {}/s, {left}",
        bar(progress.done, progress.total),
        Bytes(progress.done),
        Bytes(progress.total),
        Bytes(progress.rate)
    )
}

#[cfg(test)]
mod tests;
