//! Reading the labels of everything attached, and judging each drive.

use std::collections::BTreeMap;

use stele_ground::{Bytes, PoolId};
use stele_media::Priority;

use super::codec::{KNOWN, Label, NoLabel};
use super::{ASK_AGAIN, Configuration, DriveState, LABEL_SIZE, agreement, copies_of, copy_at};
use crate::model::place::DriveNumber;
use crate::model::{ArrayError, Attached};
use crate::runtime::io::Io;
use crate::runtime::sync::join_all;

/// What a drive turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// In the pool, and it missed nothing that was agreed.
    Member { number: DriveNumber },
    /// In the pool, but it missed something that may have been agreed after `epoch`. Used; what it
    /// holds is to be brought up to date by generation. The engine puts it down as `Filling` until
    /// that is done, since the next commit renews its label.
    Stale { number: DriveNumber, epoch: u64 },
    /// In the pool, but written to under an override of the majority apart from the drives that
    /// count here.
    Diverged { number: DriveNumber },
    /// In the pool's table as failed.
    Failed { number: DriveNumber },
    /// The pool emptied it and let it go.
    Left,
    /// Carries the label of another pool.
    Foreign { pool: PoolId },
    /// A second drive with the identity of the one at index `of`, which is newer or came first.
    Duplicate { number: DriveNumber, of: usize },
    /// Smaller than the pool's table says it was.
    TooSmall { number: DriveNumber, size: Bytes, needed: Bytes },
    /// In this pool by its label, but the pool's table does not know it.
    Unknown,
    /// No label.
    Blank,
    /// A label was there once: its copies are damaged.
    Damaged,
    /// The drive does not answer.
    Unreadable { message: String },
    /// Written by a newer Stele.
    TooNew { features: u64 },
}

/// A drive and its judgement; the note gives cause and next step, empty for a member.
#[derive(Clone, Debug)]
pub struct FoundLabel {
    pub verdict: Verdict,
    pub note: String,
    /// Sequence of its newest label, 0 without one.
    pub sequence: u64,
}

/// What the attached drives say.
#[derive(Clone, Debug)]
pub struct Discovery {
    /// The newest configuration found.
    pub configuration: Configuration,
    /// By driver index.
    pub found: Vec<FoundLabel>,
    /// What was read, by driver index.
    pub labels: Vec<Option<Box<Label>>>,
    /// The epoch that an opening is to announce.
    pub ballot: u64,
    /// The newest epoch that may have been in force: drives that are complete as of it missed
    /// nothing.
    pub floor: u64,
    /// Driver index by drive number; members and stale drives.
    pub present: BTreeMap<DriveNumber, usize>,
    /// True when more than half of the voters answered.
    pub majority: bool,
    /// True when an unknown feature allows reading only.
    pub read_only: bool,
}

impl Discovery {
    /// Drives that take part and may have missed something.
    pub fn stale(&self) -> Vec<DriveNumber> {
        let stale = self.found.iter().filter_map(|found| match found.verdict {
            Verdict::Stale { number, .. } => Some(number),
            _ => None,
        });
        stale.collect()
    }
}

/// The newest label on a drive, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    Label(Box<Label>),
    None(NoLabel),
    Unreadable(String),
}

/// Places of a drive that hold its label.
pub const LABEL_COPIES: usize = 4;
/// A drive that does not give one of its two labels is asked so many times.
const ATTEMPTS: u32 = 3;

/// Reads the four copies on the drive at a driver index. Where one is from a later version, so is
/// the drive: the pair beside it is what that version found, and an opening that went on from it
/// would undo what was written since. Another format counts where two copies have it, which are
/// written as a pair: of one alone it is damage, since no check covers that field.
///
/// Where neither copy of one label can be read, the drive is asked again: an error may pass, and it
/// may be the newer one.
pub async fn read_label(io: &Io, index: usize, size: Bytes) -> Reading {
    let read = async || join_all((0..LABEL_COPIES).map(|copy| read_copy(io, index, size, copy))).await;
    let mut copies = read().await;
    for _ in 1..ATTEMPTS {
        if !hides_one(&copies) {
            break;
        }
        io.sleep(ASK_AGAIN).await;
        copies = read().await;
    }
    let mut best: Option<Label> = None;
    let mut worst = None;
    let mut message = None;
    let mut formats = Vec::new();
    for copy in copies {
        match copy {
            Ok(Ok(label)) => {
                if best.as_ref().is_none_or(|best| label.sequence > best.sequence) {
                    best = Some(label);
                }
            }
            Ok(Err(newer @ NoLabel::TooNew(_))) => return Reading::None(newer),
            Ok(Err(NoLabel::OtherFormat(format))) => formats.push(format),
            Ok(Err(NoLabel::Blank)) => worst = worst.or(Some(NoLabel::Blank)),
            Ok(Err(other)) => worst = Some(other),
            Err(error) => message = Some(error),
        }
    }
    if let Some(format) = formats.first().filter(|_| formats.len() > 1 || best.is_none()) {
        return Reading::None(NoLabel::OtherFormat(*format));
    }
    match (best, worst, message) {
        (Some(label), ..) => Reading::Label(Box::new(label)),
        (None, Some(NoLabel::Blank) | None, Some(message)) => Reading::Unreadable(message),
        (None, worst, _) => Reading::None(worst.unwrap_or(NoLabel::Blank)),
    }
}

/// Of the two labels of a drive, one is on copies that cannot be read.
fn hides_one(copies: &[Result<Result<Label, NoLabel>, String>]) -> bool {
    let is_hidden = |sequence| copies_of(sequence).into_iter().all(|copy| copies.get(copy).is_some_and(Result::is_err));
    is_hidden(0) != is_hidden(1)
}

/// One copy; the outer error is the drive's.
pub async fn read_copy(io: &Io, index: usize, size: Bytes, copy: usize) -> Result<Result<Label, NoLabel>, String> {
    let bytes = io.read(index, copy_at(size, copy), LABEL_SIZE as usize, Priority::Host).await;
    bytes.map(|bytes| Label::decode(&bytes.freeze())).map_err(|error| error.to_string())
}

/// Reads all labels. Refuses when no drive carries a label of a pool (`Missing`), when drives of
/// several pools are as many as those of the largest (`Invalid`), or when an unknown feature
/// forbids it (`Refused`).
pub async fn discover(io: &Io, drives: &[Attached]) -> Result<Discovery, ArrayError> {
    let readings = join_all(drives.iter().enumerate().map(|(at, drive)| read_label(io, at, drive.geometry.size))).await;
    judge(drives, &readings)
}

/// The judgement alone: a function of what was read.
pub fn judge(drives: &[Attached], readings: &[Reading]) -> Result<Discovery, ArrayError> {
    let pool = choose_pool(drives, readings)?;
    let configuration = choose_configuration(pool, readings)
        .ok_or_else(|| ArrayError::Missing("no drive carries the label of a pool".to_owned()))?;
    let mut found: Vec<FoundLabel> =
        drives.iter().zip(readings).map(|(drive, reading)| judge_one(&configuration, drive, reading)).collect();
    let mut present = BTreeMap::new();
    resolve_duplicates(drives, readings, &mut found, &mut present);
    let label_at = |index: usize| readings.get(index).and_then(label);
    let here: Vec<(DriveNumber, u64)> =
        present.iter().filter_map(|(number, index)| Some((*number, label_at(*index)?.configuration.epoch))).collect();
    let floor = agreement::floor(&configuration, &here);
    for (number, index) in &present {
        if let (Some(label), Some(found)) = (label_at(*index), found.get_mut(*index)) {
            judge_age(&configuration, floor, &drives[*index].name, *number, label, found);
        }
    }
    let of_pool = readings.iter().filter_map(label).filter(|label| label.configuration.pool == pool);
    let answering: Vec<DriveNumber> = present.keys().copied().collect();
    Ok(Discovery {
        ballot: agreement::next_ballot(of_pool),
        floor,
        majority: agreement::majority(&configuration, &answering),
        read_only: configuration.features.read_only_compatible & !KNOWN.read_only_compatible != 0,
        labels: readings.iter().map(|reading| label(reading).cloned().map(Box::new)).collect(),
        configuration,
        found,
        present,
    })
}

/// Of a drive that takes part: whether it missed anything.
fn judge_age(
    configuration: &Configuration,
    floor: u64,
    name: &str,
    number: DriveNumber,
    label: &Label,
    found: &mut FoundLabel,
) {
    let theirs = &label.configuration;
    let (complete, now) = (label.complete, configuration.epoch);
    // Two configurations with one epoch come only from a program that did not announce its epochs.
    let rival = theirs.epoch == now && theirs != configuration;
    if complete < floor || rival {
        found.verdict = Verdict::Stale { number, epoch: complete.min(theirs.epoch) };
        found.note = match rival {
            true => {
                format!("{name} ({number}) holds a configuration that was never agreed; it is being brought up to date")
            }
            false => {
                format!("{name} ({number}) was away since epoch {complete} (now {now}); it is being brought up to date")
            }
        };
    }
}

fn label(reading: &Reading) -> Option<&Label> {
    match reading {
        Reading::Label(label) => Some(label),
        _ => None,
    }
}

/// The pool most drives belong to.
fn choose_pool(drives: &[Attached], readings: &[Reading]) -> Result<PoolId, ArrayError> {
    let mut count: BTreeMap<PoolId, usize> = BTreeMap::new();
    for label in readings.iter().filter_map(label) {
        *count.entry(label.configuration.pool).or_default() += 1;
    }
    let most = count.values().copied().max().unwrap_or(0);
    let mut pools = count.iter().filter(|(_, drives)| **drives == most).map(|(pool, _)| *pool);
    match (pools.next(), pools.next()) {
        (Some(pool), None) => Ok(pool),
        (Some(one), Some(other)) => Err(ArrayError::Invalid(format!(
            "the drives belong to different pools, equally many to {one} and to {other}; attach the drives of one pool only"
        ))),
        _ => {
            let newer = drives
                .iter()
                .zip(readings)
                .find(|(_, r)| matches!(r, Reading::None(NoLabel::TooNew(_) | NoLabel::OtherFormat(_))));
            Err(match newer {
                Some((drive, _)) => ArrayError::Refused(format!(
                    "{} was written by a newer version of Stele; open this pool with that version",
                    drive.name
                )),
                None => ArrayError::Missing(format!(
                    "none of the {} drives carries a pool's label; create a pool on them, or attach the right drives",
                    drives.len()
                )),
            })
        }
    }
}

/// The highest epoch; of several proposals with one epoch (none of them agreed), the one on most
/// drives.
fn choose_configuration(pool: PoolId, readings: &[Reading]) -> Option<Configuration> {
    let of_pool = || readings.iter().filter_map(label).map(|l| &l.configuration).filter(|c| c.pool == pool);
    let newest = of_pool().map(|configuration| configuration.epoch).max()?;
    let proposals: Vec<&Configuration> = of_pool().filter(|configuration| configuration.epoch == newest).collect();
    let held_by = |proposal: &Configuration| proposals.iter().filter(|other| ***other == *proposal).count();
    let mut best = *proposals.first()?;
    for proposal in &proposals {
        if held_by(proposal) > held_by(best) {
            best = proposal;
        }
    }
    Some(best.clone())
}

fn judge_one(configuration: &Configuration, drive: &Attached, reading: &Reading) -> FoundLabel {
    let name = &drive.name;
    let of_none = |verdict: Verdict, note: String| FoundLabel { verdict, note, sequence: 0 };
    let label = match reading {
        Reading::Label(label) => label,
        Reading::Unreadable(message) => {
            let note = format!("{name} does not answer ({message}); check its connection, or replace it");
            return of_none(Verdict::Unreadable { message: message.clone() }, note);
        }
        Reading::None(NoLabel::Blank) => {
            return of_none(Verdict::Blank, format!("{name} carries no label; it may replace a drive of the pool"));
        }
        Reading::None(NoLabel::Damaged) => {
            let note = format!(
                "{name}: all four copies of the label are damaged; replace the drive, or wipe it and put it in anew"
            );
            return of_none(Verdict::Damaged, note);
        }
        Reading::None(newer @ (NoLabel::TooNew(_) | NoLabel::OtherFormat(_))) => {
            let features = if let NoLabel::TooNew(features) = newer { *features } else { 0 };
            let note = format!("{name} was written by a newer version of Stele; open the pool with that version");
            return of_none(Verdict::TooNew { features }, note);
        }
    };
    let (verdict, note) = judge_label(configuration, drive, label);
    FoundLabel { verdict, note, sequence: label.sequence }
}

fn judge_label(configuration: &Configuration, drive: &Attached, label: &Label) -> (Verdict, String) {
    let name = &drive.name;
    let theirs = &label.configuration;
    if theirs.pool != configuration.pool {
        let note = format!("{name} belongs to another pool, '{}' ({}); detach it", theirs.name, theirs.pool);
        return (Verdict::Foreign { pool: theirs.pool }, note);
    }
    let number = label.number;
    let place = usize::from(number.0);
    let own = theirs.drives.get(place).map(|entry| entry.identity);
    let Some(entry) = configuration.drives.get(place).filter(|entry| Some(entry.identity) == own) else {
        let note = format!("{name} says it is {number} of this pool, but the pool does not know it; wipe it to use it");
        return (Verdict::Unknown, note);
    };
    if drive.geometry.size < entry.size {
        let (size, needed) = (drive.geometry.size, entry.size);
        let note = format!("{name} ({number}) has {size} but needs {needed}; restore its size, or replace it");
        return (Verdict::TooSmall { number, size, needed }, note);
    }
    match entry.state {
        DriveState::Retired => (Verdict::Left, format!("{name} ({number}) has left the pool; it can be taken out")),
        DriveState::Failed => {
            let note =
                format!("{name} ({number}) was given up earlier; replace it, or `stele drive clear {}`", number.0);
            (Verdict::Failed { number }, note)
        }
        _ if !agreement::is_ancestor(theirs, configuration) => {
            let note = format!(
                "{name} ({number}) was written to under an override, apart from the drives that are used now; what was \
                 written there is not in the pool. Open the pool on that side to save it, or wipe the drive and put it in anew"
            );
            (Verdict::Diverged { number }, note)
        }
        _ => (Verdict::Member { number }, String::new()),
    }
}

/// Of drives with one number the newest label stays, then the first index.
fn resolve_duplicates(
    drives: &[Attached],
    readings: &[Reading],
    found: &mut [FoundLabel],
    present: &mut BTreeMap<DriveNumber, usize>,
) {
    let age = |index: usize| {
        readings.get(index).and_then(label).map_or((0, 0), |label| (label.configuration.epoch, label.sequence))
    };
    for index in 0..found.len() {
        let (Verdict::Member { number } | Verdict::Stale { number, .. }) = found[index].verdict else { continue };
        let Some(&other) = present.get(&number) else {
            present.insert(number, index);
            continue;
        };
        let (kept, loser) = if age(index) > age(other) { (index, other) } else { (other, index) };
        present.insert(number, kept);
        let (kept_name, loser_name) = (&drives[kept].name, &drives[loser].name);
        found[loser].verdict = Verdict::Duplicate { number, of: kept };
        found[loser].note = format!("{loser_name} carries the identity of {kept_name} ({number}), a copy; detach one");
    }
}
