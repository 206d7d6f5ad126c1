//! What a pool says of a drive that is not well: what is wrong, since when, what was done, and what
//! to do next.

use stele_ground::Instant;

use crate::drives::called;
use crate::drives::label::DriveState;
use crate::engine::Engine;
use crate::model::place::DriveNumber;
use crate::model::{Alarm, AlarmKind, DriveHealth, DriveStatus};
use crate::space::layout::RowKind;
use crate::state::hospital::{DAY, DriveHistory, SUSPECT};

/// Said of a drive.
#[derive(Clone, Default, Debug)]
pub struct Condition {
    pub wrong: String,
    pub since: Option<Instant>,
    pub done: String,
    pub next: String,
    /// As which alarm it stands; none where the drive is well.
    pub alarm: Option<AlarmKind>,
}

impl Engine {
    pub fn health(&self, drive: DriveNumber) -> DriveHealth {
        let state = self.drive_state(drive);
        let hospital = &self.hospital;
        match (state, self.drives.index(drive)) {
            (DriveState::Failed | DriveState::Retired, _) => DriveHealth::Failed,
            (_, None) => DriveHealth::Missing,
            (DriveState::Filling | DriveState::Joining, _) => DriveHealth::Stale,
            _ if self.drives.seen(drive).stale => DriveHealth::Stale,
            _ if hospital.is_slow(drive) || hospital.is_silent(drive) || self.errors_today(drive) >= SUSPECT => {
                DriveHealth::Suspect
            }
            _ if self.is_leaving(drive) => DriveHealth::Leaving,
            _ => DriveHealth::Healthy,
        }
    }

    fn is_leaving(&self, drive: DriveNumber) -> bool {
        let configuration = self.drives.labels.configuration();
        configuration.drives.get(usize::from(drive.0)).is_some_and(|entry| entry.leaving)
    }

    fn errors_today(&self, drive: DriveNumber) -> usize {
        let today = Instant(self.io.now().0.saturating_sub(DAY.0));
        self.hospital.look_up(drive, |history| history.errors_since(today)).unwrap_or(0)
    }

    /// What is wrong with the drive; nothing where it is well.
    pub fn condition(&self, drive: DriveNumber) -> Condition {
        let seen = self.drives.seen(drive);
        let (mut condition, kind) = match self.health(drive) {
            DriveHealth::Healthy | DriveHealth::Leaving => return Condition::default(),
            DriveHealth::Suspect => self.suspicion(drive),
            DriveHealth::Missing => {
                let wrong = match self.enclosure_is_silent(drive) {
                    Some(enclosure) => format!("no drive of enclosure {enclosure} answers"),
                    None if seen.note.is_empty() => "does not answer".to_owned(),
                    None => seen.note.clone(),
                };
                let done = self.what_moved(drive);
                (Condition { wrong, since: seen.missing_since, done, ..Condition::default() }, AlarmKind::DriveMissing)
            }
            DriveHealth::Failed => {
                let failed = self.hospital.look_up(drive, |history| history.failed.clone()).flatten();
                let (since, wrong) = match failed {
                    Some((at, what)) => (Some(at), format!("given up: {what}")),
                    None if seen.note.is_empty() => (None, "was given up before the pool was opened".to_owned()),
                    None => (seen.missing_since, seen.note.clone()),
                };
                let done = self.what_moved(drive);
                (Condition { wrong, since, done, ..Condition::default() }, AlarmKind::DriveFailed)
            }
            DriveHealth::Stale | DriveHealth::Rejected => {
                let wrong = if seen.note.is_empty() { "not everything is on it yet".into() } else { seen.note.clone() };
                let (of, now) = (&self.rebuilding, self.io.now());
                let done = match of.copy_back.progress(now).or(of.work.progress(now)) {
                    Some(progress) => {
                        format!("{} of {} brought up to date", progress.done, progress.total)
                    }
                    None => "waits to be brought up to date".to_owned(),
                };
                (Condition { wrong, done, next: "wait".into(), ..Condition::default() }, AlarmKind::DriveStale)
            }
        };
        condition.alarm = Some(kind);
        if condition.next.is_empty() {
            condition.next = kind.next_step(Some(u32::from(drive.0)));
        }
        if let Some(enclosure) = self.enclosure_is_silent(drive) {
            condition.next = format!("check the cables and power of enclosure {enclosure}");
        }
        condition
    }

    fn suspicion(&self, drive: DriveNumber) -> (Condition, AlarmKind) {
        let of = |history: &DriveHistory| self.suspicion_of(drive, history);
        self.hospital.look_up(drive, of).unwrap_or((Condition::default(), AlarmKind::DriveSuspect))
    }

    fn suspicion_of(&self, drive: DriveNumber, history: &DriveHistory) -> (Condition, AlarmKind) {
        let today = Instant(self.io.now().0.saturating_sub(DAY.0));
        let errors = history.errors_since(today);
        let (wrong, since, done, kind) = if self.hospital.is_silent(drive) {
            let done = "reads go round it; writes wait for it".to_owned();
            ("does not answer".to_owned(), history.silent_since, done, AlarmKind::DriveNeeded)
        } else if errors >= SUSPECT {
            let wrong = format!("{errors} errors within a day; {}", self.drives.seen(drive).note);
            let done = format!("{} damaged units written again", self.drives.seen(drive).repaired);
            (wrong, history.suspect_since, done, AlarmKind::DriveSuspect)
        } else {
            let (mean, median) = history.means;
            let wrong = format!("much slower than its peers: {mean} a read was found, {median} of theirs");
            (wrong, history.slow_since, "hosts' reads go round it".to_owned(), AlarmKind::DriveSlow)
        };
        let (done, kind) = match &history.kept {
            Some(reason) => (format!("kept, since it is needed: {reason}"), AlarmKind::DriveNeeded),
            None => (done, kind),
        };
        (Condition { wrong, since, done, ..Condition::default() }, kind)
    }

    /// How far the strips of a drive that is away or given up have moved into spare space.
    fn what_moved(&self, drive: DriveNumber) -> String {
        let layout = self.layout.read();
        let (mut moved, mut all) = (0u32, 0u32);
        for row in
            layout.rows().filter(|row| row.class.kind == RowKind::Data && self.look(|core| core.space.used(row.id)) > 0)
        {
            let here = row.members.iter().filter(|member| member.cell.drive == drive);
            for member in here {
                all += 1;
                moved += u32::from(member.replacement.is_some());
            }
        }
        let state = self.drive_state(drive);
        let waits = state.votes().then(|| self.drives.seen(drive).missing_since).flatten();
        match waits.map(|since| since + self.options.rebuild_after).filter(|at| *at > self.io.now()) {
            _ if all == 0 => "it holds nothing that is needed".to_owned(),
            Some(at) if moved == 0 => {
                format!("what it holds is rebuilt into spare space in {}", at.since(self.io.now()))
            }
            _ if moved == all && !self.rebuilding.work.is_under_way() => "rebuilt into spare space".to_owned(),
            _ => match self.rebuilding.work.progress(self.io.now()) {
                Some(work) => format!("being rebuilt into spare space: {} of {}", work.done, work.total),
                None => format!("{moved} of its {all} rows have spare space"),
            },
        }
    }

    /// The drive's enclosure, if it has several drives and none of them answers: then the path is
    /// the likelier cause.
    fn enclosure_is_silent(&self, drive: DriveNumber) -> Option<u32> {
        let configuration = self.drives.labels.configuration();
        let enclosure = configuration.drives.get(usize::from(drive.0))?.enclosure;
        let mut drives = 0;
        for (at, entry) in configuration.drives.iter().enumerate() {
            if entry.enclosure != enclosure || !entry.state.votes() {
                continue;
            }
            if self.drives.index(DriveNumber(at as u16)).is_some() {
                return None;
            }
            drives += 1;
        }
        (drives > 1).then_some(enclosure)
    }
}

/// The alarms that stand as long as drives are in these conditions.
pub fn standing(drives: &[DriveStatus]) -> Vec<Alarm> {
    let unwell = drives.iter().filter_map(|drive| Some((drive, drive.alarm?)));
    unwell
        .map(|(drive, kind)| {
            let own = kind != AlarmKind::DriveRejected;
            let named = match own {
                true => called(&format!("drive {}", drive.index), &drive.name),
                false => drive.name.clone(),
            };
            Alarm {
                kind,
                severity: kind.standing_severity(),
                drive: own.then_some(drive.index),
                since: drive.since.unwrap_or_default(),
                message: format!("{named}: {}", drive.note),
                next: drive.next.clone(),
            }
        })
        .collect()
}
