//! The events of a day. No event exceeds what the codes tolerate: at most two drives are faulty at
//! a time.

use std::time::{Duration, Instant};

use serde_json::Value;
use stele_ground::Dice;

use super::disk::Load;
use super::records::Records;
use super::site::{DriveSaid, Site, brief, is_whole, list, members, number, pause, text};
use super::traffic::Traffic;
use super::upkeep;

/// Largest number of drives whose content may be away at a time.
const TOLERATED: usize = 2;
const DRIVES_MAX: usize = 15;
const DRIVES_MIN: usize = 11;
const ENCLOSURES: u64 = 7;
/// Largest time until the pool notices that a drive in use is away.
const NOTICED: Duration = Duration::from_secs(180);
/// The same for a drive that is missing at the start.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The state that an event works with.
pub struct Day<'a> {
    pub site: &'a mut Site,
    pub records: &'a mut Records,
    pub dice: Dice,
    /// Decides the loads, so that their times do not change the events.
    pub loads: Dice,
    /// Hosts that write and read while events come.
    pub load: Option<(Load, Traffic)>,
    /// Whether the last event could not be: too few drives are well.
    pub passed_over: bool,
    /// Drives that were replaced or removed, and their paths.
    pub retired: Vec<String>,
    pub names: u64,
}

type Event = fn(&mut Day);

/// The events: whether each needs drives that can be pulled, and how often each comes.
const EVENTS: &[(&str, bool, u64, Event)] = &[
    ("drives pulled and given back", true, 4, |day| day.pull()),
    ("errors for a second", true, 2, |day| day.blink()),
    ("half of a drive fails", true, 2, |day| day.half()),
    ("drive pulled and replaced", true, 4, |day| day.pull_and_replace()),
    ("healthy drive replaced", false, 2, |day| day.replace_healthy()),
    ("drives added", false, 2, |day| day.add()),
    ("drive removed", false, 2, |day| day.remove()),
    ("removal cancelled", false, 1, |day| day.cancel_removal()),
    ("enclosure out and back", true, 3, |day| day.enclosure()),
    ("drives moved while stopped", false, 3, |day| day.move_while_stopped()),
    ("restart", false, 2, |day| day.restart()),
    ("kill", false, 3, |day| day.kill()),
    ("scrub", false, 1, |day| day.scrub()),
    ("damage and scrub", false, 2, |day| day.damage()),
    ("enclosure set wrong and right", false, 1, |day| day.enclose()),
    ("snapshot and rollback", false, 2, |day| day.snapshot()),
    ("volume made, grown and deleted", false, 2, |day| day.scratch()),
    ("buckets changed", false, 1, |day| day.buckets()),
    ("commands that are refused", false, 1, |day| day.refusals()),
    ("configuration exported", false, 1, |day| day.export_config()),
];

impl Day<'_> {
    /// Runs one random event.
    #[track_caller]
    pub fn draw(&mut self) {
        let possible: Vec<_> = EVENTS.iter().filter(|event| !event.1 || self.site.shelf.loops).collect();
        let mut at = self.dice.below(possible.iter().map(|event| event.2).sum());
        for (name, _, weight, event) in possible {
            if at < *weight {
                self.site.tell(*name);
                self.keep_load();
                self.passed_over = false;
                event(self);
                if self.passed_over {
                    self.site.tell("passed over");
                } else {
                    self.site.tally.count(name);
                }
                let requests = 2 + self.dice.below(6);
                self.records.work(self.site, requests, &mut self.dice);
                return;
            }
            at -= weight;
        }
    }

    /// Starts the load, if none runs.
    fn keep_load(&mut self) {
        if self.load.as_mut().is_some_and(|(load, _)| load.is_over()) {
            self.finish_load();
        }
        if self.load.is_none() {
            let load = Load::start(self.site, 4 + self.loads.below(12), self.loads.roll() >> 33);
            self.load = Some((load, self.records.begin_beside(self.site, self.loads.fork())));
        }
    }

    #[track_caller]
    pub fn finish_load(&mut self) {
        if let Some((load, traffic)) = self.load.take() {
            load.finish(self.site);
            self.records.end_beside(self.site, traffic, false);
        }
    }

    fn pass_over(&mut self) {
        self.passed_over = true;
    }

    /// The healthy drives, and the number that may still be lost.
    fn healthy(&mut self) -> (Vec<DriveSaid>, usize) {
        let drives = self.site.drives();
        let unwell = drives.iter().filter(|drive| !matches!(drive.health.as_str(), "healthy" | "leaving")).count();
        let mut healthy: Vec<DriveSaid> = drives.into_iter().filter(|drive| drive.health == "healthy").collect();
        self.dice.shuffle(&mut healthy);
        (healthy, TOLERATED.saturating_sub(unwell))
    }

    fn touch(&mut self, drive: &DriveSaid) {
        self.site.touched.insert(drive.number);
    }

    fn pull_one(&mut self, drive: &DriveSaid) {
        self.touch(drive);
        self.site.tell(format!("drive {} is pulled", drive.number));
        self.site.shelf.pull(&drive.path);
        self.site.pulled.insert(drive.path.clone());
    }

    fn pull(&mut self) {
        let (drives, budget) = self.healthy();
        let count = budget.min(1 + self.dice.below(2) as usize);
        if count == 0 {
            return self.pass_over();
        }
        for drive in drives.iter().take(count) {
            self.pull_one(drive);
            let looks = self.dice.below(8);
            self.site.watch(looks);
        }
        self.records.work(self.site, 6, &mut self.dice);
        if self.dice.one_in(2) {
            drives.iter().take(count).for_each(|drive| self.demand(drive.number, NOTICED));
        }
        let looks = self.dice.below(30);
        self.site.watch(looks);
        for drive in drives.iter().take(count) {
            self.bring_back(drive.number, &drive.path);
        }
    }

    /// Returns a drive, and runs the commands that an operator would run.
    pub fn bring_back(&mut self, drive: u64, path: &str) {
        self.site.shelf.give_back(path);
        self.site.pulled.remove(path);
        self.site.tell(format!("drive {drive} is given back"));
        take_back(self.site, drive);
    }

    fn blink(&mut self) {
        let (drives, budget) = self.healthy();
        let Some(drive) = drives.first().filter(|_| budget > 0) else { return self.pass_over() };
        self.pull_one(drive);
        pause(50 + self.dice.below(1500));
        self.bring_back(drive.number, &drive.path);
    }

    /// Some requests fail, and others do not.
    fn half(&mut self) {
        let (drives, budget) = self.healthy();
        let Some(drive) = drives.first().filter(|_| budget > 0) else { return self.pass_over() };
        self.touch(drive);
        self.site.tell(format!("half of drive {} fails", drive.number));
        self.site.shelf.fail_half(&drive.path);
        self.site.pulled.insert(drive.path.clone());
        let looks = 1 + self.dice.below(12);
        self.site.watch(looks);
        self.bring_back(drive.number, &drive.path);
        // Errors are forgotten for a drive that was not given up, too.
        self.site.good(&["drive", "clear", &drive.number.to_string()]);
    }

    /// Waits for the alarm of a drive that is away.
    #[track_caller]
    fn demand(&mut self, drive: u64, patience: Duration) {
        let begun = Instant::now();
        let subject = format!("drive {drive}");
        loop {
            let status = self.site.status();
            if list(&status["standing"]).iter().any(|alarm| alarm["subject"] == subject.as_str()) {
                break;
            }
            let story = &self.site.story;
            assert!(begun.elapsed() < patience, "no alarm for drive {drive}: {}; today: {story:?}", brief(&status));
            // The number of requests depends on the machine, so they must not take from the dice of
            // the events.
            self.records.work(self.site, 2, &mut self.loads);
            pause(100);
        }
        self.site.tally.alarms_demanded += 1;
        self.site.tally.alarms_late = self.site.tally.alarms_late.max(begun.elapsed());
    }

    fn pull_and_replace(&mut self) {
        let (drives, budget) = self.healthy();
        let Some(drive) = drives.first().filter(|_| budget > 0) else { return self.pass_over() };
        self.pull_one(drive);
        if self.dice.one_in(2) {
            self.demand(drive.number, NOTICED);
        }
        let looks = self.dice.below(25);
        self.site.watch(looks);
        self.replace(drive, &["--yes"]);
    }

    fn replace_healthy(&mut self) {
        let (drives, _) = self.healthy();
        self.replace(&drives[0].clone(), &[]);
    }

    fn replace(&mut self, drive: &DriveSaid, more: &[&str]) {
        self.touch(drive);
        let new = self.site.shelf.blank();
        let number = drive.number.to_string();
        let mut replace = vec!["pool", "replace", &number, &new];
        replace.extend(more);
        if self.dice.one_in(2) {
            replace.push("--wait");
        }
        self.site.tell(replace.join(" "));
        self.site.good(&replace);
        self.retired.push(drive.path.clone());
    }

    fn add(&mut self) {
        let count = 1 + self.dice.below(2) as usize;
        if self.site.drives().len() + count > DRIVES_MAX {
            return self.pass_over();
        }
        let new: Vec<String> =
            (0..count).map(|_| format!("{}@{}", self.site.shelf.blank(), self.dice.below(ENCLOSURES))).collect();
        let mut add = vec!["pool", "add"];
        new.iter().for_each(|drive| add.extend(["--drive", drive]));
        if self.dice.one_in(2) {
            add.push("--wait");
        }
        self.site.tell(add.join(" "));
        self.site.explained.extend(["enclosure-crowded", "moving-put-off"]);
        self.site.good(&add);
    }

    fn remove(&mut self) {
        let (drives, budget) = self.healthy();
        if drives.len() <= DRIVES_MIN || budget < TOLERATED {
            return self.pass_over();
        }
        let number = drives[0].number.to_string();
        let mut remove = vec!["pool", "remove", &number];
        if self.dice.one_in(2) {
            remove.push("--wait");
        }
        self.touch(&drives[0]);
        self.site.tell(remove.join(" "));
        self.site.explained.extend(["enclosure-crowded", "moving-put-off"]);
        if self.site.ends(&[0, 3], &remove).code == 0 {
            self.retired.push(drives[0].path.clone());
        }
    }

    fn cancel_removal(&mut self) {
        let (drives, budget) = self.healthy();
        if drives.len() <= DRIVES_MIN || budget < TOLERATED {
            return self.pass_over();
        }
        let number = drives[0].number.to_string();
        self.touch(&drives[0]);
        self.site.explained.extend(["enclosure-crowded", "moving-put-off"]);
        if self.site.ends(&[0, 3], &["pool", "remove", &number]).code == 0 {
            let looks = self.dice.below(6);
            self.site.watch(looks);
            // The drive may have been empty, and may have left.
            let cancelled = self.site.ends(&[0, 4], &["pool", "remove", &number, "--cancel"]);
            self.site.tell(format!("drive {number} leaves and stays: {}", cancelled.code));
            if cancelled.code == 4 {
                self.retired.push(drives[0].path.clone());
            }
        }
    }

    fn enclosure(&mut self) {
        let status = self.site.status();
        if !is_whole(&status) || number(&status["exposed_stripes"]) > 0 {
            return self.pass_over();
        }
        let drives = members(&status);
        let at = drives[self.dice.below(drives.len() as u64) as usize].enclosure;
        let out: Vec<&DriveSaid> = drives.iter().filter(|drive| drive.enclosure == at).collect();
        if out.len() > TOLERATED {
            return self.pass_over();
        }
        out.iter().for_each(|drive| self.pull_one(drive));
        self.records.work(self.site, 4, &mut self.dice);
        if self.dice.one_in(2) {
            out.iter().for_each(|drive| self.demand(drive.number, NOTICED));
        }
        let looks = self.dice.below(30);
        self.site.watch(looks);
        out.iter().for_each(|drive| self.bring_back(drive.number, &drive.path));
    }

    fn move_while_stopped(&mut self) {
        self.finish_load();
        let (drives, budget) = self.healthy();
        if budget == 0 {
            return self.pass_over();
        }
        let count = 1 + self.dice.below(budget as u64) as usize;
        if self.dice.one_in(3) {
            self.site.kill()
        } else {
            self.site.stop()
        }
        let moved: Vec<DriveSaid> = drives.into_iter().take(count).collect();
        for drive in &moved {
            self.touch(drive);
            self.site.tell(format!("drive {} is not there at the start", drive.number));
            self.site.shelf.unplug(&drive.path);
        }
        self.site.serve();
        self.keep_load();
        upkeep::doctor_misses(self.site, &moved);
        moved.iter().for_each(|drive| self.demand(drive.number, AT_ONCE));
        self.records.work(self.site, 4, &mut self.dice);
        let looks = self.dice.below(30);
        self.site.watch(looks);
        for drive in &moved {
            let number = drive.number.to_string();
            if self.dice.one_in(3) {
                self.replace(drive, &["--yes"]);
                continue;
            }
            let path = self.site.shelf.plug(&drive.path);
            self.site.tell(format!("drive {number} is back at {path}"));
            self.site.good(&["drive", "online", &number, &path]);
            let config = self.site.place.config();
            assert!(config.contains(&format!("\"{path}@")) || config.contains(&format!("\"{path}\"")), "{config}");
        }
    }

    fn restart(&mut self) {
        self.finish_load();
        self.site.stop();
        self.site.serve();
        self.keep_load();
    }

    /// Kills the server without a warning, while objects are stored and a volume is written.
    fn kill(&mut self) {
        let after = 20 + self.dice.below(400);
        let mut dice = self.dice.fork();
        self.records.put_while(self.site, &mut dice, |site| {
            pause(after);
            site.kill();
        });
        if let Some((load, traffic)) = self.load.take() {
            load.broken(self.site);
            self.records.end_beside(self.site, traffic, true);
        }
        self.site.serve();
        self.keep_load();
    }

    fn scrub(&mut self) {
        let (_, budget) = self.healthy();
        if budget < TOLERATED {
            return self.pass_over();
        }
        self.site.good(&["pool", "scrub", "--wait"]);
    }

    fn damage(&mut self) {
        let status = heal(self.site);
        let drives = members(&status);
        let drive = self.dice.pick(&drives).unwrap().clone();
        self.touch(&drive);
        let count = 1 + self.dice.below(6) as usize;
        let done = self.site.shelf.damage(&drive.path, count, &mut self.dice);
        self.site.tell(format!("{done} blocks of drive {} are overwritten", drive.number));
        self.site.good(&["pool", "scrub", "--wait"]);
    }

    fn enclose(&mut self) {
        let (drives, _) = self.healthy();
        let (number, right) = (drives[0].number.to_string(), drives[0].enclosure);
        let wrong = ((right + 1 + self.dice.below(3)) % ENCLOSURES).to_string();
        self.touch(&drives[0]);
        self.site.explained.extend(["enclosure-crowded", "moving-put-off"]);
        self.site.good(&["drive", "set", &number, "--enclosure", &wrong]);
        let looks = self.dice.below(8);
        self.site.watch(looks);
        self.site.good(&["drive", "set", &number, "--enclosure", &right.to_string()]);
    }
}

/// Makes the pool take back a drive that answers again.
pub fn take_back(site: &mut Site, drive: u64) {
    let status = site.status();
    let Some(said) = members(&status).into_iter().find(|said| said.number == drive) else { return };
    let number = drive.to_string();
    match said.health.as_str() {
        // The drive may have come back by itself meanwhile.
        "missing" => drop(site.ends(&[0, 2], &["drive", "online", &number])),
        "failed" | "suspect" => drop(site.ends(&[0], &["drive", "clear", &number])),
        _ => {}
    }
}

/// Runs an operator's commands until the pool is healthy again, without a restart.
pub fn heal(site: &mut Site) -> Value {
    for path in std::mem::take(&mut site.pulled) {
        site.shelf.give_back(&path);
    }
    let begun = Instant::now();
    loop {
        let status = site.status();
        if is_whole(&status) {
            return status;
        }
        for drive in members(&status) {
            if matches!(drive.health.as_str(), "missing" | "failed" | "suspect") {
                take_back(site, drive.number);
            }
        }
        assert!(begun.elapsed().as_secs() < 900, "it does not become whole: {}", brief(&status));
        pause(300);
    }
}

/// Three drives of three enclosures are lost at once: more than the codes tolerate. No read returns
/// wrong data, the pool names unreadable objects, and all of them are readable once the drives are
/// back.
pub fn three_losses(day: &mut Day) {
    let status = heal(day.site);
    let mut drives = members(&status);
    day.dice.shuffle(&mut drives);
    let mut lost: Vec<DriveSaid> = Vec::new();
    for drive in drives {
        if lost.len() < 3 && lost.iter().all(|other| other.enclosure != drive.enclosure) {
            lost.push(drive);
        }
    }
    day.site.explained.extend(["data-unreadable", "stripe-lost", "damage", "read-only", "disposal", "log-degraded"]);
    let stopped = !day.site.shelf.loops || day.dice.one_in(2);
    if stopped {
        day.site.stop();
    }
    for drive in &lost {
        day.site.touched.insert(drive.number);
        day.site.tell(format!("drive {} is lost", drive.number));
        if stopped {
            day.site.shelf.unplug(&drive.path);
        } else {
            day.site.shelf.pull(&drive.path);
            day.site.pulled.insert(drive.path.clone());
        }
    }
    if stopped {
        day.site.serve();
    }
    let begun = Instant::now();
    let (failed, named) = loop {
        let failed = day.records.unreadable(day.site);
        let affected = day.site.ends(&[0, 5], &["affected"]).json();
        let named: Vec<String> = list(&affected["objects"])
            .iter()
            .map(|object| format!("{}/{}", text(&object["bucket"]), text(&object["key"])))
            .collect();
        let Some(object) = failed.iter().find(|object| !named.contains(object)) else { break (failed, named) };
        // Failing operations show that drives are away.
        let status = day.site.status();
        assert!(
            !stopped && begun.elapsed() < NOTICED,
            "{object} cannot be read and is not among {named:?}: {}",
            brief(&status)
        );
        pause(500);
    };
    day.site.tell(format!(
        "{} of {} objects cannot be read, {} are named",
        failed.len(),
        day.records.count(),
        named.len()
    ));
    for _ in 0..3 {
        day.records.delete_locked(day.site, &mut day.dice);
    }
    day.dice.shuffle(&mut lost);
    for drive in &lost {
        if stopped {
            let (number, path) = (drive.number.to_string(), day.site.shelf.plug(&drive.path));
            day.site.tell(format!("drive {number} is back at {path}"));
            day.site.good(&["drive", "online", &number, &path]);
        } else {
            day.bring_back(drive.number, &drive.path);
        }
    }
}
