//! The operator's days: an operator's events on a pool, day after day, on real processes. Drives
//! are pulled, lost, moved, damaged and replaced, while volumes and objects are written and
//! compared.
//!
//! After each day there is no wrong byte, no alarm without a cause, none that outlasts it, and none
//! that did not come. No command needs a restart, exit codes are the documented ones, no log line
//! reports a defect, and no status contradicts itself. A seed draws the same days again, as far as
//! real processes repeat.
//!
//! `./x soak --days N [SEED]` runs a chosen number; the tests live two days on files. If this
//! machine gives root loop devices, drives are pulled under load; `STELE_DAYS_FILES=1` does
//! without. A campaign ends after its own work, also when it fails or a signal ends it: servers,
//! loop devices and files are gone then.

mod devices;
mod disk;
mod events;
mod records;
mod site;
mod tally;
mod traffic;
mod upkeep;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use serde_json::Value;
use stele_ground::Dice;

use crate::support::installed;
use events::{Day, heal, three_losses};
use records::Records;
use site::{Site, consistent, list, members, number};
use tally::Failed;

/// One day in this many loses more drives than the codes tolerate.
const THREE_LOSSES: u64 = 9;

/// The days that the tests live, and their seed: a restart, a kill, damage and a scrub, a removal,
/// an export.
const DAYS_TESTED: u64 = 2;
const SEED_TESTED: u64 = 5;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn days_of_an_operator_pass_without_a_surprise() {
    if !installed(&["fio", "--version"]) {
        return;
    }
    // The tests live a few short days without loop devices; a campaign of many days stands by
    // itself.
    let chosen = setting("STELE_DAYS");
    let days = chosen.unwrap_or(DAYS_TESTED);
    let files = chosen.is_none() || setting("STELE_DAYS_FILES").is_some();
    let seed = setting("STELE_DAYS_SEED").unwrap_or(SEED_TESTED);
    let json = std::env::var_os("STELE_DAYS_JSON").is_some();
    let mut dice = Dice::new(seed);
    let data = *dice.pick(&["4+2", "8+2"]).unwrap();
    let code = *dice.pick(&["4+2", "mirror-3"]).unwrap();
    let begun = Instant::now();
    println!("{days} days under seed {seed}: objects in {data}, the volume in {code}");
    devices::note_signals();
    let mut site = Site::new(&std::env::temp_dir(), data, files);
    let mut day = 0;
    let passed = catch_unwind(AssertUnwindSafe(|| {
        let mut records = Records::new(&mut site);
        disk::create(&mut site, code);
        records.work(&mut site, 30, &mut dice);
        while day < days {
            let (today, evening) = (Instant::now(), site.tally.clone());
            day += 1;
            live(&mut site, &mut records, dice.fork(), day);
            site.tally.days += 1;
            let (spent, seconds) = (begun.elapsed().as_secs(), today.elapsed().as_secs());
            let left = spent * (days - day) / day / 60;
            println!("day {day} of {days} in {seconds} s, {left} min left: {}", site.story.join("; "));
            if json {
                println!("{}", site.tally.day(&evening, day, seconds, &site.story));
            }
        }
        site.stop();
    }));
    let seconds = begun.elapsed().as_secs();
    if let Err(cause) = &passed {
        let text = cause.downcast_ref::<String>().cloned();
        let what = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        println!("the server's log ends with:\n{}", site.end_of_log());
        match devices::INTERRUPTED.load(Relaxed) {
            true => println!("day {day} was ended by a signal"),
            false => println!("day {day} FAILED after {:?}: {what}", site.story),
        }
        println!("repeat it with: ./x soak --days {day} {seed}");
        site.tally.failed = Some(Failed { day, what });
    }
    println!("{} days in {seconds} s under seed {seed}\n{}", site.tally.days, site.tally.table());
    if json {
        println!("{}", site.tally.json(seed, seconds));
    }
    passed.unwrap_or_else(|cause| resume_unwind(cause));
}

fn live(site: &mut Site, records: &mut Records, mut dice: Dice, number_of_day: u64) {
    begin(site);
    let worst = dice.one_in(THREE_LOSSES);
    let events = 1 + dice.below(4);
    let loads = dice.fork();
    let mut day = Day {
        site,
        records,
        dice,
        loads,
        load: None,
        passed_over: false,
        retired: Vec::new(),
        names: number_of_day * 100,
    };
    if worst {
        day.site.tally.count("three losses");
        three_losses(&mut day);
    } else {
        (0..events).for_each(|_| day.draw());
    }
    day.finish_load();
    let Day { retired, dice, .. } = day;
    heal(site);
    site.until_quiet();
    judge(site, records, dice);
    clear_away(site, retired);
}

fn begin(site: &mut Site) {
    site.story.clear();
    site.touched.clear();
    site.explained.clear();
    site.seen.clear();
    let status = site.status();
    site.errors = members(&status).into_iter().map(|drive| (drive.number, drive.errors)).collect();
}

fn judge(site: &mut Site, records: &mut Records, mut dice: Dice) {
    records.work(site, 4, &mut dice);
    records.compare_all(site);
    disk::compare_cold(site);
    site.good(&["pool", "scrub", "--wait"]);
    site.tally.scrubs += 1;
    let status = site.until_whole();
    consistent(&status);
    let affected = site.good(&["affected"]);
    assert_eq!((number(&affected["objects_total"]), list(&affected["volumes"]).len()), (0, 0), "{affected}");
    assert_eq!(site.server().plain("/health").status, 200, "{}", site::brief(&status));
    configured(site, &status);
    upkeep::doctor_is_content(site);
    for drive in members(&status) {
        let before = site.errors.get(&drive.number).copied().unwrap_or_default();
        let untouched = !site.touched.contains(&drive.number);
        assert!(!untouched || drive.errors <= before, "drive {} is charged with errors: {drive:?}", drive.number);
    }
    if dice.one_in(4) {
        site.good(&["audit", "verify"]);
    }
    site.read_log();
}

/// Checks that the configuration names the pool's drives, and no others.
#[track_caller]
fn configured(site: &mut Site, status: &Value) {
    let config: toml::Value = toml::from_str(&site.place.config()).unwrap();
    let named = config["pool"]["drives"].as_array().unwrap().iter();
    let named: BTreeMap<String, u64> = named
        .map(|entry| entry.as_str().unwrap().rsplit_once('@').unwrap())
        .map(|(path, enclosure)| (path.to_owned(), enclosure.parse().unwrap()))
        .collect();
    let here: BTreeMap<String, u64> = members(status).into_iter().map(|drive| (drive.path, drive.enclosure)).collect();
    assert_eq!(named, here, "stele.toml and the pool; today: {:?}", site.story);
}

/// Wipes the drives that have left, and discards them.
fn clear_away(site: &mut Site, retired: Vec<String>) {
    let here: Vec<String> = site.drives().into_iter().map(|drive| drive.path).collect();
    for path in retired {
        if here.contains(&path) {
            continue;
        }
        if std::path::Path::new(&path).exists() {
            wiped(site, &path);
        }
        site.shelf.discard(&path);
    }
}

/// The server may still hold a drive that has just left.
#[track_caller]
fn wiped(site: &mut Site, path: &str) {
    let begun = Instant::now();
    while site.ends(&[0, 3], &["drive", "wipe", path, "--yes"]).code != 0 {
        assert!(begun.elapsed().as_secs() < 60, "{path} has left and cannot be wiped; today: {:?}", site.story);
        site::pause(500);
    }
}
