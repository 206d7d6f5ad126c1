//! Giving up drives with too many errors, and letting go of those that do not answer.

use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::select;
use futures_util::pin_mut;
use stele_ground::{Bytes, Duration, Instant};
use stele_media::Geometry;

use crate::drives::label::DriveState;
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, StripCell};
use crate::model::{AlarmKind, ArrayError, Attached, Severity};
use crate::space::layout::RowKind;

/// Drives with requests out are looked at so often.
pub const LOOK_EVERY: Duration = Duration::from_secs(4);
/// A request that is still out at the look after so many others is not waited for any more. That is
/// after 16 to 20 seconds: above the seven that a drive may try to read a bad place, and below the
/// thirty after which operating systems reset it. Looks are counted, not time, so that a machine
/// that stood still blames no drive.
const LOOKS_MAX: u32 = 4;
/// A drive that was let go so often within an hour is taken back an hour later. Each time it is
/// brought up to date, and one that comes and goes would keep the others busy.
const DEPARTURES_MAX: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);

impl Serving {
    /// Runs for the pool's life: looks after drives that do not answer.
    pub async fn watch_flow(self: Rc<Self>) {
        let engine = Rc::clone(&self.engine);
        loop {
            if !engine.hospital.has_let_go() {
                engine.io.busy().await;
            }
            engine.io.sleep(LOOK_EVERY).await;
            self.look();
        }
    }

    fn look(self: &Rc<Self>) {
        let engine = &self.engine;
        let overdue = engine.find_overdue();
        engine.note_silent(&overdue);
        let mut kept = BTreeSet::new();
        for index in overdue {
            match engine.drives.labels.number(index) {
                None => engine.io.let_go(index),
                Some(drive) if !engine.let_go_if_possible(drive, index) => drop(kept.insert(drive)),
                Some(_) => {}
            }
        }
        engine.drives.labels.note_silent(&kept);
        self.ask_again();
    }

    /// Drives that were let go, and have answered everything since, are taken back.
    fn ask_again(self: &Rc<Self>) {
        let engine = &self.engine;
        let now = engine.io.now();
        for (index, drive) in engine.hospital.due(now, |index| engine.io.owed(index) == 0) {
            let hour = Instant(now.0.saturating_sub(HOUR.0));
            if engine.hospital.discharge(index, drive, hour) >= DEPARTURES_MAX {
                let note = "did not answer three times within an hour; the pool takes it back in an hour";
                engine.drives.change(drive, |seen| seen.note = note.into());
                engine.hospital.ask_again(index, drive, now + HOUR);
                continue;
            }
            let serving = Rc::clone(self);
            engine.io.spawn(async move { serving.take_back(index, drive).await });
        }
    }

    async fn take_back(self: Rc<Self>, index: usize, drive: DriveNumber) {
        let engine = &self.engine;
        let attached = {
            let configuration = engine.drives.labels.configuration();
            let Some(entry) = configuration.drives.get(usize::from(drive.0)) else { return };
            let geometry = Geometry { size: entry.size, block: Bytes(4096) };
            Attached { geometry, name: engine.drives.seen(drive).name, enclosure: entry.enclosure }
        };
        engine.io.take_back(index);
        if let Err(note) = self.receive(index, &attached).await
            && engine.drives.labels.number(index).is_none()
        {
            tracing::info!("{drive} is not taken back: {note}");
            engine.io.let_go(index);
            // Another drive may have its place by now, or it still does not answer: a later look
            // sees.
            if engine.drives.index(drive).is_none() && engine.drive_state(drive).votes() {
                let at = engine.io.now() + Duration(LOOK_EVERY.0 * u64::from(LOOKS_MAX));
                engine.hospital.ask_again(index, drive, at);
            }
        }
    }
}

impl Engine {
    /// Indexes of drives whose oldest request has been out for too long; none while no drive
    /// answers at all, which is no fault of a drive's.
    fn find_overdue(&self) -> Vec<usize> {
        let mut overdue = Vec::new();
        let mut answering = 0;
        for index in (0..self.io.drives()).filter(|index| !self.io.is_gone(*index)) {
            let Some(oldest) = self.io.oldest_out(index) else {
                self.hospital.has_answered(index);
                // One that owes answers has not answered.
                answering += u32::from(self.io.owed(index) == 0);
                if self.io.owed(index) > 0 {
                    overdue.push(index);
                }
                continue;
            };
            let looks = self.hospital.looks_at(index, oldest);
            match looks > LOOKS_MAX || self.io.owed(index) > 0 {
                true => overdue.push(index),
                false => answering += u32::from(looks <= 1),
            }
        }
        if overdue.is_empty() || answering > 0 {
            self.hospital.note_all_silent(false);
            return overdue;
        }
        if self.hospital.note_all_silent(true) {
            let text = "no drive has answered for 16 seconds; check their controller, its cables and power";
            self.alarm(AlarmKind::DriveMissing, Severity::Critical, None, text.into());
        }
        Vec::new()
    }

    fn note_silent(&self, overdue: &[usize]) {
        let now = self.io.now();
        let silent: BTreeSet<DriveNumber> =
            overdue.iter().filter_map(|index| self.drives.labels.number(*index)).collect();
        let before = self.hospital.note_silent(&silent, now);
        for drive in before.difference(&silent) {
            if self.drives.index(*drive).is_some() {
                let text = format!("{drive} answers again");
                self.alarm(AlarmKind::DriveRecovered, Severity::Notice, Some(*drive), text);
            }
        }
    }

    /// False if the drive is kept.
    fn let_go_if_possible(&self, drive: DriveNumber, index: usize) -> bool {
        let now = self.io.now();
        match self.can_do_without(drive) {
            Ok(()) => {
                self.drive_gone(index);
                self.io.let_go(index);
                self.hospital.let_go(index, drive, now);
                true
            }
            Err(reason) => {
                self.io.fail_reads(index, Instant(now.0.saturating_sub(LOOK_EVERY.0)));
                self.keep(drive, "does not answer", reason);
                false
            }
        }
    }

    /// Says once that a drive is kept although it is not well.
    fn keep(&self, drive: DriveNumber, what: &str, reason: String) {
        if self.hospital.call_kept(drive, reason.clone()) {
            let text = format!("{drive} {what}, and is kept: {reason}");
            self.alarm(AlarmKind::DriveNeeded, Severity::Critical, Some(drive), text);
        }
    }

    /// Runs for the pool's life: gives up drives with too many errors.
    pub async fn hospital_flow(self: Rc<Self>) {
        loop {
            let wanted = self.hospital.verdict_wanted();
            let changed = self.membership.changed();
            if self.check_writable().is_err() {
                return;
            }
            let now = self.io.now();
            for (drive, what) in self.hospital.hopeless(now) {
                if self.drive_state(drive).votes()
                    && self.drives.index(drive).is_some()
                    && let Err(error) = self.give_up(drive, what).await
                {
                    tracing::warn!("{drive} could not be given up: {error}");
                }
            }
            pin_mut!(wanted, changed);
            select(wanted, changed).await;
        }
    }

    /// Its strips move into spare space; until it is replaced it is one more source for them.
    async fn give_up(&self, drive: DriveNumber, what: String) -> Result<(), ArrayError> {
        if let Err(reason) = self.can_do_without(drive) {
            self.keep(drive, &format!("has too many errors ({what})"), reason);
            return Ok(());
        }
        let now = self.io.now();
        self.hospital.call_failed(drive, what.clone(), now);
        // Labels that were only written in part may be found at the next opening.
        if let Err(error) = self.commit_state(drive, DriveState::Failed).await {
            self.only_read(AlarmKind::ReadOnly, format!("the pool is read-only now: {error}"));
            return Err(error);
        }
        self.drives.change(drive, |seen| seen.stale = true);
        self.log.drive_lost(drive);
        self.alarm(
            AlarmKind::DriveFailed,
            Severity::Warning,
            Some(drive),
            format!(
                "{} is given up: {what}; its strips are moved into spare space",
                self.drives.seen(drive).called(drive)
            ),
        );
        self.membership.note_change();
        Ok(())
    }

    /// Why the drive cannot be spared, if so: a stripe or a page of the tables could not be read,
    /// the log would have too few members, or the labels no majority.
    pub fn can_do_without(&self, drive: DriveNumber) -> Result<(), String> {
        if !self.drive_state(drive).votes() || self.io.is_disabled(Mutation::Needed) {
            return Ok(());
        }
        self.check_can_lose(drive).map_err(|error| error.to_string())?;
        let configuration = self.drives.labels.configuration();
        let voters = configuration.drives.iter().filter(|entry| entry.state.votes()).count();
        // One that did not take the newest label may have been pulled, although no request says so
        // yet.
        let answers = |other: &DriveNumber| *other != drive && self.drives.labels.is_up_to_date(*other);
        let left = self.drives.labels.usable().into_iter().filter(answers).count();
        if left * 2 <= voters && !self.drives.labels.overridden() {
            return Err(format!("{left} of {voters} drives would be left, which is no majority"));
        }
        let members = crate::drives::label::agreement::holders(&configuration, left);
        let lasting = self.drives.labels.lasting().into_iter().filter(answers).count();
        if lasting < members {
            return Err(format!("the log needs {members} drives, and {lasting} would be left"));
        }
        let sound = |cell: StripCell| cell.drive != drive && self.drives.is_sound(cell.drive);
        let layout = self.layout.read();
        let mut tables = layout.rows().filter(|row| row.class.kind == RowKind::Table && row.uses(drive));
        // A cell that is still being filled has no page for sure.
        if tables.any(|row| !self.table.cells_of(row).into_iter().any(sound)) {
            return Err("a page of the pool's tables lies on no other drive".into());
        }
        Ok(())
    }
}
