//! The operator's days: an operator's events on a pool, day after day, on real processes. Drives are pulled, lost,
//! moved, damaged and replaced, while volumes and objects are written and compared.
//!
//! After each day there is no wrong byte, no alarm without a cause, and none that outlasts it. No command needs a
//! restart, exit codes are the documented ones, no log line reports a defect, and no status contradicts itself. A seed
//! draws the same days again, as far as real processes repeat. `./x soak --days N [SEED]` runs a chosen number. If this
//! machine gives root loop devices, drives are pulled under load; `STELE_DAYS_FILES=1` does without.

mod support;

#[path = "days/devices.rs"]
mod devices;
#[path = "days/disk.rs"]
mod disk;
#[path = "days/events.rs"]
mod events;
#[path = "days/records.rs"]
mod records;
#[path = "days/site.rs"]
mod site;
#[path = "days/tally.rs"]
mod tally;

use std::collections::BTreeMap;
use std::time::Instant;

use serde_json::Value;
use stele_ground::Dice;

use events::{Day, heal, three_losses};
use records::Records;
use site::{Site, consistent, list, members, number};
use support::installed;

/// One day in this many loses more drives than the codes tolerate.
const THREE_LOSSES: u64 = 9;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn days_of_an_operator_pass_without_a_surprise() {
    // It takes minutes, and root's loop devices: a campaign of its own.
    let Some(days) = setting("STELE_DAYS") else { return println!("left out: ./x soak --days runs it") };
    if !installed(&["fio", "--version"]) {
        return;
    }
    let seed = setting("STELE_DAYS_SEED").unwrap_or(1);
    let mut dice = Dice::new(seed);
    let data = *dice.pick(&["4+2", "8+2"]).unwrap();
    let code = *dice.pick(&["4+2", "mirror-3"]).unwrap();
    let begun = Instant::now();
    println!("{days} days under seed {seed}: objects in {data}, the volume in {code}");
    let mut site = Site::new(&std::env::temp_dir(), data, setting("STELE_DAYS_FILES").is_some());
    let mut records = Records::new(&mut site);
    disk::create(&mut site, code);
    records.work(&mut site, 30, &mut dice);
    for day in 0..days {
        let today = Instant::now();
        let guard = Told { day: day + 1, seed };
        live(&mut site, &mut records, dice.fork(), day);
        std::mem::forget(guard);
        site.tally.days += 1;
        let spent = begun.elapsed().as_secs();
        println!(
            "day {} of {days} in {} s, {} min left: {}",
            day + 1,
            today.elapsed().as_secs(),
            spent * (days - day - 1) / (day + 1) / 60,
            site.story.join("; ")
        );
    }
    site.stop();
    println!("{days} days in {} s; 0 failed\n{}", begun.elapsed().as_secs(), site.tally.table());
    if std::env::var_os("STELE_DAYS_JSON").is_some() {
        println!("{}", site.tally.json(seed, begun.elapsed().as_secs()));
    }
}

/// Names the day when a day fails.
struct Told {
    day: u64,
    seed: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        println!("day {} FAILED; repeat it with: ./x soak --days {} {}", self.day, self.day, self.seed);
    }
}

fn live(site: &mut Site, records: &mut Records, mut dice: Dice, number_of_day: u64) {
    begin(site);
    let worst = dice.one_in(THREE_LOSSES);
    let events = 1 + dice.below(4);
    let load = (!worst).then(|| disk::Load::start(site, 4 + dice.below(12), dice.roll() >> 33));
    let mut day = Day { site, records, dice, load, retired: Vec::new(), names: number_of_day * 100 };
    if worst {
        day.site.tally.count("three losses");
        three_losses(&mut day);
    } else {
        (0..events).for_each(|_| day.draw());
    }
    if let Some(load) = day.load.take() {
        load.finish(day.site);
    }
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
